/** A request as data: path, query, credential as it was presented, and its body on demand. Decides nothing. */
import type { IncomingMessage } from 'node:http';
import type * as z from 'zod';
import { readRequest } from '../base/bodies.edge.ts';
import { type Authorization, parseAuthorization } from '../protocol/authorization.ts';
import type { Dialect } from './dialect.ts';
import type { ServiceSettings } from './options.runner.ts';
import { ProblemResponse } from './problems.ts';

/** Largest request body, in bytes: assumed (message-bounds). */
export const MAX_BODY_BYTES = 64 * 1024;

export interface Call {
	readonly method: string;
	/** Below the base path; `null` outside of it. */
	readonly path: string | null;
	readonly query: URLSearchParams;
	readonly presented: Presented;
	readonly request: IncomingMessage;
}

/** The credential of a request: the header, or where there is none the query parameter. */
export type Presented = Authorization | 'none' | 'malformed';

export function readCall(request: IncomingMessage, { basePath, dialect }: ServiceSettings): Call {
	const target = originForm(request.url ?? '/');
	const mark = target.indexOf('?');
	const path = mark < 0 ? target : target.slice(0, mark);
	const query = new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1));
	const below = path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : null;
	return {
		method: request.method ?? 'GET',
		path: below,
		query,
		presented: readPresented(request, query, dialect, below === dialect.channelPath ? dialect.channelAuth : 'either'),
		request,
	};
}

/** A request as a transcript has it. */
export function describeRequest({ method = 'GET', url = '/', headers }: IncomingMessage) {
	const target = URL.parse(url, 'http://service');
	const named = Object.entries(headers).flatMap(([name, value]) =>
		value === undefined ? [] : [[name, String(value)]],
	);
	const query = Object.fromEntries(target?.searchParams ?? []);
	return { method, path: target?.pathname ?? '/', query, headers: Object.fromEntries(named) as Record<string, string> };
}

/** A proxy may send the absolute form. */
function originForm(target: string): string {
	if (!/^https?:\/\//i.test(target)) return target;
	const url = URL.parse(target);
	return url ? `${url.pathname}${url.search}` : '/';
}

function readPresented(
	{ headers }: IncomingMessage,
	query: URLSearchParams,
	{ queryName }: Dialect,
	place: Dialect['channelAuth'],
): Presented {
	const header = place === 'query' || place === 'queryToken' ? undefined : headers.authorization;
	const inQuery = place === 'header' ? [] : query.getAll(queryName);
	const scheme = place === 'queryToken' ? 'Connection ' : '';
	const values = header !== undefined ? [header] : inQuery.map((text) => `${scheme}${text}`);
	if (values.length === 0) return 'none';
	return (values.length === 1 && parseAuthorization(values[0])) || 'malformed';
}

/**
 * Reads the body and checks it.
 * @param absent what stands for an absent body; without it a body is required.
 * @throws ProblemResponse 400 `body-malformed`, 413, 415, or 422 `body-invalid` with one entry for each field.
 */
export async function readBody<Schema extends z.ZodType>(
	{ request }: Call,
	schema: Schema,
	absent?: unknown,
): Promise<z.output<Schema>> {
	const contentType = request.headers['content-type'];
	const bytes = await readBytes(request);
	if (bytes.length === 0 && contentType === undefined && absent !== undefined) return schema.parse(absent);
	if (!/^application\/json\s*(;|$)/i.test(contentType ?? ''))
		throw new ProblemResponse('content-type-unsupported', 'The body must be sent as application/json.');
	if (bytes.length === 0 && absent !== undefined) return schema.parse(absent);
	return checkShape(schema, parseJson(bytes));
}

/** Checks a body, or the query parameter of a name. @throws ProblemResponse with one entry for each wrong field. */
export function checkShape<Schema extends z.ZodType>(schema: Schema, value: unknown, query?: string): z.output<Schema> {
	const result = schema.safeParse(value);
	if (result.success) return result.data;
	const errors = result.error.issues.slice(0, 20).map(({ path, message }) => {
		const pointer = path.map((part) => `/${String(part)}`).join('');
		return { path: query === undefined ? pointer : `?${query}`, message };
	});
	const first = errors.map((error) => `${error.path || 'The document'}: ${error.message}`).join('; ');
	throw new ProblemResponse(query === undefined ? 'body-invalid' : 'query-invalid', first.slice(0, 500), { errors });
}

function parseJson(bytes: Uint8Array): unknown {
	try {
		return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
	} catch {
		throw new ProblemResponse('body-malformed', 'The body is not a JSON document in UTF-8.');
	}
}

const bodies = new WeakMap<IncomingMessage, Buffer>();

/** The body, once it was read. */
export function bodyOf(request: IncomingMessage): Buffer | undefined {
	return bodies.get(request);
}

async function readBytes(request: IncomingMessage): Promise<Buffer> {
	const body = await readRequest(request, MAX_BODY_BYTES);
	if (body === 'gone') throw new ProblemResponse('body-malformed', 'The request ended before its body did.');
	if (body === 'too-large')
		throw new ProblemResponse('body-too-large', `The body has more than ${MAX_BODY_BYTES} bytes.`);
	bodies.set(request, body);
	return body;
}
