/** `idv-agent config`: the settings with where each came from, and what is wrong with them. */

import { type LoadedSettings, loadSettings } from '../agent/load-settings.ts';
import { choosePaths, type PathFlags } from '../agent/paths.ts';
import { exitStatusOf } from '../core/errors.ts';
import type { SettingOrigin } from '../core/settings.ts';
import { listSettings } from '../core/settings-table.ts';
import { type OutputFlags, printJson, printLine, printTable } from './output.ts';

export type ConfigFlags = PathFlags & OutputFlags & { readonly set?: readonly string[] | undefined };

function load(flags: ConfigFlags): Promise<LoadedSettings> {
	const paths = choosePaths(flags, process.env);
	return loadSettings({ paths, environment: process.env, sets: flags.set ?? [] });
}

export async function showConfig(flags: ConfigFlags): Promise<void> {
	const loaded = await load(flags);
	const rows = [...listSettings()].map(([path, { secret, about }]) => {
		const value = valueAt(loaded, path);
		const shown = secret && value !== null ? '[secret]' : value;
		const origin = loaded.origins.get(path) ?? { source: 'default', where: null };
		return { path, value: shown, source: origin.source, where: origin.where, about };
	});
	if (flags.json) printJson({ settings: rows.map(({ about, ...row }) => row), problems: loaded.problems });
	else
		printTable(
			rows.map(({ path, value, source, where }) => [path, showValue(value), describeOrigin({ source, where })]),
		);
	reportProblems(loaded, flags);
}

export async function checkConfig(flags: ConfigFlags): Promise<void> {
	const loaded = await load(flags);
	if (flags.json)
		printJson({ valid: loaded.problems.length === 0, problems: loaded.problems, notices: loaded.notices });
	else if (loaded.problems.length === 0) printLine('The settings are valid.');
	reportProblems(loaded, flags);
}

function reportProblems({ problems, notices }: LoadedSettings, flags: OutputFlags): void {
	const [first] = problems;
	if (first) process.exitCode = exitStatusOf(first.code);
	if (flags.json) return;
	for (const { message } of [...problems, ...notices]) process.stderr.write(`${message}\n`);
}

function valueAt(loaded: LoadedSettings, path: string): unknown {
	const [group = '', key] = path.split('.');
	const value = (loaded.settings as unknown as Record<string, unknown>)[group];
	return key === undefined ? value : (value as Record<string, unknown>)[key];
}

function showValue(value: unknown): string {
	if (value === null) return '—';
	if (Array.isArray(value)) return value.length > 0 ? value.join(', ') : '—';
	return String(value);
}

function describeOrigin({ source, where }: SettingOrigin): string {
	return where ?? source;
}
