/** `idv-agent config`: the settings with where each came from, and what is wrong with them. */
import { accessSync, closeSync, constants, openSync, readSync, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { AgentError, type Failure, failure } from '../base/errors.ts';
import { errnoOf, inWords } from '../base/files.edge.ts';
import { createSecretRegistry, redact, SECRET_MARK } from '../base/redact.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import { diskNeed, plainBytes } from '../events/disk-budget.ts';
import { readBrowserApplications } from '../local-api/server/browser-applications.ts';
import { assumptionsOf } from '../protocol/assumptions.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import type { SettingOrigin } from '../settings/resolve.ts';
import { environmentName, listSettings, valueAt } from '../settings/table.ts';
import type { AskFlags } from './local-agent.ts';
import type { Shell } from './output.ts';

function load(shell: Shell, flags: AskFlags): Promise<LoadedSettings> {
	const paths = choosePaths(flags, shell.env);
	return loadSettings({ paths, env: shell.env, sets: flags.set ?? [] });
}

export async function showConfig(shell: Shell, flags: AskFlags & { readonly explain?: boolean | undefined }) {
	const loaded = await load(shell, flags);
	const rows = [...listSettings()].map(([path, { secret, about }]) => {
		const value = valueAt(loaded.settings, path);
		const shown = secret && value !== null ? SECRET_MARK : withoutSecrets(value);
		const { source, where } = loaded.origins.get(path) ?? { source: 'default', where: null };
		return { path, value: shown, source, where, about };
	});
	const { stateDir } = choosePaths(flags, shell.env);
	const bytes = diskNeed(loaded.settings.events);
	if (shell.isJson)
		shell.json({
			settings: rows.map(({ about, ...row }) =>
				flags.explain ? { ...row, about, assumptions: assumptionsOf(row.path).map(({ id }) => id) } : row,
			),
			problems: loaded.problems,
			notices: loaded.notices,
			disk: { directory: stateDir, bytes },
		});
	else if (flags.explain)
		for (const { path, value, about, ...origin } of rows) {
			shell.line(`${path} = ${showValue(value)} (${describeOrigin(origin)})`);
			shell.folded('  ', about);
			for (const { open, assumed } of assumptionsOf(path))
				shell.folded('  ', `The interface leaves open: ${open} Assumed: ${assumed}`);
			shell.line(`  ${environmentName(path)}\n`);
		}
	else shell.table(rows.map(({ path, value, ...origin }) => [path, showValue(value), describeOrigin(origin)]));
	if (!shell.isJson)
		shell.line(`\n${stateDir} may need ${plainBytes(bytes)} (events.maxBytes and a quarter of it, and 1 MiB).`);
	reportProblems(shell, loaded, loaded.problems);
}

/** Goes as far as the agent does: the files that settings name are opened, too. */
export async function checkConfig(shell: Shell, flags: AskFlags): Promise<void> {
	const loaded = await load(shell, flags);
	const exposed = await findExposedFiles(loaded, choosePaths(flags, shell.env));
	const problems = [...(loaded.problems.length > 0 ? loaded.problems : await tryOut(shell, loaded)), ...exposed];
	const valid = problems.length === 0;
	const notices = [...loaded.notices, ...hooksThatCannotRun(loaded, shell.env['PATH'])];
	if (shell.isJson) shell.json({ valid, problems, notices });
	else if (valid) shell.line('The settings are valid.');
	reportProblems(shell, { notices }, problems);
}

/** Where systemd and this shell look for a program without a slash in its name. */
const PATHS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

function hooksThatCannotRun({ settings }: LoadedSettings, path = ''): readonly Failure[] {
	return Object.entries(settings.hooks).flatMap(([name, [program = '']]) => {
		if (program === '') return [];
		const fault = whyHookCannotRun(program, [...path.split(':'), ...PATHS]);
		return fault === null ? [] : [failure('settings-invalid', `hooks.${name}: ${program} ${fault}.`)];
	});
}

function whyHookCannotRun(program: string, paths: readonly string[]): string | null {
	if (!program.includes('/')) {
		const isThere = paths.some((directory) => whyNotRun(join(directory, program)) === null);
		return isThere ? null : 'is not in the PATH';
	}
	if (!isAbsolute(program)) return 'is not an absolute path, and hooks run in /';
	const fault = whyNotRun(program);
	if (fault !== null) return fault;
	const [, interpreter] = /^#![ \t]*([^ \t\n]+)/.exec(beginningOf(program)) ?? [];
	if (interpreter?.endsWith('\r')) return 'has line ends of Windows, with which its first line names no program';
	const missing = interpreter === undefined ? null : whyNotRun(interpreter);
	return missing === null ? null : `begins with #!${interpreter}, which ${missing}`;
}

function whyNotRun(program: string): string | null {
	try {
		accessSync(program, constants.X_OK);
		return statSync(program).isFile() ? null : 'is not a file';
	} catch (error) {
		return errnoOf(error) === 'EACCES' ? 'cannot be run: chmod 0755' : `cannot be run: ${inWords(error)}`;
	}
}

function beginningOf(file: string): string {
	const bytes = Buffer.alloc(256);
	const descriptor = openSync(file, 'r');
	try {
		return bytes.toString('latin1', 0, readSync(descriptor, bytes));
	} finally {
		closeSync(descriptor);
	}
}

async function tryOut(shell: Shell, loaded: LoadedSettings): Promise<readonly Failure[]> {
	try {
		const parts = { userAgent: 'idv-agent', env: shell.env, registerSecret: () => {} };
		await (await openRuntime(loaded, parts)).close();
		const { applicationsFile } = loaded.settings.local.http;
		if (applicationsFile !== null) await readBrowserApplications(applicationsFile);
		return [];
	} catch (error) {
		if (error instanceof AgentError) return [error.failure];
		throw error;
	}
}

function reportProblems(
	shell: Shell,
	{ notices }: Pick<LoadedSettings, 'notices'>,
	problems: readonly Failure[],
): void {
	shell.failures(problems);
	if (shell.isJson) return;
	for (const { message } of notices) shell.warn(message);
}

/** Masks texts that look like a secret, such as in the arguments of a hook. */
function withoutSecrets(value: unknown): unknown {
	const clean = (text: unknown) => (typeof text === 'string' ? redact(text, createSecretRegistry()) : text);
	return Array.isArray(value) ? value.map(clean) : clean(value);
}

function showValue(value: unknown): string {
	if (value === null || (Array.isArray(value) && value.length === 0)) return '-';
	if (Array.isArray(value)) return value.join(', ');
	return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function describeOrigin({ source, where }: SettingOrigin): string {
	return where ?? source;
}
