/**
 * Updates that are cut off at a random step: after every round the device is online on the old or the new version, with its
 * pairing, events and settings. Several devices at a time, since each waits for its judge most of the time.
 */
import { afterAll, expect, inject, test } from 'vitest';
import { createDevice, type Device } from './device.ts';
import type { Behaviour } from './packages.ts';

/** `npm run test:update -- --rounds N`. */
const ROUNDS = Number(process.env['UPDATE_ROUNDS'] ?? 4);
const SEED = Number(process.env['UPDATE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** Of them, the last so many with the real package. */
const REAL = Number(process.env['UPDATE_REAL'] ?? 0);

const DISORDERS = ['power', 'power', 'power', 'kill', 'kill', 'full', 'line'] as const;
/** What befalls a device while it is updated. */
const DISORDER: Readonly<
	Record<(typeof DISORDERS)[number], (machine: Device['machine'], upgrading: Promise<unknown>) => Promise<void>>
> = {
	async power(machine, upgrading) {
		await machine.cutPower();
		await upgrading;
		await machine.boot();
	},
	async kill(machine, upgrading) {
		await machine.run('pkill --signal KILL "dpkg|apt-get"; pkill --signal KILL --full "idv-agent-updates judge"');
		await upgrading;
	},
	async full(machine, upgrading) {
		await machine.run('fallocate --length $(($(stat --file-system --format="%f * %S" /))) /filling; sleep 10');
		await upgrading;
		await machine.must('rm -f /filling');
	},
	async line(machine, upgrading) {
		await machine.must('ip link set lo down && sleep 10 && ip link set lo up');
		await upgrading;
	},
};

let state = SEED;
/** Mulberry32: the same seed, the same rounds. */
function random(): number {
	state = (state + 0x6d2b79f5) | 0;
	let value = Math.imul(state ^ (state >>> 15), 1 | state);
	value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
	return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
}

const rounds = Array.from({ length: ROUNDS }, (_, index) => {
	const all: Behaviour[] = ['good', 'good', 'crashing', 'never-online', 'failing-script'];
	const behaviour = all[Math.floor(random() * all.length)] ?? 'good';
	const disorder = DISORDERS[Math.floor(random() * DISORDERS.length)] ?? 'power';
	const isReal = index >= ROUNDS - REAL;
	const isRealBad = behaviour === 'never-online' ? 'crashing' : behaviour;
	// From before apt's first word until after the judge's last.
	const afterMs = Math.floor(random() * (isReal ? 30_000 : 15_000));
	return [index + 1, isReal ? 'real' : 'stub', isReal ? isRealBad : behaviour, disorder, afterMs] as const;
});

/** Those that wait for a round. */
const idle: Device[] = [];
const ended: Record<string, number> = {};

afterAll(async () => {
	console.log(`UPDATE_SEED=${SEED}, ${ROUNDS} rounds: ${JSON.stringify(ended)}`);
	for (const device of idle) await device.destroy();
});

test.concurrent.each(rounds)(
	'round %i: %s %s, %s after %i ms strands nothing',
	async (_round, kind, behaviour, disorder, afterMs) => {
		const device = idle.pop() ?? (await createDevice(inject('site')));
		const { machine } = device;
		const before = (await device.installed()).split(' ')[0] ?? '';
		const version = device.next();
		try {
			await device.publish([await device[kind](version, behaviour)]);
			await machine.must('sync --file-system /');
			const upgrading = device.upgrade();
			await machine.must(`sleep ${afterMs / 1000}`);
			await DISORDER[disorder](machine, upgrading);
			await machine.must(
				'timeout 20 sh -c "while fuser -s /var/lib/dpkg/lock-frontend 2>/dev/null; do sleep 0.2; done" || true',
			);
			await device.untilJudged();
			// Nobody helps. What was cut off without a new start of the machine, before there was a judge, waits for the next one.
			if (disorder !== 'power') await machine.run('systemctl start idv-agent-finish');
			await machine.run(`timeout 60 sh -c 'until dpkg --status idv-agent | grep "ok installed"; do sleep 0.3; done'`);
			const now = await device.installed();
			if (!now.endsWith(' installed')) throw new Error(await device.story());
			expect([`${before} installed`, `${version} installed`]).toContain(now);
			await device.expectWhole();
			const end = now.startsWith(before) ? 'old' : 'new';
			ended[end] = (ended[end] ?? 0) + 1;
			idle.push(device);
		} catch (error) {
			await device.destroy();
			throw error;
		}
	},
);
