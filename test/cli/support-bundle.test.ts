import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { givenHome } from './command.ts';
import { givenProvisioned } from './device.ts';
import { expectRefusal } from './refusal.ts';

test('a bundle never takes the place of a file, says where it cannot be, and is written to another name [F135]', async () => {
	const home = await givenHome();
	const taken = join(home.directory, 'taken.tar.gz');
	await writeFile(taken, 'precious');
	const refused = await home.agent(['support-bundle', '--out', taken]);
	expectRefusal(refused, { status: 74, code: 'bundle-unwritable', words: /there is a file already/ });
	const free = join(home.directory, 'free.tar.gz');
	expect(await home.agent(['support-bundle', '--out', free])).toMatchObject({ status: 0 });
	expect(statSync(free).mode & 0o777).toBe(0o600);
	const unpacked = execFileSync('tar', ['-tzf', free], { encoding: 'utf8' }).trim().split('\n');
	const folders = new Set(unpacked.map((name) => name.split('/')[0]));
	expect([...folders]).toEqual([expect.stringMatching(/^idv-agent-support-\d{4}-\d\d-\d\dT\d{6}$/)]);
	expect(unpacked).toContain(`${[...folders][0]}/status.json`);
});

test('the bundle of a running agent has no name of a person and no number from its service or its settings, and still says what happened [F715]', async () => {
	const { service, home } = await givenProvisioned({
		page: { port: 0, support: 'Call Schmidt on 4915112345678' },
		fleet: { labels: ['hunterpassw'] },
		hooks: { onNeedsPerson: ['/bin/true', 'hunterpassw'] },
	});
	for (const kind of ['maria', 'Schmidt', 'visitor.schmidt', 'session.started'])
		service.notify({ type: kind, event: kind, visitor: 'Maria', pin: 482913, account: 4915112345678 });
	service.notify({ type: 'workflow.changed', workflowId: 'schmidt' });
	// Whatever was notified has come when the device is back.
	for (const [status, words] of [
		[400, 'visitor protocol Schmidt, pin 482913'],
		[503, 'Code 482913 of Maria is used'],
	] as const)
		service.failNext({ path: '/api/device/connection' }, { status, body: { error: words, code: 'maria' } });
	const back = service.waitFor('device-online');
	service.closeChannels(4000, 'protocol hunterpassw of Maria 482913');
	await back;
	const file = join(home.directory, 'bundle.tar.gz');
	expect(await home.agent(['support-bundle', '--out', file])).toMatchObject({ status: 0 });
	const read = (name: string) => execFileSync('tar', ['-xzOf', file, '--wildcards', `*/${name}`], { encoding: 'utf8' });
	for (const name of [
		'status.json',
		'settings.json',
		'events.json',
		'audit.json',
		'history.json',
		'log.txt',
		'state.json',
	])
		expect([name, read(name).match(/maria|schmidt|hunterpassw|482913|4915112345678/gi)]).toEqual([name, null]);
	expect(read('events.json')).toContain('"kind": "session.started"');
	expect(read('log.txt') + read('history.json')).toContain('4000');
	expect(JSON.parse(read('status.json'))).toMatchObject({ workflow: { wanted: 'document-check' } });
});

test('the bundle, the log and the history of a device whose service closes with a code of its own name the code, and of the reason no number in pieces [F1183]', async () => {
	const { service, home } = await givenProvisioned({});
	for (const code of [4123, 4599]) {
		const back = service.waitFor('device-online');
		service.closeChannels(code, '5 of 10 licences, card 411 and 111 and 111 and 1');
		await back;
	}
	service.notify({ type: 'code 482 of 913' });
	const file = join(home.directory, 'bundle.tar.gz');
	expect(await home.agent(['support-bundle', '--out', file])).toMatchObject({ status: 0 });
	const read = (name: string) => execFileSync('tar', ['-xzOf', file, '--wildcards', `*/${name}`], { encoding: 'utf8' });
	for (const name of ['log.txt', 'history.json']) {
		expect(read(name)).toMatch(/closed the channel(?: with 4123: \[| \(4123\))/);
		expect(read(name)).toContain('4599');
	}
	for (const name of ['status.json', 'events.json', 'log.txt', 'history.json', 'audit.json'])
		expect([name, read(name).match(/411 and|and 111|482 of|of 913|5 of 10/g)]).toEqual([name, null]);
});
