/**
 * Updates under drawn circumstances, one value of each axis a round: whatever comes together, the device is online afterwards with its
 * pairing, events and settings, on the old or the new version, and never on a bad one. Ends with a table by axis. Several devices at a time,
 * since each waits for its judge most of the time.
 */
import { afterAll, expect, inject, test } from 'vitest';
import { createDevice, type Device, JUDGE_SECONDS } from './device.ts';
import type { Behaviour, Index } from './packages.ts';

/** `npm run test:update -- --rounds N`. */
const ROUNDS = Number(process.env['UPDATE_ROUNDS'] ?? 4);
const SEED = Number(process.env['UPDATE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** Of them, the last so many with the real package. */
const REAL = Number(process.env['UPDATE_REAL'] ?? 0);

/** What befalls a device while it is updated. */
const DISORDER: Readonly<Record<string, (machine: Device['machine'], upgrading: Promise<unknown>) => Promise<void>>> = {
	none: async (_machine, upgrading) => void (await upgrading),
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
	async 'another-apt'(machine, upgrading) {
		await machine.run('sleep 20 3>>/var/lib/dpkg/lock-frontend');
		await upgrading;
	},
};

/** Each value as often as it is drawn. A version that dies later than it is judged is kept: docs/update-judge.md says so. */
const AXES = {
	version: {
		good: 6,
		late: 1,
		crashing: 1,
		'short-lived': 1,
		silent: 1,
		'eats-memory': 1,
		'never-online': 1,
		'failing-script': 1,
		'without-unit': 1,
		masking: 1,
	},
	disorder: { none: 3, power: 4, kill: 2, full: 1, line: 1, 'another-apt': 1 },
	service: { there: 6, 'away-before': 1, 'away-during': 1, 'away-for-ever': 1 },
	index: { valid: 16, expired: 1, 'half-synced': 1, 'other-key': 1, 'not-yet': 1 },
	neighbour: { none: 8, broken: 1, hung: 1 },
	bytes: { newer: 4, rebuilt: 1 },
} as const;
type Axis = keyof typeof AXES;
type Drawn = Readonly<Record<Axis, string>> & {
	readonly number: number;
	readonly isReal: boolean;
	readonly afterMs: number;
};

let state = SEED;
/** Mulberry32: the same seed, the same rounds. */
function random(): number {
	state = (state + 0x6d2b79f5) | 0;
	let value = Math.imul(state ^ (state >>> 15), 1 | state);
	value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
	return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
}

function draw(axis: Axis): string {
	const values = Object.entries(AXES[axis]).flatMap(([value, times]) => Array<string>(times).fill(value));
	return values[Math.floor(random() * values.length)] ?? '';
}

const rounds: readonly Drawn[] = Array.from({ length: ROUNDS }, (_, index) => {
	const isReal = index >= ROUNDS - REAL;
	const drawn = Object.fromEntries((Object.keys(AXES) as Axis[]).map((axis) => [axis, draw(axis)])) as Record<
		Axis,
		string
	>;
	// The real package has one program: it is good, or bad by its unit or script.
	if (isReal) {
		drawn.bytes = 'newer';
		if (!['good', 'failing-script'].includes(drawn.version)) drawn.version = 'crashing';
	}
	// apt would wait without end: the power goes.
	if (drawn.neighbour === 'hung') drawn.disorder = 'power';
	// From before apt's first word until after the judge's last.
	return { ...drawn, number: index + 1, isReal, afterMs: Math.floor(random() * (isReal ? 30_000 : 15_000)) };
});

const isGood = ({ version }: Drawn) => ['good', 'late', 'masking'].includes(version);
/** Nothing speaks against the new version, and nothing keeps it from coming. */
const hasToCome = (drawn: Drawn) =>
	isGood(drawn) &&
	['none', 'line', 'another-apt'].includes(drawn.disorder) &&
	drawn.service !== 'away-for-ever' &&
	drawn.index === 'valid' &&
	drawn.neighbour === 'none';

/** Those that wait for a round. */
const idle: Device[] = [];
const ends = new Map<string, Record<string, number>>();

function count(drawn: Drawn, end: string): void {
	for (const axis of Object.keys(AXES) as Axis[]) {
		const row = `${axis.padEnd(10)} ${drawn[axis].padEnd(15)}`;
		ends.set(row, { ...ends.get(row), [end]: (ends.get(row)?.[end] ?? 0) + 1 });
	}
}

afterAll(async () => {
	const columns = ['new', 'old', 'stranded'];
	const rows = [...ends].toSorted(([one], [other]) => one.localeCompare(other));
	const lines = rows.map(([row, by]) => row + columns.map((name) => String(by[name] ?? 0).padStart(9)).join(''));
	console.log(
		[
			`UPDATE_SEED=${SEED}, ${ROUNDS} rounds`,
			' '.repeat(26) + columns.map((name) => name.padStart(9)).join(''),
			...lines,
		].join('\n'),
	);
	for (const device of idle) await device.destroy();
});

/** A day of waiting for a service, of which the judge sees the last moments. */
async function letADayPass({ machine }: Device): Promise<void> {
	await machine.must(`sleep ${JUDGE_SECONDS + 10}`);
	await machine.run(
		'cd /var/lib/idv-agent-update && [ -e trial.json ] && systemctl stop idv-agent-judge && ' +
			`sed -i 's/"waitedMs": [0-9]*/"waitedMs": ${24 * 3_600_000}/' trial.json && systemctl start idv-agent-judge`,
	);
	await machine.must(`sleep ${JUDGE_SECONDS}`);
}

async function live(device: Device, drawn: Drawn): Promise<string> {
	const { machine } = device;
	const program = async () => (await machine.must('sha256sum /usr/lib/idv-agent/idv-agent')).split(' ')[0];
	const [before = ''] = (await device.installed()).split(' ');
	const [oldProgram, isRebuilt] = [await program(), drawn.bytes === 'rebuilt'];
	const version = isRebuilt ? before : device.next();
	const file = await device[drawn.isReal ? 'real' : 'stub'](version, drawn.version as Behaviour);
	const neighbours =
		drawn.neighbour === 'none' ? [] : [device.neighbour(drawn.neighbour === 'hung' ? 'sleep infinity' : 'exit 1')];
	await device.publish([file, ...neighbours], drawn.index as Index);
	await machine.must('sync --file-system /');
	const isAway = drawn.service.startsWith('away');
	if (isAway && drawn.service !== 'away-during') await device.stopService();
	const words = [isRebuilt ? '--reinstall' : '', 'idv-agent', neighbours.length > 0 ? 'neighbour' : ''].join(' ');
	const upgrading = machine.run(
		`apt-get -o APT::Update::Error-Mode=any update && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=60 install --yes ${words}`,
	);
	await machine.must(`sleep ${drawn.afterMs / 1000}`);
	if (drawn.service === 'away-during') await device.stopService();
	await DISORDER[drawn.disorder]?.(machine, upgrading);
	if (drawn.service === 'away-for-ever') await letADayPass(device);
	if (isAway) await device.startService();
	await device.untilJudged();
	// Nobody helps. What was cut off without a new start of the machine, before there was a judge, waits for the next one.
	if (drawn.disorder !== 'power') await machine.run('systemctl start idv-agent-finish');
	await machine.run(`timeout 60 sh -c 'until dpkg --status idv-agent | grep "ok installed"; do sleep 0.3; done'`);
	await machine.run('dpkg --remove --force-remove-reinstreq --force-all neighbour');
	const now = await device.installed();
	const isOld = isRebuilt ? (await program()) === oldProgram : now.startsWith(`${before} `);
	const end = isOld ? 'old' : 'new';
	if (now !== `${end === 'old' ? before : version} installed`)
		throw new Error(`${now}, ${end}\n${await device.story()}`);
	await device.expectWhole();
	if (end === 'new') expect(isGood(drawn)).toBe(true);
	if (hasToCome(drawn)) expect(end, await device.story()).toBe('new');
	return end;
}

test.concurrent.each(rounds)(
	'round $number: $version, $bytes bytes, $disorder after $afterMs ms, service $service, index $index, neighbour $neighbour: strands nothing',
	async (drawn) => {
		const device = idle.pop() ?? (await createDevice(inject('site')));
		try {
			count(drawn, await live(device, drawn));
			idle.push(device);
		} catch (error) {
			count(drawn, 'stranded');
			await device.destroy();
			throw error;
		}
	},
);
