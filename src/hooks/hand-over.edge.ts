/** Hands one hook to the helper unit, by its socket, and reads lines of bounded length. Tries once: a hook never runs twice. */
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { inWords } from '../base/files.edge.ts';
import { cleanText } from '../protocol/problem.ts';
import { type HelperAnswer, helperAnswer, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, readMessage } from './messages.ts';

/** A line that was not read; its message is the end of a sentence. */
const unread = (code: 'too-large' | 'ended', message: string) => Object.assign(new Error(message), { code });

/** The first line of a stream, of `maxBytes`. @throws for `inWords`: of the system, or `too-large` or `ended`. */
export function readLine(stream: Duplex, maxBytes: number): Promise<string> {
	const chunks: Buffer[] = [];
	let bytes = 0;
	return new Promise<string>((resolve, reject) => {
		const take = (chunk: Buffer) => {
			const end = chunk.indexOf(10);
			const part = end < 0 ? chunk : chunk.subarray(0, end);
			chunks.push(part);
			bytes += part.length;
			if (bytes <= maxBytes && end < 0) return;
			stream.off('data', take).resume();
			if (bytes > maxBytes) reject(unread('too-large', `it is larger than ${maxBytes} bytes`));
			else resolve(Buffer.concat(chunks).toString());
		};
		stream.on('data', take);
		stream.once('error', reject);
		for (const end of ['end', 'close']) stream.once(end, () => reject(unread('ended', 'it ended before its line did')));
	});
}

/** Has the helper run a hook. @param done gets what came of it, once. @returns a function that ends the command. */
export function handOver(
	{ socket: path, hook, input }: { readonly socket: string; readonly hook: string; readonly input: unknown },
	timeoutMs: number,
	done: (answer: HelperAnswer) => void,
): () => void {
	const request = Buffer.from(`${JSON.stringify({ hook, input })}\n`);
	let isOver = false;
	const over = (outcome: HelperAnswer['outcome'], stderr = '') => {
		if (isOver) return;
		isOver = true;
		clearTimeout(limit);
		// The helper ends a command whose caller is gone.
		stream.destroy();
		done({ outcome, stderr });
	};
	const limit = setTimeout(over, timeoutMs, { kind: 'timedOut' });
	const failed = (why: string) => over({ kind: 'notStarted', reason: cleanText(why, 2000) });
	const stream = connect(path);
	readLine(stream, MAX_ANSWER_BYTES).then(
		(line) => {
			const answer = readMessage(line, helperAnswer);
			if (answer) over(answer.outcome, answer.stderr);
			else failed(`${path} gave no answer that this version knows`);
		},
		(error) => failed(`${path} does not answer: ${inWords(error)}`),
	);
	if (request.length <= MAX_REQUEST_BYTES) stream.write(request);
	else stream.destroy(unread('too-large', `the event is larger than ${MAX_REQUEST_BYTES} bytes`));
	return () => over({ kind: 'killed', signal: 'SIGTERM' });
}
