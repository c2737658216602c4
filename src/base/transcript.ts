/** The talk of a device and a service as lines of JSON: names, statuses and times as they are, every other value as its shape. */
import * as z from 'zod';
import { ENDPOINTS } from '../protocol/endpoints.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import type { Shaper } from './shapes.ts';

export type Direction = 'toService' | 'toDevice';

interface Line {
	/** Milliseconds since 1970. */
	readonly at: number;
	/** Which request this belongs to; a channel keeps the number of its handshake. */
	readonly exchange: number;
}

/** How a request presents itself. */
export interface RequestLine extends Line {
	readonly kind: 'request';
	readonly method: string;
	readonly path: string;
	readonly query: Readonly<Record<string, string>>;
	readonly headers: Readonly<Record<string, string>>;
	readonly body: string;
}

export type TranscriptLine =
	| RequestLine
	| (Line & {
			readonly kind: 'answer';
			readonly status: number;
			readonly headers: Readonly<Record<string, string>>;
			readonly body: string;
	  })
	| (Line & { readonly kind: 'open'; readonly subprotocol: string })
	| (Line & {
			readonly kind: 'frame';
			readonly direction: Direction;
			readonly frame: 'text' | 'binary' | 'ping' | 'pong';
			/** Of a binary frame only its size. */
			readonly body: string;
	  })
	/** By whose close frame or cut, as far as it is known. */
	| (Line & {
			readonly kind: 'close';
			readonly direction: Direction;
			readonly code: number | null;
			readonly reason: string;
	  });

type Unnumbered<Some> = Some extends unknown ? Omit<Some, 'at'> : never;
/** A line as it was seen. */
export type SeenLine = Unnumbered<TranscriptLine>;

export interface Transcript {
	/** A number for a new request. */
	next(): number;
	note(line: SeenLine): void;
}

/** What a registration says of the device itself. */
const IDS = ['deviceId', 'workflowId', 'serial', 'macAddress'];
/** Ids that are remembered. */
const MAX_IDS = 1000;

/** Headers whose words are those of servers. */
const SPOKEN =
	/^(?:content-type|server|via|allow|upgrade|connection|vary|(?:www|proxy)-authenticate|cache-control|content-encoding|x-powered-by|accept|accept-encoding|transfer-encoding|user-agent|location|host)$/;
const COUNTED = /^(?:content-length|retry-after|age|sec-websocket-version|x-ratelimit-.*|ratelimit-.*)$/;

/**
 * @param write takes one line, without its end. @param openShaper makes the writer; gets what it may show.
 * @param ids of the device, and hosts, that are known before anything is said.
 */
export function createTranscript(
	write: (line: string) => void,
	now: () => number,
	openShaper: (own: () => readonly string[]) => Shaper,
	ids: readonly string[] = [],
): Transcript {
	const own = [...ids];
	const shaper = openShaper(() => own);
	const { name, told, foreign } = shaper;
	let exchanges = 0;

	/** Of a registration alone: any other request may have anything under these names. No credential that it came with is an id. */
	function learn({ method, path, body, headers, query }: Omit<RequestLine, 'at'>): void {
		if (method !== 'POST' || !path.endsWith(ENDPOINTS.deviceConnection) || body.length > 4096) return;
		const document = parseJson(body);
		if (!isObject(document) || typeof document['deviceId'] !== 'string') return;
		const credentials = Object.values({ ...headers, ...query }).join('\n');
		for (const id of IDS.map((one) => document[one]))
			if (typeof id === 'string' && id.length <= 128 && own.length < MAX_IDS && !own.includes(id))
				if (!credentials.includes(id)) own.push(id);
	}

	function headerOf(header: string, value: string): string {
		if (COUNTED.test(header) && /^\d{1,9}$/.test(value)) return value;
		if (header === 'sec-websocket-protocol') return shaper.protocols(value);
		if (/^(?:set-)?cookie$/.test(header))
			return value
				.split(/;\s*|,\s*(?=[\w-]+=)/)
				.map((pair) => pair.split('='))
				.map(([key = '', ...text]) =>
					text.length === 0
						? /^[A-Za-z-]+$/.test(key)
							? told(key)
							: foreign(key)
						: `${name(key)}=${foreign(text.join('='))}`,
				)
				.join('; ');
		return SPOKEN.test(header) ? told(value) : String(foreign(value));
	}

	function pairs(of: Readonly<Record<string, string>>, write: (key: string, value: string) => string) {
		return Object.fromEntries(Object.entries(of).map(([key, value]) => [name(key), write(key, value)]));
	}

	return {
		next() {
			exchanges += 1;
			return exchanges;
		},
		note(line) {
			const seen: Record<string, unknown> = { at: now(), ...line };
			if (line.kind === 'request') {
				learn(line);
				seen['method'] = name(line.method);
				seen['path'] = shaper.names(line.path, '/');
				seen['query'] = pairs(line.query, (key, value) => String(foreign(value, key)));
			}
			if ('headers' in line) seen['headers'] = pairs(line.headers, headerOf);
			if ('body' in line) seen['body'] = shaper.body(line.body);
			if ('reason' in line) seen['reason'] = told(line.reason);
			if ('subprotocol' in line) seen['subprotocol'] = shaper.protocols(line.subprotocol);
			write(JSON.stringify(seen));
		},
	};
}

/** The same for requests that present themselves alike: by names, schemes and subprotocols, whatever the secrets. */
export function formOf({ query, headers }: Pick<RequestLine, 'query' | 'headers'>): string {
	const form = (text: string | undefined) => (text === undefined ? '' : (/^([A-Za-z]+)\s/.exec(text)?.[1] ?? 'bare'));
	const places = Object.entries(query).map(([name, value]) => `${name}=${form(value)}`);
	return JSON.stringify([places.sort(), form(headers['authorization']), headers['sec-websocket-protocol'] ?? '']);
}

const texts = z.record(z.string(), z.string());
/** Names and values that can be sent (RFC 9110, 5.1 and 5.5); a name may have been written as its shape. */
const sendable = z.record(
	z.string().regex(/^[!#$%&'*+.^_`|~\w[\]-]{1,1000}$/),
	z.string().regex(/^[\t\x20-\x7e\x80-\xff]*$/),
);
const direction = z.enum(['toService', 'toDevice']);
const line = { at: z.number(), exchange: z.int() };
const lineSchema = z.discriminatedUnion('kind', [
	z.object({
		...line,
		kind: z.literal('request'),
		method: z.string(),
		path: z.string(),
		query: texts,
		headers: texts,
		body: z.string(),
	}),
	// 0 stands for no answer at all.
	z.object({
		...line,
		kind: z.literal('answer'),
		status: z.literal(0).or(z.int().min(200).max(999)),
		headers: sendable,
		body: z.string(),
	}),
	z.object({ ...line, kind: z.literal('open'), subprotocol: z.string().regex(/^[!#$%&'*+.^_`|~\w[\]-]{0,1000}$/) }),
	z.object({
		...line,
		kind: z.literal('frame'),
		direction,
		frame: z.enum(['text', 'binary', 'ping', 'pong']),
		body: z.string(),
	}),
	z.object({ ...line, kind: z.literal('close'), direction, code: z.int().nullable(), reason: z.string() }),
]);

/** @throws Error that names the first line which is not one of a transcript, and where that is. */
export function readTranscript(text: string): TranscriptLine[] {
	return text.split('\n').flatMap((content, at) => {
		if (content.trim() === '') return [];
		const read = lineSchema.safeParse(parseJson(content));
		if (read.success) return [read.data];
		const place = read.error.issues[0]?.path.join('/');
		throw new Error(`Line ${at + 1} is not a line of a transcript${place ? `: look at its ${place}` : ''}.`);
	});
}
