import { mkdtemp, rm } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { onTestFinished } from 'vitest';
import * as z from 'zod';
import { AgentError } from '../../src/base/errors.ts';
import type { ServerSentEvent } from '../../src/client/agent-socket.edge.ts';
import { createLocalClient, type LocalClient } from '../../src/client/local-client.edge.ts';
import {
	type EventSink,
	type LocalReply,
	type LocalRequest,
	type LocalRoute,
	type LocalServer,
	type LocalServerOptions,
	localRoute,
	openLocalServer,
} from '../../src/local-api/server/local-server.edge.ts';

export interface Opened {
	readonly runDir: string;
	readonly agentSocket: string;
	readonly adminSocket: string;
	readonly server: LocalServer;
	readonly client: LocalClient;
	readonly faults: unknown[];
}

export async function makeDirectory(): Promise<string> {
	const directory = await mkdtemp(join(tmpdir(), 'idv-local-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	return directory;
}

export async function open(routes: LocalRoute[], options: Partial<LocalServerOptions> = {}): Promise<Opened> {
	const runDir = options.runDir ?? (await makeDirectory());
	const faults: unknown[] = [];
	const server = await openLocalServer({ runDir, routes, onFault: (error) => faults.push(error), ...options });
	onTestFinished(() => server.close());
	const client = createLocalClient({ runDir });
	return {
		runDir,
		agentSocket: join(runDir, 'agent.sock'),
		adminSocket: join(runDir, 'admin.sock'),
		server,
		client,
		faults,
	};
}

export interface Answer {
	readonly status: number;
	readonly headers: http.IncomingHttpHeaders;
	readonly text: string;
	readonly body: Record<string, unknown>;
}

export interface Ask {
	readonly method?: string;
	readonly path?: string;
	readonly headers?: http.OutgoingHttpHeaders;
	readonly body?: string | Uint8Array;
}

/** One request by Node's own client, whatever is asked. */
export function ask(socketPath: string, { method = 'GET', path = '/v1/echo', headers, body }: Ask): Promise<Answer> {
	return new Promise((resolve, reject) => {
		const request = http.request({ socketPath, method, path, headers, agent: false }, async (response) => {
			const text = Buffer.concat(await response.toArray()).toString();
			const { statusCode: status = 0, headers: got } = response;
			resolve({
				status,
				headers: got,
				text,
				body: /json/.test(got['content-type'] ?? '') && text ? JSON.parse(text) : {},
			});
		});
		request.once('error', reject);
		request.end(body);
	});
}

/** Until the connection is gone; a reset is one way of being gone. */
export function untilClosed(socket: net.Socket): Promise<void> {
	socket.on('error', () => {});
	return new Promise((resolve) => {
		if (socket.closed) resolve();
		else socket.once('close', () => resolve());
	});
}

/** Writes bytes and gives back all that comes until the other side closes; a reset counts as a close. */
export async function exchange(socketPath: string, bytes: string | Uint8Array, more: { halfClose?: boolean } = {}) {
	const socket = net.connect(socketPath);
	let got = '';
	socket.on('data', (chunk) => {
		got += chunk.toString('latin1');
		// A stream goes on for a caller that only has nothing more to ask.
		if (more.halfClose && /^content-type: text\/event-stream/im.test(got)) socket.destroy();
	});
	if (more.halfClose) socket.end(bytes);
	else socket.write(bytes);
	await untilClosed(socket);
	return got;
}

export const json = (document: unknown): Ask => ({
	method: 'POST',
	headers: { 'Content-Type': 'application/json' },
	body: JSON.stringify(document),
});

export const echoSchema = z.strictObject({ name: z.string().min(2, 'is too short'), times: z.int().default(1) });

/** One route of each sort that the tests here ask for. */
export const echoRoutes: LocalRoute[] = [
	{
		method: 'GET',
		path: '/v1/echo',
		listeners: ['agent', 'admin'],
		handle: ({ listener, method, path, query, since }) => ({
			status: 200,
			body: { listener, method, path, query: [...query], since },
		}),
	},
	localRoute({
		method: 'POST',
		path: '/v1/echo',
		listeners: ['agent', 'admin'],
		body: echoSchema,
		handle: ({ body }) => ({ status: 201, body: { name: body.name, times: body.times } }),
	}),
	{ method: 'POST', path: '/v1/reconnect', listeners: ['admin'], handle: () => ({ status: 204 }) },
];

export const failing = (error: () => unknown): LocalRoute => ({
	method: 'GET',
	path: '/v1/echo',
	listeners: ['agent', 'admin'],
	handle() {
		throw error();
	},
});

export async function failureOf(promise: Promise<unknown>): Promise<AgentError> {
	const error = await promise.then(
		() => null,
		(thrown: unknown) => thrown,
	);
	if (error instanceof AgentError) return error;
	throw new Error(`expected an AgentError, got ${String(error)}`);
}

/** A source of events whose consumers the test can see. */
export function eventSource(replay: (request: LocalRequest, sink: EventSink) => void = () => {}) {
	const sinks = new Set<EventSink>();
	let cleanUps = 0;
	let waiting: (() => void) | null = null;
	const changed = () => waiting?.();
	const route: LocalRoute = {
		method: 'GET',
		path: '/v1/events',
		listeners: ['agent'],
		handle: (request): LocalReply => ({
			stream(sink) {
				sinks.add(sink);
				replay(request, sink);
				changed();
				return () => {
					sinks.delete(sink);
					cleanUps += 1;
					changed();
				};
			},
		}),
	};
	return {
		route,
		sinks,
		cleanUps: () => cleanUps,
		broadcast: (id: number, data: unknown) =>
			[...sinks].map((sink) => sink.send({ id: String(id), event: 'notification', data: JSON.stringify(data) })),
		async untilConsumers(count: number) {
			while (sinks.size !== count) {
				await new Promise<void>((resolve) => {
					waiting = resolve;
				});
			}
		},
	};
}

/** A consumer by the client, with what it got so far. */
export function consume(
	client: LocalClient,
	options: { since?: string; signal?: AbortSignal; silenceMs?: number } = {},
) {
	const events: ServerSentEvent[] = [];
	let waiting: (() => void) | null = null;
	const ended = client.events('/v1/events', options, (event) => {
		events.push(event);
		waiting?.();
	});
	return {
		events,
		ended,
		async until(count: number) {
			while (events.length < count) {
				await new Promise<void>((resolve) => {
					waiting = resolve;
				});
			}
		},
	};
}

/** A body that is never ready before it is asked for, and how much of it was taken. */
export function endless(chunkBytes: number, chunks = Number.POSITIVE_INFINITY) {
	const chunk = Buffer.alloc(chunkBytes, 'x');
	const taken = { bytes: 0 };
	const content = new Readable({
		read() {
			if (taken.bytes >= chunks * chunkBytes) return void this.push(null);
			taken.bytes += chunkBytes;
			this.push(chunk);
		},
	});
	return { content, taken };
}

export const MEGABYTE = 1024 * 1024;
/** What kernel and streams may hold between two ends. */
export const IN_BETWEEN = 4 * MEGABYTE;
