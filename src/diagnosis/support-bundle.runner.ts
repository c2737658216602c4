/** The contents of a support bundle, redacted at the end by value and by form, each of them bounded. */
import { lstat, readdir } from 'node:fs/promises';
import { arch, cpus, loadavg, networkInterfaces, release, uptime } from 'node:os';
import { join } from 'node:path';
import { readAuditLog } from '../audit/audit.runner.ts';
import { toFailure } from '../base/errors.ts';
import { redact, type SecretRegistry } from '../base/redact.ts';
import { createLocalClient } from '../client/local-client.edge.ts';
import { readMachineFacts } from '../identity/machine-facts.edge.ts';
import { type EventPage, LOCAL_ROUTES, type LogReport } from '../protocol/local-api.ts';
import { cleanText } from '../protocol/problem.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { listSettings, valueAt } from '../settings/table.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';
import { lookAtState } from '../state/store.edge.ts';
import { readHistory } from '../status/history.runner.ts';
import { toldHistory } from '../status/history.ts';
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
	/** Every secret that is known. */
	readonly secrets: SecretRegistry;
}

type Contents = readonly (readonly [name: string, about: string, text: string])[];

/** The files of a bundle, redacted, the one to read first in front. Never throws: a missing text says why. */
export async function gatherBundle(parts: BundleParts): Promise<PackedFile[]> {
	const { inspected, loaded, secrets } = parts;
	const client = createLocalClient({ runDir: inspected.paths.runDir });
	const ask = (socket: 'agent' | 'admin', path: string) =>
		client.request(socket, 'GET', path, undefined, { deadlineMs: ASK_MS }).catch((error) => {
			const { code, message } = toFailure(error);
			return { error: { code, message } };
		});
	const { state } = await lookAtState(inspected.paths.stateDir).catch(() => ({ state: EMPTY_STATE }));
	const contents: Contents = [
		['status.json', 'the status of the agent', json(await ask('agent', LOCAL_ROUTES.status))],
		['doctor.json', 'the findings of idv-agent doctor', json(parts.doctor)],
		['settings.json', 'every setting, where it comes from, and what is wrong', json(describeSettings(loaded))],
		['identity.json', 'the identity of the device and its sources', json(await ask('agent', LOCAL_ROUTES.identity))],
		['state.json', 'the saved state, without any token', json(describeState(state))],
		['events.json', 'when notifications came and of which kind, without their contents', json(await listEvents(ask))],
		['audit.json', 'the audit log: what was asked of the device, and with what result', await auditLog(inspected)],
		['history.json', 'when the device was online, and why it was not', history(inspected)],
		['log.txt', 'the newest lines of the log', parts.journal ?? (await recentLog(ask))],
		[
			'system.json',
			'versions, this machine, its systemd unit, and files with their modes',
			json(await describeSystem(parts)),
		],
	];
	const files = contents.map(([name, , text]) => ({ name, text: keepNewest(redact(text, secrets)) }));
	return [{ name: 'README.txt', text: readme(parts, contents) }, ...files];
}

function readme({ at, agentVersion }: BundleParts, contents: Contents): string {
	return `Support bundle of idv-agent ${agentVersion}, made at ${at}.

READ IT BEFORE YOU SEND IT. Known secrets and everything that looks like one were replaced by [secret], but names of
hosts, device ids, addresses of this machine and words of the service are in it.

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

function describeState({ connections, attempt, lastSettings, identity, ...rest }: DeviceState): object {
	return {
		...rest,
		identity: identity && { ...identity, fingerprint: undefined },
		connections: connections.map(({ token, ...saved }) => ({ ...saved, token: `[${token.length} characters]` })),
		attempt: attempt && { at: attempt.at, host: attempt.host },
		lastSettings: lastSettings?.map(({ where }) => where) ?? null,
	};
}

type Ask = (socket: 'agent' | 'admin', path: string) => Promise<unknown>;

async function listEvents(ask: Ask): Promise<object> {
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

async function auditLog({ paths }: InspectionTarget): Promise<string> {
	return readAuditLog(paths.stateDir).then(
		({ documents }) => documents.map((entry) => `${JSON.stringify(entry)}\n`).join(''),
		(error) => json({ error: toFailure(error) }),
	);
}

function history({ paths }: InspectionTarget): string {
	try {
		return toldHistory(readHistory(paths.stateDir).documents)
			.map((entry) => `${JSON.stringify(entry)}\n`)
			.join('');
	} catch (error) {
		return json({ error: toFailure(error) });
	}
}

async function describeSystem({ inspected, agentVersion, at }: BundleParts): Promise<object> {
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
