/** Whether a new version of this program works on this device, judged against the state before it. Pure. */

/** The device before the update. `stopped`: a person had stopped the agent, so nothing is expected of the new one. */
export type Before = 'online' | 'offline' | 'stopped';

/** One look at the device while the new version is tried. */
export interface Look {
	/** Since the new version was first seen whole in this boot, and the line could last be blamed, in milliseconds. */
	readonly elapsedMs: number;
	/** Whether apt or dpkg is at work. */
	readonly isBusy: boolean;
	/** The package as dpkg has it; `null` when it is not there. */
	readonly installed: { readonly version: string; readonly state: PackageState } | null;
	/** Whether an interrupted dpkg was asked to finish already. */
	readonly wasFinished: boolean;
	/** Whether the unit is ready, as it has told systemd. */
	readonly isReady: boolean;
	/** How often systemd started the unit again in this boot: crashes and watchdog kills. */
	readonly restarts: number;
	/** Boots of the machine in a row in which the new version did not stand for `judgeSeconds`. */
	readonly boots: number;
	/** The state that the local interface tells; `null` where it does not answer. */
	readonly state: 'online' | 'connecting' | 'offline' | 'blocked' | 'unpaired' | null;
	/** How long it has been online without a break, in milliseconds. */
	readonly onlineMs: number;
	/** How long the unit has not been ready, or the interface silent, without a break, in milliseconds. */
	readonly silentMs: number;
	/** Whether the way to the service can be blamed: no network, or the service answers 429 or 5xx. */
	readonly isLineDown: boolean;
}

/** `unconfigured`: its files are in place, a script of the package has not run to its end. `half`: not even its files are. */
export type PackageState = 'whole' | 'unconfigured' | 'half';

export interface Case {
	readonly from: string;
	readonly to: string;
	readonly before: Before;
	readonly judgeSeconds: number;
}

/** Why a version was taken back. `interrupted`: its files never came, which says nothing about the version. */
export type Fault = 'crashes' | 'reboots' | 'not-ready' | 'not-online' | 'unfinished' | 'interrupted';

export type Verdict =
	| { readonly type: 'wait'; readonly forMs: number }
	/** dpkg was cut off between two steps: it shall finish what it began. */
	| { readonly type: 'finish' }
	| { readonly type: 'keep' }
	/** The old version is in place: there is nothing to judge. */
	| { readonly type: 'end' }
	| { readonly type: 'goBack'; readonly fault: Fault };

/** So often a version may die before it is taken back. */
export const MAX_RESTARTS = 3;
/** The update's own boot and three more. */
export const MAX_BOOTS = 4;
/** Online for so long is online. */
export const PROVED_MS = 10_000;
const LOOK_MS = 2_000;
/** While the line is down there is nothing to see for long. */
const SLOW_LOOK_MS = 15_000;

export function judge({ from, before, judgeSeconds }: Case, look: Look): Verdict {
	const limitMs = judgeSeconds * 1000;
	if (look.isBusy) return { type: 'wait', forMs: LOOK_MS };
	// A person has removed the package, or it never came to the update.
	if (look.installed === null || (look.installed.state === 'whole' && look.installed.version === from))
		return { type: 'end' };
	if (look.installed.version === from && look.installed.state === 'unconfigured') return { type: 'finish' };
	if (look.installed.state === 'half') return goBack('interrupted');
	if (look.installed.state === 'unconfigured') return look.wasFinished ? goBack('unfinished') : { type: 'finish' };
	if (before === 'stopped') return { type: 'keep' };
	if (look.restarts >= MAX_RESTARTS) return goBack('crashes');
	if (look.boots >= MAX_BOOTS && look.state !== 'online') return goBack('reboots');
	if (look.onlineMs >= PROVED_MS) return { type: 'keep' };
	if (look.silentMs >= limitMs) return goBack('not-ready');
	// A version is not blamed for a line that is down, nor for a state that the old one was in as well.
	if (before === 'offline' || look.isLineDown)
		return { type: 'wait', forMs: look.isReady && look.state !== 'online' ? SLOW_LOOK_MS : LOOK_MS };
	if (look.elapsedMs >= limitMs && look.state !== 'online') return goBack('not-online');
	return { type: 'wait', forMs: LOOK_MS };
}

const goBack = (fault: Fault): Verdict => ({ type: 'goBack', fault });

/** The service has answered, and has no time. */
const OF_THE_SERVICE = new Set(['service-overloaded', 'service-failed']);
/** Codes that a broken version could tell of a line that works: believed only if the old version does not get through either. */
const OF_THE_LINE = new Set([
	'captive-portal',
	'clock-wrong',
	'proxy-failed',
	'dns-failed',
	'service-unreachable',
	'connect-timeout',
	'handshake-timeout',
	'tls-failed',
]);

/** @param problem the code that the new version tells. @param oldGetsThrough whether the old version reaches the service now. */
export function isLineDown(problem: string | null, oldGetsThrough: boolean): boolean {
	if (problem === null) return false;
	return OF_THE_SERVICE.has(problem) || (OF_THE_LINE.has(problem) && !oldGetsThrough);
}
