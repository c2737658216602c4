/** `idv-agent hooks` as a process, beside a daemon that systemd has not started. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import { follow, givenHome } from '../cli/command.ts';

const isAlive = (pid: number) => existsSync(`/proc/${pid}`);

test('idv-agent run has it beside itself while a hook is set, and takes it along however it ends [F539]', async () => {
	const home = await givenHome();
	const out = join(home.directory, 'out');
	// Its parent is the program that runs the commands.
	const argv = ['/bin/sh', '-c', `echo $PPID $IDV_AGENT_HOOK >> ${out}`];
	await home.writeSettings({ hooks: { onPairingFailed: argv } });
	const daemon = await home.run();
	const client = createLocalClient({ runDir: join(home.directory, 'run') });
	await expect(client.request('admin', 'POST', '/v1/pair', { code: 'no code' })).rejects.toThrow();
	await daemon.untilLine(/onPairingFailed ended/);
	const [pid] = readFileSync(out, 'utf8').split(' ').map(Number);
	expect(pid).not.toBe(daemon.pid);
	await daemon.end('SIGKILL');
	await expect.poll(() => isAlive(pid ?? 0), { timeout: 20_000 }).toBe(false);
	expect(readFileSync(out, 'utf8')).toMatch(/^\d+ onPairingFailed\n$/);
});

test('an agent that is ended waits until the program beside it has reported what it ran', async () => {
	const home = await givenHome();
	const out = join(home.directory, 'out');
	// It takes no notice of the first signal, as one that has to finish something.
	const argv = ['/bin/sh', '-c', `trap '' TERM; echo $PPID > ${out}; echo ready >&2; while :; do :; done`];
	await home.writeSettings({ hooks: { onPairingFailed: argv } });
	const daemon = await home.run();
	const client = createLocalClient({ runDir: join(home.directory, 'run') });
	await expect(client.request('admin', 'POST', '/v1/pair', { code: 'no code' })).rejects.toThrow();
	await expect.poll(() => existsSync(out) && readFileSync(out, 'utf8').endsWith('\n')).toBe(true);
	const pid = Number(readFileSync(out, 'utf8'));
	const endedAt = performance.now();
	await daemon.end('SIGTERM');
	// An end that takes longer than 2.5 s waits for nothing more; a busy machine may need them.
	const couldWait = performance.now() - endedAt < 2500;
	expect({ couldWait, isAlive: isAlive(pid) }).not.toEqual({ couldWait: true, isAlive: true });
	await expect.poll(() => isAlive(pid)).toBe(false);
});

test('it ends when no hook is set', async () => {
	const home = await givenHome();
	await home.run();
	const program = follow('idv-agent', ['hooks'], home.env);
	expect(await program.ended).toMatchObject({ status: 0, stderr: '' });
});
