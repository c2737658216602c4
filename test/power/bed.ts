/** A device on a disk that loses what was not flushed, and a service: what each scenario of a power cut begins with. */
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { inject, onTestFinished } from 'vitest';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { type DeviceProcess, givenDevice } from '../faults/device-process.ts';
import type { CutReport, LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

declare module 'vitest' {
	export interface ProvidedContext {
		/** Paths of the programs, by the fault that is planted in them. */
		programs: Readonly<Record<Planted | 'sound', string>>;
	}
}

export const WORKFLOWS = ['check-in', 'boarding', 'lounge'] as const;

export interface Bed {
	readonly service: EmbeddedService;
	readonly device: DeviceProcess;
	readonly disk: LossyDisk;
	/**
	 * Does something while the power is cut before the `steps`th operation of the disk from now on, or soon after it is
	 * done; then the power is back and the device still off.
	 * @returns whether it was done before the cut, as far as the one who did it was told.
	 */
	cutDuring(
		act: () => Promise<unknown>,
		steps: number,
	): Promise<{ readonly said: boolean; readonly report: CutReport }>;
}

const running = new WeakMap<LossyDisk, DeviceProcess>();

export async function givenBed(
	disk: LossyDisk,
	cut: Cut,
	{
		program = 'sound',
		settings,
	}: { program?: Planted | 'sound'; settings?: (service: EmbeddedService) => object } = {},
): Promise<Bed> {
	// Of the cut before, in a test that makes several.
	await running.get(disk)?.end('SIGKILL');
	await disk.format();
	const service = await startService({ workflows: [...WORKFLOWS] });
	onTestFinished(() => service.close());
	const device = await givenDevice({
		atTheEnd: onTestFinished,
		stateDir: join(disk.directory, 'state'),
		program: inject('programs')[program],
		settings: { deviceId: 'KIOSK-7', scanner: { kind: 'off' }, ...settings?.(service) },
	});
	running.set(disk, device);
	return {
		service,
		device,
		disk,
		async cutDuring(act, steps) {
			const { model, seed, random } = cut;
			const isStart = device.pid === 0;
			if (!isStart) await disk.arm({ model, seed, steps, victim: device.pid });
			let said = false;
			const work = act().then(
				() => {
					said = true;
				},
				() => {},
			);
			if (isStart) await disk.arm({ model, seed, steps, victim: device.pid });
			await Promise.race([work, device.gone()]);
			// What comes after the answer is cut as well: clean-up, the next heartbeat.
			if (random() < 0.5) await Promise.race([pause(random() * 150), device.gone()]);
			const report = await disk.cut({ model, seed, victim: device.pid });
			await device.gone();
			await work;
			await disk.powerOn();
			return { said, report };
		},
	};
}

/** Runs one cut and puts into any failure how it is repeated. */
export async function replayable(cut: Cut, run: (cut: Cut) => Promise<unknown>): Promise<void> {
	try {
		await run(cut);
	} catch (error) {
		if (error instanceof Error) error.message = `${error.message}\n${cut.model}, again: ${cut.replay}`;
		throw error;
	}
}
