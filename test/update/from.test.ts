/**
 * From the package of 0.1.0, which knows no judge, to this one, and back by a person: pairing, events and settings stay.
 * `npm run test:update -- --from DEB`, with the package that `npm run build:deb x64` makes at the tag of 0.1.0.
 */
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { createDevice, type Device, JUDGE_SECONDS } from './device.ts';

const FROM = process.env['UPDATE_FROM'];

let device: Device;
beforeAll(async () => {
	if (FROM !== undefined) device = await createDevice(inject('site'), FROM);
});
afterAll(async () => device?.destroy());

test.skipIf(FROM === undefined)('0.1.0 is updated, and comes back when a person asks for it', async () => {
	const { must, run } = device.machine;
	const { real } = inject('site');
	expect(await device.installed()).toBe('0.1.0 installed');
	await device.publish([String(FROM), real]);
	expect(await device.upgrade()).toMatchObject({ status: 0 });
	expect(await device.installed()).toBe('0.2.0 installed');
	// It keeps no way back: nothing is judged.
	expect((await run('ls /var/lib/idv-agent-update /etc/systemd/system/idv-agent-judge.service')).status).not.toBe(0);
	await device.expectWhole();

	await device.publish([String(FROM), real, await device.real('0.2.1', 'crashing')]);
	await device.upgrade();
	await device.untilJudged();
	expect(await device.installed()).toBe('0.2.0 installed');
	expect((await device.updates()).takenBack).toMatchObject([{ version: '0.2.1', by: '0.2.0', fault: 'crashes' }]);
	await device.expectWhole();

	// An older version on purpose is judged like any other: with a setting that it does not know it does not start.
	const goDown = 'DEBIAN_FRONTEND=noninteractive apt-get install --yes --allow-downgrades idv-agent=0.1.0';
	await device.put('/etc/idv-agent/conf.d/20-judge.json', JSON.stringify({ update: { judgeSeconds: JUDGE_SECONDS } }));
	await must(goDown);
	await device.untilJudged();
	expect(await device.installed()).toBe('0.2.0 installed');
	expect((await device.updates()).takenBack.at(-1)).toMatchObject({ version: '0.1.0', fault: 'not-ready' });
	await device.expectWhole();
	await must('rm /etc/idv-agent/conf.d/20-judge.json && idv-agent update forget 0.1.0');
	await must(goDown);
	await device.untilJudged();
	expect(await device.installed()).toBe('0.1.0 installed');
	await device.expectWhole();
	await device.upgrade();
	expect(await device.installed()).toBe('0.2.0 installed');
	await device.expectWhole();
	expect((await device.updates()).takenBack).toMatchObject([{ version: '0.2.1' }]);
});
