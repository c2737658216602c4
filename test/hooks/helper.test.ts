/** The helper unit, over real sockets: started as systemd starts it (a connection as standard input), or in this process. */
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createHooks, type HookCall, type HookReport } from '../../src/hooks/hooks.edge.ts';
import { MAX_REQUEST_BYTES } from '../../src/hooks/messages.ts';
import { serveHook } from '../../src/hooks/serve.runner.ts';
import { choosePaths } from '../../src/settings/paths.runner.ts';
import { BIN } from '../cli/command.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const isRoot = process.getuid?.() === 0;
const sh = (script: string, ...more: string[]) => ['/bin/sh', '-c', script, 'sh', ...more];

/** A directory with `config.json`, `conf.d` and the place of the socket. */
async function givenPlace(hooks: object = {}) {
	const directory = await mkdtemp(join(tmpdir(), 'helper-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const config = join(directory, 'config.json');
	const confDirectory = join(directory, 'conf.d');
	await mkdir(confDirectory);
	await writeFile(config, JSON.stringify({ hooks }));
	return { directory, config, confDirectory, out: join(directory, 'out'), socket: join(directory, 'hooks.sock') };
}
type Place = Awaited<ReturnType<typeof givenPlace>>;

/** Listens as the socket unit does. @returns how many connections were open at once at most. */
async function listen(socket: string, serve: (stream: Socket) => void, pauseOnConnect = false) {
	const open = new Set<Socket>();
	const seen = { most: 0 };
	const server = createServer({ pauseOnConnect }, (stream) => {
		open.add(stream.on('close', () => open.delete(stream)).on('error', () => {}));
		seen.most = Math.max(seen.most, open.size);
		serve(stream);
	});
	server.listen(socket);
	await once(server, 'listening');
	onTestFinished(() => {
		for (const stream of open) stream.destroy();
		server.close();
	});
	return seen;
}

/** Serves in this process. `ended` has what it has thrown, when all is served. */
async function givenHelper(place: Place, more: { requestWithinMs?: number } = {}) {
	const served: Promise<unknown>[] = [];
	const paths = choosePaths({ config: place.config }, {});
	const env = { PATH: process.env['PATH'] };
	const seen = await listen(place.socket, (stream) => {
		served.push(serveHook({ stream, paths, env, ...more }).catch((error) => error));
	});
	return { ended: async () => (await Promise.all(served)).filter((error) => error !== undefined), seen };
}

/** Sends bytes and returns all that is answered until the end. */
async function say(socket: string, bytes: string | Buffer): Promise<string> {
	const stream = connect(socket);
	stream.on('error', () => {});
	stream.write(bytes);
	return text(stream).catch(() => '');
}
const reasonFrom = async (socket: string, line: unknown) =>
	JSON.parse(await say(socket, `${typeof line === 'string' ? line : JSON.stringify(line)}\n`)).outcome.reason;

/** Runs hooks as the agent does, and resolves with the reports when all are there. */
async function report(calls: readonly HookCall[], limits = {}): Promise<HookReport[]> {
	const reports: HookReport[] = [];
	await new Promise<void>((resolve) => {
		const hooks = createHooks({
			limits,
			env: {},
			report(each) {
				reports.push(each);
				if (reports.length === calls.length) resolve();
			},
		});
		for (const call of calls) hooks.run(call);
	});
	return reports;
}
const onOnline = (socket: string, input: unknown = {}, argv = ['/bin/false']) => ({
	hook: 'onOnline',
	argv,
	input,
	socket,
});

describe.skipIf(!isRoot)('the helper', () => {
	test('runs, as a process with a connection as standard input, the command of its own settings and tells how it ended', async () => {
		const place = await givenPlace();
		const script = 'cat > "$1"; echo "$IDV_AGENT_HOOK $2" >> "$1"; echo no printer >&2; exit 3';
		await writeFile(
			join(place.confDirectory, '10-hooks.json'),
			JSON.stringify({ hooks: { onOnline: sh(script, place.out, '$(id)') } }),
		);
		await listen(
			place.socket,
			(stream) => {
				const args = ['hook-helper', '--config', place.config];
				// Root's word is in the files, not in variables.
				const env = { ...process.env, IDV_AGENT_HOOKS_ON_ONLINE: '/bin/false' };
				const child = spawn(join(BIN, 'idv-agent'), args, { env, stdio: [stream, 'ignore', 'inherit'] });
				onTestFinished(() => void child.kill('SIGKILL'));
				stream.destroy();
			},
			true,
		);
		// The agent's own idea of the command must not matter.
		const [told] = await report([onOnline(place.socket, { state: 'online' }, sh('touch "$1"', `${place.out}.wrong`))]);
		expect(told).toMatchObject({ outcome: { kind: 'exited', exitStatus: 3 }, stderr: 'no printer' });
		expect(readFileSync(place.out, 'utf8')).toBe('{"state":"online"}\nonOnline $(id)\n');
		expect(existsSync(`${place.out}.wrong`)).toBe(false);
	});

	test('refuses to run at a shell', () => {
		const { status, stderr } = spawnSync(join(BIN, 'idv-agent'), ['hook-helper'], {
			stdio: ['ignore', 'pipe', 'pipe'],
		});
		expect(String(stderr)).toContain('Standard input is not a socket');
		expect(status).toBe(64);
	});

	test('takes the name of a hook and its input, and no command', async () => {
		const place = await givenPlace({ onOnline: sh('touch "$1"', 'unused') });
		const { ended } = await givenHelper(place);
		const touch = sh('touch "$1"', place.out);
		for (const line of [
			{ hook: 'onOnline', input: {}, argv: touch },
			{ hook: 'onOnline', input: {}, limits: { timeoutMs: 1e9 } },
			{ hook: 'constructor', input: {} },
			{ hook: 'helper', input: {} },
			{ hook: ['onOnline'], input: {} },
			{ input: {} },
			[],
			null,
			'',
			'\u0000\u0001',
			'{"hook":"onOnline","input":',
			'GET / HTTP/1.1\r',
		])
			expect(await reasonFrom(place.socket, line)).toContain('the request names no hook');
		expect(existsSync(place.out)).toBe(false);
		expect(await ended()).toEqual([]);
	});

	test('says when the files name no command or are broken', async () => {
		const place = await givenPlace({});
		await givenHelper(place);
		const request = { hook: 'onOnline', input: {} };
		expect(await reasonFrom(place.socket, request)).toBe('No settings file names a command for hooks.onOnline.');
		await writeFile(join(place.confDirectory, '20.json'), '{"hooks":');
		expect(await reasonFrom(place.socket, request)).toContain('20.json');
	});

	test.each([
		['a file that others may write', (place: Place) => chmod(place.config, 0o666)],
		['a file that its group may write', (place: Place) => chmod(place.config, 0o664)],
		['a file of another user', (place: Place) => chown(place.config, 4242, 0)],
		['a directory of files that others may write', (place: Place) => chmod(place.confDirectory, 0o777)],
		['a directory of files of another user', (place: Place) => chown(place.confDirectory, 4242, 0)],
		['a directory above that others may write', (place: Place) => chmod(place.directory, 0o777)],
	])('takes no command from %s', async (_, expose) => {
		const place = await givenPlace();
		await writeFile(place.config, JSON.stringify({ hooks: { onOnline: sh('touch "$1"', place.out) } }));
		await givenHelper(place);
		await expose(place);
		expect(await reasonFrom(place.socket, { hook: 'onOnline', input: {} })).toContain('is not safe');
		expect(existsSync(place.out)).toBe(false);
	});

	test('reads so many bytes and waits so long, and no more', async () => {
		const place = await givenPlace({ onOnline: ['/bin/true'] });
		const { ended } = await givenHelper(place);
		// Whoever sends too much or nothing is cut off without an answer.
		expect(await say(place.socket, Buffer.alloc(MAX_REQUEST_BYTES + 2, 'x'))).toBe('');
		const hasty = await givenPlace({ onOnline: ['/bin/true'] });
		const { ended: endedHastily } = await givenHelper(hasty, { requestWithinMs: 200 });
		const dripping = connect(hasty.socket).on('error', () => {});
		const drip = setInterval(() => dripping.write(' '), 20);
		await new Promise((resolve) => dripping.resume().once('close', resolve));
		clearInterval(drip);
		expect(await ended()).toMatchObject([{ code: 'body-invalid', message: expect.stringContaining('larger') }]);
		expect(await endedHastily()).toMatchObject([{ code: 'body-invalid', message: expect.stringContaining('ended') }]);
	});

	test('ends a command, with what it started, when the agent is gone', async () => {
		const place = await givenPlace();
		const pipe = join(place.directory, 'pipe');
		execFileSync('mkfifo', [pipe]);
		await writeFile(place.config, JSON.stringify({ hooks: { onOnline: sh('sleep 600 > "$1" & wait', pipe) } }));
		await givenHelper(place);
		const reading = createReadStream(pipe);
		const agent = connect(place.socket).on('error', () => {});
		agent.write('{"hook":"onOnline","input":{}}\n');
		await once(reading, 'open');
		agent.destroy();
		await once(reading.resume(), 'end');
	});
});

describe('the agent', () => {
	test.each([
		['closes at once', (stream: Socket) => stream.destroy()],
		['answers garbage', (stream: Socket) => stream.end('{"outcome":{"kind":"fine"}}\n')],
		['answers without end', (stream: Socket) => stream.end(Buffer.alloc(1_000_000, 'x'))],
	])('says so when the helper %s', async (_, serve) => {
		const { socket } = await givenPlace();
		await listen(socket, serve);
		expect(await report([onOnline(socket)])).toMatchObject([
			{ outcome: { kind: 'notStarted', reason: expect.stringContaining(socket) } },
		]);
	});

	test('waits no longer than for a command of its own', async () => {
		const { socket } = await givenPlace();
		await listen(socket, () => {});
		expect(await report([onOnline(socket)], { timeoutMs: 50 })).toMatchObject([{ outcome: { kind: 'timedOut' } }]);
	});

	test.skipIf(!isRoot)('asks for a few at once, and drops what is too many', async () => {
		const place = await givenPlace({ onOnline: ['/bin/true'] });
		const { seen } = await givenHelper(place);
		const reports = await report(
			Array.from({ length: 12 }, () => onOnline(place.socket)),
			{ atOnce: 2, queued: 6 },
		);
		const count = (kind: string) => reports.filter(({ outcome }) => outcome.kind === kind).length;
		expect([count('exited'), count('dropped')]).toEqual([8, 4]);
		expect(seen.most).toBeLessThanOrEqual(3);
	});

	test.skipIf(!isRoot)(
		'runs no command with its own rights while the helper is missing, says so, and goes on with it',
		async () => {
			const service = await givenService();
			const home = await givenHome();
			const called = join(home.directory, 'called');
			const argv = sh('cat > "$1"', called);
			const settings = { hooks: { helper: true, onPairingFailed: argv, onOnline: argv } };
			const device = await givenAgent({ home, settings });
			await expect(device.agent.pair({ code: 'no code at all' })).rejects.toMatchObject({ code: 'not-a-pairing-code' });
			const { warnings } = await device.untilStatus((status) => status.warnings.length > 0);
			expect(warnings).toMatchObject([
				{
					code: 'socket-failed',
					message: expect.stringMatching(/hooks\.onPairingFailed did not run: .*hooks\.sock.*ENOENT/),
				},
			]);
			expect(existsSync(called)).toBe(false);

			await listen(join(home.paths.runDir, 'hooks.sock'), (stream) => {
				void serveHook({ stream, paths: home.paths, env: { PATH: process.env['PATH'] } });
			});
			await device.pair(service.createPairingCode('check-in').url);
			await device.untilLogged(({ msg }) => msg === 'onOnline ended');
			await device.untilStatus((status) => status.warnings.length === 0);
			expect(JSON.parse(readFileSync(called, 'utf8'))).toMatchObject({ state: 'online' });
		},
	);
});
