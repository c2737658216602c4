/** Whether a new version of this program works on this device, judged against the state before it. Pure. */

/** What the device was before the update: `online` also where only the service was away; `offline` where it was refused or not paired.
 * `stopped`: a person had stopped the agent, so nothing is expected of the new one. */
export type Before = 'online' | 'offline' | 'stopped';

/** One look at the device while the new version is tried. */
export interface Look {
	/** Since the new version was first seen whole in this boot, and the service was last found away, in milliseconds. */
	readonly elapsedMs: number;
	/** As long as that, and since it was last online. */
	readonly awayMs: number;
	/** Whether apt or dpkg is at work. */
	readonly isBusy: boolean;
	/** For how long without a break, in milliseconds. */
	readonly busyMs: number;
	/** The fault for which the kept program runs in the place of the new version; `null` while it does not. */
	readonly standsIn: Fault | null;
	/** The package as dpkg has it; `null` when it is not there. */
	readonly installed: (Build & { readonly state: PackageState }) | null;
	/** Whether an interrupted dpkg was asked to finish already. */
	readonly wasFinished: boolean;
	/** So long dpkg could do nothing for it, though no other program holds its lock, such as on a full disk; 0: it was not asked, or could. */
	readonly stuckMs: number;
	/** Whether the unit is ready, as it has told systemd. */
	readonly isReady: boolean;
	/** How often systemd started the unit again over the whole trial: crashes and watchdog kills. */
	readonly restarts: number;
	/** Boots of the machine in a row in which the new version did not stand for `judgeSeconds`. */
	readonly boots: number;
	/** The state that the local interface tells; `null` where it does not answer. */
	readonly state: 'online' | 'connecting' | 'offline' | 'blocked' | 'unpaired' | null;
	/** How long one run of it has been well, in milliseconds ({@link Stretch}). */
	readonly healthyMs: number;
	/** Whether it has sent a heartbeat and had an answer to a ping, where one is due in the time. */
	readonly hasBeaten: boolean;
	/** How long the unit has not been ready, or the interface silent, without a break, in milliseconds. */
	readonly silentMs: number;
	/** How long no run of the new version was online, also while apt is at work, in milliseconds. */
	readonly downMs: number;
	/** How long the service was waited for over the whole trial, in milliseconds. */
	readonly waitedMs: number;
}

/** `unconfigured`: its files are in place, a script of the package has not run to its end. `half`: not even its files are. */
export type PackageState = 'whole' | 'unconfigured' | 'half';

/** A package as it is installed: the same version may be built again, from other bytes. */
export interface Build {
	readonly version: string;
	/** A digest of its files; `null` where it could not be taken. */
	readonly build: string | null;
}

export interface Case {
	readonly from: string;
	readonly fromBuild: string | null;
	readonly to: string;
	readonly before: Before;
	readonly judgeSeconds: number;
}

/** Why a version was taken back. The last two say nothing about the version: its files never came, or its service. */
export type Fault =
	| 'crashes'
	| 'reboots'
	| 'not-ready'
	| 'not-online'
	| 'no-heartbeat'
	| 'unfinished'
	| 'interrupted'
	| 'service-away';
/** Whether a version is remembered for a fault, and kept from apt. */
export const isToBlame = (fault: string | null): boolean => fault !== 'interrupted' && fault !== 'service-away';

export type Verdict =
	| { readonly type: 'wait'; readonly forMs: number }
	/** dpkg was cut off between two steps: it shall finish what it began. */
	| { readonly type: 'finish' }
	/** It is not online in its time: the version before shall try the way to the service, which may be away. */
	| { readonly type: 'tryLine' }
	| { readonly type: 'keep' }
	/** The old version is in place: there is nothing to judge. */
	| { readonly type: 'end' }
	/** apt hangs and the new version fails: the kept program shall run in its place until dpkg can be asked to go back. */
	| { readonly type: 'standIn'; readonly fault: Fault }
	| { readonly type: 'goBack'; readonly fault: Fault };

/** So often a version may die before it is taken back. */
export const MAX_RESTARTS = 3;
/** The update's own boot and three more. */
export const MAX_BOOTS = 4;
/** In times of `judgeSeconds`: so long a version may come and go before it counts as one that is not online. */
export const PATIENCE = 4;
/** So long a service is waited for, in time that the device is switched on. */
export const MAX_WAIT_MS = 24 * 3_600_000;
/** For a version that was asked to try again now, because the one before reaches the service; `judgeSeconds` may be less. */
export const LAST_TRY_MS = 60_000;
/** So long apt may be at work, such as with a neighbour's script that waits for an answer, before a version that fails is not waited with any longer. */
export const HUNG_MS = 15 * 60_000;
export const LOOK_MS = 2_000;
/** While the service is away there is nothing to see for long. */
export const SLOW_LOOK_MS = 15_000;

/** Whether an installed package is the one from before the update. */
export const isBefore = ({ from, fromBuild }: Pick<Case, 'from' | 'fromBuild'>, { version, build }: Build): boolean =>
	version === from && (fromBuild === null || build === null || build === fromBuild);

export function judge(of: Case, look: Look): Verdict {
	const { before, judgeSeconds } = of;
	const limitMs = judgeSeconds * 1000;
	if (look.isBusy) return whileBusy(of, look);
	const isOld = look.installed !== null && isBefore(of, look.installed);
	// A person has removed the package, or it never came to the update.
	if (look.installed === null || (look.installed.state === 'whole' && isOld)) return { type: 'end' };
	if (isOld && look.installed.state === 'unconfigured') return { type: 'finish' };
	if (look.installed.state === 'half') return goBack('interrupted');
	if (look.standsIn !== null) return goBack(look.standsIn);
	if (look.installed.state === 'unconfigured') {
		const fault = look.stuckMs > 0 && before !== 'stopped' ? faultOf(look, limitMs) : null;
		const isGivenUp = look.wasFinished || look.stuckMs >= HUNG_MS;
		return isGivenUp || fault ? goBack(fault ?? 'unfinished') : { type: 'finish' };
	}
	if (before === 'stopped') return { type: 'keep' };
	if (look.restarts >= MAX_RESTARTS) return goBack('crashes');
	if (look.boots >= MAX_BOOTS && look.state !== 'online') return goBack('reboots');
	if (look.healthyMs >= limitMs && look.hasBeaten) return { type: 'keep' };
	if (look.healthyMs >= 2 * limitMs) return goBack('no-heartbeat');
	if (look.silentMs >= limitMs) return goBack('not-ready');
	// A device that was not online before has nothing to go back for.
	if (look.waitedMs >= MAX_WAIT_MS && look.state !== 'online')
		return before === 'offline' ? { type: 'keep' } : goBack('service-away');
	if (look.awayMs >= limitMs || look.elapsedMs >= PATIENCE * limitMs) return { type: 'tryLine' };
	const isSlow = look.waitedMs > 0 && look.isReady && look.state !== 'online';
	return { type: 'wait', forMs: isSlow ? SLOW_LOOK_MS : LOOK_MS };
}

/** Nothing is installed while apt is at work. Where it hangs, a version that fails must not hang with it. */
function whileBusy({ before, judgeSeconds }: Case, look: Look): Verdict {
	const fault = faultOf(look, judgeSeconds * 1000);
	const isHung = look.busyMs >= HUNG_MS && look.standsIn === null && before !== 'stopped';
	return isHung && fault !== null ? { type: 'standIn', fault } : { type: 'wait', forMs: LOOK_MS };
}

function faultOf({ restarts, downMs, state }: Look, limitMs: number): Fault | null {
	if (restarts >= MAX_RESTARTS) return 'crashes';
	if (downMs < limitMs) return null;
	return state === null ? 'not-ready' : 'not-online';
}

const goBack = (fault: Fault): Verdict => ({ type: 'goBack', fault });

/** Problems of a device that stay when its service is there: the new version is not expected to be online. */
const REFUSED = new Set([
	'access-forbidden',
	'connection-revoked',
	'credential-refused',
	'identity-changed',
	'workflow-unknown',
]);

/** @param state of the version before, as its local interface tells it; `null` where it does not answer. @param problem its code. */
export function beforeOf(state: Look['state'], problem: string | null): Before {
	if (state === null || state === 'unpaired') return 'offline';
	return state !== 'online' && problem !== null && REFUSED.has(problem) ? 'offline' : 'online';
}
