/** Reports of devices from a metrics store with Prometheus' interface of queries. */
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { cutOut } from '../base/escapes.ts';
import type { Shell } from '../cli/output.runner.ts';
import { believedAheadMs } from '../connection/clock-skew.ts';
import type { DeviceReport } from '../fleet/progress.ts';
import { ownWorkflow, reasonIn } from '../fleet/reasons.ts';
import { secretsOf } from '../protocol/authorization.ts';
import { normalizeBaseUrl } from '../protocol/endpoints.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import { cleanWords } from '../protocol/problem.ts';
import { storeCredential } from './fleet-store.runner.ts';
import { isOfCredential, isOfSettings } from './fleet-troubles.runner.ts';
import { withClient } from './service-call.runner.ts';

/** Four times that of 100,000 devices. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
/** Queries under way: each answer is held whole. */
const AT_ONCE = 3;
const QUERY_DEADLINE_MS = 60_000;

/** When each device was heard last, by the store's own time: a device's clock may be wrong. Of the last minutes and of a day each report, and of a month one an hour, which a store of many devices can answer. */
const HEARD = ['10m:15s', '1d:5m', '30d:1h']
	.map((range) => `max_over_time(timestamp(idv_agent_report_time_seconds)[${range}])`)
	.join(' or ');

const answerSchema = z.object({
	/** Of VictoriaMetrics, and of Thanos, where a part of the store did not answer. */
	isPartial: z.boolean().optional(),
	warnings: z.array(z.string()).optional(),
	data: z.object({
		result: z.array(z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) })),
	}),
});
interface Point {
	readonly labels: Readonly<Record<string, string>>;
	readonly value: number;
	/** By the store's time, in seconds since 1970. */
	readonly atSeconds: number;
}

/** Devices are known by their label `device`: the agent pushes it, and has it in `/metrics`. */
export async function fromPrometheus(shell: Shell, given: string, nowMs: number): Promise<DeviceReport[]> {
	const baseUrl = normalizeBaseUrl(given);
	if (baseUrl === null)
		throw new AgentError('usage', '--prometheus is not an http or https address without user, query or fragment.', {
			remedy: 'Give the address before /api/v1, such as http://127.0.0.1:8428.',
		});
	const authorization = storeCredential(shell, 'IDV_PROMETHEUS_AUTHORIZATION');
	return withClient({ caFile: shell.env['IDV_CA_FILE'], env: shell.env }, async (client) => {
		const ask = async (query: string): Promise<Point[]> => {
			const url = new URL(`${baseUrl.replace(/\/$/, '')}/api/v1/query`);
			url.search = String(new URLSearchParams({ query }));
			const request = { method: 'GET', url, authorization, maxBytes: MAX_ANSWER_BYTES } as const;
			const { status, body } = await client
				.send({ ...request, deadlineMs: QUERY_DEADLINE_MS })
				.catch((error: unknown) => {
					if (!(error instanceof AgentError)) throw error;
					const { code, message } = error.failure;
					throw new AgentError(code, message, { remedy: CHECK_STORE, cause: error });
				});
			const text = new TextDecoder().decode(body);
			const read = status === 200 ? readPoints(text) : null;
			if (typeof read === 'object' && read !== null) return read;
			const said = cutOut(read ?? readStoreError(text) ?? '', authorization ? secretsOf(authorization) : []);
			const how = said ? `: ${said}` : status === 200 ? ' to a query, and not as Prometheus does' : ' to a query';
			throw new AgentError('bad-response', `${url.host} answered ${status}${how}.`, {
				remedy: said || status >= 500 ? 'Look at the metrics store, then run the command again.' : CHECK_STORE,
			});
		};
		const queries = Object.entries(QUERIES);
		const facts: (readonly [string, readonly Point[]])[] = [];
		for (let at = 0; at < queries.length; at += AT_ONCE) {
			const asked = queries.slice(at, at + AT_ONCE).map(async ([name, query]) => [name, await ask(query)] as const);
			facts.push(...(await Promise.all(asked)));
		}
		return pointReports(Object.fromEntries(facts) as unknown as Facts, nowMs);
	});
}

const isoOf = (seconds: number) => new Date(seconds * 1000).toISOString();

const QUERIES = {
	heard: HEARD,
	online: 'idv_agent_online',
	info: 'idv_agent_info',
	workflow: 'idv_agent_workflow == 1',
	source: 'idv_agent_workflow_source == 1',
	cadence: 'idv_agent_heartbeat_cadence_seconds',
	// The last sign that it was online, of a device whose agent still reports.
	silent: 'idv_agent_heartbeat_age_seconds',
	// Also a key that is refused beside a Connection that works.
	problem:
		'idv_agent_problem == 1 or on(device) label_replace(idv_agent_credential_refused == 1, "code", "credential-refused", "", "")',
	// Of a credential that is refused, or cannot be read.
	unusable: 'idv_agent_credential_unusable_time_seconds > 0',
	ending: 'idv_agent_credential_ends_time_seconds > 0',
	// Of a way out or a workflow.
	unfollowed: 'idv_agent_settings_refused_time_seconds > 0',
	warned: 'idv_agent_warning{code=~"settings-.*"} > 0',
	confirmed: 'idv_agent_plan_confirmed_revision',
	refused: 'idv_agent_plan_refused > 0',
	servedRefused: 'idv_agent_plan_served_refused == 1',
	due: 'idv_agent_plan_due_time_seconds',
	clock: 'idv_agent_clock_skew_seconds >= 300 or idv_agent_clock_skew_seconds <= -300',
	revision: 'idv_agent_plan_revision',
	ordered: 'idv_agent_update_ordered == 1',
	takenBack: 'idv_agent_update_taken_back == 1',
} as const;
type Facts = Readonly<Record<keyof typeof QUERIES, readonly Point[]>>;

const CHECK_STORE =
	'Check --prometheus: it is the address before /api/v1. A credential is taken from IDV_PROMETHEUS_AUTHORIZATION.';

/** The words of Prometheus' own error document; `null` for another answer. */
export function readStoreError(text: string): string | null {
	const said = parseJson(text);
	const isError = isObject(said) && said['status'] === 'error' && typeof said['error'] === 'string';
	return isError ? cleanWords(String(said['error']), 300).replace(/[.!]$/, '') : null;
}

/** The points; a text for an answer that is not whole, `null` for one of another form. */
export function readPoints(text: string): Point[] | string | null {
	const answer = answerSchema.safeParse(parseJson(text)).data;
	if (!answer) return null;
	const { isPartial, warnings = [], data } = answer;
	if (isPartial || warnings.length > 0) return cleanWords(['only in part', ...warnings].join(': '), 300);
	// NaN and infinities are figures of a store, not of a device.
	return data.result
		.map(({ metric, value: [atSeconds, value] }) => ({ labels: metric, value: Number(value), atSeconds }))
		.filter(({ value }) => Math.abs(value) <= Number.MAX_SAFE_INTEGER);
}

function pointReports(facts: Facts, nowMs: number): DeviceReport[] {
	const newest = newestOf(facts.heard);
	const byDevice = (points: readonly Point[]) => new Map(points.map((point) => [point.labels['device'], point]));
	const points = new Map(Object.entries(facts).map(([name, all]) => [name, byDevice(all)]));
	for (const [device, point] of points.get('online') ?? [])
		if (device !== undefined && !newest.has(device)) newest.set(device, { ...point, value: point.atSeconds });
	const takenBack = Map.groupBy(facts.takenBack, (point) => point.labels['device']);
	return [...newest].map(([deviceId, { labels, value, atSeconds }]) => {
		const of = (name: keyof Facts) => points.get(name)?.get(deviceId);
		const [online, silent, refusal, served] = [of('online'), of('silent'), of('refused'), of('servedRefused')?.labels];
		// A sample that a store has now is new by the store's time, whatever the device's clock says.
		const heardAtMs = online ? nowMs : nowMs - (atSeconds - value) * 1000;
		const is = online?.value === 1;
		const silentMs = silent || !online ? (silent?.value ?? 0) * 1000 : null;
		const { code, since, troubles } = troubleOf({
			told: of('problem')?.labels['code'],
			unusableSince: of('unusable')?.value,
			refusedSince: of('unfollowed')?.value,
			ofSettings: of('warned')?.labels['code'],
		});
		const endsAt = of('ending')?.value;
		const servedRefusal = served ? (served['message'] ?? reasonIn(served['code'] ?? '')) : null;
		const [known, dueAt] = [of('revision')?.value, of('due')?.value];
		const aheadMs = (of('clock')?.value ?? 0) * 1000;
		const reason = of('ordered')?.labels['reason'];
		const { version, fleet } = { ...labels, ...of('info')?.labels };
		return {
			deviceId,
			serial: null,
			macAddress: null,
			deviceType: null,
			labels: labels['labels']?.split(',').filter(Boolean) ?? null,
			online: is,
			workflowId: of('workflow')?.labels['workflow'] ?? null,
			heartbeatCadence: of('cadence')?.value,
			heardAtMs,
			// Of an agent that still reports and had no heartbeat the store does not know it.
			offlineSinceMs: is || silentMs === null ? null : heardAtMs - silentMs,
			planRevision: of('confirmed')?.value ?? null,
			planRefused: refusal?.value ?? null,
			refusal: refusal?.labels['code'] ? reasonIn(refusal.labels['code'], refusal.labels['workflow']) : null,
			servedRefusal,
			hindrance:
				(is ? (ownWorkflow(of('source')?.labels['source']) ?? servedRefusal) : null) ?? (code && reasonIn(code)),
			updateHindrance: reason === undefined || reason === 'none' ? null : reasonIn(reason),
			fleet: fleet ?? null,
			next: dueAt && known ? { revision: known, atMs: dueAt * 1000 - believedAheadMs(aheadMs) } : null,
			clockAheadMs: aheadMs,
			agentVersion: version ?? null,
			takenBack: (takenBack.get(deviceId) ?? []).map(({ labels: { update = '', fault = null } }) => ({
				version: update,
				fault,
			})),
			problem: code,
			problemSince: since === undefined ? null : isoOf(since),
			...(troubles.length > 0 && { troubles }),
			...(endsAt !== undefined && { credentialEnding: `a key or a client certificate ends at ${isoOf(endsAt)}` }),
		};
	});
}

/** By device. One may have several series while its version or labels change: the one that was heard last applies. */
function newestOf(heard: readonly Point[]): Map<string, Point> {
	const newest = new Map<string, Point>();
	for (const point of heard) {
		const { device } = point.labels;
		if (device !== undefined && point.value >= (newest.get(device)?.value ?? 0)) newest.set(device, point);
	}
	return newest;
}

/** The problem of a device, and what is wrong beside it. Times in seconds since 1970. */
function troubleOf(
	seen: Readonly<Record<'told' | 'ofSettings', string | undefined>> &
		Readonly<Record<'unusableSince' | 'refusedSince', number | undefined>>,
) {
	const { told, unusableSince, refusedSince, ofSettings = 'settings-not-followed' } = seen;
	const beside = refusedSince === undefined ? null : ofSettings;
	const code = told ?? (unusableSince === undefined ? beside : 'credential-unreadable');
	const since = code && isOfCredential(code) ? unusableSince : code && isOfSettings(code) ? refusedSince : undefined;
	const isOf = { credential: isOfCredential(code ?? ''), settings: isOfSettings(code ?? '') };
	const others = [
		['credential-unreadable', isOf.credential ? undefined : unusableSince],
		[ofSettings, isOf.settings && !isOf.credential ? undefined : refusedSince],
	] as const;
	const troubles = others.flatMap(([one, at]) => (at === undefined ? [] : [{ code: one, since: isoOf(at) }]));
	return { code, since, troubles };
}
