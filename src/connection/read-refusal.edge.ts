/** The answer that came in place of an upgrade: its status, headers and the beginning of its body. */
import type { IncomingMessage } from 'node:http';
import { flatHeaders } from './exchange.edge.ts';

/** How much of a refusal's body is read, in bytes. */
const MAX_DETAIL_BYTES = 4096;

/** Asked once the answer has ended or was cut. */
export type ReadRefusal = () => { status: number; headers: Record<string, string>; body: string };

/** Collects an answer that is not the upgrade, up to a limit; `onDone` comes at least once. */
export function readRefusal(response: IncomingMessage, onDone: () => void): ReadRefusal {
	const chunks: Buffer[] = [];
	let size = 0;
	response.on('data', (chunk: Buffer) => {
		if (size < MAX_DETAIL_BYTES) chunks.push(chunk.subarray(0, MAX_DETAIL_BYTES - size));
		size += chunk.length;
		if (size >= MAX_DETAIL_BYTES) onDone();
	});
	response.on('error', onDone);
	response.once('end', onDone);
	response.once('close', onDone);
	return () => ({
		status: response.statusCode ?? 0,
		headers: flatHeaders(response.headers),
		body: Buffer.concat(chunks).toString('utf8'),
	});
}
