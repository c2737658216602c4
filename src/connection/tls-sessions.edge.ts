/** Which TLS handshakes offer the session of an earlier one: all, until one that did has not ended. Some fronts reset it, or never answer. */
import type { TLSSocket } from 'node:tls';

/** @param begin starts a handshake; where its options have a `session`, also `undefined`, it offers that one instead of its own. */
export function resuming<Options extends object>(begin: (options: Options) => TLSSocket) {
	let [hasSession, isRefused] = [false, false];
	return (options: Options): TLSSocket => {
		const offers = hasSession && !isRefused;
		const socket = begin(isRefused ? { ...options, session: undefined } : options);
		let isOpen = false;
		socket.once('secureConnect', () => {
			isOpen = true;
			hasSession = true;
		});
		socket.once('close', () => {
			if (offers && !isOpen) isRefused = true;
		});
		return socket;
	};
}
