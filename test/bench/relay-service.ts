/**
 * The sending end of `relay.ts`: the embedded service in a process of its own. Prints one JSON line about where it listens;
 * each line of input, `{"deviceId":…,"count":…,"perSecond":…}`, has it send so many notifications to that device, as fast as
 * they leave (`perSecond` 0) or evenly, and is answered by a line when the last has been handed to the socket.
 */
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { startService } from '../../src/service/embedded-service.runner.ts';

/** Sent before the socket gets a turn of its own. */
const BURST = 256;

const service = await startService({ maxBufferedBytes: 1024 * 1024 * 1024 });
const print = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
let lastId = 0;

/** The clock is CLOCK_MONOTONIC, which all processes of a machine share. */
function send(deviceId: string): void {
	lastId += 1;
	const sentNs = String(process.hrtime.bigint());
	service.notify(
		{ type: 'session.started', id: `n-${lastId}`, sessionId: '65a1b2c3d4e5f60718293a4b', sentNs },
		{ deviceId },
	);
}

async function sendAll(deviceId: string, total: number, perSecond: number): Promise<void> {
	const startedAtMs = performance.now();
	for (let sent = 0; sent < total; ) {
		const elapsedSeconds = (performance.now() - startedAtMs) / 1000;
		const due = perSecond === 0 ? sent + BURST : Math.floor(elapsedSeconds * perSecond) + 1;
		for (; sent < Math.min(due, total); sent += 1) send(deviceId);
		if (perSecond === 0) await new Promise(setImmediate);
		else await pause(1);
	}
}

print({ url: service.url, apiKey: service.credentials.apiKey });
for await (const line of createInterface({ input: process.stdin })) {
	const { deviceId, count, perSecond } = JSON.parse(line) as { deviceId: string; count: number; perSecond: number };
	const fromNs = String(process.hrtime.bigint());
	await sendAll(deviceId, count, perSecond);
	print({ fromNs });
}
await service.close();
