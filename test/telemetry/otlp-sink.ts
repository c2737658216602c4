/** A store that takes OTLP over HTTP, with its moods, and a reader of protobuf that knows nothing of the encoder. */
import {
	createServer,
	type IncomingHttpHeaders,
	type IncomingMessage,
	type Server,
	type ServerResponse,
} from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { gunzipSync } from 'node:zlib';
import { onTestFinished } from 'vitest';
import { listen } from '../connection/network-peers.ts';

export interface PushedPoint {
	readonly name: string;
	readonly labels: Readonly<Record<string, string>>;
	readonly value: number;
	/** Milliseconds since 1970. */
	readonly atMs: number;
	readonly isCounter: boolean;
}

export interface Push {
	readonly headers: IncomingHttpHeaders;
	readonly url: string;
	readonly resource: Readonly<Record<string, string>>;
	readonly points: readonly PushedPoint[];
	readonly bytes: number;
}

type Field = readonly [number: number, value: bigint | Uint8Array];

/** Every field of a message, in order. Source: protobuf.dev, Encoding. */
export function readMessage(bytes: Uint8Array): Field[] {
	const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
	const fields: Field[] = [];
	let at = 0;
	const varint = () => {
		let value = 0n;
		for (let shift = 0n; ; shift += 7n) {
			const byte = bytes[at++];
			if (byte === undefined) throw new Error('cut off');
			value |= BigInt(byte & 127) << shift;
			if (byte < 128) return value;
		}
	};
	while (at < bytes.length) {
		const tag = Number(varint());
		const [number, type] = [tag >> 3, tag & 7];
		if (type === 0) fields.push([number, varint()]);
		else if (type === 1) {
			fields.push([number, view.getBigUint64(at, true)]);
			at += 8;
		} else if (type === 2) {
			const length = Number(varint());
			if (at + length > bytes.length) throw new Error('cut off');
			fields.push([number, bytes.subarray(at, at + length)]);
			at += length;
		} else throw new Error(`wire type ${type}`);
	}
	return fields;
}

const all = (fields: readonly Field[], number: number) =>
	fields.filter(([field]) => field === number).map(([, value]) => value as Uint8Array);
const textOf = (bytes: Uint8Array | undefined) => new TextDecoder('utf-8', { fatal: true }).decode(bytes);

function attributes(fields: readonly Field[], number: number): Record<string, string> {
	return Object.fromEntries(
		all(fields, number).map((pair) => {
			const read = readMessage(pair);
			const [key, value] = [all(read, 1)[0], all(read, 2)[0]];
			return [textOf(key), textOf(all(readMessage(value ?? new Uint8Array()), 1)[0])];
		}),
	);
}

export function readPush(body: Uint8Array): Pick<Push, 'resource' | 'points'> {
	const [of = new Uint8Array()] = all(readMessage(body), 1);
	const read = readMessage(of);
	const [resource = new Uint8Array()] = all(read, 1);
	const points = all(read, 2).flatMap((scope) =>
		all(readMessage(scope), 2).flatMap((bytes): PushedPoint[] => {
			const metric = readMessage(bytes);
			const [gauge, sum] = [all(metric, 5)[0], all(metric, 7)[0]];
			const data = readMessage(gauge ?? sum ?? new Uint8Array());
			return all(data, 1).map((pointBytes) => {
				const point = readMessage(pointBytes);
				const number = (field: number) => (point.find(([one]) => one === field)?.[1] ?? 0n) as bigint;
				const bits = new DataView(new ArrayBuffer(8));
				bits.setBigUint64(0, number(4));
				return {
					name: textOf(all(metric, 1)[0]),
					labels: attributes(point, 7),
					value: bits.getFloat64(0),
					atMs: Number(number(3) / 1_000_000n),
					isCounter: sum !== undefined,
				};
			});
		}),
	);
	return { resource: attributes(readMessage(resource), 1), points };
}

export interface Sink {
	readonly url: string;
	readonly pushes: readonly Push[];
	/** Answers so from now on; 0 cuts the line. */
	status: number;
	/** Answers with these, and with this body, from now on. */
	headers: Readonly<Record<string, string>>;
	answer: Uint8Array;
	/** Resolves when so many pushes, taken or not, have come in all. */
	untilAsked(count: number): Promise<void>;
	readonly server: Server;
}

/** @param tls what it shows, for https on the name `localhost`. */
export async function givenSink(tls?: { readonly cert: string; readonly key: string }): Promise<Sink> {
	const pushes: Push[] = [];
	const waiting = new Set<() => void>();
	let asked = 0;
	const server = tls ? createSecureServer(tls) : createServer();
	server.on('request', (request: IncomingMessage, response: ServerResponse) => {
		const chunks: Uint8Array[] = [];
		request.on('data', (chunk: Uint8Array) => chunks.push(chunk));
		request.on('end', () => {
			const sent = Buffer.concat(chunks);
			const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(sent) : sent;
			if (sink.status === 200)
				pushes.push({ headers: request.headers, url: request.url ?? '', bytes: body.length, ...readPush(body) });
			response.on('close', () => {
				asked += 1;
				for (const look of [...waiting]) look();
			});
			if (sink.status === 0) request.socket.destroy();
			else response.writeHead(sink.status, sink.headers).end(sink.answer);
		});
	});
	const port = await listen(server);
	onTestFinished(() => server.closeAllConnections());
	const sink: Sink = {
		url: `${tls ? 'https' : 'http'}://127.0.0.1:${port}/opentelemetry/v1/metrics?key=secret-in-query`,
		pushes,
		status: 200,
		headers: {},
		answer: new Uint8Array(),
		server,
		untilAsked: (count) =>
			new Promise((resolve) => {
				const look = () => {
					if (asked < count) return;
					waiting.delete(look);
					resolve();
				};
				waiting.add(look);
				look();
			}),
	};
	return sink;
}
