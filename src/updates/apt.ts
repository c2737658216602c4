/** The words for apt, and whether its simulation shows exactly the version that was ordered and no package of others. Pure. */
import { versionProblem } from '../base/debian-version.ts';
import { AgentError } from '../base/errors.ts';
import type { PackageState } from './judge.ts';

export const PACKAGE = 'idv-agent';
/** The packages of this project. */
const OURS = /^idv-(?:agent|tools)(?:-[a-z0-9-]+)?(?::[a-z0-9]+)?$/;

/**
 * The words of `apt-get` for exactly one version: for the simulation, which may show a removal, and for the installation.
 * @param how more words. @throws AgentError `update-refused` for what apt would read as something else than this version.
 */
export function aptWords(version: string, how: readonly string[]) {
	const problem = versionProblem(version);
	if (problem !== null) throw new AgentError('update-refused', `The version to install ${problem}.`);
	const words = ['install', '--yes', '--quiet', ...how, '--no-install-recommends', `${PACKAGE}=${version}`];
	return {
		simulation: ['--simulate', ...words],
		installation: [
			...[...words, '--no-remove', '-o', 'Dpkg::Options::=--force-confold'],
			// A small card has no room for one of each order.
			...['-o', 'APT::Keep-Downloaded-Packages=0'],
		],
	};
}

/** Words by which apt reads one file of sources and nothing else. The lists of other sources stay, and the large cache is not made again on the disk. */
export const onlyFrom = (file: string): string[] =>
	[
		...[`Dir::Etc::sourcelist=${file}`, 'Dir::Etc::sourceparts=-', 'APT::Get::List-Cleanup=0'],
		...['Dir::Cache::pkgcache=', 'Dir::Cache::srcpkgcache='],
	].flatMap((option) => ['-o', option]);

/** Asks apt in which file each of its repositories is named. */
export const REPOSITORIES = [
	'indextargets',
	'--format',
	'$(SOURCESENTRY) $(REPO_URI)',
	'Created-By: Packages',
] as const;

/**
 * The file that names the repository of the installed version, else one that has any version of this program; `null` where apt knows none.
 * @param policy the answer of `apt-cache policy`. @param repositories that of {@link REPOSITORIES}.
 */
export function sourceOf(policy: string, repositories: string): string | null {
	const named = [...repositories.matchAll(/^(\/.+):\d+ (\S+)$/gm)];
	const [, table = ''] = policy.split('Version table:\n');
	const versions = table.split(/^(?= (?:\*\*\*| {3}) \S)/m);
	const installed = versions.filter((lines) => lines.startsWith(' ***'));
	for (const lines of [...installed, ...versions])
		for (const [, uri = ''] of lines.matchAll(/^ +-?\d+ (\w[\w+.-]*:\S*) /gm)) {
			const file = named.find(([, , of = '']) => withoutEnd(of) === withoutEnd(uri))?.[1];
			if (file !== undefined) return file;
		}
	return null;
}

const withoutEnd = (uri: string) => uri.replace(/\/+$/, '');

/** Why an installation is not begun, from the output of `apt-get --simulate`; `null` when it is this version and what it needs of this project. */
export function whyNotInstalled(simulated: string, version: string): string | null {
	const steps = [...simulated.matchAll(/^(Inst|Conf|Remv|Purg) (\S+)(?: \[[^\]]*\])?(?: \((\S+))?/gm)];
	const named = (isMeant: (step: string, name: string) => boolean) =>
		steps.filter(([, step = '', name = '']) => isMeant(step, name)).map(([, , name]) => name);
	const removed = named((step) => step === 'Remv' || step === 'Purg');
	if (removed.length > 0) return `apt would remove ${list(removed)}`;
	const others = named((_step, name) => !OURS.test(name));
	if (others.length > 0) return `apt would install or change ${list(others)} as well`;
	const isThere = steps.some(([, step, name, to]) => step === 'Inst' && name === PACKAGE && to === version);
	return isThere ? null : `apt would not install ${PACKAGE} ${version}`;
}

/** At most five, each once. */
function list(names: readonly (string | undefined)[]): string {
	const different = [...new Set(names)];
	const more = different.length - 5;
	return different.slice(0, 5).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

const CLASSES = [
	['apt-busy', /Could not get lock|frontend lock was locked/],
	[
		'apt-untrusted',
		/NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|not signed|signatures (?:couldn't|were invalid)|is not trusted/,
	],
	['apt-expired', /is not valid yet|is expired|Hash Sum mismatch|unexpected size|Mirror sync in progress/],
	['apt-disk', /No space left|enough free space|disk-low/],
	['apt-not-found', /Version '[^']*' for '[^']*' was not found|Unable to locate package/],
	['apt-unreachable', /Could not (?:resolve|connect)|Failed to fetch|timed out|Temporary failure|index files failed/],
	['apt-script', /returned an error code|subprocess .* returned error|error processing/],
] as const;

/** What kind of failure the words of apt and dpkg tell. Source: apt 2.6 to 3.0, dpkg 1.21. */
export const classOf = (words: string): (typeof CLASSES)[number][0] | 'apt-failed' =>
	CLASSES.find(([, pattern]) => pattern.test(words))?.[0] ?? 'apt-failed';

/** The fields that dpkg-query is asked for, in this order. */
export const PACKAGE_FIELDS = ['db:Status-Status', 'db:Status-Eflag', 'Version', 'Installed-Size'];

/** Those fields with `|` between them; `null` for a package that is not there. */
export function packageIn(answer: string) {
	const [told = '', flag, version = '', kilobytes = '0'] = answer.trim().split('|');
	if (['not-installed', 'config-files', ''].includes(told)) return null;
	const isConfigured = ['installed', 'triggers-awaited', 'triggers-pending'].includes(told);
	// dpkg flags a package before it asks the script of the version that is there: its files are all in place then.
	const isHalf = told === 'half-installed' || (flag !== 'ok' && told !== 'half-configured');
	const state: PackageState = isHalf ? 'half' : isConfigured ? 'whole' : 'unconfigured';
	return { version, bytes: Number(kilobytes) * 1024, state };
}

export interface UnitLook {
	readonly isReady: boolean;
	readonly isStopped: boolean;
	/** Whether a boot starts it. */
	readonly isEnabled: boolean;
	readonly restarts: number;
	/** A name for this run, another after each start; `null` when it does not run. */
	readonly runId: string | null;
}

/** The words of `systemctl show`. */
export function unitIn(answer: string): UnitLook {
	const values = Object.fromEntries(answer.split('\n').map((line) => line.split('=', 2)));
	return {
		// A process whose unit is gone runs on until the next boot.
		isReady: values['ActiveState'] === 'active' && values['LoadState'] === 'loaded',
		// One that dies is `activating` between its starts; a person's stop leaves it inactive.
		isStopped: values['ActiveState'] === 'inactive',
		isEnabled: values['UnitFileState'] === 'enabled',
		restarts: Number(values['NRestarts'] ?? 0) || 0,
		runId: values['InvocationID'] || null,
	};
}
