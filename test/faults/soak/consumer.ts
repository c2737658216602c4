/**
 * The kiosk's application of the soak: a named consumer that acknowledges what it has read, and a witness that reads
 * without a name. What the witness has seen, the consumer must get, in order.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LOCAL_ROUTES, type LocalEvent } from '../../../src/protocol/local-api.ts';
import type { DeviceProcess } from '../device-process.ts';

export interface Readers {
	/** Ids of events, in the order in which the consumer first got them. */
	readonly consumed: ReadonlySet<string>;
	readonly witnessed: ReadonlySet<string>;
	/** The service's own ids of notifications that the consumer has got. */
	readonly serviceIds: ReadonlySet<string>;
	/** Events that came again, after an acknowledgement was lost: at least once is what is promised. */
	readonly repeated: number;
	/** What was out of order. */
	readonly disorder: string[];
	block(on: boolean): void;
	stop(): Promise<void>;
}

const NAME = 'kiosk';

export function startReaders(device: DeviceProcess): Readers {
	const consumed = new Set<string>();
	const witnessed = new Set<string>();
	const serviceIds = new Set<string>();
	const disorder: string[] = [];
	let repeated = 0;
	let blocked: PromiseWithResolvers<void> | null = null;
	const stop = new AbortController();
	let previous: string | null = null;

	const forEver = async (path: string, onEvent: (event: LocalEvent) => Promise<void>) => {
		while (!stop.signal.aborted) {
			await device.client
				.events(path, { signal: stop.signal }, async ({ event, data }) => {
					if (event === 'notification' || event === 'session' || event === 'gap') await onEvent(JSON.parse(data));
				})
				.catch(() => {});
			await pause(200);
		}
	};

	const consume = forEver(`${LOCAL_ROUTES.events}?consumer=${NAME}`, async (event) => {
		await blocked?.promise;
		if (consumed.has(event.id)) repeated += 1;
		else {
			consumed.add(event.id);
			if (previous !== null && !follows(previous, event.id)) disorder.push(`${previous} → ${event.id}`);
			previous = event.id;
		}
		const { id } = (event.data ?? {}) as { id?: unknown };
		if (typeof id === 'string') serviceIds.add(id);
		// An acknowledgement that is lost with the agent means a second delivery, no loss.
		await device.client
			.request('agent', 'POST', LOCAL_ROUTES.ack, { consumer: NAME, id: event.id })
			.catch(() => undefined);
	});
	const witness = forEver(LOCAL_ROUTES.events, async ({ id }) => void witnessed.add(id));

	return {
		consumed,
		witnessed,
		serviceIds,
		get repeated() {
			return repeated;
		},
		disorder,
		block(on) {
			blocked?.resolve();
			blocked = on ? Promise.withResolvers() : null;
		},
		async stop() {
			blocked?.resolve();
			stop.abort();
			await Promise.all([consume, witness]);
		},
	};
}

/** Numbers go on within a run of the agent and over its restarts. */
function follows(before: string, after: string): boolean {
	return Number(after.split('-')[1]) > Number(before.split('-')[1]);
}
