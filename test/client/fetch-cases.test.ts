/**
 * `service` of `idv-agent/client` by the cases that the web platform's tests have for `fetch` (fetch/api), each under the name of its
 * file there. Not applicable are: cors, mode, origin, referrer, keepalive, cache and the schemes about, blob and data (there is no page
 * and no URL, only a path on a socket); credentials (the agent adds the Connection and keeps no cookies); redirect (none is followed);
 * h2 (the socket speaks HTTP/1.1); what Request, Response, Headers and FormData do without a request (they are the platform's own).
 */
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { AgentProblem, createClient, type ServiceRequest } from '../../src/client/client.runner.ts';

/** What stands on the agent's socket: it says these bytes to each request once all of it is there. */
async function givenSaying(say: (socket: Socket, asked: string) => void) {
	const directory = await mkdtemp(join(tmpdir(), 'fetch-'));
	const socketPath = join(directory, 'agent.sock');
	const asked: string[] = [];
	const sockets = new Set<Socket>();
	const server = createServer((socket) => {
		sockets.add(socket.on('error', () => {}));
		let text = '';
		let isAnswered = false;
		socket.on('data', (bytes) => {
			text += bytes.toString('latin1');
			const [head = '', body] = text.split(/\r\n\r\n(.*)/s);
			const length = Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
			const isWhole = /^transfer-encoding: chunked/im.test(head)
				? body?.endsWith('0\r\n\r\n')
				: body?.length === length;
			if (!isWhole || isAnswered) return;
			isAnswered = true;
			asked.push(text);
			say(socket, text);
		});
	});
	await once(server.listen(socketPath), 'listening');
	onTestFinished(async () => {
		for (const socket of sockets) socket.destroy();
		server.close();
		await rm(directory, { recursive: true });
	});
	const client = createClient({ socketPath });
	return { service: client.service, asked };
}

const answer = (body: string, head = '') =>
	`HTTP/1.1 200 OK\r\n${head}Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`;
const givenAnswer = (bytes: string) => givenSaying((socket) => socket.write(bytes));
/** Says back the body that it was sent, out of its chunks. */
const givenEcho = () =>
	givenSaying((socket, asked) => {
		const [head = '', body = ''] = asked.split(/\r\n\r\n(.*)/s);
		const plain = /^transfer-encoding: chunked/im.test(head)
			? [...body.matchAll(/([0-9a-f]+)\r\n/gi)].length > 0
				? body.replaceAll(/[0-9a-f]+\r\n([^\r]*)\r\n/gi, '$1').replace(/\r\n$/, '')
				: ''
			: body;
		socket.write(
			answer(
				Buffer.from(plain, 'latin1').toString(),
				`X-Type: ${/^content-type: (.*)$/im.exec(head)?.[1] ?? 'none'}\r\n`,
			),
		);
	});

const streamOf = (...pieces: unknown[]) =>
	new ReadableStream({
		start(controller) {
			for (const piece of pieces) controller.enqueue(piece);
			controller.close();
		},
	});
const bytes = (text: string) => new TextEncoder().encode(text);
const settled = (asking: Promise<unknown>) => asking.catch((error: unknown) => ({ error }));

type Case = () => Promise<void>;
const CASES: Record<string, Record<string, Case>> = {};
const cases = (file: string, all: Record<string, Case>) => Object.assign(CASES, { [file]: all });

const upload = (body: () => ServiceRequest['body'], expected: string, method = 'POST'): Case => {
	return async () => {
		const { service } = await givenEcho();
		expect(await (await service('echo', { method, body: body() })).text()).toBe(expected);
	};
};
const uploadFailure = (piece: unknown): Case => {
	return async () => {
		const { service } = await givenEcho();
		await expect(service('echo', { method: 'POST', body: streamOf(piece) as ReadableStream })).rejects.toThrow(
			TypeError,
		);
	};
};
cases('basic/request-upload', {
	'PUT with a body': upload(() => "Request's body", "Request's body", 'PUT'),
	'POST with text': upload(() => "Request's body", "Request's body"),
	'POST with URLSearchParams': upload(() => new URLSearchParams('name=value'), 'name=value'),
	'POST with a Blob': upload(() => new Blob(['Test']), 'Test'),
	'POST with an ArrayBuffer': upload(() => new ArrayBuffer(4), '\0\0\0\0'),
	'POST with a Uint8Array': upload(() => new Uint8Array(4), '\0\0\0\0'),
	'POST with an Int8Array': upload(() => new Int8Array(4), '\0\0\0\0'),
	'POST with a Float32Array': upload(() => new Float32Array(1), '\0\0\0\0'),
	'POST with a Float64Array': upload(() => new Float64Array(1), '\0'.repeat(8)),
	'POST with a DataView': upload(() => new DataView(new ArrayBuffer(8), 0, 4), '\0\0\0\0'),
	'POST with a Blob that has a type': upload(() => new Blob(['Test'], { type: 'text/maybe' }), 'Test'),
	'POST with a stream': upload(() => streamOf(bytes('Test')) as ReadableStream, 'Test'),
	'a stream of a string': uploadFailure('Test'),
	'a stream of null': uploadFailure(null),
	'a stream of a number': uploadFailure(99),
	'a stream of an ArrayBuffer': uploadFailure(new ArrayBuffer()),
	'a stream of a Blob': uploadFailure(new Blob()),
	'421 is not asked again with a stream': async () => {
		const { service, asked } = await givenAnswer('HTTP/1.1 421 Misdirected\r\nContent-Length: 0\r\n\r\n');
		const told = await service('x', { method: 'POST', body: streamOf(bytes('Test')) as ReadableStream });
		expect([told.status, asked.length]).toEqual([421, 1]);
	},
});

const typed = (body: ServiceRequest['body'], type: string | RegExp, headers?: ServiceRequest['headers']): Case => {
	return async () => {
		const { service } = await givenEcho();
		const told = await service('x', { method: 'POST', body, headers });
		expect(told.headers.get('x-type')).toMatch(type instanceof RegExp ? type : new RegExp(`^${RegExp.escape(type)}$`));
	};
};
cases('request/request-init-contenttype', {
	'none for an empty Blob': typed(new Blob([]), 'none'),
	'that of a Blob': typed(new Blob([], { type: 'a/b; c=d' }), 'a/b; c=d'),
	'none for bytes': typed(new Uint8Array([1]), 'none'),
	'a boundary for a form': typed(new FormData(), /^multipart\/form-data; boundary=\S+$/),
	'that of a form’s text': typed(new URLSearchParams(), 'application/x-www-form-urlencoded;charset=UTF-8'),
	'text for a string': typed('tea', 'text/plain;charset=UTF-8'),
	'one that is given stays': typed('tea', 'text/x-tea', { 'Content-Type': 'text/x-tea' }),
	'an empty one that is given stays': typed('tea', '', [['Content-Type', '']]),
});

cases('request/request-init-stream', {
	'a stream that is being read is refused': async () => {
		const { service, asked } = await givenEcho();
		const body = streamOf(bytes('x')) as ReadableStream;
		body.getReader();
		expect(await settled(service('x', { method: 'POST', body }))).toMatchObject({ error: { code: 'body-invalid' } });
		expect(asked).toEqual([]);
	},
	'a stream that was read is refused': async () => {
		const { service, asked } = await givenEcho();
		const body = streamOf(bytes('x')) as ReadableStream;
		const reader = body.getReader();
		await reader.read();
		reader.releaseLock();
		expect(await settled(service('x', { method: 'POST', body }))).toMatchObject({ error: { code: 'body-invalid' } });
		expect(asked).toEqual([]);
	},
	'a stream with GET is refused': async () => {
		const { service } = await givenEcho();
		const body = streamOf(bytes('x')) as ReadableStream;
		expect(await settled(service('x', { body }))).toMatchObject({ error: { code: 'body-invalid' } });
	},
});

cases('abort/general', {
	'an abort before gives an AbortError': async () => {
		const { service } = await givenEcho();
		await expect(service('x', { signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' });
	},
	'what is wrong with the request comes before the abort': async () => {
		const { service } = await givenEcho();
		const request = { method: 'TRACE', signal: AbortSignal.abort() };
		await expect(service('x', request)).rejects.toThrow(AgentProblem);
	},
	'no signal by null': async () => {
		const { service } = await givenEcho();
		expect((await service('x', { signal: null })).status).toBe(200);
	},
	'an abort before asks for nothing': async () => {
		const { service, asked } = await givenEcho();
		await Promise.all(Array.from({ length: 3 }, () => settled(service('x', { signal: AbortSignal.abort() }))));
		await service('y');
		expect(asked).toHaveLength(1);
	},
	'a signal that was used for an answer still aborts others': async () => {
		const { service } = await givenEcho();
		const stop = new AbortController();
		await (await service('x', { signal: stop.signal })).text();
		stop.abort();
		await expect(service('x', { signal: stop.signal })).rejects.toMatchObject({ name: 'AbortError' });
	},
	'the connection ends when the answer has begun': async () => {
		const closed = Promise.withResolvers<void>();
		const { service } = await givenSaying((socket) => {
			socket.once('close', () => closed.resolve());
			socket.write('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf');
		});
		const stop = new AbortController();
		await service('x', { signal: stop.signal });
		stop.abort();
		await closed.promise;
	},
	'a stream errors once aborted, after reading': async () => {
		const { service } = await givenAnswer('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf');
		const stop = new AbortController();
		const reader = (await service('x', { signal: stop.signal })).body?.getReader();
		await reader?.read();
		stop.abort();
		await expect(reader?.read()).rejects.toMatchObject({ name: 'AbortError' });
		await expect(reader?.closed).rejects.toMatchObject({ name: 'AbortError' });
	},
	'a stream that nobody reads errors as well': async () => {
		const { service } = await givenAnswer('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf');
		const stop = new AbortController();
		const reader = (await service('x', { signal: stop.signal })).body?.getReader();
		stop.abort();
		await expect(reader?.closed).rejects.toMatchObject({ name: 'AbortError' });
	},
	'an empty body does not error': async () => {
		const { service } = await givenAnswer('HTTP/1.1 204 None\r\n\r\n');
		const stop = new AbortController();
		const told = await service('x', { signal: stop.signal });
		stop.abort();
		expect(await told.text()).toBe('');
	},
	'a stream as a body is cancelled with the reason': async () => {
		const { service } = await givenEcho();
		const cancelled = Promise.withResolvers<unknown>();
		const body = new ReadableStream({ pull: (to) => to.enqueue(bytes('x')), cancel: cancelled.resolve });
		const signal = AbortSignal.abort();
		await expect(service('x', { method: 'POST', body, signal })).rejects.toBe(signal.reason);
		expect(await cancelled.promise).toBe(signal.reason);
	},
	'a stream as a body that gives nothing is cancelled with the reason while it is sent': async () => {
		const { service } = await givenEcho();
		const cancelled = Promise.withResolvers<unknown>();
		const begun = Promise.withResolvers<void>();
		const body = new ReadableStream({
			pull: () => {
				begun.resolve();
				return new Promise(() => {});
			},
			cancel: cancelled.resolve,
		});
		const stop = new AbortController();
		const asking = service('x', { method: 'POST', body, signal: stop.signal });
		await begun.promise;
		const reason = new Error('enough');
		stop.abort(reason);
		await expect(asking).rejects.toBe(reason);
		expect(await cancelled.promise).toBe(reason);
	},
	...Object.fromEntries(
		(['arrayBuffer', 'blob', 'formData', 'json', 'text'] as const).map((method) => [
			`${method}() rejects when it is aborted`,
			async () => {
				const { service } = await givenAnswer(
					'HTTP/1.1 200 OK\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 99\r\n\r\nhalf',
				);
				const [before, within] = [new AbortController(), new AbortController()];
				const told = await service('x', { signal: before.signal });
				before.abort();
				await expect(told[method]()).rejects.toMatchObject({ name: 'AbortError' });
				const reading = (await service('x', { signal: within.signal }))[method]();
				within.abort();
				await expect(reading).rejects.toMatchObject({ name: 'AbortError' });
			},
		]),
	),
});

const headersOf = (lines: string, name: string, value: string): Case => {
	return async () => {
		const { service } = await givenAnswer(answer('', lines));
		expect((await service('x')).headers.get(name)).toBe(value);
	};
};
cases('basic/header-value-combining', {
	'several lines become one value': headersOf('X-A: 1\r\nX-A: 2\r\n', 'x-a', '1, 2'),
	'an empty one stays a part': headersOf('X-A: 1\r\nX-A:\r\nX-A: 3\r\n', 'x-a', '1, , 3'),
	'lines of www-authenticate': headersOf('WWW-Authenticate: 1\r\nwww-authenticate: 2\r\n', 'www-authenticate', '1, 2'),
	'spaces around are no part': headersOf('X-A:   a b \t\r\n', 'x-a', 'a b'),
});
cases('headers/header-setcookie', {
	'each line is one cookie': async () => {
		const { service } = await givenAnswer(answer('', 'Set-Cookie: a=1\r\nSet-Cookie: b=2, c\r\n'));
		expect((await service('x')).headers.getSetCookie()).toEqual(['a=1', 'b=2, c']);
	},
});
cases('basic/http-response-code', {
	'every status that has a body': async () => {
		for (const status of [200, 206, 299, 300, 400, 401, 407, 418, 451, 499, 500, 511, 599]) {
			const { service } = await givenAnswer(`HTTP/1.1 ${status} Said So\r\nContent-Length: 3\r\n\r\ntea`);
			const told = await service('x');
			expect([told.status, told.statusText, told.ok, await told.text()]).toEqual([
				status,
				'Said So',
				status < 300,
				'tea',
			]);
		}
	},
	'a status without words': async () => {
		const { service } = await givenAnswer('HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n');
		expect((await service('x')).statusText).toBe('');
	},
});
cases('basic/stream-response', {
	'an answer is read as it comes': async () => {
		const more = Promise.withResolvers<void>();
		const { service } = await givenSaying(async (socket) => {
			socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntea\r\n');
			await more.promise;
			socket.write('2\r\n, \r\n0\r\n\r\n');
		});
		const reader = (await service('x')).body?.getReader();
		expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('tea');
		more.resolve();
		expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe(', ');
		expect(await reader?.read()).toMatchObject({ done: true });
	},
});
cases('response/response-cancel-stream', {
	'a cancelled answer ends the connection, and one that is locked cannot be cancelled': async () => {
		const closed = Promise.withResolvers<void>();
		const { service } = await givenSaying((socket) => {
			socket.once('close', () => closed.resolve());
			socket.write('HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf');
		});
		const told = await service('x');
		const reader = told.body?.getReader();
		await expect(told.body?.cancel()).rejects.toThrow(TypeError);
		await reader?.cancel();
		await closed.promise;
		expect(await reader?.read()).toMatchObject({ done: true });
	},
});
cases('response/response-consume', {
	'as text, JSON, bytes, Blob and form, with its type': async () => {
		const of = async (head: string, body: string) => (await givenAnswer(answer(body, head))).service('x');
		expect(await (await of('', '\ufefftea ä')).text()).toBe('tea ä');
		expect(await (await of('', '{"a":1}')).json()).toEqual({ a: 1 });
		expect((await (await of('', 'tea')).arrayBuffer()).byteLength).toBe(3);
		expect((await (await of('Content-Type: text/x-tea\r\n', 'tea')).blob()).type).toBe('text/x-tea');
		const form = await of('Content-Type: application/x-www-form-urlencoded\r\n', 'a=1&b=2');
		expect([...(await form.formData())]).toEqual([
			['a', '1'],
			['b', '2'],
		]);
	},
	'once only': async () => {
		const { service } = await givenAnswer(answer('tea'));
		const told = await service('x');
		expect([told.bodyUsed, await told.text(), told.bodyUsed]).toEqual([false, 'tea', true]);
		await expect(told.text()).rejects.toThrow(TypeError);
		expect(() => told.clone()).toThrow(TypeError);
	},
	'what is no JSON is a SyntaxError': async () => {
		const { service } = await givenAnswer(answer('tea'));
		await expect((await service('x')).json()).rejects.toThrow(SyntaxError);
	},
});
cases('response/response-consume-stream', {
	'of bytes, into the reader’s own': async () => {
		const { service } = await givenAnswer(answer('tea'));
		const reader = (await service('x')).body?.getReader({ mode: 'byob' });
		const read = await reader?.read(new Uint8Array(9));
		expect(Buffer.from(read?.value ?? []).toString()).toBe('tea');
		expect((await reader?.read(new Uint8Array(9)))?.done).toBe(true);
	},
});
cases('basic/request-headers', {
	'of the request, and none that fetch forbids': async () => {
		const { service, asked } = await givenEcho();
		await service('x', {
			method: 'POST',
			headers: { 'X-Mine': 'a', Host: 'evil', 'Content-Length': '9', TE: 'x' },
			body: 'tea',
		});
		expect(asked[0]).toMatch(/^x-mine: a\r$/im);
		expect(asked[0]).not.toMatch(/evil|^content-length: 9|^te:/im);
	},
	'no length for GET and HEAD, 0 for POST and PUT without a body': async () => {
		const { service, asked } = await givenEcho();
		for (const method of ['GET', 'HEAD', 'POST', 'PUT']) await service('x', { method });
		expect(asked.map((text) => /^content-length: (\d+)/im.exec(text)?.[1])).toEqual([undefined, undefined, '0', '0']);
	},
});
cases('request/request-error', {
	'a method that is none, a header that is none': async () => {
		const { service, asked } = await givenEcho();
		for (const request of [
			{ method: 'IN VALID' },
			{ method: 'CONNECT' },
			{ headers: { 'in valid': 'a' } },
			{ headers: { a: '\0' } },
			{ headers: [['only-one']] as unknown as [string, string][] },
		])
			expect(await settled(service('x', request))).toMatchObject({ error: { code: 'usage' } });
		expect(asked).toEqual([]);
	},
});
cases('basic/request-headers-nonascii', {
	'a value in Latin-1 arrives as it is, and one beyond it is refused': async () => {
		const { service, asked } = await givenEcho();
		const name = 'attachment; filename="caf\xe9 \xc3\xa9"';
		const headers = { 'X-Tea': 'caf\xe9', 'Content-Disposition': name };
		for (const body of [undefined, 'a', new Uint8Array(1), new Blob(['a'])]) {
			await service('x', { method: 'POST', headers, ...(body && { body }) });
			expect(asked.at(-1)).toContain(': caf\xe9\r\n');
			expect(asked.at(-1)).toContain(`: ${name}\r\n`);
		}
		expect(await settled(service('x', { headers: { 'X-Tea': '茶' } }))).toMatchObject({
			error: { code: 'usage' },
		});
	},
});

const all = Object.entries(CASES).flatMap(([file, of]) =>
	Object.entries(of).map(([name, run]) => [file, name, run] as const),
);
test.each(all)('%s: %s', (_file, _name, run) => run());

test('docs/testing.md says how many cases of each folder pass', async () => {
	const counts = Map.groupBy(all, ([file]) => file.split('/')[0]);
	const table = await readFile(join(import.meta.dirname, '../../docs/testing.md'), 'utf8');
	const [, listed = ''] = table.split('| folder of fetch/api');
	const told = [...listed.matchAll(/^\| `(\w+)` \| (\d+) \|/gm)].map(([, folder, count]) => [folder, Number(count)]);
	expect(Object.fromEntries(told)).toEqual(
		Object.fromEntries([...counts].map(([folder, cases]) => [folder, cases.length])),
	);
	expect(table).toContain(`, ${all.length} of them in`);
});
