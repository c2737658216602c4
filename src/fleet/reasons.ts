/** Why a device is not as it should be, in words, from the codes that metrics and heartbeats carry. Pure. */
import type { UPDATE_REASONS } from '../protocol/update-reasons.ts';

/** For the codes that say more than their message. */
const OF_CODES: Readonly<Record<string, string>> = {
	'workflow-unknown': 'the service does not know the workflow',
	'workflow-missing': 'no workflow is set for it',
	unpaired: 'it is not paired',
	'workflow-mismatch': 'its code is for another workflow than the workflow',
	'access-forbidden': 'the service does not allow it the workflow',
	'credential-refused': 'the service refuses its credential',
	'credential-unreadable': 'its credential cannot be read',
	'settings-not-followed': 'it is not online with its changed settings, and stays with those from before',
	'settings-invalid': 'a setting on it is not valid, or not in force as it is written',
	'settings-unreadable': 'a file of its settings cannot be read, and what it held before is in force',
	'request-rejected': 'the service rejects its registration',
	'service-unreachable': 'the service cannot be reached',
	'service-failed': 'the service fails',
	'service-overloaded': 'the service is overloaded',
	'dns-failed': 'the name of the service was not found',
	'captive-portal': 'its network asks for a sign-in',
	'network-down': 'it has no network',
	'clock-wrong': 'its clock is wrong',
	'channel-silent': 'its line is dead',
	'plan-not-followed': 'it was not online with it in time',
	'plan-untrusted': 'it refuses the plan that is served: no key of its settings has signed it',
	'plan-for-other-fleet': 'it refuses the plan that is served: it is for another fleet',
	'plan-outdated': 'it refuses the plan that is served: it knows a newer one, or another one under the same revision',
	'plan-invalid': 'it refuses the plan that is served: it is not valid',
	'disk-low': 'its disk is nearly full',
};

const OF_ORDERS: Readonly<Record<(typeof UPDATE_REASONS)[number], string>> = {
	'not-installed': 'idv-agent-updates is not installed on it',
	disabled: 'its settings do not allow updates (update.enabled)',
	'waiting-window': 'it waits for its time in the update window',
	'held-lease': 'an application on it holds a lease',
	trying: 'it has the version on trial',
	'taken-back': 'the version was taken back on it',
	'newer-than-ordered': 'it has, or had, a newer version',
	refused: 'root refuses the order',
	'service-away': 'the service was away while it tried the version',
	'apt-failed': 'apt did not install the version',
	'apt-unreachable': 'apt does not reach the repository',
	'apt-untrusted': 'apt does not trust the repository: its signature is missing, over or of another key',
	'apt-expired': 'the index of the repository is over, not valid yet or half written, or its clock is wrong',
	'apt-not-found': 'the repository does not have the version',
	'apt-not-alone': 'apt would change other packages as well',
	'apt-busy': 'another apt is at work on it',
	'apt-disk': 'its disk has no room for the version',
	'apt-script': 'a script of a package failed',
};

const REASONS: ReadonlyMap<string, string> = new Map(Object.entries({ ...OF_CODES, ...OF_ORDERS }));

/** Answers to a registration. A device that is not online may have nothing else in force, unless it says since when it has not followed. */
export const REFUSED_REQUESTS: readonly string[] = ['workflow-unknown', 'access-forbidden', 'request-rejected'];

/** Codes of settings that the device or its service refused, or that cannot be read, while others are in force. */
export const REFUSED_SETTINGS: readonly string[] = [
	...['settings-not-followed', 'settings-invalid', 'settings-unreadable'],
	...REFUSED_REQUESTS,
];

/** Why a device goes by no plan, from the source of its workflow; `null` where its own settings do not decide. */
export const ownWorkflow = (source: string | null | undefined) =>
	source === 'flag' || source === 'environment' || source === 'file'
		? `its own settings name the workflow (${source})`
		: null;

/** Codes of a plan that was fetched and is not followed. */
export const REFUSED_PLANS: readonly string[] = [
	'plan-untrusted',
	'plan-for-other-fleet',
	'plan-outdated',
	'plan-invalid',
];

/** @param workflowId the workflow that it is about. */
export function reasonIn(code: string, workflowId?: string): string {
	const words = REASONS.get(code) ?? code;
	return workflowId ? words.replace(/the workflow$/, `the workflow ${workflowId}`) : words;
}
