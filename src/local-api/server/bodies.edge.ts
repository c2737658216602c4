/** Bodies of requests: read within their limits, and parsed by the schema of their route. */
import type http from 'node:http';
import type * as z from 'zod';
import { readRequest } from '../../base/bodies.edge.ts';
import { parseJson } from '../../protocol/json.ts';
import { plainIssue } from '../../settings/plain-issue.ts';
import { type ProblemResponse, problemResponse, tooSlow } from './problem-responses.ts';

/** Reads a body also where none is taken: its sender must finish to get the answer. `gone`: the caller has left. */
export async function readBody(
	request: http.IncomingMessage,
	maxBytes: number,
	deadlineMs: number,
): Promise<Buffer | ProblemResponse | 'gone'> {
	const { 'content-length': length, 'transfer-encoding': coding } = request.headers;
	const late = Promise.withResolvers<'late'>();
	const hasBody = length !== undefined || coding !== undefined;
	const timer = hasBody ? setTimeout(late.resolve, deadlineMs, 'late') : undefined;
	const isTooLarge = Number(length ?? 0) > maxBytes;
	const body = isTooLarge ? 'too-large' : await Promise.race([readRequest(request, maxBytes), late.promise]);
	clearTimeout(timer);
	if (body === 'late') return tooSlow();
	if (body !== 'too-large') return body;
	return problemResponse(413, 'body-too-large', `The body may have at most ${maxBytes} bytes.`);
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
			document = parseJson(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
		} catch {
			document = undefined;
		}
		if (document === undefined)
			return problemResponse(400, 'body-invalid', 'The body is not valid JSON.', {
				remedy: 'Send one JSON document in UTF-8.',
			});
	}
	const parsed = schema.safeParse(document);
	if (parsed.success) return { value: parsed.data };
	const errors = parsed.error.issues
		.slice(0, 20)
		.map((issue) => ({ path: issue.path.map(String).join('.'), message: plainIssue(issue) }));
	const words = errors.slice(0, 3).map(({ path, message }) => `${path || 'The body'} ${message}`);
	return problemResponse(422, 'body-invalid', `${words.join('; ')}.`, { errors });
}

function isJsonType(contentType: string): boolean {
	return /^\s*application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(contentType);
}
