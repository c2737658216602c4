/** The check of settings: as far as a start goes, with the files and programs that they name. */
import { type Failure, toFailure } from '../base/errors.ts';
import { tellEnds } from '../connection/credential-ends.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import { findUnused } from '../settings/contradictions.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { hooksThatCannotRun } from './hook-programs.edge.ts';
import { findUnusable } from './named-files.runner.ts';

export interface SettingsVerdict {
	/** All that is refused, and the files named by settings that cannot be used. */
	readonly problems: readonly Failure[];
	/** Things that are probably not meant, and what ends soon. */
	readonly notices: readonly Failure[];
}

/** Never throws. @param env the variables of the process, for proxies and for programs without a path. */
export async function checkSettings(
	loaded: LoadedSettings,
	env: Readonly<Record<string, string | undefined>>,
	places: NonNullable<Parameters<typeof findExposedFiles>[1]>,
): Promise<SettingsVerdict> {
	const { settings } = loaded;
	const found = await findExposedFiles(loaded, places);
	// That the applications file cannot be used then is an error of its own.
	const exposed = found.filter(({ params }) => params?.['path'] !== settings.local.http.applicationsFile);
	const { clientCertificateFile, clientKeyFile } = settings.network;
	// A certificate without its key has been told.
	const isHalf = (clientCertificateFile === null) !== (clientKeyFile === null);
	const network = { ...settings.network, ...(isHalf && { clientCertificateFile: null, clientKeyFile: null }) };
	const tried = { ...loaded, settings: { ...settings, network } };
	const parts = { userAgent: 'idv-agent', env };
	const runtime = await openRuntime(tried, parts, { barely: true }).catch(toFailure);
	const isOpen = 'problems' in runtime;
	if (isOpen) await runtime.close();
	const ofLinks = isOpen ? runtime.problems.map(({ told }) => told) : [runtime];
	const isTold = ({ message }: Failure) => loaded.notices.some((notice) => notice.message === message);
	const hooks = hooksThatCannotRun(settings, env['PATH']).filter((hook) => !isTold(hook));
	const ended = tellEnds(isOpen ? (runtime.ends ?? []) : [], Date.now());
	return {
		problems: [...loaded.problems, ...ofLinks, ...(await findUnusable(settings)), ...exposed],
		notices: [...loaded.notices, ...findUnused(loaded), ...hooks, ...ended],
	};
}
