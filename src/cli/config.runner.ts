/** `idv-agent config`: the settings with where each came from, and what is wrong with them. */
import { access, constants } from 'node:fs/promises';
import { AgentError, EXIT, type Failure, failure } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import { triedSettings } from '../connection/last-good.ts';
import { lastSettings, openRuntime } from '../connection/runtime.runner.ts';
import { lastOnline } from '../connection/way.ts';
import { becomeServiceUser, findInspectionTarget } from '../diagnosis/inspection-target.runner.ts';
import { checkSettings } from '../diagnosis/settings-check.runner.ts';
import { diskNeed, needInWords, plainBytes } from '../events/disk-budget.ts';
import { assumptionsOf } from '../protocol/assumptions.ts';
import { LOCAL_ROUTES, type SettingsReport } from '../protocol/local-api.ts';
import { firstSettings, type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { shownValue } from '../settings/shown.runner.ts';
import { environmentName, listSettings, valueAt } from '../settings/table.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { keptWithoutSettings } from '../workflow/desired-registration.ts';
import { type AskFlags, clientFor, sourcesOf } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';

/** As the running agent uses them; where none runs, as the next start would. */
export async function showConfig(shell: Shell, flags: AskFlags & { readonly explain?: boolean | undefined }) {
	// Flags are for an agent that is to be started.
	const asked = flags.set?.length ? null : await askAgent(shell, flags);
	const shown = asked && 'settings' in asked ? asked : null;
	const unasked = asked && 'code' in asked ? asked : null;
	const { loaded, rows } = shown
		? { loaded: await loadSettings(sourcesOf(shell, flags)), rows: shown.settings }
		: await ofNextStart(shell, flags);
	const { stateDir } = choosePaths(flags, shell.env);
	const bytes = diskNeed(loaded.settings);
	const { problems } = shown ?? loaded;
	const notices = shown?.notices ?? [...loaded.notices, ...(await findKept(loaded, stateDir))];
	if (shell.isJson)
		shell.json({
			agent: shown !== null,
			...(unasked && { unasked }),
			settings: rows.map((row) =>
				flags.explain
					? { ...row, about: aboutOf(row.path), assumptions: assumptionsOf(row.path).map(({ id }) => id) }
					: row,
			),
			problems,
			notices,
			disk: { directory: stateDir, bytes },
		});
	else if (flags.explain)
		for (const row of rows) {
			const since = row.since ? `, since ${row.since}` : '';
			shell.line(`${row.path} = ${showValue(row.value)} (${describeOrigin(row)}${since})`);
			shell.folded('  ', aboutOf(row.path));
			for (const { open, assumed } of assumptionsOf(row.path))
				shell.folded('  ', `The interface leaves open: ${open} Assumed: ${assumed}`);
			shell.line(`  ${listSettings().has(row.path) ? environmentName(row.path) : row.path}\n`);
		}
	else shell.table(rows.map((row) => [row.path, showValue(row.value), describeOrigin(row)]));
	if (!shell.isJson) {
		if (!flags.explain)
			for (const row of rows) if (row.refused || row.waitsFor || 'disk' in row) shell.line(remarkOf(row));
		const whose = shown ? 'The running agent uses these settings.' : unasked?.message;
		if (whose) shell.line(`\n${whose}${shown ? '' : ' These are the settings of a next start.'}`);
		shell.line(`\n${stateDir} may need ${plainBytes(bytes)} (${needInWords(loaded.settings)}).`);
	}
	reportProblems(shell, { notices: notices as readonly Failure[] }, problems as readonly Failure[]);
}

const aboutOf = (path: string) => listSettings().get(path)?.about ?? 'Variable of the agent, for proxies.';

/** As a start would take them: what cannot be used keeps its value from before, and another way is tried beside the one that worked. */
async function ofNextStart(shell: Shell, flags: AskFlags) {
	const sources = sourcesOf(shell, flags);
	const onDisk = await loadSettings(sources);
	const state = await lookAtState(sources.paths.stateDir).then(
		(found) => found.state,
		() => null,
	);
	const last = state && lastSettings(state, sources);
	const stays = { bears: () => true, looked() {} };
	const loaded = await firstSettings(onDisk, sources, last && { loaded: last }, stays);
	const way = state && lastOnline(state)?.way;
	const parts = { userAgent: 'idv-agent', env: shell.env };
	const runtime = way ? await openRuntime(loaded, parts, { barely: true }).catch(() => null) : null;
	await runtime?.close();
	const tried = way && runtime ? triedSettings({ ...runtime, resolved: loaded }, { way }, state) : [];
	const [online] = state?.connections ?? [];
	const live = { baseUrl: online?.baseUrl, workflowId: online?.request.workflowId };
	const rows = rowsOf(loaded).map((row): SettingsReport['settings'][number] => {
		if (!tried.includes(row.path)) return row;
		const atService = live[row.path as keyof typeof live];
		const before = atService ? { value: atService, source: 'connection', where: null } : way?.settings[row.path];
		if (!before) return { ...row, waitsFor: 'try' };
		return { path: row.path, ...before, value: shownValue(row.path, before.value), disk: row.value, waitsFor: 'try' };
	});
	return { loaded, rows };
}

function rowsOf({ settings, origins }: LoadedSettings): SettingsReport['settings'] {
	return [...listSettings().keys()].map((path) => {
		const { source, where } = origins.get(path) ?? { source: 'default', where: null };
		return { path, value: shownValue(path, valueAt(settings, path)), source, where };
	});
}

/** That a device stays with a service which the settings do not name any more; nothing where its state cannot be read. */
async function findKept(loaded: LoadedSettings, stateDir: string): Promise<readonly Failure[]> {
	const { settings, isWhole, holdsTogether, refused } = loaded;
	// The agent goes on with the address from before where the one on the disk is not known, or is refused.
	if (!isWhole || !holdsTogether || refused.has('baseUrl')) return [];
	const kept = await lookAtState(stateDir).then(
		({ state }) => keptWithoutSettings(settings, state),
		() => null,
	);
	return kept ? [kept.missing] : [];
}

/** The agent's answer, or why it could not be asked. */
async function askAgent(shell: Shell, flags: AskFlags): Promise<SettingsReport | Failure> {
	try {
		return (await clientFor(shell, flags).request('admin', 'GET', LOCAL_ROUTES.settings)) as SettingsReport;
	} catch (error) {
		if (error instanceof AgentError) return error.failure;
		throw error;
	}
}

const WAITS = {
	try: 'is tried beside the one in force',
	restart: 'waits for the next start',
	lease: 'waits for a lease of an application',
	address: 'is not in force: it waits for baseUrl, the only service that it is sent to',
} as const;

/** The value that is not in force, and why. */
export function remarkOf({ path, disk, waitsFor, refused, since }: SettingsReport['settings'][number]): string {
	const other = disk === undefined ? '' : ` ${showValue(disk)}`;
	const what = refused
		? `was refused: ${`: ${refused}`.replace(`: ${path}: `, ': ').slice(2)}`
		: waitsFor
			? `${WAITS[waitsFor]}.`
			: 'is on the disk and not in force.';
	// Where the disk has no other one, it is the value above that is refused.
	const isOther = disk !== undefined || !refused;
	return `${path}:${other} ${what}${since && isOther ? ` The value above is in force since ${since}.` : ''}`;
}

/** Goes as far as the agent does: the files that settings name are opened, too. */
export async function checkConfig(shell: Shell, flags: AskFlags): Promise<void> {
	const sources = sourcesOf(shell, flags);
	const loaded = await loadSettings(sources);
	const verdict = await checkSettings(loaded, shell.env, sources.paths);
	const unread = await findUnreadable(shell, flags, loaded);
	// A file that is looked at before it is put in place belongs to its author yet.
	const isElsewhere = flags.config !== undefined;
	const [unreadable, warned] = isElsewhere
		? [unread.named, unread.settings]
		: [[...unread.settings, ...unread.named], []];
	const problems = [...verdict.problems, ...unreadable];
	const valid = problems.length === 0;
	const kept = await findKept(loaded, sources.paths.stateDir);
	const notices = [...warned, ...kept, ...verdict.notices];
	if (shell.isJson) shell.json({ valid, problems, notices });
	else if (valid) shell.line('The settings are valid.');
	reportProblems(shell, { notices }, problems);
	// The catalogue has another status for a file that the agent works without, such as that of telemetry.
	if (!valid) shell.caller.exitCode = EXIT.configuration;
}

/** Of the settings files and those that they name, what root may read and the agent's user may not. The last thing that this process does as root. */
async function findUnreadable(shell: Shell, flags: AskFlags, { documents, settings }: LoadedSettings) {
	const { serviceUser } =
		process.getuid?.() === 0 ? await findInspectionTarget(flags, shell.env) : { serviceUser: null };
	if (!serviceUser) return { settings: [], named: [] };
	becomeServiceUser({ serviceUser });
	const unread = async (file: string, what: string) =>
		await access(file, constants.R_OK).then(
			() => [],
			(error) => {
				const code = errnoOf(error) ?? 'unknown';
				const message = `${file} (${what}) cannot be read by ${serviceUser.name}, the user of the agent (${code}).`;
				const remedy = `Give it to root and the group of ${serviceUser.name}, with mode 0640.`;
				if (code === 'ENOENT') return [];
				return [failure('settings-unreadable', message, { remedy, params: { path: file } })];
			},
		);
	const named = [...listSettings().keys()].flatMap((path) => {
		const file = path.endsWith('File') ? valueAt(settings, path) : null;
		return typeof file === 'string' ? [unread(file, path)] : [];
	});
	const own = documents.map(({ where }) => unread(where, 'settings'));
	return { settings: (await Promise.all(own)).flat(), named: (await Promise.all(named)).flat() };
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

function showValue(value: unknown): string {
	if (value === null || (Array.isArray(value) && value.length === 0)) return '-';
	if (Array.isArray(value)) return value.join(', ');
	return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function describeOrigin({ source, where }: Pick<SettingsReport['settings'][number], 'source' | 'where'>): string {
	return where ?? source;
}
