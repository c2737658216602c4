/** The talk of a device and a service as lines of JSON; every secret is a placeholder, the same one each time. */
import { AUTHORIZATION_SCHEMES } from '../protocol/authorization.ts';
import { parseJson } from '../protocol/json.ts';
import { looksLikeToken } from '../protocol/registration-answer.ts';
import { createSecretRegistry, redact } from './redact.ts';

export type Direction = 'toService' | 'toDevice';

interface Line {
	/** Milliseconds since 1970. */
	readonly at: number;
	/** Which request this belongs to; a channel keeps the number of its handshake. */
	readonly exchange: number;
}

/** How a request presents itself; masked like everything else. */
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
/** A line as it was seen, with its secrets. */
export type SeenLine = Unnumbered<TranscriptLine>;

export interface Transcript {
	/** A number for a new request. */
	next(): number;
	note(line: SeenLine): void;
}

/** Longest body that is written, in characters. */
const MAX_BODY = 64 * 1024;
/** A placeholder says whether it stood for a JWT, since what reads one may depend on it. */
export const PLACEHOLDER = /\[(jwt|token)-(\d+)\]/g;

const HARMLESS_HEADERS =
	/^(?:content-type|date|retry-after|server|via|allow|upgrade|connection|vary|www-authenticate|cache-control|content-length|content-encoding|sec-websocket-(?:protocol|version|extensions)|x-powered-by|accept)$/;
const JWT = /^[\w-]{4,}\.[\w-]{4,}\.[\w-]*$/;
const PIECE = /[\w.~+/=|-]{20,}/g;
const TELLING = /^(?=.*\d)(?=.*[A-Za-z])/;
const SCHEME = new RegExp(`^(${AUTHORIZATION_SCHEMES.join('|')})\\s+(.+)$`, 'is');

/** @param write takes one line, without its end. */
export function createTranscript(write: (line: string) => void, now: () => number): Transcript {
	const masks = new Map<string, string>();
	const secrets = createSecretRegistry();
	let exchanges = 0;

	function placeholder(secret: string): string {
		const known = masks.get(secret) ?? `[${JWT.test(secret) ? 'jwt' : 'token'}-${masks.size + 1}]`;
		masks.set(secret, known);
		return known;
	}

	/** A text that stands under a name. */
	function maskText(name: string, text: string): string {
		const [, scheme, credential] = SCHEME.exec(text) ?? [];
		if (scheme !== undefined && credential !== undefined && /^\S+$/.test(credential))
			return `${scheme} ${placeholder(credential)}`;
		let masked = text;
		for (const [secret, mask] of masks) if (secret.length >= 6) masked = masked.replaceAll(secret, mask);
		masked = masked.replace(PIECE, (piece) => (TELLING.test(piece) ? placeholder(piece) : piece));
		if (masked === text && looksLikeToken({ place: `/${name}`, text }))
			masked = text.replace(/\S+$/, (word) => placeholder(word));
		const parts = masked.split(/(\[(?:jwt|token)-\d+\])/);
		return parts.map((part, at) => (at % 2 === 1 ? part : redact(part, secrets))).join('');
	}

	function maskValue(name: string, value: unknown): unknown {
		if (typeof value === 'string') return maskText(name, value);
		if (Array.isArray(value)) return value.map((one) => maskValue(name, one));
		if (typeof value !== 'object' || value === null) return value;
		return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, maskValue(key, one)]));
	}

	function maskBody(body: string): string {
		try {
			return JSON.stringify(maskValue('', JSON.parse(body)));
		} catch {
			return /^\s*\S{8,}\s*$/.test(body) ? maskText('token', body.trim()) : maskText('', body.slice(0, MAX_BODY));
		}
	}

	function maskHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
		const entries = Object.entries(headers).map(([name, value]) => {
			if (HARMLESS_HEADERS.test(name)) return [name, value] as const;
			if (name === 'sec-websocket-key') return [name, '[hidden]'] as const;
			const masked = maskText(name, value);
			return [name, masked.search(PLACEHOLDER) >= 0 ? masked : '[hidden]'] as const;
		});
		return Object.fromEntries(entries);
	}

	return {
		next() {
			exchanges += 1;
			return exchanges;
		},
		note(line) {
			const seen: Record<string, unknown> = { at: now(), ...line };
			if ('headers' in line) seen['headers'] = maskHeaders(line.headers);
			if ('query' in line) seen['query'] = maskValue('', line.query);
			if ('path' in line)
				seen['path'] = line.path
					.split('/')
					.map((part) => maskText('', part))
					.join('/');
			if ('body' in line) seen['body'] = maskBody(line.body);
			if ('reason' in line) seen['reason'] = maskText('', line.reason);
			write(JSON.stringify(seen));
		},
	};
}

/** Whether two requests present themselves alike: the same names, schemes and subprotocols, whatever the secrets. */
export function isAlike(a: Presentation, b: Presentation): boolean {
	return shapeOf(a) === shapeOf(b);
}

type Presentation = Pick<RequestLine, 'query' | 'headers'>;

function shapeOf({ query, headers }: Presentation): string {
	const form = (text: string | undefined) => (text === undefined ? '' : (/^([A-Za-z]+)\s/.exec(text)?.[1] ?? 'bare'));
	const places = Object.entries(query).map(([name, value]) => `${name}=${form(value)}`);
	return JSON.stringify([places.sort(), form(headers['authorization']), headers['sec-websocket-protocol'] ?? '']);
}

/** @throws Error that names the first line which is not one of a transcript. */
export function readTranscript(text: string): TranscriptLine[] {
	return text
		.split('\n')
		.filter((line) => line.trim() !== '')
		.map((line, at) => {
			const read = parseJson(line) as TranscriptLine | null | undefined;
			if (typeof read?.kind === 'string' && Number.isInteger(read.exchange)) return read;
			throw new Error(`Line ${at + 1} is not a line of a transcript.`);
		});
}
