/** One plain request to a running agent on any of its listeners, as curl or a browser would make it. */
import { type IncomingHttpHeaders, type OutgoingHttpHeaders, type RequestOptions, request } from 'node:http';
import { join } from 'node:path';
import { expect } from 'vitest';
import { LOCAL_SOCKETS } from '../../src/protocol/local-api.ts';
import type { RunningAgent } from '../harness/harness.ts';

export type AskedListener = keyof typeof LOCAL_SOCKETS | 'browser' | 'probe';

export interface Asked {
	/** Default `agent`. */
	readonly socket?: AskedListener;
	readonly method?: string;
	readonly headers?: OutgoingHttpHeaders;
	/** Sent as JSON. */
	readonly body?: unknown;
	/** Sent as it is, in place of `body`. */
	readonly bytes?: string | Buffer;
	readonly signal?: AbortSignal;
	/** Leaves after the first piece of the answer: for a stream. */
	readonly leave?: boolean;
}

export interface Answered {
	readonly status: number;
	readonly headers: IncomingHttpHeaders;
	readonly text: string;
	// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
	readonly json: any;
}

/** Where a listener of the agent is, for Node's http. */
export function addressOf({ daemon, home }: RunningAgent, listener: AskedListener): RequestOptions {
	if (listener === 'agent' || listener === 'admin')
		return { socketPath: join(home.paths.runDir, LOCAL_SOCKETS[listener]) };
	const address = listener === 'probe' ? daemon.addresses.metrics : daemon.addresses.browser;
	const { hostname, port } = new URL(address ?? expect.fail(`${listener} is not open`));
	return { hostname, port };
}

export function ask(device: RunningAgent, path: string, asked: Asked = {}): Promise<Answered> {
	const { socket = 'agent', method = 'GET', headers = {}, body, signal } = asked;
	const payload = asked.bytes ?? (body === undefined ? undefined : JSON.stringify(body));
	return new Promise((resolve, reject) => {
		const options = {
			...addressOf(device, socket),
			path,
			method,
			agent: false,
			headers: {
				...(payload !== undefined && { 'content-length': Buffer.byteLength(payload) }),
				...(body !== undefined && { 'content-type': 'application/json' }),
				...headers,
			},
			...(signal ? { signal } : {}),
		};
		const asking = request(options, (response) => {
			const chunks: Buffer[] = [];
			response.on('data', (chunk: Buffer) => {
				chunks.push(chunk);
				if (asked.leave) finish();
			});
			response.on('error', asked.leave ? () => {} : reject);
			const finish = () => {
				const text = Buffer.concat(chunks).toString();
				const isJson = /json/.test(response.headers['content-type'] ?? '') && text !== '';
				const json = isJson ? JSON.parse(text) : undefined;
				resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json });
				if (asked.leave) asking.destroy();
			};
			response.on('end', finish);
		});
		asking.on('error', reject);
		asking.end(payload);
	});
}
