/** Bodies of requests: read within their limits, and parsed by the schema of their route. */
import type http from 'node:http';
import type * as z from 'zod';
import { type ProblemResponse, problemResponse, tooSlow } from './problem-responses.ts';

/** Reads a body also where none is taken: its sender must finish to get the answer. `gone`: the caller has left. */
export function readBody(
	request: http.IncomingMessage,
	maxBytes: number,
	deadlineMs: number,
): Promise<Buffer | ProblemResponse | 'gone'> {
	const tooLarge = () => problemResponse(413, 'body-too-large', `The body may have at most ${maxBytes} bytes.`);
	const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
	if (Number(length ?? 0) > maxBytes) return Promise.resolve(tooLarge());
	return new Promise((resolve) => {
		const chunks: Buffer[] = [];
		let size = 0;
		const hasBody = length !== undefined || coding !== undefined;
		const late = hasBody ? setTimeout(() => settle(tooSlow()), deadlineMs) : undefined;
		const settle = (outcome: Buffer | ProblemResponse | 'gone') => {
			clearTimeout(late);
			resolve(outcome);
		};
		request.on('data', (chunk: Buffer) => {
			size += chunk.length;
			if (size <= maxBytes) chunks.push(chunk);
			else settle(tooLarge());
		});
		request.once('end', () => settle(Buffer.concat(chunks)));
		request.once('close', () => settle('gone'));
		request.once('error', () => settle('gone'));
	});
}

export function readJson(
	headers: http.IncomingHttpHeaders,
	bytes: Buffer,
	schema: z.ZodType,
): { readonly value: unknown } | ProblemResponse {
	let document: unknown;
	if (bytes.length > 0) {
		const encoding = headers['content-encoding'];
		if (!isJsonType(headers['content-type'] ?? '') || (encoding !== undefined && encoding !== 'identity'))
			return problemResponse(415, 'body-invalid', 'The body must be application/json, in UTF-8 and not compressed.', {
				remedy: 'Send Content-Type: application/json.',
			});
		try {
			document = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
		} catch {
			return problemResponse(400, 'body-invalid', 'The body is not valid JSON.', {
				remedy: 'Send one JSON document in UTF-8.',
			});
		}
	}
	const parsed = schema.safeParse(document);
	if (parsed.success) return { value: parsed.data };
	const errors = parsed.error.issues
		.slice(0, 20)
		.map((issue) => ({ path: issue.path.map(String).join('.'), message: inWords(issue) }));
	const words = errors.slice(0, 3).map(({ path, message }) => `${path || 'The body'} ${message}`);
	return problemResponse(422, 'body-invalid', `${words.join('; ')}.`, { errors });
}

/** The error of a field, to be read after its name. */
function inWords(issue: z.core.$ZodIssue): string {
	// The schema has a message of its own.
	if (!/^(Invalid|Too|Unrecognized) /.test(issue.message)) return issue.message;
	const unit = 'origin' in issue && issue.origin === 'string' ? ' characters' : '';
	switch (issue.code) {
		case 'too_small':
			return unit && issue.minimum === 1 ? 'must not be empty' : `must be at least ${issue.minimum}${unit}`;
		case 'too_big':
			return `must be at most ${issue.maximum}${unit}`;
		case 'invalid_type':
			return issue.message.endsWith('received undefined')
				? 'is missing'
				: `must be ${ARTICLES[issue.expected] ?? issue.expected}`;
		case 'unrecognized_keys':
			return `must not have ${issue.keys.map((key) => key.slice(0, 40)).join(', ')}`;
		default:
			return 'does not have the expected form';
	}
}

const ARTICLES: Readonly<Record<string, string>> = {
	boolean: 'true or false',
	int: 'a whole number',
	number: 'a number',
	object: 'an object',
	string: 'a string',
};

function isJsonType(contentType: string): boolean {
	return /^\s*application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(contentType);
}
