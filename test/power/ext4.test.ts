/** The same on the kernel's own ext4: the image is copied while the agent is stopped, and a device starts from the copy. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, inject, onTestFinished, test } from 'vitest';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { readInboxFile } from '../crash/inbox-file.ts';
import { createKiosk } from '../crash/kiosk.ts';
import { createSender, eventsOf, expectDurableBeforeShown, expectOneIdEach } from '../crash/promises.ts';
import { givenDevice } from '../faults/device-process.ts';
import { replayable, WORKFLOWS } from './bed.ts';
import { mountExt4, refusedHere } from './ext4-disk.ts';
import { type Cut, cutOf, cutsOf } from './plan.ts';
import type { Planted } from './programs.ts';
import { runProvision } from './provisioning.ts';

const refused = refusedHere();
if (refused !== null)
	console.warn(`The ext4 part of test:power is not permitted here: this machine has no ${refused}.`);

async function cutOnExt4({ random }: Cut, program: Planted | 'sound' = 'sound'): Promise<void> {
	const disk = mountExt4(onTestFinished);
	const service = await startService({ workflows: [...WORKFLOWS] });
	onTestFinished(() => service.close());
	const given = async (directory: string) => {
		const stateDir = join(directory, 'state');
		const device = await givenDevice({ atTheEnd: onTestFinished, stateDir, program: inject('programs')[program] });
		await device.writeSettings({ deviceId: 'KIOSK-7', scanner: { kind: 'off' }, events: { maxCount: 100_000 } });
		return device;
	};
	const device = await given(disk.directory);
	await device.start();
	await device.pair(service.createPairingCode('check-in').url);
	const sender = createSender(service, random);
	const socketPath = join(device.directory, 'run/agent.sock');
	const kiosk = createKiosk({ socketPath, name: 'kiosk', random, chanceOfDeath: 0 });
	onTestFinished(() => kiosk.close());
	kiosk.connect();
	await device.untilState('online');

	let wanted = 'check-in';
	const busy = async () => {
		for (const to of ['boarding', 'lounge', 'check-in']) {
			await device.client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId: to });
			wanted = to;
			await pause(random() * 100);
		}
	};
	const work = Promise.all([busy(), sender.send(80)]).catch(() => {});
	await pause(random() * 400);
	process.kill(device.pid, 'SIGSTOP');
	// Answers that were sent before the stop may still be on their way to us.
	await new Promise((resolve) => setImmediate(resolve));
	const [said, seen] = [wanted, [...eventsOf(kiosk)]];
	const cut = disk.afterCut();
	await device.end('SIGKILL');
	await work;

	const stored = readInboxFile(join(cut.directory, 'state'));
	expectDurableBeforeShown(seen, stored);
	expectOneIdEach(seen, stored);
	const again = await given(cut.directory);
	await again.start();
	const status = await again.untilStatus(
		({ state, workflow }) => (state === 'online' && workflow.live === workflow.wanted) || state === 'unpaired',
		'settled state',
	);
	expect(status.state).toBe('online');
	expect(status.warnings.map(({ code }) => code).filter((code) => /^(?:state|events)-/.test(code))).toEqual([]);
	const order = ['check-in', 'boarding', 'lounge', 'check-in'];
	const possible = order.slice(order.indexOf(said), order.indexOf(said) + 2);
	if (said !== 'check-in') expect(possible).toContain(status.workflow.live);
}

/** What was taken off a medium is off its platter: the raw image has no sixteen characters of it in a row. */
async function wipeMedium({ random }: Cut, program: Planted | 'sound' = 'sound'): Promise<void> {
	const medium = mountExt4(onTestFinished);
	const device = mountExt4(onTestFinished);
	// As long as a Connection is, so that its end often lies in the last block.
	const secret = Array.from({ length: 700 }, () => Math.floor(random() * 36).toString(36)).join('');
	const document = { baseUrl: 'https://id.example.com', workflowId: 'w'.repeat(1 + Math.floor(random() * 60)) };
	const padding = ' '.repeat(Math.floor(random() * 3000));
	const file = join(medium.directory, 'provision.json');
	writeFileSync(file, JSON.stringify({ ...document, apiKey: secret }).replace('{', `{${padding}`));
	medium.flush();
	expect(medium.raw().includes(secret.slice(0, 8))).toBe(true);
	mkdirSync(join(device.directory, 'etc'));
	writeFileSync(join(device.directory, 'etc/config.json'), '{}\n');
	const { status, printed } = await runProvision(inject('programs')[program], file, device.directory).ended;
	expect(status, printed).toBe(0);
	const holdsPart = (raw: Buffer) =>
		Array.from({ length: 87 }, (_, at) => secret.slice(8 * at, 8 * at + 8)).some((part) => raw.includes(part));
	expect(holdsPart(medium.raw()), 'the secret is on the medium when the command has ended').toBe(false);
	medium.flush();
	expect(holdsPart(medium.raw()), 'the secret is on the medium after it was flushed').toBe(false);
}

describe.skipIf(refused !== null)('on ext4', () => {
	test.for(cutsOf('ext4'))('a power cut loses nothing that was said to be done: cut $number [F184]', (cut) =>
		replayable(cut, cutOnExt4),
	);

	test.for(cutsOf('medium'))('a secret is off the medium, read from its raw bytes: cut $number [F186]', (cut) =>
		replayable(cut, wipeMedium),
	);

	test('a wipe that leaves the tail is noticed', async () => {
		const outcomes = await Promise.all(
			Array.from({ length: 6 }, (_, number) => wipeMedium(cutOf(number), 'wipe leaves the tail').catch(String)),
		);
		expect(outcomes.filter((outcome) => /the secret is on the medium/.test(String(outcome)))).not.toEqual([]);
	});
});
