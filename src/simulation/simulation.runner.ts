/** Many agents in one process: as on a device, with identities of their own and memory in place of a disk. */
import { type Agent, startAgent } from '../agent/agent.runner.ts';
import type { AgentOptions } from '../agent/base.runner.ts';
import { type Clock, isoNow, systemClock } from '../base/clock.edge.ts';
import { createCounters } from '../base/counters.ts';
import type { Log } from '../base/log.edge.ts';
import { type Channel, type ChannelEvent, type ChannelOptions, openChannel } from '../connection/channel.edge.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { newEpoch } from '../events/feed.runner.ts';
import type { Status } from '../protocol/local-api.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { type DevicePhase, trackFigures } from './figures.ts';
import { createEventBuffer, NULL_ANSWER_FILE, NULL_STATE_STORE } from './in-memory-stores.ts';
import { type Ring, type RolloutRun, runRollout, splitIntoRings } from './rings.runner.ts';

export interface SimulationOptions {
	/** 1 or more. */
	readonly devices: number;
	/** Shared by all devices; its owner closes it after {@link Simulation.stop}. */
	readonly runtime: Runtime;
	readonly version: string;
	readonly workflowId: string;
	/** The devices start evenly over this time, in milliseconds. */
	readonly rampMs: number;
	/** Device ids are `prefix-00001` and so on. Default `sim`. */
	readonly prefix?: string | undefined;
	readonly clock?: Clock | undefined;
	readonly random?: (() => number) | undefined;
	/** Makes the decision function of one device; default the product's own. A benchmark measures other policies. */
	readonly createSupervise?: (() => NonNullable<AgentOptions['supervise']>) | undefined;
}

export interface MoveOptions {
	readonly workflowId: string;
	/** Shares of the devices in percent, rising; 100 is added where it is missing. */
	readonly rings: readonly number[];
	/** The devices of a ring move evenly over this time, in milliseconds; then the next ring begins. */
	readonly ringMs: number;
	/** Called when a ring begins. */
	readonly onRing?: ((ring: Ring, number: number, count: number) => void) | undefined;
}

export interface SharedProblem extends NonNullable<Status['problem']> {
	readonly devices: number;
}

export type Simulation = ReturnType<typeof startSimulation>;
export type SimulationFigures = ReturnType<Simulation['figures']>;

interface Device {
	readonly agent: Agent;
	phase: DevicePhase;
	wasOnline: boolean;
	live: string | null;
}

interface Move {
	readonly workflowId: string;
	readonly sinceMs: number;
	readonly lossesBefore: number;
	/** Devices that were asked to move. */
	told: number;
	/** Devices that are online with the workflow. */
	live: number;
	refused: number;
	/** How long it took until all were live, in milliseconds; `null` before. */
	doneAfterMs: number | null;
}

const SILENT_LOG: Log = { debug() {}, info() {}, warn() {}, error() {}, setLevel() {} };
/** A simulated machine has nothing by which it could be known: it gets an id. */
const NO_FACTS: AgentOptions['facts'] = { serials: [], interfaces: [], machineIdHash: null, unreadable: [] };

export function startSimulation(options: SimulationOptions) {
	const { clock = systemClock, random = Math.random, devices: count, prefix = 'sim' } = options;
	/** Requests for a Connection: at the start, at a move, and at a renewal. */
	const registrations = { begun: 0, failed: 0 };
	const { client } = options.runtime;
	const registerDevice: typeof client.registerDevice = async (registration) => {
		registrations.begun += 1;
		const result = await client.registerDevice(registration);
		if (!result.ok) registrations.failed += 1;
		return result;
	};
	const runtime: Runtime = { ...options.runtime, client: { ...client, registerDevice } };
	const startedAtMs = clock.monotonicMs();
	const tracker = trackFigures(count, startedAtMs);
	const counters = createCounters();
	const devices: Device[] = [];
	const listeners = new Set<() => void>();
	const epoch = newEpoch(clock.wallMs(), random);
	let move: Move | null = null;
	let rollout: RolloutRun | null = null;
	let stopping: Promise<void> | null = null;

	const first = stateWith(options.workflowId, clock);
	const start = runRollout(clock, { rings: splitIntoRings([], count), ringMs: options.rampMs }, (number) => {
		// A device that starts after its turn in the rollout begins with the new workflow.
		const moved = move && number < move.told ? stateWith(move.workflowId, clock) : null;
		startDevice(number, moved ?? first);
	});

	function startDevice(number: number, state: DeviceState): void {
		const agent = startAgent({
			clock,
			random,
			version: options.version,
			runtime,
			store: NULL_STATE_STORE,
			answerFile: NULL_ANSWER_FILE,
			state,
			facts: NO_FACTS,
			newDeviceId: () => `${prefix}-${String(number + 1).padStart(5, '0')}`,
			counters,
			openEvents: () => createEventBuffer(epoch),
			openChannel: countedChannel,
			log: SILENT_LOG,
			...(options.createSupervise && { supervise: options.createSupervise() }),
		});
		const device: Device = { agent, phase: 'notStarted', wasOnline: false, live: null };
		devices.push(device);
		const update = () => note(device, agent.status());
		agent.onStatus(update);
		update();
	}

	function countedChannel(channel: ChannelOptions, listener: (event: ChannelEvent) => void): Channel {
		tracker.handshakeBegan(clock.monotonicMs());
		let isOpen = false;
		return openChannel(channel, (event) => {
			if (event.type === 'opened') isOpen = true;
			if (event.type === 'opened' || (event.type === 'ended' && !isOpen))
				tracker.handshakeEnded(isOpen ? 'opened' : 'failed');
			listener(event);
		});
	}

	function note(device: Device, { channel, workflow }: Status): void {
		const phase = PHASES[channel.state] ?? 'waiting';
		if (phase === device.phase && workflow.live === device.live) return;
		if (phase !== device.phase) {
			const isFirstTimeOnline = phase === 'online' && !device.wasOnline;
			device.wasOnline ||= isFirstTimeOnline;
			tracker.moved(device.phase, phase, isFirstTimeOnline, clock.monotonicMs());
			device.phase = phase;
		}
		if (workflow.live !== device.live) noteLive(device, workflow.live);
		for (const listener of listeners) listener();
	}

	function noteLive(device: Device, workflowId: string | null): void {
		const before = device.live;
		device.live = workflowId;
		if (!move) return;
		if (before === move.workflowId) move.live -= 1;
		if (workflowId !== move.workflowId) return;
		move.live += 1;
		if (move.live === count) move.doneAfterMs ??= clock.monotonicMs() - move.sinceMs;
	}

	function startMove(to: Move, number: number): void {
		to.told = number + 1;
		devices[number]?.agent.setWorkflow(to.workflowId).catch(() => {
			to.refused += 1;
		});
	}

	return {
		figures() {
			const figures = tracker.read(clock.monotonicMs());
			return {
				...figures,
				devices: count,
				heartbeats: counters.heartbeats,
				registrations: { ...registrations },
				move: move && figuresOf(move, figures.losses),
			};
		},
		/** The problems that keep devices from being online now, the most frequent first. */
		problems: () => sharedProblems(devices),
		/** Moves all devices ring by ring. Resolves when the last device was asked to move; a second move replaces the first. */
		move({ workflowId, rings: percents, ringMs, onRing }: MoveOptions): Promise<void> {
			rollout?.cancel();
			const rings = splitIntoRings(percents, count);
			const begun: Move = {
				workflowId,
				sinceMs: clock.monotonicMs(),
				lossesBefore: tracker.read(startedAtMs).losses,
				told: 0,
				live: devices.filter(({ live }) => live === workflowId).length,
				refused: 0,
				doneAfterMs: null,
			};
			move = begun;
			rollout = runRollout(
				clock,
				{ rings, ringMs },
				(number) => startMove(begun, number),
				(ring, index) => onRing?.(ring, index + 1, rings.length),
			);
			return rollout.done;
		},
		/** Calls back whenever a device has changed its phase or its workflow, until the returned function is called. */
		onChange(listener: () => void): () => void {
			listeners.add(listener);
			return () => listeners.delete(listener);
		},
		/** Ends all devices, each with a goodbye to the service. May be called twice. */
		stop(): Promise<void> {
			start.cancel();
			rollout?.cancel();
			stopping ??= Promise.all(devices.map(({ agent }) => agent.stop())).then(() => {});
			return stopping;
		},
	};
}

function stateWith(workflowId: string, clock: Clock): DeviceState {
	return { ...EMPTY_STATE, assignedWorkflow: { workflowId, source: 'workflow set', at: isoNow(clock) } };
}

const PHASES: Partial<Record<Status['channel']['state'], DevicePhase>> = {
	online: 'online',
	registering: 'connecting',
	connecting: 'connecting',
};

/** `losses`: how often a device was offline since the move began. */
function figuresOf({ workflowId, told, live, refused, lossesBefore, doneAfterMs }: Move, lossesNow: number) {
	return { workflowId, told, live, refused, losses: lossesNow - lossesBefore, doneAfterMs };
}

function sharedProblems(devices: readonly Device[]): SharedProblem[] {
	const byCode = new Map<string, SharedProblem>();
	for (const { agent } of devices) {
		const { problem } = agent.status();
		if (problem) byCode.set(problem.code, { ...problem, devices: (byCode.get(problem.code)?.devices ?? 0) + 1 });
	}
	return [...byCode.values()].sort((a, b) => b.devices - a.devices);
}
