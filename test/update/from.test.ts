/**
 * From the package of 0.1.0, which knows no judge, to this one, with idv-agent-updates and without, and back by a person: pairing, events and
 * settings stay.
 * `npm run test:update -- --from DEB`, with the package that `npm run build:deb x64` makes at the tag of 0.1.0.
 */
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { createDevice, type Device, JUDGE_SECONDS } from './device.ts';

const FROM = process.env['UPDATE_FROM'];

/** Names what there is of updates: units, programs, records, pins. */
const LEFT = [
	'ls -d /var/lib/idv-agent-update /var/lib/idv-agent/update-plan.json /usr/lib/idv-agent-updates /etc/systemd/system/idv-agent-judge.service 2>/dev/null',
	'ls -A /etc/apt/preferences.d',
	'systemctl list-units --all --plain --no-legend "idv-agent-update*" "idv-agent-judge*" "idv-agent-finish*"',
].join('; ');

let device: Device;
beforeAll(async () => {
	if (FROM !== undefined) device = await createDevice(inject('site'), FROM);
});
afterAll(async () => device?.destroy());

test.skipIf(FROM === undefined)('0.1.0 is updated, and comes back when a person asks for it', async () => {
	const { must, run } = device.machine;
	const { real, updates } = inject('site');
	expect(await device.installed()).toBe('0.1.0 installed');
	await device.publish([String(FROM), real]);
	expect(await device.upgrade()).toMatchObject({ status: 0 });
	expect(await device.installed()).toBe('0.2.0 installed');
	// Nothing of root touches apt without idv-agent-updates, and what was there before keeps no way back.
	expect((await run(LEFT)).text).toBe('');
	await device.expectWhole();
	await device.put('/etc/idv-agent/conf.d/20-judge.json', JSON.stringify({ update: { judgeSeconds: JUDGE_SECONDS } }));
	await must(
		`timeout 60 sh -c 'until idv-agent status --json | grep --quiet updates-missing; do sleep 0.2; done'; idv-agent status`,
	);
	expect(await must('idv-agent update show')).toContain('apt install idv-agent-updates');

	await device.publish([String(FROM), real, updates]);
	await must('apt-get update && apt-get install --yes idv-agent-updates');
	// By its installation alone, without a start of the agent.
	await must(`timeout 60 sh -c 'while idv-agent status --json | grep --quiet updates-missing; do sleep 0.2; done'`);
	await device.publish([String(FROM), real, updates, await device.real('0.2.1', 'crashing')]);
	await device.upgrade();
	await device.untilJudged();
	expect(await device.installed()).toBe('0.2.0 installed');
	expect((await device.updates()).takenBack).toMatchObject([{ version: '0.2.1', by: '0.2.0', fault: 'crashes' }]);
	await device.expectWhole();

	// An older version on purpose takes idv-agent-updates with it, which that one does not have, and all of it.
	await must('rm /etc/idv-agent/conf.d/20-judge.json');
	await must('DEBIAN_FRONTEND=noninteractive apt-get install --yes --allow-downgrades idv-agent=0.1.0');
	expect(await device.installed()).toBe('0.1.0 installed');
	expect((await run(LEFT)).text).toBe('');
	await device.expectWhole();

	// To both at once; the version that was taken back is not known any more.
	await device.publish([String(FROM), real, updates]);
	await must('apt-get update && apt-get install --yes idv-agent idv-agent-updates');
	expect(await device.installed()).toBe('0.2.0 installed');
	expect((await device.updates()).takenBack).toEqual([]);
	await device.expectWhole();
	await must('apt-get purge --yes idv-agent-updates');
	expect((await run(LEFT)).text).toBe('');
	await device.expectWhole();
});
