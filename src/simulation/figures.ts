/** Figures of a simulated fleet: phases, handshakes a second, outages, the time until almost all were back, and the problems that devices share. Pure. */
import type { Status } from '../protocol/local-api.ts';

/** Where a device is between start and online. */
export type DevicePhase = 'notStarted' | 'connecting' | 'online' | 'waiting';

/** An outage begins when fewer than this share of the devices are online, and ends when so many are again. */
const BACK_SHARE = 0.99;
/** Outages that are remembered; the oldest go first. */
const MAX_OUTAGES = 32;

export interface Outage {
	/** Milliseconds after the start. */
	readonly atMs: number;
	readonly fewestOnline: number;
	/** How long it took until {@link BACK_SHARE} were online again; `null` while they are not. */
	readonly backAfterMs: number | null;
	readonly handshakes: number;
	/** The most handshakes that began within one second. */
	readonly peakHandshakes: number;
}

export interface SharedProblem extends NonNullable<Status['problem']> {
	readonly devices: number;
}

export function sharedProblems(problems: readonly Status['problem'][]): SharedProblem[] {
	const byCode = new Map<string, SharedProblem>();
	for (const problem of problems)
		if (problem) byCode.set(problem.code, { ...problem, devices: (byCode.get(problem.code)?.devices ?? 0) + 1 });
	return [...byCode.values()].sort((a, b) => b.devices - a.devices);
}

export function trackFigures(devices: number, startedAtMs: number) {
	const phases: Record<DevicePhase, number> = { notStarted: devices, connecting: 0, online: 0, waiting: 0 };
	/** `peak` is the most that began within one second. */
	const handshakes = { begun: 0, opened: 0, failed: 0, peak: 0 };
	const outages: { -readonly [Name in keyof Outage]: Outage[Name] }[] = [];
	const enough = Math.ceil(devices * BACK_SHARE);
	/** How many devices have been online at all. */
	let everOnline = 0;
	/** How often a device that was online no longer was. */
	let losses = 0;
	/** When all were online for the first time, in milliseconds after the start; `null` before. */
	let allOnlineAfterMs: number | null = null;
	let second = 0;
	let inSecond = 0;
	/** Whether so many have been online that fewer are an outage. */
	let isComplete = false;

	const current = () => {
		const last = outages.at(-1);
		return last?.backAfterMs === null ? last : null;
	};

	function noteOnline(sinceStartMs: number): void {
		const { online } = phases;
		if (online === devices) allOnlineAfterMs ??= sinceStartMs;
		const outage = current();
		if (outage) {
			outage.fewestOnline = Math.min(outage.fewestOnline, online);
			if (online >= enough) outage.backAfterMs = sinceStartMs - outage.atMs;
		} else if (online >= enough) isComplete = true;
		else if (isComplete) {
			outages.push({ atMs: sinceStartMs, fewestOnline: online, backAfterMs: null, handshakes: 0, peakHandshakes: 0 });
			if (outages.length > MAX_OUTAGES) outages.shift();
		}
	}

	return {
		moved(from: DevicePhase, to: DevicePhase, isFirstTimeOnline: boolean, atMs: number): void {
			phases[from] -= 1;
			phases[to] += 1;
			if (isFirstTimeOnline) everOnline += 1;
			if (from === 'online') losses += 1;
			if (from === 'online' || to === 'online') noteOnline(atMs - startedAtMs);
		},
		handshakeBegan(atMs: number): void {
			const thisSecond = Math.floor((atMs - startedAtMs) / 1000);
			inSecond = thisSecond === second ? inSecond + 1 : 1;
			second = thisSecond;
			handshakes.begun += 1;
			handshakes.peak = Math.max(handshakes.peak, inSecond);
			const outage = current();
			if (!outage) return;
			outage.handshakes += 1;
			outage.peakHandshakes = Math.max(outage.peakHandshakes, inSecond);
		},
		handshakeEnded(outcome: 'opened' | 'failed'): void {
			handshakes[outcome] += 1;
		},
		read: (atMs: number) => ({
			elapsedMs: atMs - startedAtMs,
			phases: { ...phases },
			everOnline,
			allOnlineAfterMs,
			handshakes: { ...handshakes },
			losses,
			outages: outages.map((outage): Outage => ({ ...outage })),
		}),
	};
}
