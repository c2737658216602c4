/** Power cuts while notifications pour in and an application acknowledges them. */
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { readInboxFile } from '../crash/inbox-file.ts';
import { createKiosk, type Received } from '../crash/kiosk.ts';
import {
	createSender,
	eventsOf,
	expectDurableBeforeShown,
	expectEveryReadingWhole,
	expectEverythingDelivered,
	expectGapsForTheLost,
	expectOneIdEach,
	reachedOf,
} from '../crash/promises.ts';
import { givenBed } from './bed.ts';
import type { LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

/** Operations of the disk for each notification, about. */
const STEPS = 220;
const COUNT = 60;

/** As the crash test, with a disk that forgets: nothing is shown before it is safe, nothing is left out or out of order. */
export async function cutWhileNotified(disk: LossyDisk, cut: Cut, program?: Planted): Promise<void> {
	const { random } = cut;
	const { service, device, cutDuring } = await givenBed(disk, cut, {
		...(program && { program }),
		settings: ({ url }) => ({ baseUrl: url, workflowId: 'check-in' }),
	});
	const apiKeyFile = await device.secretFile('key', service.credentials.apiKey);
	await device.writeSettings({
		...{ deviceId: 'KIOSK-7', scanner: { kind: 'off' }, baseUrl: service.url, workflowId: 'check-in' },
		...{ credential: { apiKeyFile }, events: { maxCount: 100_000 } },
	});
	const sender = createSender(service, random);
	const socketPath = join(device.directory, 'run/agent.sock');
	const kiosk = createKiosk({ socketPath, name: 'kiosk', random, chanceOfDeath: 0.01 });
	const onlooker = createKiosk({ socketPath, name: null, random, chanceOfDeath: 0 });
	const readers = [kiosk, onlooker];
	onTestFinished(() => {
		for (const reader of readers) reader.close();
	});
	await device.start();
	for (const reader of readers) reader.connect();
	await device.untilState('online');
	const { report } = await cutDuring(() => sender.send(COUNT), Math.floor(random() ** 2 * STEPS));
	await sender.send(COUNT + 5);
	const leftByCut = readInboxFile(device.stateDir);

	await device.start();
	for (const reader of readers) reader.connect();
	await device.untilState('online');
	await sender.send(COUNT + 10);
	const isLast = ({ serviceId }: Received) => serviceId === `n-${COUNT + 10}`;
	await Promise.all(readers.map((reader) => reader.until(isLast)));
	await device.end('SIGKILL');

	const isStandIn = ({ type, from }: Received) => type === 'gap' && from === null;
	const seen = [...eventsOf(kiosk), ...eventsOf(onlooker).filter((event) => !isStandIn(event))];
	const stored = [...leftByCut, ...readInboxFile(device.stateDir)];
	const reached = reachedOf(kiosk, stored);
	const lost = sender.sent.filter(({ serviceId }) => !reached.has(serviceId));
	try {
		expectDurableBeforeShown(seen, stored);
		expectOneIdEach(seen, stored);
		expectEveryReadingWhole(kiosk, { isCut: true });
		expectEverythingDelivered(kiosk, reached);
		expectGapsForTheLost(kiosk, lost);
	} catch (error) {
		if (error instanceof Error) error.message += `\n${JSON.stringify(report)}`;
		throw error;
	}
}
