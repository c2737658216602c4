/**
 * The history of a device: a log of its own (docs/log.md) of each change of state and of its cause, of starts and ends and of a clock
 * that was set. Writes nothing while nothing changes. Lines about a service go when the device is online with another one, or unpaired.
 */
import { uptime } from 'node:os';
import type { Audit } from '../audit/audit.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { type Documents, documentsOf, readDocuments } from '../base/documents.edge.ts';
import { AgentError } from '../base/errors.ts';
import { inWords, readTextNow } from '../base/files.edge.ts';
import { openRecordLog } from '../base/record-log.edge.ts';
import type { Status } from '../protocol/local-api.ts';
import {
	ASKED,
	foldChange,
	type HistoryEntry,
	isChange,
	MOMENT_MS,
	type Moment,
	momentOf,
	NOTHING_FOLDED,
	type StateEntry,
	unwrittenStepMs,
	withoutReplaced,
} from './history.ts';

const NAME = 'history';
/** On the disk: some 1,500 entries. */
export const MAX_HISTORY_BYTES = 256 * 1024;
/** The clock of a device drifts by less between two looks. */
const STEP_MS = 5000;

type Fact = HistoryEntry extends infer Entry ? (Entry extends unknown ? Omit<Entry, 'at'> : never) : never;

export function keepHistory(parts: {
	readonly stateDir: string;
	/** Of the logs of this device. */
	readonly logMark?: string | null;
	readonly version: string;
	readonly clock: Pick<Clock, 'wallMs' | 'monotonicMs' | 'sleptMs' | 'schedule'>;
	readonly agent: {
		readonly status: () => Status;
		readonly events: { readonly newestAt: (beforeMs?: number) => string | null };
		/** How often it was asked to connect again. */
		readonly reconnectsAsked?: () => number;
	};
	/** Whose newest number each entry has, so that what is taken away there is noticed here. */
	readonly audit?: Pick<Audit, 'newest' | 'settled'>;
	/** Of this start of the machine; `null` where the kernel does not say. */
	readonly boot?: string | null;
	/** Since the machine was started, in milliseconds. */
	readonly uptimeMs?: () => number;
}) {
	const { stateDir, version, clock, agent, boot = readBoot(), uptimeMs = () => uptime() * 1000 } = parts;
	const { wallMs, schedule } = clock;
	const log = openRecordLog({
		...{ directory: stateDir, name: NAME, mark: parts.logMark ?? null },
		...{ maxBytes: () => MAX_HISTORY_BYTES, wallMs, schedule },
		head: () => new Uint8Array(0),
	});
	const found = documentsOf<HistoryEntry>(log).documents;
	const hosts = new Set(found.flatMap((entry) => (entry.kind === 'state' && entry.host !== null ? [entry.host] : [])));
	let before: Moment | null = null;
	/** When the device was online last. */
	let askedThen = 0;
	let fold = NOTHING_FOLDED;
	let cancelCount: (() => void) | null = null;
	let isUnclean = false;
	let leaving = Promise.resolve();
	/** Of the service that the device was last online with. */
	let host: string | null = null;
	const aheadMs = () => clock.wallMs() - clock.monotonicMs();
	let [aheadThenMs, sleptThenMs] = [aheadMs(), clock.sleptMs()];

	function write(...entries: readonly HistoryEntry[]): void {
		const newest = parts.audit?.newest() ?? null;
		for (const entry of entries) {
			const known = { ...entry, ...(newest !== null && { audit: newest }) };
			log.append(new TextEncoder().encode(JSON.stringify(known)), Date.parse(entry.at));
			if (entry.kind === 'state' && entry.host !== null) hosts.add(entry.host);
		}
	}

	/** @param ends whatever was counted is written. */
	function take(change: StateEntry | null, ends = false): void {
		// Goes on while the machine sleeps.
		const next = foldChange(fold, change, clock.monotonicMs() + clock.sleptMs(), ends);
		({ fold } = next);
		write(...next.entries);
		cancelCount?.();
		const isDue = fold.counting !== null && fold.counting.unwritten > 0;
		cancelCount = isDue ? schedule(MOMENT_MS, () => take(null)) : null;
	}

	const now = <Given extends Fact>(fact: Given) => ({ at: new Date(wallMs()).toISOString(), ...fact });

	function lookAtClock(): void {
		const stepMs = aheadMs() - aheadThenMs;
		if (Math.abs(stepMs) < STEP_MS) return;
		const byMs = Math.round(stepMs - (clock.sleptMs() - sleptThenMs));
		[aheadThenMs, sleptThenMs] = [aheadMs(), clock.sleptMs()];
		// Monotonic time stands still while the machine sleeps, which does not set the clock.
		if (Math.abs(byMs) < STEP_MS) return;
		take(null, true);
		write(now({ kind: 'clock', byMs }));
	}

	/** Erases what is about other services than the one that the device belongs to. */
	async function leaveOthers(): Promise<void> {
		await log.settled();
		const others = [...hosts].filter((each) => each !== host);
		if (others.length > 0) {
			const going: number[] = [];
			for (const each of log.after(0)) {
				const entry: HistoryEntry | null =
					'payload' in each ? JSON.parse(new TextDecoder().decode(each.payload)) : null;
				if (entry?.kind === 'state' && entry.host !== null && entry.host !== host) going.push(each.number);
			}
			log.erase(going);
			for (const other of others) hosts.delete(other);
			isUnclean = true;
		}
		if (!isUnclean) return;
		isUnclean = false;
		// What cannot be erased now is erased after the next change.
		await log.clean().catch(() => (isUnclean = true));
	}

	function look(): void {
		lookAtClock();
		const asked = agent.reconnectsAsked?.() ?? 0;
		const found = momentOf(agent.status());
		const isAsked = asked !== askedThen && found?.state === 'offline' && before?.state === 'online';
		const moment = found && isAsked ? { ...found, cause: found.cause ?? ASKED } : found;
		if (moment?.state === 'online') askedThen = asked;
		const hasChanged = moment !== null && isChange(before, moment);
		if (hasChanged) take(now({ kind: 'state' as const, ...moment }));
		if (!moment || !hasChanged) return;
		const isLeft = moment.state === 'unpaired' && before !== null && before.state !== 'unpaired';
		before = moment;
		if (isLeft || moment.state === 'online') {
			host = isLeft ? null : moment.host;
			leaving = leaving.then(leaveOthers);
		}
	}

	const last = found.at(-1);
	const { version: earlier, boot: bootBefore } = found.findLast((entry) => entry.kind === 'started') ?? {};
	// Times say it only where that line is gone: the clock may have been set meanwhile.
	const isOlder = last !== undefined && uptimeMs() < wallMs() - Date.parse(last.at);
	const hasBooted = boot !== null && bootBefore !== undefined ? boot !== bootBefore : isOlder;
	const machineMs = Math.round(clock.monotonicMs() + clock.sleptMs());
	const newestAt = agent.events.newestAt();
	// Set back while no agent ran, by this much at least.
	const aheadMsOf = (at: string | null | undefined) => Math.max(0, Date.parse(at ?? '') - wallMs() || 0);
	const byMs =
		unwrittenStepMs(found, { boot, machineMs, wallMs: wallMs() }) ??
		-Math.max(aheadMsOf(last?.at), aheadMsOf(newestAt));
	if (Math.abs(byMs) >= STEP_MS) write(now({ kind: 'clock', byMs }));
	const isStopped = last?.kind === 'ended';
	const after = isStopped ? (hasBooted ? 'shutdown' : 'stop') : hasBooted ? 'power cut' : 'kill';
	const isCut = after === 'kill' || after === 'power cut';
	// The first events of this run may be there before its line.
	const newestThen = agent.events.newestAt(Date.parse(agent.status().startedAt));
	const aliveMs =
		isCut && newestThen !== null && newestThen > (last?.at ?? newestThen) ? Date.parse(newestThen) + byMs : Infinity;
	write(
		now({
			...{ kind: 'started', version, after: last ? after : 'nothing', machineMs },
			...(aliveMs < wallMs() && { aliveAt: new Date(aliveMs).toISOString() }),
			...(earlier !== undefined && earlier !== version && { before: earlier }),
			...(boot !== null && { boot }),
		}),
	);
	return {
		/** To be called after every change of the status, also of what is not in here. */
		look,
		/** The run ends in good order: what the status says from here on counts for nothing. */
		async close(): Promise<void> {
			await parts.audit?.settled();
			take(null, true);
			write(now({ kind: 'ended' }));
			await leaving;
			await log.close();
		},
	};
}

function readBoot(): string | null {
	try {
		// Its first digits are enough to tell two.
		return readTextNow('/proc/sys/kernel/random/boot_id', 1024).slice(0, 8);
	} catch {
		return null;
	}
}

/** All entries, also beside a running agent, oldest first, and which are missing. @param logMark `readLogMark`. @throws AgentError `state-unreadable`. */
export function readHistory(stateDir: string, logMark: string | null = null): Documents<HistoryEntry> {
	try {
		const found = readDocuments<HistoryEntry>(stateDir, NAME, logMark);
		return { ...found, documents: withoutReplaced(found.documents) };
	} catch (cause) {
		throw new AgentError('state-unreadable', `The history in ${stateDir} cannot be read: ${inWords(cause)}.`, {
			cause,
		});
	}
}
