/**
 * Whose certificate a host shows, and whose it showed when it was trusted last: an error of the handshake carries both. In memory only,
 * for as long as the way to the service is the same one. Trusts nothing itself.
 */
import type { TLSSocket } from 'node:tls';
import type { Ended, ShownNames } from './classify-network-error.ts';

/** By host. */
export type TrustedNames = Map<string, ShownNames>;

/** @param socket whose handshake is still to come. @returns the same. */
export function nameCertificate(socket: TLSSocket, host: string, trusted: TrustedNames): TLSSocket {
	let shown: ShownNames | null = null;
	let ended: Ended | null = null;
	// Comes before the verdict, which closes the socket.
	socket.prependOnceListener('secure', () => {
		shown = namesOf(socket);
		ended = endOf(socket);
	});
	socket.once('secureConnect', () => {
		if (shown && socket.authorized) trusted.set(host, shown);
	});
	socket.prependOnceListener('error', (error) => {
		if (shown) Object.assign(error, { certificate: { shown, trusted: trusted.get(host) ?? null, ended } });
	});
	return socket;
}

function namesOf(socket: TLSSocket): ShownNames | null {
	const { subject, issuer } = socket.getPeerCertificate();
	return subject && issuer ? { subject: nameOf(subject), issuer: nameOf(issuer) } : null;
}

function endOf(socket: TLSSocket): Ended | null {
	const atMs = Date.parse(socket.getPeerCertificate().valid_to ?? '');
	const nowMs = Date.now();
	return atMs < nowMs ? { on: dayOf(atMs), clock: dayOf(nowMs) } : null;
}

const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);

function nameOf({ CN, O }: { CN?: string | string[] | undefined; O?: string | string[] | undefined }): string {
	const name = CN ?? O ?? '';
	return (Array.isArray(name) ? name[0] : name) ?? '';
}
