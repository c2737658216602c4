/** The contents of a support bundle: what may leave as it is, of everything else the shape, each file bounded. */
import { lstat, readdir } from 'node:fs/promises';
import { arch, cpus, hostname, loadavg, networkInterfaces, release, uptime } from 'node:os';
import { join } from 'node:path';
import { readAuditLog } from '../audit/audit.runner.ts';
import { toFailure } from '../base/errors.ts';
import { newKey, openShaper } from '../base/shapes.edge.ts';
import { createLocalClient } from '../client/local-client.edge.ts';
import { readMachineFacts } from '../identity/machine-facts.edge.ts';
import { type EventPage, LOCAL_ROUTES, type LogReport } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { listSettings, valueAt } from '../settings/table.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { readLogMark } from '../state/log-mark.edge.ts';
import { readHistory } from '../status/history.runner.ts';
import { toldHistory } from '../status/history.ts';
import { ownTexts } from '../status/own-texts.ts';
import type { InspectionTarget } from './inspection-target.runner.ts';
import { readDiskSpace, readMemory, readSystemName } from './machine-probes.edge.ts';
import type { PackedFile } from './tarball.edge.ts';

/** Longest text of one file, in characters. Of a log the newest part is kept. */
export const MAX_FILE_CHARACTERS = 2 * 1024 * 1024;
export const JOURNAL_LINES = 5000;
const ASK_MS = 5000;

export interface BundleParts {
	readonly inspected: InspectionTarget;
	readonly loaded: LoadedSettings;
	/** The report of the doctor, as JSON. */
	readonly doctor: unknown;
	/** The text of the journal; `null` where there is none to read. */
	readonly journal: string | null;
	readonly agentVersion: string;
	readonly at: string;
}

type Contents = readonly (readonly [name: string, about: string, content: unknown])[];

/** The files of a bundle, the one to read first in front. Never throws: a missing text says why. */
export async function gatherBundle(parts: BundleParts): Promise<PackedFile[]> {
	const { inspected, loaded } = parts;
	const client = createLocalClient({ runDir: inspected.paths.runDir });
	const ask = (socket: 'agent' | 'admin', path: string) =>
		client.request(socket, 'GET', path, undefined, { deadlineMs: ASK_MS }).catch((error) => {
			const { code, message } = toFailure(error);
			return { error: { code, message } };
		});
	const { state } = await lookAtState(inspected.paths.stateDir).catch(() => ({ state: EMPTY_STATE }));
	const system = await describeSystem(parts);
	const identity = await ask('agent', LOCAL_ROUTES.identity);
	const events = await listEvents(ask);
	// Hosts, ids, paths and versions of this machine, which a bundle shows.
	const { versions, kernel, timeZone, machine, interfaces } = system;
	const facts = [versions, kernel, timeZone, machine, interfaces, system.system, identity, epochsOf(events)];
	const own = ownTexts(loaded.settings, state, textsIn([hostname(), inspected.paths, facts]));
	const key = newKey();
	// The shapes in the journal are the agent's; a service can write some as well, in what has no shapes yet.
	const [{ document }, { line }] = [openShaper(() => own, false, key), openShaper(() => own, true, key)];
	const contents: Contents = [
		['status.json', 'the status of the agent', await ask('agent', LOCAL_ROUTES.status)],
		['doctor.json', 'the findings of idv-agent doctor', parts.doctor],
		['settings.json', 'every setting, where it comes from, and what is wrong', describeSettings(loaded)],
		['identity.json', 'the identity of the device and its sources', identity],
		['state.json', 'the saved state, without any token', describeState(state)],
		['events.json', 'when notifications came and of which kind, without their contents', events],
		[
			'audit.json',
			'the audit log: what was asked of the device, and with what result',
			await ofLog(inspected, readAudit),
		],
		['history.json', 'when the device was online, and why it was not', await ofLog(inspected, readTold)],
		['log.txt', 'the newest lines of the log', parts.journal ?? (await recentLog(ask))],
		['system.json', 'versions, this machine, its systemd unit, and files with their modes', system],
	];
	const files = contents.map(([name, , content]) => {
		if (typeof content !== 'string') return { name, text: json(document(content)) };
		return { name, text: keepNewest(keepNewest(content).split('\n').map(line).join('\n')) };
	});
	return [{ name: 'README.txt', text: readme(parts, contents) }, ...files];
}

function textsIn(value: unknown): string[] {
	if (typeof value === 'string') return [value];
	return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : [];
}

function readme({ at, agentVersion }: BundleParts, contents: Contents): string {
	return `Support bundle of idv-agent ${agentVersion}, made at ${at}.

READ IT BEFORE YOU SEND IT. In it are hosts, ids and paths of files of this device and addresses of this machine. Of every other text that
is not of the agent itself there is only a shape, such as [word-12-3fa9c1]: its kind, its length, and a mark by which equal
texts are recognized within this bundle; the key of that mark is gone.

${contents.map(([name, about]) => `${name.padEnd(14)} ${about}\n`).join('')}`;
}

/** As `config show --json`; of a hook only its program, since its arguments may be secret. */
function describeSettings(loaded: LoadedSettings): object {
	const rows = [...listSettings()].map(([path, { secret }]) => {
		const value = valueAt(loaded.settings, path);
		const { source, where } = loaded.origins.get(path) ?? { source: 'default', where: null };
		const isHook = path.startsWith('hooks.') && Array.isArray(value) && value.length > 1;
		const shown = isHook ? [value[0], `[${value.length - 1} arguments]`] : value;
		return { path, value: secret && value !== null ? '[secret]' : shown, source, where };
	});
	const summary = ({ code, message }: { code: string; message: string }) => ({ code, message });
	return { settings: rows, problems: loaded.problems.map(summary), notices: loaded.notices.map(summary) };
}

function describeState({
	connections,
	attempt,
	lastSettings,
	lastVariables,
	lastWay,
	lastPieces,
	identity,
	workedCredential,
	...rest
}: DeviceState): object {
	return {
		...rest,
		identity: identity && { ...identity, fingerprint: undefined },
		connections: connections.map(({ token, ...saved }) => ({ ...saved, token: `[${token.length} characters]` })),
		workedCredential: workedCredential && { id: workedCredential.id },
		attempt: attempt && { at: attempt.at, host: attempt.host },
		lastSettings: lastSettings?.map(({ where }) => where) ?? null,
		...(lastVariables && { lastVariables: Object.keys(lastVariables) }),
		lastPieces: Object.keys(lastPieces),
		// The files hold keys, and a proxy's address its password.
		lastWay: lastWay && { id: lastWay.id, files: Object.keys(lastWay.files) },
	};
}

type Ask = (socket: 'agent' | 'admin', path: string) => Promise<unknown>;

/** An id of an event begins with the epoch of the agent that received it. */
const epochsOf = ({ events = [] }: { events?: readonly { readonly id: string }[] }) =>
	events.map(({ id }) => id.replace(/-.*/s, ''));

async function listEvents(ask: Ask) {
	const page = (await ask('agent', LOCAL_ROUTES.events)) as Partial<EventPage> & { error?: unknown };
	if (!page.events) return { error: page.error };
	return {
		events: page.events.map(({ id, at, type, kind, format, data }) => {
			const { from, to } = (type === 'gap' ? data : {}) as { readonly from?: string | null; readonly to?: string };
			return { id, at, type, kind: cleanText(kind, 60), format, ...(type === 'gap' && { from, to }) };
		}),
	};
}

async function recentLog(ask: Ask): Promise<string> {
	const report = (await ask('admin', LOCAL_ROUTES.log)) as Partial<LogReport> & { error?: { message: string } };
	if (report.lines) return `${report.lines.join('\n')}\n`;
	return `There is no journal to read, and the agent gave no log: ${report.error?.message ?? ''}\n`;
}

type ReadLog = (stateDir: string, mark: string | null) => Promise<readonly object[]>;

const readAudit: ReadLog = async (...log) => (await readAuditLog(...log)).documents;
const readTold: ReadLog = async (...log) => toldHistory(readHistory(...log).documents);

/** A line for each entry. */
async function ofLog({ paths: { stateDir } }: InspectionTarget, read: ReadLog): Promise<string> {
	const entries = readLogMark(stateDir).then((mark) => read(stateDir, mark));
	return entries.then(
		(all) => all.map((entry) => `${JSON.stringify(entry)}\n`).join(''),
		(error) => json({ error: toFailure(error) }),
	);
}

async function describeSystem({ inspected, agentVersion, at }: BundleParts) {
	const { paths, unit, env } = inspected;
	const { versions } = process;
	return {
		at,
		timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
		versions: { agent: agentVersion, node: versions.node, v8: versions.v8, openssl: versions.openssl },
		system: await readSystemName(),
		kernel: release(),
		architecture: arch(),
		machine: await readMachineFacts(),
		processors: cpus().length,
		load: loadavg(),
		uptimeSeconds: Math.round(uptime()),
		memory: await readMemory(inspected.mainPid),
		disk: await readDiskSpace(paths.stateDir).catch(() => null),
		// Addresses only.
		interfaces: Object.entries(networkInterfaces()).map(([name, addresses]) => ({
			name,
			addresses: addresses?.map(({ address, mac }) => ({ address, mac })),
		})),
		paths,
		// Names only: a value may be anything.
		variables: Object.keys(env).filter((name) => /^IDV_AGENT_|_proxy$|^NODE_/i.test(name)),
		unit: unit && { ...unit, Environment: undefined },
		files: (await Promise.all([paths.stateDir, paths.runDir, paths.confDirectory].map(listFiles))).flat(),
	};
}

async function listFiles(directory: string): Promise<object[]> {
	const names = (await readdir(directory).catch(() => [])).slice(0, 200);
	return Promise.all(
		names.map(async (name) => {
			const path = join(directory, name);
			const stat = await lstat(path).catch(() => null);
			const mode = stat && (stat.mode & 0o7777).toString(8);
			return { path, mode, owner: stat?.uid, group: stat?.gid, bytes: stat?.size };
		}),
	);
}

function json(value: unknown): string {
	return `${JSON.stringify(value, null, 2)}\n`;
}

/** Cut at the end of a line, so that no half of anything is left. */
function keepNewest(text: string): string {
	if (text.length <= MAX_FILE_CHARACTERS) return text;
	const kept = text.slice(-MAX_FILE_CHARACTERS);
	return `[older lines left out]\n${kept.slice(kept.indexOf('\n') + 1)}`;
}
