/** The Unix sockets of the local server as files, and the end of the server. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { link, readFile, stat, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import {
	type LocalReply,
	type LocalRoute,
	openLocalServer,
	socketFailed,
} from '../../src/local-api/server/local-server.edge.ts';
import {
	ask,
	consume,
	echoRoutes,
	eventSource,
	exchange,
	failing,
	failureOf,
	makeDirectory,
	open,
	untilClosed,
} from './local-server.ts';

/** A process that listens on a path until it is killed. */
async function startListener(path: string) {
	const code = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.stdout.write('up'))`;
	const child = spawn(process.execPath, ['-e', code], { stdio: ['ignore', 'pipe', 'inherit'] });
	const exited = once(child, 'exit');
	onTestFinished(async () => {
		child.kill('SIGKILL');
		await exited;
	});
	await once(child.stdout, 'data');
	return {
		async kill() {
			child.kill('SIGKILL');
			await exited;
		},
	};
}

describe('sockets', () => {
	test('are open to owner and group only, whatever the umask', async () => {
		const umask = process.umask(0);
		onTestFinished(() => void process.umask(umask));
		const { agentSocket, adminSocket, server } = await open(echoRoutes);
		expect(process.umask()).toBe(0);
		for (const path of [agentSocket, adminSocket]) expect((await stat(path)).mode & 0o777).toBe(0o660);
		expect(server.notices).toEqual([]);
	});

	test('a group is given by name or number', async () => {
		const groups = (await readFile('/etc/group', 'utf8')).split('\n').map((line) => line.split(':'));
		const mine = process.getuid?.() === 0 ? groups.map(([, , gid]) => Number(gid)) : (process.getgroups?.() ?? []);
		const [name = '', , gid = ''] = groups.findLast((fields) => fields[2] && mine.includes(Number(fields[2]))) ?? [];
		const { agentSocket, adminSocket, server } = await open(echoRoutes, {
			groups: { agent: name, admin: Number(gid) },
		});
		expect(server.notices).toEqual([]);
		for (const path of [agentSocket, adminSocket]) {
			const { gid: found, mode } = await stat(path);
			expect([found, mode & 0o777]).toEqual([Number(gid), 0o660]);
		}
	});

	test('with a group that does not exist only the owner gets in, and a notice says so', async () => {
		const { adminSocket, agentSocket, server } = await open(echoRoutes, { groups: { admin: 'no-such-group' } });
		expect(server.notices).toMatchObject([{ code: 'socket-failed' }]);
		expect(server.notices[0]?.message).toContain('no-such-group');
		expect((await stat(adminSocket)).mode & 0o777).toBe(0o600);
		expect((await stat(agentSocket)).mode & 0o777).toBe(0o660);
		expect(await ask(adminSocket, {})).toMatchObject({ status: 200 });
	});

	test('what a crash has left behind is replaced', async () => {
		const runDir = await makeDirectory();
		const crashed = await startListener(join(runDir, 'agent.sock'));
		await crashed.kill();
		const client = createLocalClient({ runDir });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('agent-not-running');
		await open(echoRoutes, { runDir });
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ listener: 'agent' });
	});

	test('a live one is left alone', async () => {
		const first = await open(echoRoutes);
		const error = await failureOf(openLocalServer({ runDir: first.runDir, routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed' });
		expect(error.message).toContain(first.agentSocket);
		expect(await first.client.request('agent', 'GET', '/v1/echo')).toMatchObject({ listener: 'agent' });
		expect(await first.client.request('admin', 'GET', '/v1/echo')).toMatchObject({ listener: 'admin' });
	});

	test('when one of the two cannot be had, the other is not left behind', async () => {
		const runDir = await makeDirectory();
		await startListener(join(runDir, 'admin.sock'));
		expect((await failureOf(openLocalServer({ runDir, routes: [] }))).code).toBe('socket-failed');
		await expect(stat(join(runDir, 'agent.sock'))).rejects.toMatchObject({ code: 'ENOENT' });
	});

	test('a file of another kind in its place is kept', async () => {
		const runDir = await makeDirectory();
		await writeFile(join(runDir, 'agent.sock'), 'precious');
		expect((await failureOf(openLocalServer({ runDir, routes: [] }))).code).toBe('socket-failed');
		expect(await readFile(join(runDir, 'agent.sock'), 'utf8')).toBe('precious');
	});

	test('the run directory is made; one that cannot be is an error', async () => {
		const parent = await makeDirectory();
		await writeFile(join(parent, 'file'), '');
		const { client } = await open(echoRoutes, { runDir: join(parent, 'a', 'b') });
		expect(await client.request('agent', 'GET', '/v1/echo')).toMatchObject({ listener: 'agent' });
		const error = await failureOf(openLocalServer({ runDir: join(parent, 'file', 'x'), routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed', message: expect.stringContaining('ENOTDIR') });
	});

	test('a path of 107 bytes works, a longer one is refused by name', async () => {
		const parent = await makeDirectory();
		const runDirOf = (bytes: number) => join(parent, 'd'.repeat(bytes - parent.length - '//agent.sock'.length));
		const fits = await open(echoRoutes, { runDir: runDirOf(107) });
		expect(Buffer.byteLength(fits.agentSocket)).toBe(107);
		expect(await fits.client.request('agent', 'GET', '/v1/echo')).toMatchObject({ listener: 'agent' });

		const error = await failureOf(openLocalServer({ runDir: runDirOf(108), routes: [] }));
		expect(error.failure).toMatchObject({ code: 'socket-failed', message: expect.stringContaining('108') });
		const client = createLocalClient({ runDir: runDirOf(108) });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('socket-failed');
	});

	test('a socket that was opened beforehand is taken over and stays', async () => {
		const runDir = await makeDirectory();
		const elsewhere = join(runDir, 'first.sock');
		const opener = net.createServer().listen(elsewhere);
		await once(opener, 'listening');
		// Closing the opener removes its name; the socket lives on under the other.
		await link(elsewhere, join(runDir, 'agent.sock'));
		const { fd } = (opener as unknown as { _handle: { fd: number } })._handle;
		const program = `
			const { openLocalServer } = await import(process.argv[1]);
			const routes = [{ method: 'GET', path: '/v1/echo', listeners: ['agent'], handle: () => ({ status: 200, body: 'given' }) }];
			const server = await openLocalServer({ runDir: process.argv[2], routes, listen: { agent: { fd: 3 } } });
			process.stdin.once('data', async () => {
				await server.close();
				process.exit();
			});
			process.stdout.write('up');`;
		const source = new URL('../../src/local-api/server/local-server.edge.ts', import.meta.url).href;
		const child = spawn(process.execPath, ['--input-type=module', '-e', program, source, runDir], {
			stdio: ['pipe', 'pipe', 'inherit', fd],
		});
		const exited = once(child, 'exit');
		onTestFinished(() => void child.kill('SIGKILL'));
		opener.close();
		await once(child.stdout as NodeJS.ReadableStream, 'data');
		const client = createLocalClient({ runDir });
		expect(await client.request('agent', 'GET', '/v1/echo')).toBe('given');
		expect((await failureOf(client.request('admin', 'GET', '/v1/echo'))).code).toBe('access-denied');
		child.stdin?.write('stop');
		expect(await exited).toEqual([0, null]);
		expect((await stat(join(runDir, 'agent.sock'))).isSocket()).toBe(true);
		await expect(stat(join(runDir, 'admin.sock'))).rejects.toMatchObject({ code: 'ENOENT' });
	});
});

describe('closing', () => {
	test('removes the sockets, as often as it is asked', async () => {
		const { server, agentSocket, adminSocket, client } = await open(echoRoutes);
		await Promise.all([server.close(), server.close()]);
		await server.close();
		for (const path of [agentSocket, adminSocket]) await expect(stat(path)).rejects.toMatchObject({ code: 'ENOENT' });
		expect((await failureOf(client.request('agent', 'GET', '/v1/echo'))).code).toBe('agent-not-running');
	});

	test('tells the consumers of streams', async () => {
		const source = eventSource();
		const { server, client } = await open([source.route]);
		const consumers = [consume(client), consume(client)];
		await source.untilConsumers(2);
		source.broadcast(1, 'last');
		await server.close();
		for (const consumer of consumers) {
			expect(await consumer.ended).toEqual({ reason: 'stopping' });
			expect(consumer.events.map(({ data }) => data)).toEqual(['"last"']);
		}
		expect(source.cleanUps()).toBe(2);
	});

	test('a stream that would begin only then ends at once', async () => {
		const begun = Promise.withResolvers<void>();
		const go = Promise.withResolvers<void>();
		const source = eventSource();
		const route: LocalRoute = {
			...source.route,
			async handle(request) {
				begun.resolve();
				await go.promise;
				return source.route.handle(request);
			},
		};
		const { server, client } = await open([route], { limits: { closeGraceMs: 60_000 } });
		const consumer = consume(client);
		await begun.promise;
		const closed = server.close();
		go.resolve();
		expect(await consumer.ended).toEqual({ reason: 'stopping' });
		await closed;
		expect(source.cleanUps()).toBe(1);
	});

	test('lets a request under way finish, and keeps no connection for the next', async () => {
		const begun = Promise.withResolvers<void>();
		const go = Promise.withResolvers<LocalReply>();
		const { server, agentSocket } = await open(
			[
				{
					...failing(() => ''),
					handle() {
						begun.resolve();
						return go.promise;
					},
				},
			],
			{ limits: { closeGraceMs: 60_000 } },
		);
		const idle = net.connect(agentSocket);
		await once(idle, 'connect');
		const idleClosed = untilClosed(idle.resume());
		const answer = exchange(agentSocket, 'GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n');
		await begun.promise;
		const closed = server.close();
		go.resolve({ status: 200, body: 'done' });
		expect(await answer).toMatch(/^HTTP\/1\.1 200 .*Connection: close.*"done"$/s);
		await closed;
		await idleClosed;
	});

	test('does not wait for ever, and tells the handler', async () => {
		const begun = Promise.withResolvers<AbortSignal>();
		const { server, client, faults } = await open(
			[
				{
					...failing(() => ''),
					async handle({ signal }) {
						begun.resolve(signal);
						await once(signal, 'abort');
						throw new AgentError('usage', 'nobody reads this');
					},
				},
			],
			{ limits: { closeGraceMs: 20 } },
		);
		const asked = failureOf(client.request('agent', 'GET', '/v1/echo'));
		const signal = await begun.promise;
		const aborted = once(signal, 'abort');
		await server.close();
		expect((await asked).failure).toMatchObject({ code: 'agent-not-running' });
		await aborted;
		expect(faults).toEqual([]);
	});
});

test.each([
	['EMFILE', 'Let this process open more files: LimitNOFILE of its unit, or ulimit -n.'],
	['ENFILE', 'Let this machine open more files: sysctl fs.file-max.'],
])(
	'a socket for which there is no room (%s) is told with the limit, and tried again by systemd [F1006]',
	(code, remedy) => {
		const { failure } = socketFailed('Cannot listen on /run/x.sock', Object.assign(new Error(code), { code }));
		expect(failure).toMatchObject({ code: 'memory-low', message: `Cannot listen on /run/x.sock (${code}).`, remedy });
	},
);
