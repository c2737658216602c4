/**
 * A kiosk's application: reads the event stream on `agent.sock`. With a name it acknowledges what it has processed, and
 * now and then it dies: its connection breaks, and it knows nothing any more but its name. Without one it only looks on.
 */
import http from 'node:http';
import { createEventStreamParser } from '../../src/client/agent-socket.edge.ts';

export interface Received {
	readonly id: string;
	readonly number: number;
	readonly type: string;
	/** ISO 8601. */
	readonly at: string;
	/** `null` for a gap. */
	readonly serviceId: string | null;
	/** Of a gap. */
	readonly from: string | null;
	readonly to: string | null;
}

/** One life of the connection. */
export interface Reading {
	readonly events: Received[];
	/** When it began: what had been acknowledged with an answer, and what had been sent off to be. */
	readonly confirmed: number;
	readonly attempted: number;
}

export interface Kiosk {
	readonly readings: readonly Reading[];
	/** To be called when the agent has started. */
	connect(): void;
	/** Resolves with the first event, past or to come, that fits. */
	until(fits: (event: Received) => boolean): Promise<Received>;
	deaths(): number;
	close(): void;
}

export function createKiosk(options: {
	readonly socketPath: string;
	readonly name: string | null;
	/** A number from 0 to 1. */
	readonly random: () => number;
	/** Of each event. */
	readonly chanceOfDeath: number;
}): Kiosk {
	const { socketPath, name, random, chanceOfDeath } = options;
	const readings: Reading[] = [];
	const waiting = new Set<() => void>();
	let confirmed = 0;
	let attempted = 0;
	let deaths = 0;
	let lastId: string | null = null;
	let asking: http.ClientRequest | null = null;

	function take(event: Received, reading: Reading): 'goesOn' | 'dies' {
		reading.events.push(event);
		lastId = event.id;
		for (const look of waiting) look();
		if (name !== null && random() < 0.1) acknowledge(name, event);
		return random() < chanceOfDeath ? 'dies' : 'goesOn';
	}

	function acknowledge(consumer: string, { id, number }: Received): void {
		attempted = Math.max(attempted, number);
		const body = JSON.stringify({ consumer, id });
		const headers = { 'content-type': 'application/json' };
		const request = http.request({ socketPath, path: '/v1/events/ack', method: 'POST', headers }, (response) => {
			response.resume();
			if (response.statusCode === 200) confirmed = Math.max(confirmed, number);
		});
		// The agent may be killed at any moment.
		request.on('error', () => {});
		request.end(body);
	}

	function connect(): void {
		asking?.destroy();
		const headers = { accept: 'text/event-stream', ...(name === null && lastId ? { 'last-event-id': lastId } : {}) };
		const reading: Reading = { events: [], confirmed, attempted };
		readings.push(reading);
		const parse = createEventStreamParser();
		const path = name === null ? '/v1/events' : `/v1/events?consumer=${name}`;
		const mine = http.get({ socketPath, path, headers }, (response) => {
			response.on('error', () => {});
			response.on('data', (chunk: Buffer) => {
				for (const { event, data } of parse(chunk)) {
					if (asking !== mine) return;
					if (take(toReceived(event, data), reading) === 'goesOn') continue;
					deaths += 1;
					connect();
					return;
				}
			});
		});
		mine.on('error', () => {});
		asking = mine;
	}

	return {
		readings,
		connect,
		until(fits) {
			return new Promise((resolve) => {
				const look = () => {
					const found = readings.flatMap(({ events }) => events).find(fits);
					if (!found) return;
					waiting.delete(look);
					resolve(found);
				};
				waiting.add(look);
				look();
			});
		},
		deaths: () => deaths,
		close: () => void asking?.destroy(),
	};
}

function toReceived(type: string, text: string): Received {
	const { id, at, data } = JSON.parse(text) as {
		id: string;
		at: string;
		data: { id?: string; from?: string | null; to?: string };
	};
	const number = Number(id.slice(id.lastIndexOf('-') + 1));
	return { id, number, type, at, serviceId: data.id ?? null, from: data.from ?? null, to: data.to ?? null };
}
