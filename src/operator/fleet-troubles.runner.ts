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
	report: Pick<DeviceReport, 'online' | 'problem' | 'problemSince' | 'troubles'>,
	of: (code: string) => boolean = isOfSettings,
): string | null {
	const { online, problem, problemSince = null, troubles = [] } = report;
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
	/** @param troubleOf a device, in words. @param words that say it of so many. */
	const warn = (
		troubleOf: (report: DeviceReport) => string | null | undefined | false,
		words: (count: number) => string,
	) => {
		const those = reports.flatMap((report) => {
			const trouble = troubleOf(report);
			return trouble ? [`${report.deviceId}: ${trouble.replace(/\.$/, '')}`] : [];
		});
		const named = onOneLine(`${those.slice(0, SHOWN).join('; ')}${those.length > SHOWN ? '; …' : ''}`);
		if (those.length > 0) shell.warn(`${words(those.length)} (${named}).`);
	};
	const devices = (what: string) => (count: number) => `${counted(count, 'device')} ${what}`;
	const isRefused = (code: string) => REFUSED_SETTINGS.includes(code);
	warn((report) => settingsTrouble(report, isRefused), devices('cannot go by changed settings or a plan'));
	const noCredential = devices('cannot register with the credential of the settings');
	warn((report) => settingsTrouble(report, isOfCredential), noCredential);
	warn(({ credentialEnding }) => credentialEnding, devices('with a credential that ends soon or has ended'));
	warn(({ servedRefusal }) => servedRefusal, devices('cannot follow the plan that is served'));
	warn(({ clockAheadMs }) => Boolean(clockAheadMs) && clockTrouble(clockAheadMs ?? 0), devices('with a wrong clock'));
	const ofSeveral = 'of more than one device, of which one is counted';
	warn(
		({ otherDevice }) => otherDevice,
		(count) => `${counted(count, 'id')} ${ofSeveral}`,
	);
	const disagree = (count: number) => `Reports of ${counted(count, 'device')} disagree, of which the newest counts`;
	warn(({ dispute }) => dispute, disagree);
}
