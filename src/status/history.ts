/** The history of a device: the changes that are worth an entry, how flapping folds, and how entries read. Pure. */
import { NO_PACES, type Paces, paced } from '../audit/pace.ts';
import { plainDuration } from '../base/durations.ts';
import type { ErrorCode, Params } from '../base/errors.ts';
import type { Status } from '../protocol/local-api.ts';

/** A problem without its words, which may be those of a service. */
export interface Cause {
	readonly code: string;
	readonly host?: string;
	/** Host and port of a proxy that may have caused it. */
	readonly proxy?: string;
	readonly reason?: string;
	readonly status?: number;
	readonly closeCode?: number;
}

export interface Moment {
	readonly state: Status['state'];
	readonly host: string | null;
	/** While it is online. */
	readonly workflowId: string | null;
	/** The source that decided the workflow. */
	readonly by: string | null;
	/** While it is online with another workflow, or has to register again, and cannot. */
	readonly wanted?: string;
	readonly cause: Cause | null;
}

/** `at` is ISO 8601, by the device's clock; `audit` the newest number of the audit log. */
export type HistoryEntry = { readonly at: string; readonly audit?: number } & (
	| ({ readonly kind: 'state'; readonly folded?: Folded } & Moment)
	| {
			readonly kind: 'started';
			readonly version: string;
			/** The version of the start before, where that was another one. */
			readonly before?: string;
			/** Tells this start of the machine from others. */
			readonly boot?: string;
			/** Of the time that the machine counts since that start: it is not set. */
			readonly machineMs?: number;
			/** The newest event before this start, where the run before was cut after its last entry. */
			readonly aliveAt?: string;
			/** The end of the run before. */
			readonly after: 'nothing' | 'stop' | 'kill' | 'shutdown' | 'power cut';
	  }
	| { readonly kind: 'ended' }
	| { readonly kind: 'clock'; readonly byMs: number }
);

/** Changes before an entry that have none of their own. An entry with the same `since` replaces the one before. */
interface Folded {
	readonly changes: number;
	/** The first of them, or this one. */
	readonly since: string;
	/** How long the device had not been online at this entry; `null` where it was until then; not there where no entry says so yet. */
	readonly awayMs?: number | null;
}

export type StateEntry = Extract<HistoryEntry, { kind: 'state' }>;

const STATE_LOST: Cause = { code: 'state-corrupt' };

/** `null` for a moment on the way to another one. */
export function momentOf(
	status: Pick<Status, 'state' | 'baseUrl' | 'workflow' | 'problem' | 'summary'>,
): Moment | null {
	const { state, baseUrl, workflow, problem, summary } = status;
	if (state === 'connecting' && !problem) return null;
	const { host, proxy, reason, status: answered, closeCode } = (problem?.params ?? {}) as Params;
	const cause = problem && {
		code: problem.code,
		...(typeof host === 'string' && { host }),
		...(typeof proxy === 'string' && { proxy }),
		...(typeof reason === 'string' && /^[A-Za-z0-9_-]{1,40}$/.test(reason) && { reason }),
		...(typeof answered === 'number' && { status: answered }),
		...(typeof closeCode === 'number' && { closeCode }),
	};
	const isLost = summary.code === 'unpaired' && summary.params['problem'] === STATE_LOST.code;
	return {
		...{
			state,
			host: baseUrl === null || state === 'unpaired' ? null : new URL(baseUrl).host,
			workflowId: workflow.live,
			cause: cause ?? (isLost ? STATE_LOST : null),
		},
		by: state === 'online' && workflow.wanted === workflow.live ? workflow.source : null,
		...(state === 'online' && cause && workflow.wanted !== null && { wanted: workflow.wanted }),
	};
}

/** The device has no problem then; the audit log says by which entrance it was asked. */
export const ASKED: Cause = { code: 'reconnect-asked' };

/** A state without a cause is the one before, while that is tried again. */
export function isChange(before: Moment | null, now: Moment): boolean {
	if (before?.state === now.state && now.state !== 'online' && now.cause === null) return false;
	const [one, other] = [before, now].map((moment) => moment && JSON.stringify({ ...moment, by: null }));
	return one !== other;
}

/** By how much the clock was set since the newest start, without an entry; `null` where that was in another start of the machine. */
export function unwrittenStepMs(
	entries: readonly HistoryEntry[],
	now: { readonly boot: string | null; readonly machineMs: number; readonly wallMs: number },
): number | null {
	const index = entries.findLastIndex(({ kind }) => kind === 'started');
	const start = entries[index];
	if (start?.kind !== 'started' || start.boot !== now.boot || start.machineMs === undefined) return null;
	const writtenMs = entries.slice(index).reduce((sum, entry) => sum + (entry.kind === 'clock' ? entry.byMs : 0), 0);
	return Math.round(now.wallMs - now.machineMs - (Date.parse(start.at) - start.machineMs) - writtenMs);
}

// ---- Flapping ----

/** Each change has an entry, in a row so many, and then one for each interval, in milliseconds: the disk does not notice those. */
const CHANGES = { burst: 100, intervalMs: 600_000 };
/** Others are counted, until none came for so long, or for four hours: an entry has the newest one and the count so far. */
const QUIET_MS = 600_000;
const COUNTED_MS = 4 * 3_600_000;
/** It is written when there are an eighth more, and when no other came for a moment; not more often than this. */
const COUNTS = { burst: 100, intervalMs: 240_000 };
export const MOMENT_MS = 10_000;

export interface Fold {
	readonly paces: Paces;
	/** Since when the device is not online, `null` while it is. Times here go on while the machine sleeps, and are not set. */
	readonly awaySinceMs: number | null | undefined;
	readonly counting: {
		readonly sinceMs: number;
		readonly newestMs: number;
		readonly entry: StateEntry & { readonly folded: Folded };
		/** Changes that no entry counts yet. */
		readonly unwritten: number;
	} | null;
}

export const NOTHING_FOLDED: Fold = { paces: NO_PACES, awaySinceMs: undefined, counting: null };

/** The entries to be written now, after a change or when none came for a moment. @param ends whatever was counted is written. */
export function foldChange(
	before: Fold,
	change: StateEntry | null,
	nowMs: number,
	ends = false,
): { readonly fold: Fold; readonly entries: readonly HistoryEntry[] } {
	let { paces, awaySinceMs, counting } = before;
	const entries: HistoryEntry[] = [];
	const mayWrite = (what: string, pace: typeof CHANGES) => {
		const next = paced(paces, what, nowMs, pace);
		({ paces } = next);
		return next.isAllowed;
	};
	const isQuiet = counting !== null && nowMs - counting.newestMs >= QUIET_MS;
	if (counting && (ends || (change && (isQuiet || nowMs - counting.sinceMs >= COUNTED_MS)))) {
		if (counting.unwritten > 0) entries.push(counting.entry);
		counting = null;
	}
	if (change) {
		if (!counting && mayWrite('changes', CHANGES)) entries.push(change);
		else {
			const { changes, since } = counting?.entry.folded ?? { changes: -1, since: change.at };
			const awayMs = awaySinceMs == null ? awaySinceMs : nowMs - awaySinceMs;
			const entry = { ...change, folded: { changes: changes + 1, since, ...(awayMs !== undefined && { awayMs }) } };
			counting = {
				sinceMs: counting?.sinceMs ?? nowMs,
				newestMs: nowMs,
				entry,
				unwritten: (counting?.unwritten ?? 0) + 1,
			};
		}
		if (change.state === 'online' || change.state === 'unpaired') awaySinceMs = null;
		else if (awaySinceMs === null) awaySinceMs = nowMs;
	}
	const isDue = counting && counting.unwritten * 9 > (change ? counting.entry.folded.changes : 0);
	if (counting && isDue && mayWrite('counts', COUNTS)) {
		entries.push(counting.entry);
		counting = { ...counting, unwritten: 0 };
	}
	return { fold: { paces, awaySinceMs, counting }, entries };
}

/** Without the entries of a count that a later one replaces. */
export const withoutReplaced = (entries: readonly HistoryEntry[]): readonly HistoryEntry[] => {
	const countOf = (entry?: HistoryEntry) => (entry?.kind === 'state' ? entry.folded?.since : undefined);
	return entries.filter((entry, index) => !countOf(entry) || countOf(entry) !== countOf(entries[index + 1]));
};

// ---- Reading ----

const NO_NAME = ['ENOTFOUND', 'ENODATA', 'EAI_NONAME'];
type Words = Partial<
	Record<ErrorCode | 'reconnect-asked', string | ((cause: Cause & { readonly host: string }) => string)>
>;

const CAUSES: Words = {
	'dns-failed': ({ host, reason = '' }) =>
		NO_NAME.includes(reason) ? `DNS knows no ${host}` : `DNS gave no answer for ${host}`,
	'service-unreachable': ({ host, reason }) =>
		reason === 'ECONNREFUSED' ? `${host} refused connections` : `${host} could not be reached`,
	'connect-timeout': ({ host }) => `${host} accepted no connection in time`,
	'connection-lost': ({ host, proxy, reason, closeCode }) =>
		reason === 'own-network'
			? 'this device had lost its own network'
			: closeCode !== undefined
				? `${host} closed the channel`
				: `the connection to ${host}${proxy === undefined ? '' : ` through the proxy ${proxy}`} was lost`,
	'connection-replaced': 'another channel took the place of this one',
	'channel-silent': ({ host }) => `${host} did not answer any more`,
	'channel-occupied': ({ host, reason }) =>
		`${host} ${reason === 'ended' ? 'ended the new channel of this device' : 'still held another channel of this device'}`,
	'clock-wrong': 'the clock of this device was wrong',
	'tls-failed': ({ host }) => `TLS with ${host} failed`,
	'proxy-failed': ({ host }) => `the proxy gave no connection to ${host}`,
	'proxy-refused': ({ host }) => `the proxy refused a connection to ${host}`,
	'captive-portal': ({ host }) => `a captive portal or a proxy answered in place of ${host}`,
	'service-failed': ({ host, status }) => `${host} failed${status === undefined ? '' : ` (${status})`}`,
	'service-overloaded': ({ host }) => `${host} had too much to do, or was not ready`,
	'handshake-timeout': ({ host }) => `${host} did not open the channel in time`,
	'request-timeout': ({ host }) => `${host} did not answer in time`,
	'certificate-expired': ({ host }) => `the certificate of ${host} had expired`,
	'certificate-untrusted': ({ host }) => `the certificate of ${host} was not trusted`,
	'certificate-wrong-host': ({ host }) => `the certificate for ${host} was of another host`,
	'credential-refused': ({ host }) => `${host} refused the credential`,
	'connection-revoked': ({ host }) => `${host} has revoked the Connection`,
	'workflow-missing': 'no workflow is named',
	'access-forbidden': ({ host }) => `${host} did not allow this device`,
	'workflow-unknown': ({ host }) => `${host} did not know the workflow`,
	'request-rejected': ({ host }) => `${host} rejected the registration`,
	'poison-message': ({ host }) => `${host} sent a message that was too large or not valid`,
	'channel-flapping': ({ host }) => `the connection to ${host} was lost again and again`,
	'notifications-at-risk': ({ host }) => `the line to ${host} may have been dead without a sign`,
	'duplicate-device': 'another device had the same deviceId',
	'registering-too-often': 'this device had registered too often',
	'redirect-refused': ({ host }) => `${host} answered with another address`,
	'bad-response': ({ host }) => `${host} gave an answer that is not from this service`,
	'response-too-large': ({ host }) => `the answer of ${host} was too large`,
	'answer-unreadable': ({ host }) => `the answer of ${host} had no Connection where it was expected`,
	'channel-not-found': ({ host }) => `${host} knew no channel at this address`,
	'channel-rejected': ({ host }) => `${host} rejected the channel`,
	'credential-unreadable': 'the credential of this device could not be read',
	'identity-changed': 'this was not the device that had been paired',
	'settings-unreadable': 'the settings of this device could not be read',
	'settings-invalid': 'the settings of this device were not valid',
	'state-corrupt': 'the state of this device was damaged',
	'state-unwritable': 'the state of this device could not be saved',
	internal: 'the agent had a fault of its own',
	'reconnect-asked': 'this device was asked to connect again',
};

function causeWords(cause: Cause): string {
	const words = CAUSES[cause.code as ErrorCode];
	const closed = cause.closeCode === undefined ? '' : ` (${cause.closeCode})`;
	if (typeof words === 'string') return words + closed;
	if (!words) return `something on this device was wrong (${cause.code})`;
	return words({ host: 'the service', ...cause }) + closed;
}

const ENDS = {
	nothing: '',
	stop: '',
	kill: ', which had been killed or had crashed',
	shutdown: ' with the machine',
	'power cut': ' with the machine, which had lost power or had crashed',
} as const;

const STATES: Readonly<Record<Status['state'], string>> = {
	online: 'online',
	offline: 'offline',
	blocked: 'offline, and a person is needed',
	connecting: 'not online yet',
	unpaired: 'not paired',
};

/** The entries, oldest first, each with its sentence. */
export function toldHistory(entries: readonly HistoryEntry[]): (HistoryEntry & { readonly sentence: string })[] {
	let before: Moment | null = null;
	/** As if the clock had not been set meanwhile. */
	let offlineSinceMs: number | null = null;
	/** The newest sign of life, and the start after a run that was cut while it was online: the outage began in between. */
	let [aliveMs, startedMs] = [0, null as number | null];
	/** As far as is known: a history that does not begin with the first start has lost lines, of which one may say so. */
	const [first] = entries;
	let hasBeenOnline = first?.kind !== 'started' || first.after !== 'nothing';
	return entries.map((entry) => {
		if (entry.kind === 'state' && entry.folded?.changes && entry.folded.awayMs !== undefined) {
			// The entry before does not lead up to this one.
			const { awayMs } = entry.folded;
			before = awayMs === null ? null : { ...entry, state: 'offline' };
			offlineSinceMs = awayMs === null ? null : Date.parse(entry.at) - awayMs;
			hasBeenOnline = true;
			startedMs = null;
		}
		const sentence = tell(entry);
		const isCut = entry.kind === 'started' && (entry.after === 'kill' || entry.after === 'power cut');
		if (before?.state === 'online' && (isCut || entry.kind === 'ended')) {
			offlineSinceMs = isCut ? Math.max(aliveMs, Date.parse(entry.aliveAt ?? '') || 0) : Date.parse(entry.at);
			startedMs = isCut ? Date.parse(entry.at) : null;
		}
		if (entry.kind === 'started') before = null;
		if (entry.kind === 'clock') {
			aliveMs += entry.byMs;
			if (offlineSinceMs !== null) offlineSinceMs += entry.byMs;
			if (startedMs !== null) startedMs += entry.byMs;
		} else aliveMs = Date.parse(entry.at);
		if (entry.kind === 'state') {
			// The agent calls it offline only when it has been online.
			hasBeenOnline = entry.state !== 'unpaired' && (hasBeenOnline || ['online', 'offline'].includes(entry.state));
			if (entry.state === 'online' || !hasBeenOnline) offlineSinceMs = startedMs = null;
			else offlineSinceMs ??= Date.parse(entry.at);
			before = entry;
		}
		return { ...entry, sentence };
	});

	function tell(entry: HistoryEntry): string {
		switch (entry.kind) {
			case 'started': {
				const updated = entry.before === undefined ? '' : `; it was version ${entry.before} before`;
				return `agent ${entry.version} started${ENDS[entry.after]}${updated}`;
			}
			case 'ended':
				return 'agent stopped';
			case 'clock':
				return `the clock was set ${entry.byMs > 0 ? 'forward' : 'back'} by ${plainDuration(Math.abs(entry.byMs))}`;
			case 'state':
				return tellFolded(entry.folded) + tellState(entry);
		}
	}

	function tellFolded(folded: Folded | undefined): string {
		if (!folded?.changes) return '';
		const changes = folded.changes === 1 ? '1 more change' : `${folded.changes} more changes`;
		return `${changes} since ${new Date(folded.since).toTimeString().slice(0, 8)}, then `;
	}

	function tellState(entry: StateEntry): string {
		const { state, host, workflowId, by, cause, wanted } = entry;
		const why = cause ? `: ${causeWords(cause)}` : '';
		if (state !== 'online') {
			const isStill = before !== null && ['offline', 'blocked'].includes(before.state) && state !== 'unpaired';
			return `${isStill ? 'still ' : ''}${STATES[state]}${why}`;
		}
		if (cause && wanted !== undefined && wanted !== workflowId)
			return `online, but the move to workflow ${wanted} does not succeed${why}`;
		if (cause) return `online, but the device cannot register again${why}`;
		const where = `${host}, workflow ${workflowId}${by ? ` (${by})` : ''}`;
		if (before?.state === 'online' && before.host !== host) return `moved to ${where}`;
		if (before?.state === 'online' && before.workflowId !== workflowId)
			return `moved to workflow ${workflowId}${by ? ` (${by})` : ''}`;
		const since = (ms: number) => plainDuration(Date.parse(entry.at) - ms);
		const least = startedMs === null ? '' : `at least ${since(startedMs)} and at most `;
		const away = offlineSinceMs === null ? '' : ` again after ${least}${since(offlineSinceMs)}`;
		return away && before ? `online${away}` : `online${away} with ${where}`;
	}
}
