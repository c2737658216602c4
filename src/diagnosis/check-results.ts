/** The figures and answers of single checks as findings, and the limits at which a figure is reported. Pure. */

import { plainDuration } from '../base/durations.ts';
import { asFailure, type ErrorCode, type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { classifyHttpAnswer, type HttpAnswer } from '../connection/classify-failure.ts';
import { WRONG_CLOCK_MS } from '../connection/clock-skew.ts';
import type { ShownCertificate } from '../connection/inspect.edge.ts';
import { type DiskBounds, diskNeed, plainBytes, tooSmall } from '../events/disk-budget.ts';
import { endedTrust } from '../fleet/record.ts';
import { applicationsBytes } from '../local-api/memory-budget.ts';
import { hintsFor } from '../protocol/assumptions.ts';
import type { Status } from '../protocol/local-api.ts';
import type { PlanRecord } from '../state/plan-record.ts';
import { type Finding, failed, notApplicable, ok, warning } from './checks.ts';
import type { DiskSpace, MemorySpace } from './machine-probes.edge.ts';

const MIB = 1024 * 1024;
const DAY_MS = 86_400_000;

/** Less than this and a save of the state or of an event may fail, in bytes. */
const LEAST_DISK_BYTES = 64 * 1024;
/** Budget of the agent and limit of its unit (`MemoryMax`), in MiB. */
const AGENT_MEMORY_MIB = 256;
/** An unused device should have at least this much memory available, in bytes. */
const LOW_MEMORY_BYTES = 48 * MIB;
/** A certificate that ends sooner than this is worth a warning, in days. */
const LOW_CERTIFICATE_DAYS = 14;
/** A correct clock shows no time before this program was written, in milliseconds since 1970. */
const EARLIEST_MS = Date.UTC(2026, 0, 1);

export function assessDisk(
	{ directory, freeBytes, freeInodes, capacityBytes, usedBytes }: DiskSpace,
	bounds: DiskBounds,
): Finding {
	const free = `${mebibytes(freeBytes)} free in ${directory}`;
	const small = tooSmall(directory, bounds, capacityBytes);
	const need = diskNeed(bounds);
	const low = (message: string) =>
		failure('disk-low', message, { remedy: `Make room on the file system of ${directory}.` });
	if (freeInodes === 0) return failed(low(`${directory} has run out of inodes, so no file can be created.`));
	if (freeBytes < LEAST_DISK_BYTES) return failed(low(`Only ${plainBytes(freeBytes)} free in ${directory}.`));
	if (small) return warning(small);
	// What the agent has there already is a part of its need.
	if (usedBytes !== null && freeBytes + usedBytes < need)
		return warning(low(`Only ${free}; the agent may need ${plainBytes(need - usedBytes)} more.`));
	return ok(`${free}; the agent may need ${plainBytes(need)} in all.`);
}

/** @param hasFile whether there is an applications file: its applications have requests of their own. */
export function assessMemory({ availableBytes, totalBytes, agentBytes }: MemorySpace, hasFile = false): Finding {
	const agent = agentBytes === null ? 'may use' : `uses ${mebibytes(agentBytes)} of`;
	const figures = `${mebibytes(availableBytes)} of ${mebibytes(totalBytes)} are available; the agent ${agent} at most ${AGENT_MEMORY_MIB} MiB, of which its applications take at most ${mebibytes(applicationsBytes(hasFile))}.`;
	return availableBytes < LOW_MEMORY_BYTES ? warning(failure('memory-low', `Only ${figures}`)) : ok(figures);
}

/** @param skewMs how far this device's clock is ahead of the service's; `null` when it could not be compared. */
export function assessClock(wallMs: number, skewMs: number | null, comparedWith: string): Finding {
	const wrong = (words: string) => failed(failure('clock-wrong', `This device's clock is ${words}.`));
	if (skewMs !== null && Math.abs(skewMs) >= WRONG_CLOCK_MS)
		return wrong(`${plainDuration(Math.abs(skewMs))} ${skewMs > 0 ? 'fast' : 'slow'}, by ${comparedWith}`);
	if (wallMs < EARLIEST_MS) return wrong(`wrong: it says ${new Date(wallMs).toISOString().slice(0, 10)}`);
	return skewMs === null
		? notApplicable(`Not compared: ${comparedWith}.`)
		: ok(`Within ${Math.max(1, Math.round(Math.abs(skewMs) / 1000))} s of ${comparedWith}.`);
}

/** Of a certificate that is accepted. */
export function assessCertificate(
	{ host, issuer, validToMs, protocol }: Omit<ShownCertificate, 'fault'> & { readonly host: string },
	wallMs: number,
): Finding {
	const days = Math.floor((validToMs - wallMs) / DAY_MS);
	const signed = `signed by ${issuer}, ${protocol}`;
	if (days >= LOW_CERTIFICATE_DAYS) return ok(`Valid for ${host}, ${days} days left, ${signed}.`);
	const message = `The certificate of ${host} ends in ${days} ${days === 1 ? 'day' : 'days'}; ${signed}.`;
	const remedy = "The service's operator must renew the certificate in time.";
	return warning(failure('certificate-expired', message, { remedy }));
}

/** Any refusal shows that the service is there; a page, a redirect or an overloaded service is a failure. */
export function assessAnswer(answer: Pick<HttpAnswer, 'status' | 'headers' | 'body' | 'host'>): Finding {
	const { status, host } = answer;
	const said = classifyHttpAnswer({ ...answer, purpose: 'other' });
	const isInTheWay = IN_THE_WAY.includes(said.code) || status === 407;
	return isInTheWay ? failed(said) : ok(`${host} answers (${status}, without a credential).`);
}

const IN_THE_WAY: readonly ErrorCode[] = [
	'captive-portal',
	'redirect-refused',
	'service-failed',
	'service-overloaded',
	'request-timeout',
];

/** The output of `systemctl show` for the unit, by name of the property. */
export type UnitProperties = Readonly<Record<string, string>>;

/** Settings of the shipped unit that a drop-in should not weaken. A scanner may need `PrivateDevices`, so it is left out. */
const HARDENING: readonly (readonly [property: string, desired: string])[] = [
	['NoNewPrivileges', 'yes'],
	['ProtectSystem', 'strict'],
	['ProtectHome', 'yes'],
	['PrivateTmp', 'yes'],
	['CapabilityBoundingSet', ''],
	['LockPersonality', 'yes'],
	['ProtectControlGroups', 'yes'],
	['ProtectKernelModules', 'yes'],
	['ProtectKernelTunables', 'yes'],
	['RestrictRealtime', 'yes'],
	['RestrictSUIDSGID', 'yes'],
	// A core file would hold every secret.
	['LimitCORE', '0'],
];
export const UNIT_PROPERTIES: readonly string[] = [
	...['LoadState', 'ActiveState', 'SubState', 'UnitFileState', 'NeedDaemonReload'],
	...['NRestarts', 'MainPID', 'User', 'Environment'],
	...HARDENING.map(([property]) => property),
];

/** @param warnings those of the running agent. */
export function assessPlan(
	planUrl: string | null,
	record: PlanRecord | null,
	warnings: Status['warnings'],
	wallMs: number,
): Finding {
	if (planUrl === null) return notApplicable('This device follows no fleet plan (fleet.planUrl).');
	const told = warnings.find(({ code }) => code.startsWith('plan-') && code !== 'plan-expired');
	const found = (record && endedTrust(record, wallMs)) ?? (told ? asFailure(told) : null);
	if (found) return warning(found);
	const taken = record?.taken;
	return ok(taken ? `Revision ${taken.revision} is in force.` : 'No fleet plan has come yet.');
}

/** Subjects of checks of their own, which tell them in other words. */
const JUDGED: readonly string[] = ['clock-wrong', 'disk-low', 'memory-low', 'answer-unreadable', 'plan-expired'];

/** The warnings of the running agent that no other check has told. @param before what the other checks have found. */
export function assessUntold(warnings: Status['warnings'], before: readonly Finding[]): Finding {
	const isTold = ({ code, message }: Pick<Failure, 'code' | 'message'>) =>
		before.some((finding) => {
			const isSame = 'code' in finding && finding.code === code && JUDGED.includes(code);
			return isSame || finding.message.includes(message.split(/\.(?: |$)/)[0] ?? message);
		});
	const [first, ...others] = warnings.map(asFailure).filter((one) => !isTold(one));
	if (!first) return ok('It has no warning besides those above.');
	return warning(together([first, ...others]));
}

/** Each file is told once, under the code of the first: an agent that runs and this process may both have seen it. */
export function together([first, ...others]: readonly [Failure, ...Failure[]]): Failure {
	const fileOf = ({ message, params }: Failure) => params?.['path'] ?? message;
	const each = [...new Map([...others, first].map((one) => [fileOf(one), one])).values()];
	const texts = (part: 'message' | 'remedy') => joinSentences(...new Set(each.map((one) => one[part])));
	return each.length === 1 ? first : failure(first.code, texts('message'), { remedy: texts('remedy') });
}

export function assessUnit(unit: string, shown: UnitProperties): Finding {
	const { LoadState, ActiveState = '', SubState = '', UnitFileState = '', NRestarts = '0', User = '' } = shown;
	const notReady = (message: string, remedy: string) => failure('unit-not-ready', `${message}.`, { remedy });
	if (LoadState !== 'loaded')
		return warning(notReady(`systemd has no usable ${unit} (${LoadState || 'nothing'})`, 'Install the package again.'));
	if (ActiveState === 'failed' || SubState === 'auto-restart') {
		const restarts = `${SubState}, ${NRestarts} restarts`;
		return failed(notReady(`${unit} does not stay up (${restarts})`, `Read why: journalctl -u ${unit}.`));
	}
	if (!['active', 'reloading', 'activating'].includes(ActiveState))
		return failed(notReady(`${unit} does not run (${ActiveState})`, `Start it: systemctl start ${unit}.`));
	if (!UnitFileState.startsWith('enabled') && UnitFileState !== 'static') {
		const message = `${unit} runs, but is not enabled (${UnitFileState})`;
		return warning(notReady(message, `Start it at boot: systemctl enable ${unit}.`));
	}
	if (shown['NeedDaemonReload'] === 'yes')
		return warning(notReady(`${unit} has changed on the disk since systemd read it`, 'Run systemctl daemon-reload.'));
	const taken = HARDENING.filter(([property, desired]) => (shown[property] ?? desired) !== desired);
	const weak = taken.map(([property]) => `${property}=${shown[property]}`);
	if (User === '' || User === 'root') weak.unshift('User=root');
	if (weak.length === 0) return ok(`Runs as ${User}, enabled, hardened as shipped, ${NRestarts} restarts.`);
	const message = `${unit} runs with less protection than it was shipped with: ${weak.join(', ')}`;
	return warning(notReady(message, `See which drop-in says so: systemctl cat ${unit}.`));
}

function mebibytes(bytes: number): string {
	return bytes >= 10 * 1024 * MIB ? `${Math.round(bytes / MIB / 1024)} GiB` : `${Math.round(bytes / MIB)} MiB`;
}

/** The open points of the interface that a failure of the channel may come from, without those that its remedy names. */
export function hintsOf(id: string, finding: Finding): readonly string[] {
	if (finding.status !== 'failed' || (id !== 'channel' && id !== 'heartbeat')) return [];
	const isNamed = (hint: string) =>
		hint.match(/service\.\w+/g)?.every((name) => finding.remedy.includes(name)) ?? false;
	return hintsFor(finding.code).filter((hint) => !isNamed(hint));
}
