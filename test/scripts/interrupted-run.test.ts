import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');

test.each(['SIGINT', 'SIGKILL'] as const)('a run of tests that gets %s leaves no process behind', async (signal) => {
	const server = createServer().listen(0, '127.0.0.1');
	onTestFinished(() => void server.close());
	await once(server, 'listening');
	const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
	const run = spawn(process.execPath, [vitest, 'run', '--config', 'test/fixtures/interrupted.config.ts'], {
		cwd: ROOT,
		stdio: 'ignore',
		env: { ...process.env, TELL: String((server.address() as AddressInfo).port) },
	});
	onTestFinished(() => void run.kill('SIGKILL'));
	const ended = once(run, 'close');
	// The kernel closes what a process has open when it is gone, and not before.
	const [worker] = (await once(server, 'connection')) as [Socket];
	const [port] = await once(createInterface({ input: worker }), 'line');
	const command = connect(Number(port), '127.0.0.1');
	await once(command, 'connect');
	const gone = Promise.all(
		[worker, command].map((socket) =>
			once(
				socket.on('error', () => {}),
				'close',
			),
		),
	);
	run.kill(signal);
	await ended;
	await gone;
	expect(run.signalCode ?? run.exitCode).not.toBe(0);
});
