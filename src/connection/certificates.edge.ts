/**
 * Whose certificate a host shows, and whose it showed when it was trusted last: an error of the handshake carries both. In memory only,
 * for as long as the way to the service is the same one. Trusts nothing itself.
 */
import type { TLSSocket } from 'node:tls';
import type { ShownNames } from './classify-network-error.ts';

/** By host. */
export type TrustedNames = Map<string, ShownNames>;

/** @param socket whose handshake is still to come. @returns the same. */
export function nameCertificate(socket: TLSSocket, host: string, trusted: TrustedNames): TLSSocket {
	let shown: ShownNames | null = null;
	// Comes before the verdict, which closes the socket.
	socket.prependOnceListener('secure', () => {
		shown = namesOf(socket);
	});
	socket.once('secureConnect', () => {
		if (shown && socket.authorized) trusted.set(host, shown);
	});
	socket.prependOnceListener('error', (error) => {
		if (shown) Object.assign(error, { certificate: { shown, trusted: trusted.get(host) ?? null } });
	});
	return socket;
}

function namesOf(socket: TLSSocket): ShownNames | null {
	const { subject, issuer } = socket.getPeerCertificate();
	return subject && issuer ? { subject: nameOf(subject), issuer: nameOf(issuer) } : null;
}

function nameOf({ CN, O }: { CN?: string | string[] | undefined; O?: string | string[] | undefined }): string {
	const name = CN ?? O ?? '';
	return (Array.isArray(name) ? name[0] : name) ?? '';
}
