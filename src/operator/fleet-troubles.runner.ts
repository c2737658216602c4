/** Devices that a person must look at although they do as their plan says: settings and credentials of no use, and ids that two devices have. */
import { onOneLine } from '../base/printed.ts';
import { counted, localTime, type Shell } from '../cli/output.runner.ts';
import { clockTrouble, type DeviceReport } from '../fleet/progress.ts';
import { REFUSED_REQUESTS, REFUSED_SETTINGS, reasonIn } from '../fleet/reasons.ts';
import { pausedIn, type RolloutRecord, repeatOf, signedSince } from '../fleet/rollout-record.ts';
import type { PlanFile } from './fleet-files.runner.ts';
import { pausedWords } from './fleet-step.runner.ts';

/** Devices that are named. */
const SHOWN = 10;

export function isOfCredential(code: string): boolean {
	return code === 'credential-refused' || code === 'credential-unreadable';
}

export function isOfSettings(code: string): boolean {
	return isOfCredential(code) || REFUSED_SETTINGS.includes(code);
}

/** All of its troubles in words, each with since when; `null` for other problems or none. @param of those to name; default all. */
export function settingsTrouble(
	{
		online,
		problem,
		problemSince = null,
		troubles = [],
	}: Pick<DeviceReport, 'online' | 'problem' | 'problemSince' | 'troubles'>,
	of: (code: string) => boolean = isOfSettings,
): string | null {
	const own = troubles.find(({ code }) => code === problem)?.words;
	const first = problem === null ? [] : [{ code: problem, since: problemSince, words: own }];
	const named = [...first, ...troubles.filter(({ code }) => code !== problem)].filter(
		({ code, since }) => of(code) && (online || since !== null || !REFUSED_REQUESTS.includes(code)),
	);
	const words = named.map(({ code, since, words }) => {
		const ms = Date.parse(since ?? '');
		return `${words?.replace(/\.$/, '') ?? reasonIn(code)}${Number.isNaN(ms) ? '' : `, since ${localTime(new Date(ms).toISOString())}`}`;
	});
	return words.length === 0 ? null : words.join('; and ');
}

/** Names the signing that is not published, and the pauses. */
export function warnOfRecord(shell: Pick<Shell, 'warn'>, record: RolloutRecord, file: PlanFile): void {
	const unpublished = signedSince(record, file);
	const pauses = Object.entries(pausedIn(record, file));
	if (unpublished) {
		const { revision, brake, at } = unpublished;
		const what = `${file.file} holds revision ${file.plan.revision}, and by its record revision ${revision} (idv fleet ${brake ?? 'sign or next-ring'}) was signed at ${at} and is not published: a command was killed, or a store has lost it.`;
		const way = ` Repeat it: ${repeatOf(unpublished, file.file)}${brake ? '' : ', or sign that plan again'}.`;
		// A next ring would be refused as paused: the pause says the way on.
		shell.warn(pauses.length > 0 && !brake ? what : `${what}${way}`);
	}
	if (pauses.length > 0) shell.warn(pausedWords(pauses.map(([part, since]) => ({ rule: part || null, since }))));
}

export function warnOfTroubles(shell: Pick<Shell, 'warn'>, reports: readonly DeviceReport[]): void {
	const list = (those: readonly string[]) =>
		onOneLine(`${those.slice(0, SHOWN).join('; ')}${those.length > SHOWN ? '; …' : ''}`);
	const troubled = (of: (code: string) => boolean) =>
		reports.flatMap((report) => {
			const trouble = settingsTrouble(report, of);
			return trouble ? [`${report.deviceId}: ${trouble}`] : [];
		});
	const unusable = troubled(isOfCredential);
	const refused = troubled((code) => REFUSED_SETTINGS.includes(code));
	if (refused.length > 0)
		shell.warn(`${counted(refused.length, 'device')} cannot go by changed settings or a plan (${list(refused)}).`);
	if (unusable.length > 0)
		shell.warn(
			`${counted(unusable.length, 'device')} cannot register with the credential of the settings (${list(unusable)}).`,
		);
	const ending = reports.flatMap(({ deviceId, credentialEnding: words }) =>
		words ? [`${deviceId}: ${words.replace(/\.$/, '')}`] : [],
	);
	if (ending.length > 0)
		shell.warn(`${counted(ending.length, 'device')} with a credential that ends soon or has ended (${list(ending)}).`);
	const refusing = reports.flatMap(({ deviceId, servedRefusal: why }) =>
		why ? [`${deviceId}: ${why.replace(/\.$/, '')}`] : [],
	);
	if (refusing.length > 0)
		shell.warn(`${counted(refusing.length, 'device')} cannot follow the plan that is served (${list(refusing)}).`);
	const clocks = reports.flatMap(({ deviceId, clockAheadMs: ahead }) =>
		ahead ? [`${deviceId}: ${clockTrouble(ahead)}`] : [],
	);
	if (clocks.length > 0) shell.warn(`${counted(clocks.length, 'device')} with a wrong clock (${list(clocks)}).`);
	const shared = reports.flatMap(({ deviceId, otherDevice }) => (otherDevice ? [`${deviceId}: ${otherDevice}`] : []));
	if (shared.length > 0)
		shell.warn(`${counted(shared.length, 'id')} of more than one device, of which one is counted (${list(shared)}).`);
	const disputed = reports.flatMap(({ deviceId, dispute }) => (dispute ? [`${deviceId}: ${dispute}`] : []));
	if (disputed.length > 0)
		shell.warn(
			`Reports of ${counted(disputed.length, 'device')} disagree, of which the newest counts (${list(disputed)}).`,
		);
}
