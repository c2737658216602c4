/** The settings in force, since when, and those that wait or were refused; each change that is taken is one line of the log. */
import type { Agent } from '../agent/agent.runner.ts';
import type { Audit } from '../audit/audit.runner.ts';
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { dispositionOf, type ErrorCode, type Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { differences, proxiesOf } from '../connection/way.ts';
import type { SettingsReport } from '../protocol/local-api.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { RESTRICTS } from '../settings/restrictions.ts';
import { shownAddress, shownValue } from '../settings/shown.runner.ts';
import { isSame, listSettings, type Settings, valueAt } from '../settings/table.ts';

/** Settings that sockets and files are opened with. All others follow a reload. */
export const START_ONLY = ['local.agentGroup', 'local.adminGroup', 'events.durable'] as const;
/** Trust in a service or a person, and by which means: changes of these are also in the audit log. */
const OF_TRUST = /^(baseUrl$|credential|pairing\.|network\.|service\.headers|update\.|local\.|page\.pin)|_proxy$/i;

/** Settings by which the service knows the device; `null` leaves it to others. */
const LIVE = ['baseUrl', 'workflowId', 'deviceId', 'serial', 'macAddress', 'deviceType', 'heartbeatCadence'] as const;
/** They are in force when the device is online with them. */
const MOVES = [...LIVE, 'credential'] as const;

/** Warnings of what was not taken. */
const IS_REFUSAL: readonly string[] = [
	'settings-invalid',
	'settings-unreadable',
	'credential-unreadable',
	'credential-refused',
	'telemetry-failed',
	'socket-failed',
	'memory-low',
];

export function keepTaken(parts: {
	readonly agent: Pick<Agent, 'ways' | 'status'>;
	readonly clock: Pick<Clock, 'wallMs'>;
	readonly log: Pick<Log, 'info'>;
	readonly audit: Pick<Audit, 'record'>;
	readonly atStart: Settings;
	/** The variables of the process, for proxies. */
	readonly env: Readonly<Record<string, string | undefined>>;
	/** Reads the settings as they are on the disk now. */
	readonly load: () => Promise<LoadedSettings>;
}) {
	const { agent, clock, log, audit, atStart } = parts;
	let seen = agent.ways.runtime();
	/** The fleet plan may name the cadence where the settings do not. */
	const isPlanned = () => {
		const { source = 'default' } = agent.ways.runtime().resolved.origins.get('heartbeatCadence') ?? {};
		return source === 'default' && agent.status().plan !== null;
	};
	const inForce = (before?: Settings): Settings => {
		const { settings } = agent.ways.runtime().resolved;
		const { workflow, channel, ...status } = agent.status();
		const { credential, workflowId } = agent.ways.lastGood().settings;
		const cadence = isPlanned() ? undefined : (channel.heartbeatCadence ?? before?.heartbeatCadence);
		const heartbeatCadence = cadence ?? settings.heartbeatCadence;
		const live = { ...status, workflowId: workflow.live ?? workflowId, heartbeatCadence };
		const values = LIVE.map((path) => [path, settings[path] === null ? null : live[path]]);
		return { ...settings, credential, ...Object.fromEntries(values) };
	};
	let last = inForce();
	/** A value that is in force while another one is tried, or was refused, is not taken from where that is set. */
	const takenNow = (): Settings => {
		const { settings } = agent.ways.runtime().resolved;
		const now = inForce(last);
		const isTaken = (path: (typeof MOVES)[number]) => isSame(now[path], settings[path]);
		return { ...now, ...Object.fromEntries(MOVES.map((path) => [path, (isTaken(path) ? now : last)[path]])) };
	};
	/** Names the credential that was taken last. */
	let credential = seen.credentials.id;
	const startedAt = isoNow(clock);
	const since = new Map<string, string>();

	/** @param what with its beginning blank, for the log. */
	function take(path: string, what: string): void {
		since.set(path, isoNow(clock));
		log.info(`setting taken: ${path}${what}`);
		if (OF_TRUST.test(path)) audit.record({ action: 'settingTaken', entrance: 'settings', result: 'ok', to: path });
	}

	/** A credential is taken when the service has taken it. */
	function lookAtCredential(): void {
		const { id } = agent.ways.runtime().credentials;
		if (id === credential || (id !== '' && !agent.ways.hasCredential())) return;
		credential = id;
		take('credential', id === '' ? ': there is none' : ', from its file');
	}

	/** The variables of proxies: those in force, and as the agent was started with them. */
	function ofVariables(faultOf: (name: string) => Pick<Failure, 'message'> | undefined): SettingsReport['settings'] {
		const [used, set] = [seen.way?.env ?? {}, proxiesOf(parts.env)];
		return Object.keys({ ...used, ...set }).map((path) => {
			const shown = (value: string | null = null) =>
				value === null || /^no_/i.test(path) ? value : shownAddress(value);
			const isOther = used[path] !== set[path];
			const fault = faultOf(path);
			return {
				...{ path, value: shown(used[path]), source: 'environment', where: path },
				since: since.get(path) ?? startedAt,
				...(isOther && { disk: shown(set[path]) }),
				...(isOther && (fault ? { refused: fault.message } : { waitsFor: 'try' as const })),
			};
		});
	}

	return {
		/** Settings may have been taken since the last look. */
		look(): void {
			lookAtCredential();
			const [before, now, settings] = [seen, agent.ways.runtime(), takenNow()];
			if (before === now && MOVES.every((path) => isSame(settings[path], last[path]))) return;
			const changed = new Set(changedPaths(last, settings));
			[seen, last] = [now, settings];
			for (const path of before.way && now.way && before.way.id !== now.way.id ? differences(before.way, now.way) : [])
				changed.add(path);
			for (const path of changed) {
				// It may be a variable of proxies, which is not a setting.
				if (!listSettings().has(path)) {
					take(path, path in (now.way?.env ?? {}) ? ', from the environment' : ': the environment has it no more');
					continue;
				}
				// The plan's own is in force.
				if (path === 'heartbeatCadence' && isPlanned()) continue;
				const value = valueAt(settings, path);
				const { where, source } = now.resolved.origins.get(path) ?? { where: null, source: 'default' };
				const isOther = source === 'default' && !isSame(value, listSettings().get(path)?.fallback ?? null);
				const from = isOther ? 'while what was set is refused' : (where ?? source);
				take(path, ` = ${JSON.stringify(shownValue(path, value))} (${from})`);
			}
		},
		async report(): Promise<SettingsReport> {
			const [{ resolved }, tried] = [agent.ways.runtime(), agent.ways.tried()];
			const disk = await parts.load();
			const now = inForce(last);
			const { problem, workflow } = agent.status();
			const { waitsUntil, live } = workflow;
			const ofOthers = live !== null && { value: live, source: workflow.source === 'plan' ? 'plan' : 'connection' };
			const isFinal = problem !== null && dispositionOf(problem.code as ErrorCode) !== 'retry';
			const refusal = agent.status().warnings.find(({ code }) => code === 'settings-not-followed');
			const isOver = refusal?.params?.['seconds'] !== undefined;
			const notFollowed = isOver ? String(refusal.params?.['changed']).split(', ') : [];
			const isNotice = ({ message }: Pick<Failure, 'message'>) =>
				[...disk.notices, ...agent.ways.wanted().resolved.notices].some((notice) => message.startsWith(notice.message));
			const told = agent.status().warnings.filter((one) => IS_REFUSAL.includes(one.code) && !isNotice(one));
			const onTry = tried?.way && seen.way ? differences(seen.way, tried.way) : [];
			const settings = [...listSettings().keys()].map((path) => {
				const value = valueAt(now, path);
				const there = onDisk(disk, path);
				const isMoving =
					MOVES.some((one) => one === path.split('.')[0]) && !isSame(value, valueAt(resolved.settings, path));
				const { origins, settings } = isMoving ? agent.ways.lastGood() : resolved;
				// It may never have been set: a code has brought it, or the service has named it.
				const isSet = isSame(value, valueAt(settings, path));
				const origin = isSet ? origins.get(path) : { source: 'connection', where: null };
				const { source, where } = origin ?? { source: 'default', where: null };
				// The settings of a credential change together, and are refused together.
				const isOfCredential = isMoving && path.startsWith('credential.') && there === null;
				const bad = [...told, ...disk.problems].find(
					(one) =>
						isAbout(one, path) ||
						(path.endsWith('File') && there !== null && there === one.params?.['path']) ||
						(isOfCredential && one.code === 'credential-refused'),
				);
				const waitsForStart = START_ONLY.some((one) => one === path) && !isSame(valueAt(atStart, path), value);
				// What is for another service goes with its address.
				const isKeyOut = isKey(path, isMoving ? there : value) && notFollowed.includes('credential');
				const isKeyBad = isKeyOut && refusal?.params?.['problem'] === 'credential-refused';
				const isOut = isKeyBad || notFollowed.includes(isMoving && notFollowed.includes('baseUrl') ? 'baseUrl' : path);
				const isTried = !isOut && (isMoving || onTry.includes(path));
				const waits =
					isMoving && waitsUntil !== null ? 'lease' : isTried && !(isMoving && (isFinal || bad)) ? 'try' : null;
				const waitsForAddress = isKeyOut && !isKeyBad ? 'address' : waits;
				const waitsFor: SettingsReport['settings'][number]['waitsFor'] | null = waitsForStart
					? 'restart'
					: waitsForAddress;
				// Of a file that is absent or cannot be read nothing is known to be on the disk, where no other one sets the same; that it is so is told
				// once, as that. A value that stands in for a refused restriction of such a file is from nowhere.
				const isElsewhere = disk.isWhole && disk.origins.get(path)?.source !== 'default';
				const isRead =
					source === 'default'
						? disk.origins.get(path)?.source !== 'default'
						: source !== 'file' || isElsewhere || disk.documents.some((one) => one.where === where);
				// What a restriction that is refused there holds back would read as absent.
				const isHeld = [...disk.refused].some((one) => Object.hasOwn(RESTRICTS[one] ?? {}, path));
				const refused = isOut ? refusal : isMoving && isFinal ? problem : bad;
				// Of a port that could not be had the one from before is in use, or none.
				const portOut = told.find(({ code, params }) => code === 'socket-failed' && params?.['setting'] === path);
				const used = waitsForStart ? valueAt(atStart, path) : value;
				const inUse = portOut ? (portOut.params?.['inUse'] ?? null) : used;
				const { heartbeatCadence } = agent.status().channel;
				const isOfPlan = path === 'heartbeatCadence' && isPlanned() && (heartbeatCadence ?? value) !== value;
				return {
					...{ path, value: shownValue(path, inUse), source, where },
					...(isOfPlan && { value: heartbeatCadence, source: 'plan' }),
					// No setting names one: a plan, a person or a code does.
					...(path === 'workflowId' && value === null && ofOthers),
					// When it was opened is not known.
					...(!portOut && { since: (waitsForStart ? null : since.get(path)) ?? startedAt }),
					...(isRead &&
						!isHeld &&
						!disk.problems.some((one) => isAbout(one, path)) &&
						!isSame(inUse, there) && { disk: shownValue(path, there) }),
					...(waitsFor && { waitsFor }),
					...(refused && { refused: refused.message }),
				};
			});
			const variables = ofVariables((path) =>
				notFollowed.includes(path) ? refusal : told.find((one) => isAbout(one, path)),
			);
			// A service or a workflow that the settings do not name any more, with the host that the device stays at; a file that is gone, for a while.
			const isOfFile = ({ code, params }: Failure) =>
				code === 'settings-unreadable' && !disk.problems.some(({ message }) => message.includes(`${params?.['path']}`));
			const kept = told.filter(({ code, params }) => code === 'settings-unreadable' && params?.['host'] !== undefined);
			const notices = [...disk.notices, ...agent.ways.wanted().resolved.notices.filter(isOfFile), ...kept];
			return { settings: [...settings, ...variables], problems: [...disk.problems], notices };
		},
	};
}

/** What stands in the place of a refused restriction is on no disk. */
function onDisk({ settings, origins }: LoadedSettings, path: string): unknown {
	const isDefault = (origins.get(path)?.source ?? 'default') === 'default';
	return isDefault ? listSettings().get(path)?.fallback : valueAt(settings, path);
}

const isKey = (path: string, value: unknown) => /^credential\.\w+File$/.test(path) && value !== null;

const isAbout = ({ message }: Pick<Failure, 'message'>, path: string) =>
	[' ', ':'].some((end) => ` ${message}`.includes(` ${path}${end}`));

function changedPaths(before: Settings, now: Settings): string[] {
	return [...listSettings().keys()].filter((path) => !isSame(valueAt(before, path), valueAt(now, path)));
}
