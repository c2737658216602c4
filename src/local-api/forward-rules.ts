/**
 * The parts of a request that may be forwarded to the service: paths, query and headers. Pure, and strict where servers
 * differ: a path that two of them could read in two ways is refused rather than corrected. Sends nothing and holds no credential.
 */
import { type Failure, failure } from '../base/errors.ts';
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import { HOP_BY_HOP, isForwarded } from '../protocol/forwarded-headers.ts';

/** Where the local interface takes requests for the service. */
const FORWARD_PREFIX = '/v1/service';
/** Longest path with its query, in characters. */
export const MAX_FORWARD_LENGTH = 4096;

/** The endpoints that issue credentials: an application must never get one. */
const AUTHORIZATION_ENDPOINTS = Object.values(ENDPOINTS).flat().map(fold);

/** Characters that no path may hold: they are encoded, as browsers do, and so is `|`, which many servers refuse. Source: RFC 3986, 3.3. */
const NO_URL = /["<>^`{|}]/g;

export type ForwardDecision =
	| {
			readonly ok: true;
			readonly url: URL;
			/** Path and query of the request line: services may sign a query, and a URL would not keep it as it is. */
			readonly path: string;
	  }
	| { readonly ok: false; readonly failure: Failure };

/**
 * Decides where a request goes.
 * @param target the request line after {@link FORWARD_PREFIX}, undecoded: `/api/v1/sessions?limit=5`.
 * @param registrationPath as `service.registrationPath` has it; default the published one.
 * @param allow path prefixes such as `/api/v1/sessions`, of which one has to match; empty allows all but the authorization endpoints.
 */
export function decideForward(
	target: string,
	baseUrl: string,
	allow: readonly string[],
	registrationPath: string = ENDPOINTS.deviceConnection,
): ForwardDecision {
	if (target.length > MAX_FORWARD_LENGTH)
		return refused('The path and query may have at most 4096 characters.', 'Send data in the body.');
	const [asked = '', ...rest] = target.split('?');
	const path = asked.replaceAll(NO_URL, encodeURIComponent);
	const query = rest.join('?');
	const decoded = decodePath(path);
	if (decoded === null)
		return refused(
			'The path is not in its plain form.',
			'Write it without empty and dot segments, backslashes, semicolons and encoded slashes, dots or percent signs.',
		);
	if (!/^[\x21-\x7e]*$/.test(query) || query.includes('#'))
		return refused('The query is not valid.', 'Percent-encode it.');
	if (hasCredential(query))
		return refused('A credential in the query is not passed on.', 'Leave it out: the agent adds its own.');

	const url = endpointUrl(baseUrl, path);
	const basePath = new URL(baseUrl).pathname.replace(/\/+$/, '');
	// A gateway may serve the endpoints under a prefix, and the base URL may end inside of one.
	const whole = fold(`${basePath}${decoded}/`);
	if (AUTHORIZATION_ENDPOINTS.some((endpoint) => whole.includes(endpoint)) || isAt(decoded, registrationPath))
		return refused(
			'Credentials are not given out to applications.',
			'Use admin.sock to pair; idv makes keys and codes.',
		);
	if (allow.length > 0 && !allow.some((prefix) => isUnder(decoded, prefix)))
		return refused('This path is not among those that may be forwarded.', 'Add it to forward.allow if it should be.');
	const search = target.slice(asked.length);
	url.search = search;
	return { ok: true, url, path: url.pathname + search.replaceAll(/["<>]/g, encodeURIComponent) };
}

/** The path as the service will understand it; `null` if services could understand different ones. */
function decodePath(path: string): string | null {
	if (!/^\/[A-Za-z0-9\-._~!$&'()*+,=:@/%]*$/.test(path)) return null;
	// Encoded: controls, space, percent, dot, slash, semicolon, question mark, hash, backslash.
	if (/%(?![0-9A-Fa-f]{2})|%[01][0-9A-F]|%(?:20|25|2E|2F|3B|3F|23|5C|7F)/i.test(path)) return null;
	let decoded: string;
	try {
		decoded = decodeURIComponent(path);
	} catch {
		return null;
	}
	// Compatibility forms of dot and slash become plain ones in some servers.
	const plain = decoded.normalize('NFKC');
	if (/[\p{C}\p{Z}\\;?#%]/u.test(plain)) return null;
	const segments = plain.split('/').slice(1);
	const isOdd = (segment: string, index: number) =>
		/^\.*$/.test(segment) && !(segment === '' && index === segments.length - 1);
	return segments.some(isOdd) || segments.length !== decoded.split('/').length - 1 ? null : decoded;
}

/** The form in which spellings are compared that some server might take for the same. */
function fold(path: string): string {
	return path.normalize('NFKC').toUpperCase().toLowerCase();
}

/** Whether a path may be one that a setting writes with fields in it. */
function isAt(path: string, template: string): boolean {
	const plain = (text: string) => fold(text.replace(/\?.*$/s, '').replace(/\/+$/, '')).split('/');
	const [asked, closed] = [plain(path), plain(template)];
	const fits = (segment: string, index: number) => segment.includes('{') || segment === asked[index];
	return asked.length === closed.length && closed.every(fits);
}

function isUnder(path: string, prefix: string): boolean {
	const plain = prefix.replace(/\/+$/, '');
	return path === plain || path.startsWith(`${plain}/`);
}

function hasCredential(query: string): boolean {
	return query.split(/[&;?]/).some((pair) => {
		let name = pair.split('=')[0] ?? '';
		// Decoded more than once by a proxy on the way, it might become one.
		for (let round = 0; round < 4; round += 1) {
			if (fold(name).replaceAll(/[^a-z]/g, '') === AUTHORIZATION_PARAMETER) return true;
			name = name.replaceAll(/%([0-9A-Fa-f]{2})/g, (_code, hex: string) =>
				String.fromCharCode(Number.parseInt(hex, 16)),
			);
		}
		return false;
	});
}

function refused(message: string, remedy: string): ForwardDecision {
	return { ok: false, failure: failure('access-denied', message, { remedy }) };
}

/** Besides: headers that would make a browser or a client store or trust something in our name. */
const NOT_TO_CALLER =
	/^(?:set-cookie2?|authorization|authentication-info|www-authenticate|location|alt-svc|strict-transport-security|clear-site-data|service-worker-allowed|refresh|access-control-.*|idv-agent-.*)$/;

export type HeaderLines = Readonly<Record<string, string | readonly string[] | undefined>>;

/** The headers of a caller that go to the service. @param more names that the settings add, in lower case. */
export function headersToService(
	headers: HeaderLines,
	more: readonly string[] = [],
): Record<string, string | string[]> {
	return only(headers, (name) => isForwarded(name, more));
}

/** The headers of the service that go to a caller; `Location` is decided by {@link localLocation}. */
export function headersToCaller(headers: HeaderLines): Record<string, string | string[]> {
	return only(headers, (name) => !NOT_TO_CALLER.test(name));
}

function only(headers: HeaderLines, isWanted: (name: string) => boolean): Record<string, string | string[]> {
	const named = String(headers['connection'] ?? '')
		.toLowerCase()
		.split(',')
		.map((name) => name.trim());
	const kept: Record<string, string | string[]> = {};
	for (const [name, value] of Object.entries(headers)) {
		const lower = name.toLowerCase();
		if (value === undefined || HOP_BY_HOP.test(lower) || named.includes(lower) || !isWanted(lower)) continue;
		kept[lower] = typeof value === 'string' ? value : [...value];
	}
	return kept;
}

/** A `Location` of the service as a path of the local interface; `null` if it leads elsewhere or could not be asked for. */
export function localLocation(location: string, asked: URL, baseUrl: string): string | null {
	const url = URL.parse(location, asked);
	const base = new URL(baseUrl);
	const prefix = base.pathname.replace(/\/+$/, '');
	if (!url || url.origin !== base.origin || url.username || url.password || !url.pathname.startsWith(`${prefix}/`))
		return null;
	const target = `${url.pathname.slice(prefix.length)}${url.search}`;
	return decideForward(target, baseUrl, []).ok ? `${FORWARD_PREFIX}${target}` : null;
}
