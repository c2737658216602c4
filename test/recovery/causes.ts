/**
 * The causes of the recovery matrix: what a device meets on the wire for a while, and the class whose limit it is held to. Facts only;
 * what each of them means is for the product to say. `FROM_DOCUMENTS` was written from manuals of others, without a look at `src/`.
 */

/** What one attempt meets. */
export type Meeting =
	| { readonly kind: 'fine' }
	| {
			readonly kind: 'http';
			readonly status: number;
			readonly headers?: Readonly<Record<string, string>>;
			readonly body?: string;
			readonly plain?: boolean;
	  }
	/** An error of a socket, of TLS or of the parser, by Node's code. */
	| { readonly kind: 'error'; readonly code: string; readonly afterMs?: number }
	/** An upgrade that `ws` does not take, by its words. */
	| { readonly kind: 'upgrade'; readonly words: string }
	/** Nothing comes back: not even a connection, or no answer on one. */
	| { readonly kind: 'hangs'; readonly on: 'connecting' | 'TLS' | 'answer' }
	/** A channel that opens and ends; registrations are fine. `code`: of the close frame, `null` for none. */
	| { readonly kind: 'closes'; readonly afterMs: number; readonly code: number | null };

/** `first`: a surprise to a device that never worked yet; it is told at once, tried slower, and a person mends what it says. */
export type CauseClass = 'outage' | 'refusal' | 'overload' | 'first';

export interface Cause {
	readonly class: CauseClass;
	/** @param atSeconds since it began. */
	readonly meet: (atSeconds: number, purpose: 'register' | 'channel') => Meeting;
	/** How the open channel ends: at once, or by its silence, whose verdict comes after a minute. Default: at once. */
	readonly cut?: 'silence';
	/** Whether it ends the channel again at the tenth second of each minute. */
	readonly cutsEachMinute?: boolean;
	/** The wait that it asks for. */
	readonly retryAfterSeconds?: number;
	/** Whether the device has never been online: it starts with what a person gave it. */
	readonly isFirst?: boolean;
}

const FINE: Meeting = { kind: 'fine' };
const always = (meeting: Meeting, more: Partial<Cause> = {}): Cause => ({
	class: 'outage',
	meet: () => meeting,
	...more,
});
const http = (status: number, more: Partial<Extract<Meeting, { kind: 'http' }>> = {}): Meeting => ({
	kind: 'http',
	status,
	...more,
});
const error = (code: string, afterMs?: number): Meeting => ({ kind: 'error', code, ...(afterMs && { afterMs }) });
const page = { headers: { 'content-type': 'text/html' }, body: '<!doctype html><title>Welcome</title>' };
const json = { headers: { 'content-type': 'application/json' }, body: '{"error":"no"}' };
const closes = (code: number | null, more: Partial<Cause> = {}, afterMs = 100): Cause =>
	always({ kind: 'closes', afterMs, code }, more);
const closesWith = (code: number): Meeting => ({ kind: 'closes', afterMs: 100, code });
const turns = (...meetings: readonly Meeting[]): Cause['meet'] => {
	return (atSeconds) => meetings[Math.floor(atSeconds / 7) % meetings.length] ?? FINE;
};

const STATUSES = [400, 402, 404, 405, 406, 408, 409, 410, 411, 413, 415, 418, 421, 422, 423, 426, 451];

export const CAUSES: Readonly<Record<string, Cause>> = {
	...Object.fromEntries(STATUSES.map((status) => [`${status} to everything`, always(http(status))])),
	...Object.fromEntries([500, 501, 502, 504].map((status) => [`${status} to everything`, always(http(status))])),
	'204 to everything': always(http(204)),
	'403 with a page': always(http(403, page)),
	'403 with words of a service': always(http(403, json)),
	"a proxy's 407": always(http(407)),
	'302 to another host': always(http(302, { headers: { location: 'https://login.example/' } })),
	'301 to another path': always(http(301, { headers: { location: '/v2/' } })),
	'portal: a page in plain HTTP': always(http(200, { ...page, plain: true })),
	'portal: a page': always(http(200, page)),
	'portal: 511': always(http(511)),
	'portal: its own certificate': always(error('DEPTH_ZERO_SELF_SIGNED_CERT')),
	'portal: a certificate for another name': always(error('ERR_TLS_CERT_ALTNAME_INVALID')),
	'an expired certificate': always(error('CERT_HAS_EXPIRED')),
	'TLS inspected': always(error('SELF_SIGNED_CERT_IN_CHAIN')),
	'no TLS at all': always(error('ERR_SSL_WRONG_VERSION_NUMBER')),
	'no name': always(error('ENOTFOUND')),
	'a name server that is away': always(error('EAI_AGAIN', 5000)),
	refused: always(error('ECONNREFUSED')),
	'no route': always(error('EHOSTUNREACH', 3000)),
	'black hole': always({ kind: 'hangs', on: 'connecting' }),
	'taken and not answered': always({ kind: 'hangs', on: 'answer' }),
	'TLS begun and not answered': always({ kind: 'hangs', on: 'TLS' }),
	'half open, then nothing is answered': always({ kind: 'hangs', on: 'answer' }, { cut: 'silence' }),
	'half open, then a black hole': always({ kind: 'hangs', on: 'connecting' }, { cut: 'silence' }),
	'reset while connecting': always(error('ECONNRESET')),
	'reset during TLS': always(error('EPROTO')),
	'reset after the request': always(error('UND_ERR_SOCKET', 500)),
	'HTTP that is none': always(error('HPE_INVALID_CONSTANT')),
	'an upgrade that is none': always({ kind: 'upgrade', words: 'Invalid Sec-WebSocket-Accept header' }),
	'channel cut as it opens': closes(null),
	...Object.fromEntries(
		[1000, 1001, 1002, 1003, 1006, 1009, 1011, 1012, 1013, 1014, 3000, 3001].map((code) => [
			`closed with ${code}`,
			closes(code),
		]),
	),
	'closed with 4409': closes(4409),
	'closed with 1001 after 5 s': closes(1001, {}, 5000),
	'well for 10 s of each minute': {
		class: 'outage',
		meet: (at) => (at % 60 < 10 ? FINE : http(404)),
		cutsEachMinute: true,
	},
	'answers that alternate': {
		class: 'outage',
		meet: turns(http(404), http(502), error('ECONNREFUSED'), http(302, page)),
	},
	'a clock that is behind': always(error('CERT_NOT_YET_VALID')),
	'a clock that jumps while answers alternate': {
		class: 'outage',
		meet: turns(error('CERT_NOT_YET_VALID'), http(404), error('CERT_HAS_EXPIRED'), http(502)),
	},
	'well for 10 s of each minute, 401 otherwise': {
		class: 'refusal',
		meet: (at) => (at % 60 < 10 ? FINE : http(401)),
		cutsEachMinute: true,
	},
	'well for 10 s of each minute, 503 otherwise': {
		class: 'overload',
		meet: (at) => (at % 60 < 10 ? FINE : http(503)),
		cutsEachMinute: true,
	},
	'refusals that alternate with outages': {
		class: 'refusal',
		meet: turns(http(401), http(502), closesWith(1008)),
	},
	...Object.fromEntries(
		[
			['404', http(404)],
			["a portal's page", http(200, page)],
			['an untrusted certificate', error('DEPTH_ZERO_SELF_SIGNED_CERT')],
		].map(([name, meeting]) => [
			`never worked yet: ${name}`,
			always(meeting as Meeting, { class: 'first', isFirst: true }),
		]),
	),
	'never worked yet: no name': always(error('ENOTFOUND'), { isFirst: true }),
	'never worked yet: refused': always(error('ECONNREFUSED'), { isFirst: true }),
	'401 to everything': always(http(401), { class: 'refusal' }),
	'closed with 1008': closes(1008, { class: 'refusal' }),
	'closed with 4401': closes(4401, { class: 'refusal' }),
	'closed with 4001': closes(4001, { class: 'refusal' }),
	'closed with 4999': closes(4999, { class: 'refusal' }),
	'503 to everything': always(http(503), { class: 'overload' }),
	'429 to everything': always(http(429), { class: 'overload' }),
	'503 with Retry-After': always(http(503, { headers: { 'retry-after': '20' } }), {
		class: 'overload',
		retryAfterSeconds: 20,
	}),
	'404 with Retry-After': always(http(404, { headers: { 'retry-after': '20' } }), { retryAfterSeconds: 20 }),
};

/** Each names the manual that it was read in. */
export const FROM_DOCUMENTS: Readonly<Record<string, Cause>> = {
	'nginx 444: closed without an answer': always(error('ECONNRESET', 20)),
	'nginx 494: header too large': always(http(494, page)),
	'nginx 400 "plain HTTP request was sent to HTTPS port"': always(http(400, page)),
	'Cloudflare 525: handshake with the origin failed': always(http(525, page)),
	'Cloudflare 530 with error 1016': always(http(530, page)),
	'AWS load balancer 460': always(http(460)),
	'AWS load balancer 561': always(http(561)),
	'Azure 403 "This web app is stopped"': always(http(403, { headers: page.headers, body: '<html>Error 403</html>' })),
	'Envoy 404 "no healthy route" without a body': always(http(404, { headers: { server: 'envoy' } })),
	'Heroku 503 page with code H10': always(http(503, page), { class: 'overload' }),
	'HAProxy tarpit: 500 after 10 s': always(http(500, page)),
	'Kong 426: upgrade required': always(http(426, { headers: { upgrade: 'TLS/1.2' } })),
};
