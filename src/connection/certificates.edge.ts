/**
 * Whose certificate a host shows, and whose it showed when it was trusted last: an error of the handshake carries both. In memory only,
 * for as long as the way to the service is the same one. Trusts nothing itself.
 */
import type { TLSSocket } from 'node:tls';
import type { OutOfTime, ShownNames } from './classify-network-error.ts';

/** By host. */
export type TrustedNames = Map<string, ShownNames>;

/** @param socket whose handshake is still to come. @returns the same. */
export function nameCertificate(socket: TLSSocket, host: string, trusted: TrustedNames): TLSSocket {
	let shown: ShownNames | null = null;
	let outOfTime: OutOfTime | null = null;
	// Comes before the verdict, which closes the socket.
	socket.prependOnceListener('secure', () => {
		shown = namesOf(socket);
		outOfTime = boundOf(socket);
	});
	socket.once('secureConnect', () => {
		if (shown && socket.authorized) trusted.set(host, shown);
	});
	socket.prependOnceListener('error', (error) => {
		if (shown) Object.assign(error, { certificate: { shown, trusted: trusted.get(host) ?? null, outOfTime } });
	});
	return socket;
}

function namesOf(socket: TLSSocket): ShownNames | null {
	const { subject, issuer } = socket.getPeerCertificate();
	return subject && issuer ? { subject: nameOf(subject), issuer: nameOf(issuer) } : null;
}

/** Where it is not valid now. */
function boundOf(socket: TLSSocket): OutOfTime | null {
	const { valid_from: from = '', valid_to: to = '' } = socket.getPeerCertificate();
	const nowMs = Date.now();
	const atMs = [from, to].map((at) => Date.parse(at)).find((ms, index) => (index === 0 ? ms > nowMs : ms < nowMs));
	return atMs === undefined ? null : { on: dayOf(atMs), clock: dayOf(nowMs) };
}

const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

function nameOf({ CN, O }: { CN?: string | string[] | undefined; O?: string | string[] | undefined }): string {
	const name = CN ?? O ?? '';
	return (Array.isArray(name) ? name[0] : name) ?? '';
}
