/** Hours of a fleet in a store: the product's own metrics and encoder, of devices in every state. */
import { createCounters } from '../../../src/base/counters.ts';
import { createNetwork } from '../../../src/connection/network.edge.ts';
import type { Status } from '../../../src/protocol/local-api.ts';
import { agentMetrics, deviceLabels, fieldMetrics, stateMetrics } from '../../../src/status/metrics.ts';
import { encodeMetrics, encodeRequest } from '../../../src/telemetry/otlp.ts';
import { deliver } from '../../../src/telemetry/push.edge.ts';

const MINUTE = 60_000;
const CODES = ['dns-failed', 'credential-refused', 'service-overloaded'];

/** @param share of the story that is told, 0 to 1. */
export function statusOf(n: number, share: number, atMs: number): Status {
	const at = new Date(atMs).toISOString();
	const isBad = n % 9 === 4 && share > 0.3 && share < 0.8;
	const isMoved = share > n / 60 + 0.2;
	const isRefused = n % 20 === 7 && isMoved;
	const live = isMoved && !isRefused ? 'face-check' : 'document-check';
	const problem = { code: CODES[n % 3] ?? '', message: 'The service was not reached.', remedy: 'Look at the line.' };
	const refused = {
		code: 'plan-not-followed',
		message: 'It was not online.',
		remedy: 'Correct it.',
		params: { problem: 'workflow-unknown' },
		revision: 8,
		at,
		nextTryAt: at,
	};
	return {
		schemaVersion: 1,
		state: isBad ? (n % 2 ? 'blocked' : 'offline') : 'online',
		sentence: '',
		summary: { code: 'online', params: {} },
		agentVersion: n % 8 === 0 ? '0.1.0' : '0.2.0',
		startedAt: at,
		deviceId: `KIOSK-${String(n).padStart(3, '0')}`,
		deviceType: 'kiosk',
		serial: null,
		macAddress: null,
		labels: n % 2 ? ['lobby', 'berlin'] : ['yard'],
		baseUrl: null,
		workflow: { wanted: live, live: isBad ? null : live, waitsUntil: null, source: 'plan' },
		channel: {
			state: 'online',
			since: at,
			lastHeartbeatAt: at,
			reconnects: Math.floor(share * (n % 7) * 3),
			nextAttemptAt: null,
		},
		plan: {
			revision: 8,
			followed: isMoved && !isRefused ? 8 : 7,
			rule: null,
			workflowId: live,
			next: null,
			refused: isRefused ? refused : null,
			checkedAt: at,
		},
		...(n % 8 === 0 && { updates: { ordered: null, takenBack: [{ version: '0.2.0', at, fault: 'crashes' }] } }),
		sessionId: null,
		pairedAt: null,
		problem: isBad ? problem : null,
		warnings: [],
		newestEventId: null,
	};
}

/** @returns the last statuses. */
export async function feed(
	otlpUrl: string,
	{ devices, minutes, endMs }: { devices: number; minutes: number; endMs: number },
): Promise<Status[]> {
	const last: Status[] = [];
	for (let n = 0; n < devices; n += 1) {
		const messages: Uint8Array[] = [];
		let status = statusOf(n, 0, endMs);
		for (let minute = 0; minute <= minutes; minute += 1) {
			const atMs = endMs - (minutes - minute) * MINUTE;
			const share = minute / minutes;
			status = statusOf(n, share, atMs);
			const gauges = {
				eventsKept: n % 5,
				eventBytes: 0,
				eventsDurable: true,
				consumers: 1,
				leases: 0,
				residentBytes: 4e7,
				clockSkewSeconds: n === 3 ? -400 : 0.2,
			};
			const machine = {
				diskFreeBytes: 1e9 * (1 + n),
				diskSizeBytes: 2e10,
				celsius: 40 + (n % 10),
				scannerPresent: n % 11 !== 0,
			};
			const ages = { heartbeatMs: 1000 * n, acknowledgedMs: 5000 * n, planCheckedMs: 1000 };
			// A push writes 0 once for what is gone.
			const old = stateMetrics(statusOf(n, Math.max(0, share - 1 / minutes), atMs)).filter(({ name }) =>
				/problem|workflow|refused/.test(name),
			);
			const metrics = [
				...agentMetrics(status, createCounters(), gauges),
				...stateMetrics(status),
				...fieldMetrics(machine, ages, atMs),
			];
			const now = new Set(
				metrics.flatMap(({ name, samples }) => samples.map(({ labels }) => JSON.stringify([name, labels]))),
			);
			const gone = old.map((one) => ({
				...one,
				samples: one.samples
					.filter(({ labels }) => !now.has(JSON.stringify([one.name, labels])))
					.map((sample) => ({ ...sample, value: 0 })),
			}));
			messages.push(encodeMetrics([...gone, ...metrics], { atMs, startedAtMs: endMs - minutes * MINUTE }));
		}
		const body = encodeRequest(deviceLabels(status), status.agentVersion, messages);
		const network = await createNetwork({}, {});
		const answer = await deliver(network, {
			url: new URL(otlpUrl),
			headers: {},
			body,
			deadlineMs: 20_000,
			signal: new AbortController().signal,
		}).finally(() => network.close());
		if (answer.status >= 300) throw new Error(`The store answered ${answer.status}.`);
		last.push(status);
	}
	return last;
}
