/** The words for apt, and whether its simulation shows exactly the version that was ordered and no package of others. Pure. */
import { versionProblem } from '../base/debian-version.ts';
import { AgentError } from '../base/errors.ts';

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
		installation: [...words, '--no-remove', '-o', 'Dpkg::Options::=--force-confold'],
	};
}

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
