/** A simulated fleet against an embedded service, and what the service saw of it. Both end with the test. */
import { onTestFinished } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { openSimulatedRuntime } from '../../src/simulation/runtime.runner.ts';
import {
	type Simulation,
	type SimulationFigures,
	type SimulationOptions,
	startSimulation,
} from '../../src/simulation/simulation.runner.ts';

export interface FleetSetup extends Pick<SimulationOptions, 'devices' | 'clock'> {
	/** Seconds. */
	readonly cadence?: number;
	/** Default 0. */
	readonly rampMs?: number;
	readonly workflowId?: string;
}

export interface Fleet extends Simulation {
	/** The first figures, now or later, that fit. */
	until(what: string, fits: (figures: SimulationFigures) => boolean): Promise<SimulationFigures>;
	untilAllOnline(): Promise<SimulationFigures>;
}

/** Slow machines start thousands of devices in no hurry. */
const DEADLINE_MS = 170_000;

/** Devices that register without a credential: the service has to allow it. */
export async function givenFleet(service: EmbeddedService, setup: FleetSetup): Promise<Fleet> {
	const runtime = await openSimulatedRuntime({
		version: '0.0.0-test',
		env: {},
		sets: [`baseUrl=${service.url}`, `heartbeatCadence=${setup.cadence ?? 30}`, 'credential.selfRegistration=true'],
	});
	const { devices, clock, rampMs = 0, workflowId = 'first' } = setup;
	const simulation = startSimulation({ devices, clock, runtime, rampMs, workflowId, version: '0.0.0-test' });
	onTestFinished(async () => {
		await simulation.stop();
		await runtime.close();
	});
	const until: Fleet['until'] = (what, fits) =>
		new Promise((resolve, reject) => {
			const settle = (act: () => void) => {
				clearTimeout(deadline);
				forget();
				act();
			};
			const look = () => {
				const figures = simulation.figures();
				if (fits(figures)) settle(() => resolve(figures));
			};
			const deadline = setTimeout(
				() => settle(() => reject(new Error(`Not ${what}: ${JSON.stringify(simulation.figures())}`))),
				DEADLINE_MS,
			);
			const forget = simulation.onChange(look);
			look();
		});
	return { ...simulation, until, untilAllOnline: () => until('all online', ({ phases }) => phases.online === devices) };
}

/** What the service sees; ask before it happens. */
export interface WatchedFleet {
	/** How long devices were without a live channel, in milliseconds, each time that one was; those that still are count up to now. */
	offlineMs(): readonly number[];
	/** Devices that have registered for the workflow so far, in that order. */
	registeredFor(workflowId: string): readonly string[];
	/** The longest time between two heartbeats of one device, in milliseconds. */
	longestSilenceMs(): number;
}

export function watchFleet(service: EmbeddedService): WatchedFleet {
	const offlineSince = new Map<string, number>();
	const offline: number[] = [];
	const registered = new Map<string, Set<string>>();
	const lastHeartbeat = new Map<string, number>();
	let longestSilenceMs = 0;
	const stops = [
		service.on('device-offline', ({ deviceId, at }) => void offlineSince.set(deviceId, at)),
		service.on('device-online', ({ deviceId, at }) => {
			const since = offlineSince.get(deviceId);
			if (since !== undefined) offline.push(at - since);
			offlineSince.delete(deviceId);
		}),
		service.on('registered', ({ deviceId, workflowId }) => {
			registered.set(workflowId, (registered.get(workflowId) ?? new Set()).add(deviceId));
		}),
		service.on('heartbeat', ({ deviceId, at }) => {
			longestSilenceMs = Math.max(longestSilenceMs, at - (lastHeartbeat.get(deviceId) ?? at));
			lastHeartbeat.set(deviceId, at);
		}),
	];
	onTestFinished(() => {
		for (const stop of stops) stop();
	});
	return {
		offlineMs: () => [...offline, ...[...offlineSince.values()].map((since) => Date.now() - since)],
		registeredFor: (workflowId) => [...(registered.get(workflowId) ?? [])],
		longestSilenceMs: () => longestSilenceMs,
	};
}
