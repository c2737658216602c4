/**
 * Damage to the disk of a paired device: `npm run suite -- disk --cases N --seed S`. A device with 200 events, some acknowledged, is killed; one of
 * its files is damaged; it is started over what is left, in a process that is ended when it does not answer, and everything is read.
 * In each tenth case `idv-agent doctor` looks at what is left, and `idv-agent run` is started over it as on a device.
 * Each case is whole (nothing missing), told (what is missing is in a gap, or a warning names it), refused with a name, or a fault:
 * silent, stranded, hung. Exit status 1 with any of those. Then bugs are planted (`plant.ts`), and it is 1 as well if one is not found.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { statusWhen } from '../../src/cli/run.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { startApart } from './apart.ts';
import type { Found } from './found.ts';
import { PLANTS } from './plant.ts';

const { values } = parseArgs({ options: { cases: { type: 'string', default: '60' }, seed: { type: 'string' } } });
const seed = Number(values.seed ?? Math.floor(Math.random() * 1e6));
const random = randomNumbers(seed);
const whole = (from: number, to: number) => from + Math.floor(random() * (to - from + 1));
const pick = <Item>(items: readonly Item[]): Item => items[whole(0, items.length - 1)] as Item;

/** A start that has not answered by then hangs, in milliseconds. */
const ANSWER_WITHIN_MS = 30_000;
const EVENTS = 200;
/** So that the events are in several files. */
const SMALL_FILES = { events: { maxBytes: 262_144 }, service: { maxMessageBytes: 65_536 } };
const GROUP = String(process.getgid?.() ?? 0);
const root = fs.mkdtempSync(path.join(tmpdir(), 'disk-cases-'));
const service = await startService({ workflows: ['check-in'] });

/** What a device that is killed leaves, and what it left when it had half of that; with all that was sent to it. */
async function makeDevice(name: string) {
	const directory = path.join(root, name);
	const [stateDir, runDir] = [path.join(directory, 'state'), path.join(directory, 'run')];
	fs.mkdirSync(runDir, { recursive: true });
	fs.writeFileSync(
		path.join(directory, 'config.json'),
		JSON.stringify({ deviceId: name, scanner: { kind: 'off' }, ...SMALL_FILES }),
	);
	const daemon = await startDaemon({
		version: '0.0.0-test',
		paths: {
			...{
				configFile: path.join(directory, 'config.json'),
				configFileIsExplicit: false,
				confDirectory: path.join(directory, 'conf.d'),
			},
			...{ stateDir, runDir, credentialsDirectory: null },
		},
		...{ env: {}, machineRoot: directory, logTo: { write() {} } },
		sets: [`local.agentGroup=${GROUP}`, `local.adminGroup=${GROUP}`],
	});
	const { agent } = daemon;
	const { url } = service.createPairingCode('check-in');
	await agent.pair({ code: url, trustOrigin: new URL(url).origin });
	await statusWhen(agent, ({ state }) => state === 'online');
	const contents = new Map<string, string>();
	let arrived = () => {};
	agent.events.subscribe((entries) => {
		for (const { id, content } of entries) contents.set(id, JSON.stringify(JSON.parse(content)));
		arrived();
	});
	agent.events.join('kiosk');
	const half = path.join(root, `${name}-older`);
	for (let number = 1; number <= EVENTS; number += 1) {
		const text = 'x'.repeat(whole(0, 600));
		service.notify({ type: 'session.started', id: `${name}-${number}`, number, text });
		if (number % 10 === 0) {
			while (contents.size < number)
				await new Promise<void>((resolve) => {
					arrived = resolve;
				});
			await agent.events.settled();
		}
		if (number === EVENTS / 2) fs.cpSync(stateDir, half, { recursive: true });
	}
	const ids = [...contents.keys()];
	// Known by notes in the newest file alone.
	agent.events.acknowledge('slow', ids[whole(40, 50)] ?? '');
	agent.events.acknowledge('kiosk', ids[whole(60, 150)] ?? '');
	await agent.events.settled();
	const unread = [...agent.events.after(null, 1000, 1e9).entries];
	const killed = path.join(root, `${name}-killed`);
	fs.cpSync(stateDir, killed, { recursive: true });
	await daemon.stop();
	return { directory, killed, half, contents, unread };
}

const device = await makeDevice('KIOSK-1');
const other = await makeDevice('KIOSK-2');

const DAMAGES = {
	'cut off': (file: string) => fs.truncateSync(file, whole(0, Math.max(0, fs.statSync(file).size - 1))),
	bits(file: string) {
		const bytes = fs.readFileSync(file);
		for (let count = whole(1, 8); count > 0 && bytes.length > 0; count -= 1) {
			const at = whole(0, bytes.length - 1);
			bytes.writeUInt8((bytes[at] ?? 0) ^ (1 << whole(0, 7)), at);
		}
		fs.writeFileSync(file, bytes);
	},
	'a note'(file: string) {
		const bytes = fs.readFileSync(file);
		const slow = '"slow"';
		for (let at = bytes.indexOf(slow); at !== -1; at = bytes.indexOf(slow, at + 1)) bytes.writeUInt8(0, at);
		fs.writeFileSync(file, bytes);
	},
	'zeroed sectors'(file: string) {
		const bytes = fs.readFileSync(file);
		const at = whole(0, Math.floor(bytes.length / 512)) * 512;
		bytes.fill(0, Math.min(at, bytes.length), Math.min(bytes.length, at + pick([512, 4096, 16_384])));
		fs.writeFileSync(file, bytes);
	},
	'older copy'(file: string) {
		const older = path.join(device.half, path.basename(file));
		if (fs.existsSync(older)) fs.copyFileSync(older, file);
		else fs.rmSync(file);
	},
	'of another device'(file: string) {
		const kind = path.basename(file).split('-')[0] ?? '';
		const name = fs
			.readdirSync(other.killed)
			.find((each) => each === path.basename(file) || (kind === 'events' && each.startsWith(kind)));
		if (name) fs.copyFileSync(path.join(other.killed, name), file);
	},
	gone: (file: string) => fs.rmSync(file),
	'a directory'(file: string) {
		fs.rmSync(file);
		fs.mkdirSync(file);
	},
	'a pipe'(file: string) {
		fs.rmSync(file);
		execFileSync('mkfifo', [file]);
	},
	'a link'(file: string) {
		const elsewhere = path.join(path.dirname(path.dirname(file)), 'elsewhere');
		fs.renameSync(file, elsewhere);
		fs.symlinkSync(elsewhere, file);
	},
	'another owner': (file: string) => fs.chownSync(file, 65_534, 65_534),
	'mode 0': (file: string) => fs.chmodSync(file, 0),
	huge: (file: string) => fs.truncateSync(file, 3e9),
	immutable: (file: string) => void execFileSync('chattr', ['+i', file], { stdio: 'ignore' }),
} satisfies Record<string, (file: string) => void>;

let worker = null as ChildProcess | null;
let plant = '';

/** `null` when it does not answer. */
async function start(directory: string): Promise<Found | null> {
	worker ??= fork(path.join(import.meta.dirname, 'worker.ts'), {
		stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
		execArgv: ['--no-warnings', '--import', path.join(import.meta.dirname, 'plant.ts')],
		env: { ...process.env, DISK_PLANT: plant },
	});
	const running = worker;
	const deadline = new AbortController();
	const timer = setTimeout(() => deadline.abort(), ANSWER_WITHIN_MS);
	running.send(directory);
	try {
		const [found] = await once(running, 'message', { signal: deadline.signal });
		return found as Found;
	} catch {
		running.kill('SIGKILL');
		worker = null;
		return null;
	} finally {
		clearTimeout(timer);
	}
}

/** Unread events that did not come, and are in no gap either; and contents that were never sent to this device. */
function faultsOf({ events, isEndless }: Found): string[] {
	const faults: string[] = [];
	if (isEndless) faults.push('reading does not end');
	const numberOf = (id: string) => Number(id.slice(id.lastIndexOf('-') + 1));
	const isGap = events.map(({ type }) => type === 'gap');
	const came = new Set(events.map(({ id }) => id));
	for (const { id, type, data } of events)
		if (type === 'notification' && device.contents.get(id) !== JSON.stringify(data))
			faults.push(`${id} is not what was sent`);
	for (const { id, number, type } of device.unread) {
		if (came.has(id) || type === 'gap') continue;
		// The first event behind its place has to be a gap, or what follows one.
		const next = events.findIndex((event) => numberOf(event.id) >= number);
		const told = next === -1 ? isGap.at(-1) : isGap[next] || isGap[next - 1];
		if (!told) faults.push(`${id} is missing`);
	}
	return faults;
}

type Damage = keyof typeof DAMAGES;
interface Case {
	readonly name: string;
	readonly damage: Damage;
}
type Verdict = keyof typeof tally;

const tally = { whole: 0, told: 0, refused: 0, skipped: 0, silent: 0, stranded: 0, hung: 0 };
const isFault = (verdict: Verdict) => ['silent', 'stranded', 'hung'].includes(verdict);

/** First what only careful reading finds; then every file with every damage, in a drawn order. */
function drawCases(count: number): readonly Case[] {
	const names = fs.readdirSync(device.killed).sort();
	const logs = names.filter((name) => name.startsWith('events-'));
	const all = names.flatMap((name) => (Object.keys(DAMAGES) as Damage[]).map((damage) => ({ name, damage })));
	// The newest ones hold what was not acknowledged; what the very newest lacks is in the gap of the start.
	const [before = '', older = '', newest = ''] = logs.slice(-3);
	const drawn: Case[] = (['bits', 'cut off', 'gone', 'zeroed sectors'] as const).map((damage) => ({
		name: older,
		damage,
	}));
	drawn.push({ name: newest, damage: 'bits' }, { name: newest, damage: 'a note' }, { name: before, damage: 'gone' });
	drawn.push({ name: 'state.json', damage: 'bits' }, { name: 'state.json.bak', damage: 'bits' });
	while (drawn.length < count)
		for (const rest = [...all]; rest.length > 0; ) drawn.push(...rest.splice(whole(0, rest.length - 1), 1));
	return drawn.slice(0, count);
}

async function judge(number: number, { name, damage }: Case): Promise<{ verdict: Verdict; says: string }> {
	const directory = path.join(root, `case-${number}`);
	fs.mkdirSync(directory);
	fs.copyFileSync(path.join(device.directory, 'config.json'), path.join(directory, 'config.json'));
	fs.cpSync(device.killed, path.join(directory, 'state'), { recursive: true });
	const file = path.join(directory, 'state', name);
	const says = (verdict: Verdict, details = '') => ({ verdict, says: `${name}, ${damage}: ${verdict} (${details})` });
	try {
		DAMAGES[damage](file);
	} catch (error) {
		return says('skipped', `not permitted here: ${(error as Error).message.split('\n')[0]}`);
	}
	const isApart = number % 10 === 9 && plant === '';
	const found = await (isApart ? startApart(directory, ANSWER_WITHIN_MS) : start(directory));
	if (damage === 'immutable') execFileSync('chattr', ['-i', file]);
	fs.rmSync(directory, { recursive: true, force: true });
	if (found === null) return says('hung');
	if (found.refused) return says(found.refused[0] === 'internal' ? 'stranded' : 'refused', found.refused.join(': '));
	const faults = faultsOf(found);
	const details = [found.state, ...found.warnings, ...faults.slice(0, 3)].join(', ');
	if (found.state !== 'online') return says('stranded', details);
	if (faults.length > 0) return says('silent', details);
	const isWhole = device.unread.every(({ id }) => found.events.some((event) => event.id === id));
	return says(isWhole && found.warnings.length === 0 ? 'whole' : 'told', details);
}

const cases = drawCases(Number(values.cases));
let failures = 0;
console.log(`${cases.length} cases, seed ${seed}. Files: ${fs.readdirSync(device.killed).sort().join(', ')}`);
for (const [number, one] of cases.entries()) {
	const { verdict, says } = await judge(number, one);
	tally[verdict] += 1;
	failures += Number(isFault(verdict));
	if (!['whole', 'told'].includes(verdict)) console.log(`case ${number}: ${says}`);
}
// One that warns of its settings is never whole.
failures += Number(tally.whole === 0);
const words = Object.entries(tally).map(([verdict, count]) => `${verdict} ${count}`);
console.log(words.join(', '));
for (plant of Object.keys(PLANTS)) {
	worker?.kill();
	worker = null;
	let finding = null as string | null;
	for (const [number, one] of cases.entries()) {
		const { verdict, says } = await judge(number, one);
		finding = isFault(verdict) ? `case ${number}, ${says}` : null;
		if (finding) break;
	}
	failures += Number(finding === null);
	console.log(`planted: ${plant}: ${finding ?? 'NOT FOUND'}`);
}
worker?.kill();
await service.close();
fs.rmSync(root, { recursive: true, force: true });
process.exit(failures > 0 ? 1 : 0);
