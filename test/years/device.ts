/**
 * One simulated device: its disk, and the real agent that is put together on it at each boot as `daemon.runner.ts` does, with
 * clock, chance, sockets, requests and plan fetches handed in. Its consumer is an application that reads and acknowledges.
 */
import { readFileSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { type Agent, startAgent } from '../../src/agent/agent.runner.ts';
import { createCounters } from '../../src/base/counters.ts';
import { createLog } from '../../src/base/log.edge.ts';
import { openChannel } from '../../src/connection/channel.edge.ts';
import { lineFile } from '../../src/connection/line-file.edge.ts';
import type { Runtime } from '../../src/connection/runtime.runner.ts';
import { createServiceClient } from '../../src/connection/service-client.edge.ts';
import { type EventsFeed, newEpoch } from '../../src/events/feed.runner.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import type { IdentityFacts } from '../../src/identity/identity.ts';
import { keepHookCalls } from '../../src/local-api/hook-calls.runner.ts';
import type { EventSink } from '../../src/local-api/server/types.edge.ts';
import { openAnswerFile } from '../../src/pairing/kept-answer.edge.ts';
import type { HookCall } from '../../src/protocol/local-api.ts';
import { provision } from '../../src/provisioning/provision.runner.ts';
import { readCredentials } from '../../src/settings/credentials.runner.ts';
import { readSecretFile } from '../../src/settings/files.edge.ts';
import { loadSettings, resolveWith } from '../../src/settings/load.runner.ts';
import type { AgentPaths } from '../../src/settings/paths.runner.ts';
import type { Settings } from '../../src/settings/table.ts';
import { deviceStateSchema } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import type { Chance } from './chance.ts';
import { createDisk, type Disk } from './disk.ts';
import { bindMachine } from './machine-edges.ts';
import type { Observe } from './observed.ts';
import { OTHER_SERIAL, SERIAL, type Service } from './service.ts';
import { createSockets } from './sockets.ts';
import type { Machine, Time } from './time.ts';

const STATE_DIR = '/var/lib/idv-agent';
const CONFIG = '/etc/idv-agent/config.json';
const KEY = '/etc/idv-agent/api.key';
const PROVISION = '/boot/firmware/provision.json';
const PATHS: AgentPaths = {
	configFile: CONFIG,
	configFileIsExplicit: false,
	confDirectory: '/etc/idv-agent/conf.d',
	stateDir: STATE_DIR,
	runDir: '/run/idv-agent',
	credentialsDirectory: null,
};
const factsOf = (serial: string): IdentityFacts => ({
	serials: [{ source: 'dmi product_serial', value: serial }],
	interfaces: [],
	machineIdHash: null,
	unreadable: [],
});
const OF_0_1_0 = new URL('../fixtures/releases/0.1.0/state.json', import.meta.url);
const EVENTS_OF_0_1_0 = `
	CREATE TABLE IF NOT EXISTS epoch (first INTEGER PRIMARY KEY, epoch TEXT NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS consumer (name TEXT PRIMARY KEY, position INTEGER NOT NULL, seen_ms INTEGER NOT NULL) STRICT;
	CREATE TABLE IF NOT EXISTS event (
		number INTEGER PRIMARY KEY, epoch TEXT NOT NULL, service_id TEXT, kept_ms INTEGER NOT NULL, size INTEGER NOT NULL,
		at TEXT, type TEXT, kind TEXT, workflow_id TEXT, format TEXT, content TEXT
	) STRICT`;
const NETWORK = { channelAgent: () => undefined, doubt() {}, proxyName: () => null } as unknown as Runtime['network'];
/** What a consumer has seen, so that a repetition is known as one. */
const REMEMBERED = 4000;

/** Nothing that a life keeps takes so many. */
const MANY_PAGES = 500;

export type Device = ReturnType<typeof createDevice>;

interface Running {
	readonly machine: Machine;
	readonly agent: Agent;
	readonly reload: () => Promise<void>;
	readonly close: () => Promise<void>;
}

export function createDevice(parts: {
	readonly time: Time;
	readonly chance: Chance;
	readonly service: Service;
	readonly observe: Observe;
	readonly settings: Readonly<Record<string, unknown>>;
	readonly usesConsumer: boolean;
	/** How long the consumer takes to read, in milliseconds. */
	readonly consumerMs: number;
}) {
	const { time, chance, service, observe } = parts;
	const disk: Disk = createDisk(chance);
	const sockets = createSockets({ time, service, observe });
	let settings: Readonly<Record<string, unknown>> = parts.settings;
	let running: Running | null = null;
	/** What the disk is known to hold: the newest save that was confirmed. */
	let lastSaved: string | null = null;
	let savesUnderWay = 0;
	let attempts = 0;
	let serial = SERIAL;
	let position: string | null = null;
	let isReading = false;
	/** What the consumer has acknowledged last, while it has to be known after the end of the process. */
	let acknowledged: { readonly number: number; readonly atMs: number } | null = null;
	const seen = new Map<string, string>();
	/** When an event was handed on by the store, true milliseconds. */
	const appendedAt = new Map<string, number>();
	bindMachine(disk);
	for (const directory of [
		'/',
		'/etc',
		'/etc/idv-agent',
		'/etc/idv-agent/conf.d',
		'/boot',
		'/boot/firmware',
		'/var',
		'/var/lib',
		STATE_DIR,
	])
		disk.directories.add(directory);
	write(KEY, 'key-of-this-life-0\n');
	writeSettings();

	/** A person or a tool puts a file there; it is durable at once. */
	function write(path: string, text: string): void {
		const bytes = Buffer.from(text);
		disk.files.set(path, { bytes, flushed: bytes, mode: 0o600, database: null });
	}
	function writeSettings(): void {
		write(CONFIG, JSON.stringify(settings));
	}

	async function readRuntime(machine: Machine): Promise<Runtime | null> {
		const resolved = await loadSettings({ paths: PATHS, env: {}, sets: [] });
		if (resolved.problems.length > 0) return null;
		return runtimeOf(resolved, machine);
	}
	async function runtimeOf(resolved: Runtime['resolved'], machine: Machine) {
		const credentials = await readCredentials(resolved.settings.credential, readSecretFile);
		const client = createServiceClient({
			network: NETWORK as never,
			userAgent: 'idv-agent/simulated',
			wallMs: machine.clock.wallMs,
			exchange: service.exchange,
		});
		return { resolved, credentials, network: NETWORK, pin: null, client, headersFor: () => ({}) } satisfies Runtime;
	}

	async function takeProvisioning(): Promise<void> {
		const made = { paths: PATHS, credstore: '/etc/credstore.encrypted', credentialsDirectory: '/run/credentials' };
		const now = new Date(time.wallMs()).toISOString();
		await provision([{ name: PROVISION }], {
			...made,
			seal: async () => null,
			check: async (settings) => settings,
			readFacts: async () => factsOf(serial),
			now,
		}).catch(() => {});
	}

	async function start(machine: Machine): Promise<void> {
		const { clock } = machine;
		await takeProvisioning();
		const store = await openStateStore(STATE_DIR);
		const { state, notices } = await store.load();
		observe({ type: 'boot', atMs: time.nowMs, serial, state, lastSaved, wasCutInSave: savesUnderWay > 0 });
		savesUnderWay = 0;
		lastSaved = JSON.stringify(state);
		const answerFile = await openAnswerFile(STATE_DIR);
		const fallback = () => runtimeOf(resolveWith(state.lastSettings ?? [], { env: {}, sets: [] }), machine);
		let runtime = (await readRuntime(machine)) ?? (await fallback());
		// The key of shapes is another one in each process; a life is the same.
		const write = (text: string) => observe({ type: 'line', text: text.replaceAll(/-[0-9a-f]{6}\]/g, ']') });
		const log = createLog({ destination: { form: 'json', write } });
		const counters = createCounters();
		const { events: bounds } = runtime.resolved.settings;
		let closeEvents = () => {};
		const agent = startAgent({
			clock,
			random: chance,
			version: 'simulated',
			runtime,
			store: {
				...store,
				async save(saved, options) {
					savesUnderWay += 1;
					await store.save(saved, options);
					savesUnderWay -= 1;
					lastSaved = JSON.stringify(deviceStateSchema.parse(saved));
					const { length } = disk.find(`${STATE_DIR}/state.json`).bytes;
					observe({ type: 'saved', atMs: time.nowMs, text: lastSaved, state: saved, bytes: length });
				},
			},
			state,
			answerFile,
			facts: factsOf(serial),
			newDeviceId: () => `generated-${chance.whole(0, 1e9)}`,
			newAttemptId: () => {
				attempts += 1;
				return `attempt-${attempts}`;
			},
			counters,
			openEvents(warn) {
				const events = createEventStore({
					...clock,
					directory: STATE_DIR,
					epoch: newEpoch(clock.wallMs(), chance),
					bounds: { maxCount: bounds.maxCount, maxBytes: bounds.maxBytes, maxAgeMs: bounds.maxAgeSeconds * 1000 },
					durable: bounds.durable,
					onNotice: warn,
				});
				closeEvents = events.close;
				return events;
			},
			lineStore: lineFile(STATE_DIR),
			openChannel: (options, listener) =>
				openChannel({ ...options, clock, createSocket: sockets.createSocket }, listener),
			fetchPlan: service.fetchPlan,
			log,
		});
		const hooks = followHooks(agent, { log, counters }, () => runtime.resolved.settings.hooks);
		for (const notice of notices) agent.warn(notice.message, notice);
		agent.events.subscribe((entries) => {
			for (const { id } of entries) appendedAt.set(id, time.nowMs);
			readSoon(machine, agent.events);
		});
		if (acknowledged && bounds.durable) {
			const from = Number(agent.events.positionOf('kiosk')?.split('-').at(-1) ?? 0);
			observe({ type: 'resumed', from, acknowledged: acknowledged.number });
		}
		if (parts.usesConsumer) {
			agent.events.join('kiosk');
			readSoon(machine, agent.events);
		}
		running = {
			machine,
			agent,
			async reload() {
				const changed = await readRuntime(machine);
				if (!changed) return;
				runtime = changed;
				agent.applyRuntime(changed);
			},
			async close() {
				hooks.close();
				await agent.stop();
				closeEvents();
				await store.close();
			},
		};
	}

	/** As the program that runs the commands, which takes each call at once; notifications are an application's (events). */
	function followHooks(
		agent: Agent,
		parts: Pick<Parameters<typeof keepHookCalls>[0], 'log' | 'counters'>,
		settings: () => Settings['hooks'],
	) {
		const told = (hook: string, input: string) => observe({ type: 'hook', hook, input, atMs: time.nowMs });
		const withoutConsumer = () => ({ ...settings(), onNotification: [] });
		const hooks = keepHookCalls({ ...parts, agent, epoch: 'boot', settings: withoutConsumer });
		const sink: Pick<EventSink, 'send'> = {
			send({ id, event, data }) {
				if (id === undefined || event !== 'call') return true;
				const { hook, input } = JSON.parse(data) as HookCall;
				told(hook, JSON.stringify(input));
				hooks.report({ id, outcome: 'started' });
				return true;
			},
		};
		hooks.follow(sink as EventSink);
		return hooks;
	}

	function readSoon(machine: Machine, events: EventsFeed): void {
		if (!parts.usesConsumer || isReading) return;
		isReading = true;
		machine.input(parts.consumerMs, () => {
			isReading = false;
			read(events);
		});
	}

	/** Reads all there is and acknowledges it. */
	function read(events: EventsFeed): void {
		for (let pages = 1; ; pages += 1) {
			const { entries } = events.after(position);
			const newest = entries.at(-1);
			if (!newest || pages > MANY_PAGES) break;
			if (pages === MANY_PAGES) observe({ type: 'readerDone', pages });
			for (const { id, number, type, content, serviceId } of entries) {
				const text = type === 'notification' ? content : `${type} ${content}`;
				const atMs = time.nowMs;
				const appendedAtMs = appendedAt.get(id) ?? atMs;
				const again = seen.has(id);
				const before = seen.get(id);
				const isChanged = before !== undefined && before !== `${type}${serviceId}`;
				const isGap = type === 'gap' || before?.startsWith('gap') === true;
				const kind = isChanged ? 'changed' : type;
				observe({ type: 'entry', atMs, appendedAtMs, id, number, kind, text, again, isGap });
				appendedAt.delete(id);
				seen.set(id, `${type}${serviceId}`);
				if (seen.size > REMEMBERED) seen.delete(seen.keys().next().value ?? '');
			}
			position = newest.id;
			acknowledged = { number: newest.number, atMs: time.nowMs };
		}
		if (position !== null) events.acknowledge('kiosk', position);
	}

	/** An application that was away reads all there is for it, and is not needed any more. */
	function comeBack(name: string): void {
		const events = running && !running.machine.isFrozen ? running.agent.events : null;
		if (!events) return void time.after(20_000, () => comeBack(name));
		let [since, before, pages] = [events.positionOf(name), null as number | null, 0];
		for (; pages < MANY_PAGES; pages += 1) {
			const { entries, missed } = events.after(since, 100);
			if (missed) before = null;
			for (const { number, type, content } of entries) {
				observe({ type: 'readLate', number, before, kind: type, text: content });
				before = number;
			}
			const newest = entries.at(-1);
			if (!newest) break;
			since = newest.id;
		}
		observe({ type: 'readerDone', pages });
		events.forget(name);
	}

	function off(isPowerCut: boolean): void {
		const { machine } = time;
		if (!machine) return;
		observe({ type: 'off', atMs: time.nowMs });
		machine.halt();
		running = null;
		isReading = false;
		sockets.drop(isPowerCut);
		// Positions are written with the next events, and flushed with them.
		if (isPowerCut || time.nowMs - (acknowledged?.atMs ?? 0) < 1000) acknowledged = null;
		if (isPowerCut) disk.cutPower();
	}

	/** What 0.1.0 leaves that ran for a while: a state without what it does not know, its copy a link to the one before, and events in a file. */
	function leaveAsOlder(texts: readonly string[]): void {
		const state = `${STATE_DIR}/state.json`;
		const before = disk.files.get(state);
		if (!before) return;
		const known = Object.keys(JSON.parse(readFileSync(OF_0_1_0, 'utf8')));
		const document = Object.entries(JSON.parse(before.bytes.toString())).filter(([name]) => known.includes(name));
		disk.files.set(`${state}.bak`, before);
		write(state, `${JSON.stringify(Object.fromEntries(document), null, '\t')}\n`);
		lastSaved = null;
		const events = `${STATE_DIR}/events.db`;
		const { database = null, bytes } = disk.files.get(events) ?? { bytes: Buffer.alloc(0) };
		const opened = database ?? new DatabaseSync(':memory:');
		// A start knows by its size that it has changed.
		const changed = Buffer.alloc(bytes.length + 1);
		disk.files.set(events, { bytes: changed, flushed: changed, mode: 0o600, database: opened });
		opened.exec(EVENTS_OF_0_1_0);
		const newest = opened.prepare('SELECT number, kept_ms FROM event ORDER BY number DESC LIMIT 1').get();
		const last = Number(newest?.['number'] ?? 0);
		const at = new Date(time.wallMs());
		const from = newest ? new Date(Number(newest['kept_ms'])).toISOString() : null;
		const rows = [
			['gap', 'gap', null, JSON.stringify({ from, to: at.toISOString() })],
			...texts.map((text) => ['notification', 'session.started', JSON.parse(text).id as string, text]),
		] as const;
		const add = opened.prepare("INSERT INTO event VALUES (?, ?, ?, ?, 1, ?, ?, ?, 'wf-a', 'json', ?)");
		for (const [index, [type, kind, id, content]] of rows.entries())
			add.run(last + 1 + index, `older${last}`, id, at.getTime(), at.toISOString(), type, kind, content);
		// With the clock far behind they are too old as soon as it is right, and a gap stands in their place.
		if (time.skewMs > -3_600_000) observe({ type: 'leftByOlder', texts });
	}

	return {
		disk,
		sockets,
		get isCopy() {
			return serial === OTHER_SERIAL;
		},
		set serial(other: string) {
			serial = other;
		},
		leaveAsOlder,
		get agent(): Agent | null {
			const { machine } = time;
			return running && machine === running.machine && !machine.isFrozen ? running.agent : null;
		},
		/** Begins to boot. */
		boot() {
			if (time.machine) return;
			const machine = time.boot();
			disk.machine = machine;
			machine.input(1, () => {
				start(machine).catch((error) => observe({ type: 'error', text: String((error as Error)?.stack ?? error) }));
			});
		},
		off,
		/** Asks the agent to stop; it is off when that is done, at the latest after `limitMs`. */
		stop(limitMs: number, then: () => void) {
			const stopping = running;
			if (!stopping || !time.machine || time.machine.isFrozen) return then();
			const { machine } = stopping;
			const beganMs = time.nowMs;
			let isDone = false;
			const done = () => {
				if (isDone || !machine.isOn) return;
				isDone = true;
				const [timersLeft, socketsLeft] = [machine.timers(), sockets.count];
				observe({ type: 'stopped', withinMs: time.nowMs - beganMs, timersLeft, socketsLeft });
				off(false);
				then();
			};
			running = null;
			void stopping.close().then(() => {
				machine.input(1, done);
			});
			time.after(limitMs, done);
		},
		/** A process that gets no time is told when it does. */
		reload() {
			const reloading = running;
			if (time.machine?.isFrozen) time.machine.input(1, () => void reloading?.reload());
			else void reloading?.reload();
		},
		comeBack,
		/** The consumer reads now. */
		read() {
			if (running && !running.machine.isFrozen) read(running.agent.events);
		},
		/** The consumer starts again where the agent says it was. */
		restartConsumer() {
			const events = running?.agent.events;
			if (events && parts.usesConsumer) position = events.positionOf('kiosk');
		},
		changeSettings(change: Readonly<Record<string, unknown>>) {
			settings = { ...settings, ...change };
			writeSettings();
		},
		get settings() {
			return settings;
		},
		/** A settings file that is no JSON. */
		spoilSettings: () => write(CONFIG, '{"heartbeatCadence": 30'),
		mendSettings: writeSettings,
		replaceKey: (key: string) => write(KEY, `${key}\n`),
		bring: (document: object) => write(PROVISION, JSON.stringify(document)),
		savedTokens(): readonly string[] {
			const { bytes } = disk.find(`${STATE_DIR}/state.json`);
			return deviceStateSchema.parse(JSON.parse(bytes.toString())).connections.map(({ token }) => token);
		},
		files: () => disk.names(STATE_DIR),
		stateBytes: () => disk.names(STATE_DIR).reduce((sum, path) => sum + disk.find(path).bytes.length, 0),
		end: () => bindMachine(null),
	};
}
