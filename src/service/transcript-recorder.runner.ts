/** Notes what the embedded service hears and says for a transcript. */
import type { IncomingMessage } from 'node:http';
import { gunzipSync } from 'node:zlib';
import type { RawData, WebSocket } from 'ws';
import type { Transcript } from '../base/transcript.ts';
import type { Answer } from './http-answer.runner.ts';
import { bodyOf, describeRequest } from './http-call.runner.ts';

export type Recorder = ReturnType<typeof createRecorder>;

export function createRecorder(transcript: Transcript) {
	function noteRequest(request: IncomingMessage): number {
		const exchange = transcript.next();
		const body = bodyOf(request)?.toString('utf8') ?? '';
		transcript.note({ kind: 'request', exchange, ...describeRequest(request), body });
		return exchange;
	}

	return {
		answer(request: IncomingMessage, { status, headers, body }: Answer): void {
			const exchange = noteRequest(request);
			const plain = typeof body !== 'string' && headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body;
			const isText = /json|text/.test(headers['content-type'] ?? '') || typeof plain === 'string';
			const text = isText ? String(plain) : `[${plain.length} bytes]`;
			transcript.note({ kind: 'answer', exchange, status, headers, body: text });
		},
		/** A handshake that was accepted, and from now on what is said on the channel. */
		channel(request: IncomingMessage, socket: WebSocket): void {
			const exchange = noteRequest(request);
			transcript.note({ kind: 'open', exchange, subprotocol: socket.protocol });
			const frame = (direction: 'toService' | 'toDevice', kind: 'text' | 'binary' | 'ping' | 'pong', body = '') =>
				transcript.note({ kind: 'frame', exchange, direction, frame: kind, body });
			const message = (direction: 'toService' | 'toDevice', data: string | Uint8Array) =>
				typeof data === 'string'
					? frame(direction, 'text', data)
					: frame(direction, 'binary', `[${data.length} bytes]`);
			socket.on('message', (data: RawData, isBinary) =>
				message('toService', isBinary ? (data as Buffer) : String(data)),
			);
			socket.on('ping', () => frame('toService', 'ping'));
			const send = socket.send.bind(socket) as (data: string | Uint8Array, options: object) => void;
			socket.send = ((data: string | Uint8Array, options: object = {}) => {
				message('toDevice', data);
				send(data, options);
			}) as WebSocket['send'];
			const pong = socket.pong.bind(socket);
			socket.pong = ((...given: Parameters<WebSocket['pong']>) => {
				frame('toDevice', 'pong');
				pong(...given);
			}) as WebSocket['pong'];
			socket.once('close', (code, reason) =>
				transcript.note({
					kind: 'close',
					exchange,
					// This service has codes of its own; a device says goodbye with the usual ones.
					direction: code > 1001 && code !== 1005 && code !== 1006 ? 'toDevice' : 'toService',
					code: code === 1005 || code === 1006 ? null : code,
					reason: reason.toString('utf8'),
				}),
			);
		},
	};
}
