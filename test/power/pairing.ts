/** Power cuts during the first start and the pairing with a one-time code. */
import { expect } from 'vitest';
import { type Bed, givenBed } from './bed.ts';
import type { LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

const damages = ({ warnings }: { warnings: readonly { code: string }[] }) =>
	warnings.filter(({ code }) => /^(?:state|events)-/.test(code));

/** What was said to be paired is paired; and whatever happened, the same code or a new one pairs this device. */
export async function cutWhilePairing(disk: LossyDisk, cut: Cut, program?: Planted): Promise<void> {
	const { random } = cut;
	const bed = await givenBed(disk, cut, program && { program });
	const { device, service } = bed;
	if (random() < 0.3) await cutFirstStart(bed, random);
	await device.start();
	const code = service.createPairingCode('check-in').url;
	const { said, report } = await bed.cutDuring(() => device.pair(code), Math.floor(random() * 26));
	const isSpent = service.requests.some(({ method }) => method === 'POST');

	await device.start();
	const status = await device.untilStatus(({ state }) => ['unpaired', 'online'].includes(state), 'settled state');
	const story = `said paired: ${said}, spent: ${isSpent}, ${JSON.stringify(report)}`;
	expect(damages(status), story).toEqual([]);
	if (said) expect(status.state, story).toBe('online');
	if (status.state === 'unpaired') {
		if (isSpent) expect(status.sentence, story).toMatch(/check whether the device is listed/i);
		await device.pair(isSpent ? service.createPairingCode('check-in').url : code);
	}
	await device.untilState('online');
	expect(service.devices().map(({ deviceId }) => deviceId)).toEqual(['KIOSK-7']);
}

async function cutFirstStart({ device, cutDuring }: Bed, random: () => number): Promise<void> {
	await cutDuring(() => device.start(), Math.floor(random() * 6));
	await device.start();
	const status = await device.untilState('unpaired');
	expect(damages(status)).toEqual([]);
	await device.end('SIGKILL');
}
