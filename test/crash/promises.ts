/**
 * What holds for events however the agent ended: durable before shown, one id for each, nothing left out, in order, and a gap
 * where something was lost. And who sends them.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { expect } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import type { StoredEvent } from './inbox-file.ts';
import type { Kiosk, Received } from './kiosk.ts';

/** A service that is not sure sends these again when the device is back. */
const RESENT = 5;

/** Whatever anybody was shown is in the file of a later kill: nothing is handed on before it is safe. */
export function expectDurableBeforeShown(seen: readonly Received[], stored: readonly StoredEvent[]): void {
	const ids = new Set(stored.map(({ id }) => id));
	// Files in which everything is acknowledged are gone, from the oldest on.
	const numbers = new Set(stored.map(({ number }) => number));
	const isFileGone = (number: number) => !numbers.has(number) && [...numbers].some((newer) => newer > number);
	expect(seen.filter(({ id, number }) => !ids.has(id) && !isFileGone(number)).map(({ id }) => id)).toEqual([]);
}

/** No id stands for two notifications, and no notification has two ids, wherever and whenever it was seen. */
export function expectOneIdEach(seen: readonly Received[], stored: readonly StoredEvent[]): void {
	const serviceIdOf = new Map<string, string | null>();
	const idOf = new Map<string, string>();
	for (const { id, serviceId } of [...seen, ...stored]) {
		expect(serviceIdOf.get(id) ?? serviceId).toBe(serviceId);
		serviceIdOf.set(id, serviceId);
		if (serviceId === null) continue;
		expect(idOf.get(serviceId) ?? id).toBe(id);
		idOf.set(serviceId, id);
	}
}

/**
 * Each connection goes on where the acknowledged ones end, and leaves nothing out.
 * @param isCut after a power cut what was acknowledged in the last moments may come again, and a gap may stand for several.
 */
export function expectEveryReadingWhole({ readings }: Kiosk, { isCut = false } = {}): void {
	for (const { events, confirmed, attempted } of readings) {
		const [first] = events;
		if (!first) continue;
		if (!isCut) expect(first.number).toBeGreaterThan(confirmed);
		expect(first.number).toBeLessThanOrEqual(attempted + 1);
		events.slice(1).forEach(({ number, type }, index) => {
			const next = (events[index]?.number ?? 0) + 1;
			// What a cut took out from between others is one gap, which has the number of the last of them.
			if (isCut && type === 'gap') expect(number).toBeGreaterThanOrEqual(next);
			else expect(number).toBe(next);
		});
	}
}

export function expectEverythingDelivered(kiosk: Kiosk, reached: ReadonlyMap<string, number>): void {
	const delivered = new Map<string, number>();
	for (const { serviceId, number } of eventsOf(kiosk)) if (serviceId !== null) delivered.set(serviceId, number);
	expect([...reached.keys()].filter((serviceId) => !delivered.has(serviceId))).toEqual([]);
	// In the order in which the service has sent them.
	const inOrder = [...delivered].sort(([, one], [, other]) => one - other).map(([serviceId]) => countOf(serviceId));
	expect(inOrder).toEqual(inOrder.toSorted((one, other) => one - other));
}

/** The notifications that came as far as the disk, or further, with their numbers. */
export function reachedOf(kiosk: Kiosk, stored: readonly StoredEvent[]): Map<string, number> {
	return new Map(
		[...eventsOf(kiosk), ...stored].flatMap(({ serviceId, number }) => (serviceId ? [[serviceId, number]] : [])),
	);
}

/** The gap begins when the event before it was stored, which its time of arrival is a little before. */
const STORED_WITHIN_MS = 50;

/** A reader who has the one before and the one after is told in between that there is something it has not. */
export function expectGapsForTheLost(kiosk: Kiosk, lost: readonly Sent[]): void {
	const byNumber = new Map(eventsOf(kiosk).map((event) => [event.number, event]));
	const events = [...byNumber.values()].sort((one, other) => one.number - other.number);
	for (const { serviceId, sentAtMs } of lost) {
		const after = events.findIndex(
			(event) => event.serviceId !== null && countOf(event.serviceId) > countOf(serviceId),
		);
		const before = events.slice(0, after).findLastIndex((event) => event.type === 'notification');
		const gaps = events.slice(before + 1, after);
		expect(gaps.length, `${serviceId} is not covered by a gap`).toBeGreaterThan(0);
		expect(Date.parse(gaps.at(-1)?.to ?? '')).toBeGreaterThanOrEqual(sentAtMs);
		const last = events[before];
		if (last) expect(Date.parse(gaps[0]?.from ?? '')).toBeLessThanOrEqual(Date.parse(last.at) + STORED_WITHIN_MS);
	}
}

export const eventsOf = ({ readings }: Kiosk) => readings.flatMap(({ events }) => events);

export interface Sent {
	readonly serviceId: string;
	/** Since 1970. */
	readonly sentAtMs: number;
}

const countOf = (serviceId: string) => Number(serviceId.slice(2));

/** Sends in bursts whether somebody listens or not, and the last few again to a device that comes back. */
export function createSender(service: EmbeddedService, random: () => number) {
	const sent: Sent[] = [];
	const notify = (serviceId: string) => service.notify({ type: 'session.started', id: serviceId });
	service.on('device-online', () => {
		for (const { serviceId } of sent.slice(-RESENT)) notify(serviceId);
	});
	return {
		sent,
		/** Up to so many in all. */
		async send(upTo: number) {
			while (sent.length < upTo) {
				const burst = Math.min(upTo - sent.length, 1 + Math.floor(random() * 40));
				for (let one = 0; one < burst; one += 1) {
					const serviceId = `n-${sent.length + 1}`;
					sent.push({ serviceId, sentAtMs: Date.now() });
					notify(serviceId);
				}
				await pause(random() * 20);
			}
		},
	};
}
