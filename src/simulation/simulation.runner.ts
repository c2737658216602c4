/** Many agents in one process: as on a device, with identities of their own and memory in place of a disk. */
import { type Agent, startAgent } from '../agent/agent.runner.ts';
import type { AgentOptions } from '../agent/base.runner.ts';
import { type Clock, isoNow, systemClock } from '../base/clock.edge.ts';
import { createCounters } from '../base/counters.ts';

import { type Channel, type ChannelEvent, type ChannelOptions, openChannel } from '../connection/channel.edge.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import { newEpoch } from '../events/feed.runner.ts';
import type { Status } from '../protocol/local-api.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { type DevicePhase, sharedProblems, trackFigures } from './figures.ts';
import { createEventBuffer, NO_MACHINE } from './in-memory-stores.ts';
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

export function startSimulation(options: SimulationOptions) {
	const { clock = systemClock, random = Math.random, devices: count, prefix = 'sim' } = options;
	const { runtime, registrations } = countRegistrations(options.runtime);
	const tracker = trackFigures(count, clock.monotonicMs());
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
		startDevice(number, move && number < move.told ? stateWith(move.workflowId, clock) : first);
	});

	function startDevice(number: number, state: DeviceState): void {
		const agent = startAgent({
			...NO_MACHINE,
			...{ clock, random, version: options.version, runtime, state, counters },
			newDeviceId: () => `${prefix}-${String(number + 1).padStart(5, '0')}`,
			openEvents: () => createEventBuffer(epoch),
			openChannel: (channel, listener) => openCounted(channel, listener, tracker, clock),
			...(options.createSupervise && { supervise: options.createSupervise() }),
		});
		const device: Device = { agent, phase: 'notStarted', wasOnline: false, live: null };
		devices.push(device);
		const update = () => note(device, agent.status());
		agent.onStatus(update);
		update();
	}

	function note(device: Device, { channel, workflow }: Status): void {
		const phase = PHASES[channel.state] ?? 'waiting';
		if (phase === device.phase && workflow.live === device.live) return;
		const isFirstTime = phase === 'online' && !device.wasOnline;
		if (phase !== device.phase) tracker.moved(device.phase, phase, isFirstTime, clock.monotonicMs());
		device.wasOnline ||= isFirstTime;
		device.phase = phase;
		if (move) move.live += Number(workflow.live === move.workflowId) - Number(device.live === move.workflowId);
		if (move?.live === count) move.doneAfterMs ??= clock.monotonicMs() - move.sinceMs;
		device.live = workflow.live;
		for (const listener of listeners) listener();
	}

	return {
		figures() {
			const figures = tracker.read(clock.monotonicMs());
			const { heartbeats } = counters;
			const moved = move && figuresOf(move, figures.losses);
			return { ...figures, devices: count, heartbeats, registrations: { ...registrations }, move: moved };
		},
		/** The problems that keep devices from being online now, the most frequent first. */
		problems: () => sharedProblems(devices.map(({ agent }) => agent.status().problem)),
		/** Moves all devices ring by ring. Resolves when the last device was asked to move; a second move replaces the first. */
		move({ workflowId, rings: percents, ringMs, onRing }: MoveOptions): Promise<void> {
			rollout?.cancel();
			const rings = splitIntoRings(percents, count);
			const begun = moveOf(devices, workflowId, clock.monotonicMs(), tracker);
			move = begun;
			const beginRing = (ring: Ring, index: number) => onRing?.(ring, index + 1, rings.length);
			rollout = runRollout(clock, { rings, ringMs }, (number) => askToMove(devices, begun, number), beginRing);
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

/** The same runtime, and how often a Connection was asked for through it: at the start, at a move, and at a renewal. */
function countRegistrations({ client, ...others }: Runtime) {
	const registrations = { begun: 0, failed: 0 };
	const registerDevice: typeof client.registerDevice = async (registration) => {
		registrations.begun += 1;
		const result = await client.registerDevice(registration);
		if (!result.ok) registrations.failed += 1;
		return result;
	};
	const runtime: Runtime = { ...others, client: { ...client, registerDevice } };
	return { runtime, registrations };
}

function openCounted(
	channel: ChannelOptions,
	listener: (event: ChannelEvent) => void,
	tracker: Tracker,
	clock: Clock,
): Channel {
	tracker.handshakeBegan(clock.monotonicMs());
	let isOpen = false;
	return openChannel(channel, (event) => {
		if (event.type === 'opened') isOpen = true;
		if (event.type === 'opened' || (event.type === 'ended' && !isOpen))
			tracker.handshakeEnded(isOpen ? 'opened' : 'failed');
		listener(event);
	});
}

function stateWith(workflowId: string, clock: Clock): DeviceState {
	return { ...EMPTY_STATE, assignedWorkflow: { workflowId, source: 'workflow set', at: isoNow(clock) } };
}

const PHASES: Partial<Record<Status['channel']['state'], DevicePhase>> = {
	online: 'online',
	registering: 'connecting',
	connecting: 'connecting',
};

type Tracker = ReturnType<typeof trackFigures>;

function moveOf(devices: readonly Device[], workflowId: string, sinceMs: number, tracker: Tracker): Move {
	const live = devices.filter((device) => device.live === workflowId).length;
	const lossesBefore = tracker.read(sinceMs).losses;
	return { workflowId, sinceMs, lossesBefore, told: 0, live, refused: 0, doneAfterMs: null };
}

function askToMove(devices: readonly Device[], move: Move, number: number): void {
	move.told = number + 1;
	devices[number]?.agent.setWorkflow(move.workflowId).catch(() => {
		move.refused += 1;
	});
}

/** `losses`: how often a device was offline since the move began. */
function figuresOf({ workflowId, told, live, refused, lossesBefore, doneAfterMs }: Move, lossesNow: number) {
	return { workflowId, told, live, refused, losses: lossesNow - lossesBefore, doneAfterMs };
}
