import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { BIN, givenHome } from './command.ts';
import { givenPaired } from './device.ts';
import { expectRefusal } from './refusal.ts';

interface Check {
	readonly id: string;
	readonly status: string;
}

test('the doctor of a device that cannot resolve its service: one document, what follows is skipped, status 69', async () => {
	const home = await givenHome({ baseUrl: 'https://nowhere.invalid' });
	const { status, stdout, stderr } = await home.agent(['doctor', '--json']);
	const { checks, ...about } = JSON.parse(stdout) as { checks: Check[] };
	const by = (id: string) => checks.find((check) => check.id === id);
	expect({ status, stderr }).toEqual({ status: 69, stderr: '' });
	expect(about).toMatchObject({
		schemaVersion: 1,
		verdict: 'failed',
		exitStatus: 69,
		first: 'dns',
		settingsOfUnit: false,
	});
	expect(by('dns')).toMatchObject({ status: 'failed', code: 'dns-failed' });
	for (const id of ['tcp', 'proxy', 'tls', 'http', 'channel', 'heartbeat'])
		expect(by(id)).toMatchObject({ status: 'skipped', blockedBy: 'dns' });
});

test('a check that does not exist is a mistake of whoever asked', async () => {
	const home = await givenHome();
	expectRefusal(await home.agent(['doctor', '--check', 'htp']), {
		status: 64,
		code: 'usage',
		words: /Did you mean http/,
	});
});

test.each([
	['head -0', 74],
	['cat', 69],
])('the doctor of a device that fails, into %s, ends with status %i [F1554]', async (reader, expected) => {
	const home = await givenHome({ baseUrl: 'https://nowhere.invalid' });
	const { PATH = '' } = process.env;
	const words = ['--norc', '-c', `set -o pipefail; "$0" doctor | ${reader}`, join(BIN, 'idv-agent')];
	const { status, stderr } = spawnSync('bash', words, { env: { PATH, ...home.env }, encoding: 'utf8' });
	expect({ status, stderr }).toEqual({ status: expected, stderr: '' });
});

test('update reach opens a channel beside the agent, registers nothing, and says why it could not be online', async () => {
	const { service, home, daemon, registrations } = await givenPaired();
	const registered = registrations();
	expect(await home.agent(['update', 'reach', '--json'])).toMatchObject({ status: 0, stdout: '{"reached":true}\n' });
	expect(registrations()).toBe(registered);
	await daemon.end();
	await service.close();
	expect(await home.agent(['update', 'reach'])).toMatchObject({
		status: 69,
		stderr: expect.stringMatching(/unreachable/),
	});
});
