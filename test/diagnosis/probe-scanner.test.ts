import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { checkScanners, type DaemonWord } from '../../src/diagnosis/probe-device.runner.ts';
import type { ScannerReport } from '../../src/protocol/local-api.ts';

const NOT_RUNNING: DaemonWord = { kind: 'notRunning', failure: failure('agent-not-running', 'No agent.') };
const RUNS = { kind: 'runs', status: { state: 'unpaired' } } as DaemonWord;
const IS_PAIRED = { kind: 'runs', status: { state: 'online' } } as DaemonWord;
const AUTO = { kind: 'auto', device: null, baudRate: 9600, suffix: 'auto' } as const;

/** A file tree with one serial scanner in it. */
async function givenTree(): Promise<{ root: string; node: string; path: string }> {
	const root = await mkdtemp(join(tmpdir(), 'scanners-'));
	onTestFinished(() => rm(root, { recursive: true }));
	const path = join(root, 'dev/serial/by-id/usb-Honeywell_Scanner-if00');
	await mkdir(join(root, 'dev/serial/by-id'), { recursive: true });
	await writeFile(join(root, 'dev/ttyACM0'), '');
	await symlink('../../ttyACM0', path);
	return { root, path, node: join(root, 'dev/ttyACM0') };
}

/** What answers on `agent.sock`. */
async function givenAgent(runDir: string, report: ScannerReport | { code: string }, status = 200): Promise<void> {
	const server = createServer((_request, response) => {
		response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(report));
	});
	await new Promise<void>((resolve) => server.listen(join(runDir, 'agent.sock'), resolve));
	onTestFinished(() => void server.close());
}

test('a scanner is found, and the agent is not there to be asked', async () => {
	const { root, path } = await givenTree();
	const finding = await checkScanners({ settings: AUTO, daemon: NOT_RUNNING, runDir: root, root });
	expect(finding).toMatchObject({ status: 'ok', message: expect.stringContaining(`serial ${path}`) });
});

test('scanners that are switched off, and a device without one, are nothing to check', async () => {
	const { root } = await givenTree();
	const empty = join(root, 'elsewhere');
	for (const parts of [
		{ settings: { ...AUTO, kind: 'off' as const }, root },
		{ settings: AUTO, root: empty },
	])
		expect(await checkScanners({ ...parts, daemon: NOT_RUNNING, runDir: root })).toMatchObject({
			status: 'skipped',
			blockedBy: null,
		});
});

test('the one that the settings name is missed', async () => {
	const { root } = await givenTree();
	const settings = { ...AUTO, device: '/dev/serial/by-id/another' };
	expect(await checkScanners({ settings, daemon: NOT_RUNNING, runDir: root, root })).toMatchObject({
		status: 'warning',
		code: 'scanner-failed',
		message: expect.stringContaining('/dev/serial/by-id/another'),
	});
});

test('what the agent says is wrong with its scanner is told', async () => {
	const { root, path, node } = await givenTree();
	const device = { kind: 'serial', path, node, chosen: true, why: '', open: false, hidden: null, usb: null } as const;
	const problem = { code: 'scanner-denied', message: 'Not allowed.', remedy: 'Allow it.' };
	await givenAgent(root, { listening: true, sentence: 'Listens.', devices: [{ ...device, problem }] });
	expect(await checkScanners({ settings: AUTO, daemon: RUNS, runDir: root, root })).toEqual({
		status: 'warning',
		...problem,
	});
});

test('a scanner that systemd hides from the agent is told', async () => {
	const { root, path } = await givenTree();
	await givenAgent(root, { listening: false, sentence: 'There is no scanner to listen to.', devices: [] });
	expect(await checkScanners({ settings: AUTO, daemon: RUNS, runDir: root, root })).toMatchObject({
		status: 'warning',
		code: 'scanner-denied',
		message: expect.stringContaining(path),
	});
});

test('a paired agent that does not listen is well, in its own words', async () => {
	const { root } = await givenTree();
	await givenAgent(root, { listening: false, sentence: 'This device is paired.', devices: [] });
	expect(await checkScanners({ settings: AUTO, daemon: IS_PAIRED, runDir: root, root })).toMatchObject({
		status: 'ok',
		message: expect.stringContaining('This device is paired.'),
	});
});

test('an agent of another version, which has no such report, is well; one that cannot give it is not', async () => {
	const { root, path } = await givenTree();
	const check = (at: string) => checkScanners({ settings: AUTO, daemon: RUNS, runDir: at, root });
	await givenAgent(root, { code: 'not-found' }, 404);
	expect(await check(root)).toMatchObject({ status: 'ok', message: expect.stringContaining(path) });
	const { root: other } = await givenTree();
	await givenAgent(other, { code: 'internal' }, 500);
	await expect(check(other)).rejects.toMatchObject({ code: 'internal' });
});
