/**
 * `npm run suite -- limits`: every parser of bytes from outside, at its limit of size, with texts made to cost time or memory.
 * More than 200 ms of CPU or 32 MiB fails; the worst ten are printed. Where it is too much, the cheapest of ten runs counts, and on a machine that
 * is slow just then a limit of as many times its floor: what `JSON.parse` takes for 1 MiB of tiny values.
 */
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openChecked } from '../../src/base/checked.edge.ts';
import { openShaper } from '../../src/base/shapes.edge.ts';
import { readTranscript } from '../../src/base/transcript.ts';
import type { Shell } from '../../src/cli/output.runner.ts';
import { classifyClose } from '../../src/connection/classify-close.ts';
import { classifyHttpAnswer } from '../../src/connection/classify-failure.ts';
import { lineFile } from '../../src/connection/line-file.edge.ts';
import type { Network } from '../../src/connection/network.edge.ts';
import { createServiceClient } from '../../src/connection/service-client.edge.ts';
import { compilePlan, planFor } from '../../src/fleet/targeting.ts';
import { MAX_PLAN_BYTES } from '../../src/fleet/terms.ts';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { readJson } from '../../src/local-api/server/bodies.edge.ts';
import { readBrowserApplications } from '../../src/local-api/server/browser-applications.edge.ts';
import { LOCAL_SERVER_LIMITS, localRoute, openLocalServer } from '../../src/local-api/server/local-server.edge.ts';
import { gatherReports } from '../../src/operator/fleet-reports.runner.ts';
import { readInventory } from '../../src/operator/inventory.runner.ts';
import { readPoints, readStoreError } from '../../src/operator/prometheus-reports.runner.ts';
import { readKeptAnswer } from '../../src/pairing/kept-answer.edge.ts';
import { MAX_KEPT_BYTES } from '../../src/pairing/kept-answer.ts';
import { readScannedText } from '../../src/pairing/scanned-text.ts';
import {
	DEFAULT_MESSAGE_BYTES,
	type Frame,
	kindsOf,
	readAgentMessage,
	readNotification,
} from '../../src/protocol/channel.ts';
import { normalizeBaseUrl } from '../../src/protocol/endpoints.ts';
import { type FrameForm, messagesIn } from '../../src/protocol/frame-messages.ts';
import { parseJson } from '../../src/protocol/json.ts';
import { ackRequestSchema, leaseRequestSchema, pairRequestSchema } from '../../src/protocol/local-api.ts';
import { MAX_CODE_LENGTH, readPairingCode } from '../../src/protocol/pairing-code.ts';
import { readAnswerTexts, tokenIn } from '../../src/protocol/registration-answer.ts';
import { MAX_PROVISION_BYTES, readProvision } from '../../src/provisioning/provision.ts';
import { MAX_SETTINGS_BYTES, readSettingsLayers } from '../../src/settings/files.edge.ts';
import { readHeader, readHeaderLines } from '../../src/settings/header-lines.ts';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { lookAtState } from '../../src/state/copies.edge.ts';
import { readRejected } from '../../src/telemetry/otlp.ts';
import { leaseFile } from '../../src/workflow/lease-file.edge.ts';
import { createSigner } from '../fixtures/plans.ts';

const MOST_CPU_MS = 200;
/** As many floors are 200 ms on a quiet machine of 2026. */
const MOST_FLOORS = 25;
const MOST_MEMORY_BYTES = 32 * 1024 * 1024;
const KIB = 1024;
const directory = mkdtempSync(join(tmpdir(), 'limits-'));
const signer = createSigner();
const shaper = openShaper(() => ['id.example.com', 'KIOSK-1']);
const file = (name: string, text: string) => {
	writeFileSync(join(directory, name), text, { mode: 0o600 });
	return join(directory, name);
};

interface Parser {
	readonly bytes: number;
	/** Around the text: what makes it pass for one of its kind. */
	readonly around?: (text: string, bytes: number) => string;
	readonly read: (text: string) => unknown;
}

const answer = (body: string) =>
	({ status: 422, headers: {}, body, purpose: 'register', host: 'id.example.com' }) as const;
const DEVICE = { deviceId: 'K', serial: null, macAddress: null, deviceType: null, labels: [] };
const plan = (text: string) => `{"format":"idv-fleet-plan/2","revision":1,"rules":[],"x":${text}}`;
const take = (text: string, keys: readonly string[]) => {
	const reading = readPlan(Buffer.from(text), 'plan.json', keys);
	if (reading.ok) planFor(compilePlan(reading.read.plan), DEVICE, Date.now());
};

const messages = (frame: Frame, frameContents: FrameForm['frameContents']) =>
	messagesIn(frame, { frameContents, jsonInBinary: true }).map((one) => readAgentMessage(readNotification(one)));
const register = (status: number, text: string) =>
	createServiceClient({
		network: null as unknown as Network,
		userAgent: 'limits',
		exchange: async () => ({ kind: 'answered', status, headers: {}, bytes: Buffer.from(text), cut: null }),
	}).registerDevice({
		baseUrl: 'https://id.example.com',
		authorization: { scheme: 'ApiKey', credential: 'a-secret-of-the-device' },
		request: { deviceId: 'KIOSK-1', workflowId: 'check-in' },
	});
const shell = { warn() {} } as unknown as Shell;
const runDir = join(directory, 'run');
const server = await openLocalServer({
	runDir,
	routes: [localRoute({ method: 'GET', path: '/v1/x', listeners: ['agent'], handle: async () => ({ status: 200 }) })],
});
/** The text as a query, and then as lines of headers. */
async function ask(text: string): Promise<void> {
	const half = Math.floor(text.length / 2);
	const socket = connect(join(runDir, 'agent.sock'));
	socket.on('error', () => {});
	socket.end(`GET /v1/x?${text.slice(0, half)} HTTP/1.1\r\nConnection: close\r\nX: ${text.slice(half)}\r\n\r\n`);
	socket.resume();
	await once(socket, 'close');
}

const PARSERS: Readonly<Record<string, Parser>> = {
	'plan, format 1': {
		bytes: MAX_PLAN_BYTES,
		around: (text) => plan(text).replace('plan/2', 'plan/1'),
		read: (text) => take(text, []),
	},
	'plan, format 2': { bytes: MAX_PLAN_BYTES, around: plan, read: (text) => take(text, []) },
	'plan without a signature, where one is asked for': {
		bytes: MAX_PLAN_BYTES,
		read: (text) => take(text, [signer.publicKey]),
	},
	'signed plan': {
		bytes: 1_500_000,
		around: (text) => JSON.stringify(signer.sign(plan(text))),
		read: (text) => take(text, [signer.publicKey]),
	},
	code: { bytes: MAX_CODE_LENGTH, read: readPairingCode },
	// As the page, a scanner and pair read one, at the length up to which other keyboard layouts are tried.
	'code as a keyboard types it': {
		bytes: 1950,
		around: (text) => `http://a/mobile?authorization=Token%20tr-${text}`,
		read: readScannedText,
	},
	frame: {
		bytes: DEFAULT_MESSAGE_BYTES,
		read: (text) =>
			readAgentMessage(readNotification({ type: 'text', text }, { kindPointer: '/a/b', notificationIdPointer: '/x' })),
	},
	'frame, by all that read one': {
		bytes: DEFAULT_MESSAGE_BYTES,
		read: (text) =>
			messagesIn({ type: 'text', text }, { frameContents: 'auto', jsonInBinary: true })
				.flatMap((one) => [one, one])
				.map((one) => kindsOf(one, readNotification(one))),
	},
	'binary frame': {
		bytes: DEFAULT_MESSAGE_BYTES,
		read: (text) => messages({ type: 'binary', bytes: Buffer.from(text) }, 'auto'),
	},
	'frame of many lines': {
		bytes: DEFAULT_MESSAGE_BYTES,
		read: (text) => messages({ type: 'text', text }, 'lines'),
	},
	'frame of a list': { bytes: DEFAULT_MESSAGE_BYTES, read: (text) => messages({ type: 'text', text }, 'array') },
	'answer to a registration': { bytes: 1024 * KIB, read: (text) => tokenIn(readAnswerTexts({ body: text })) },
	'registration, by all that read its answer': { bytes: 1024 * KIB, read: (text) => register(200, text) },
	'refused registration, by all that read its answer': { bytes: 1024 * KIB, read: (text) => register(400, text) },
	'answer without a token': { bytes: 1024 * KIB, read: (text) => classifyHttpAnswer({ ...answer(text), status: 201 }) },
	'error answer': {
		bytes: 1024 * KIB,
		read: (text) => classifyHttpAnswer({ ...answer(text), secrets: ['a-secret-of-the-device'] }),
	},
	'reason of a close': {
		bytes: 123,
		read: (reason) => classifyClose({ code: 4000, reason, host: 'h', secrets: ['secret'] }),
	},
	'answer of a metrics store': { bytes: 4096, read: (text) => readRejected(Buffer.from(text)) },
	'provision.json': { bytes: MAX_PROVISION_BYTES, read: (text) => readProvision(text, 'provision.json') },
	settings: {
		bytes: MAX_SETTINGS_BYTES,
		async read(text) {
			const { layers } = await readSettingsLayers({
				configFile: file('config.json', text),
				confDirectory: join(directory, 'conf.d'),
			} as never);
			resolveSettings(layers as never);
		},
	},
	...Object.fromEntries(
		Object.entries({
			'leases.json': [64 * KIB, () => leaseFile(directory).load()],
			'line.json': [64 * KIB, () => lineFile(directory).load()],
			'checked.json': [64 * KIB, () => openChecked(directory, 'build')],
			'unread-answer.json': [8 * MAX_KEPT_BYTES, () => readKeptAnswer(directory)],
			'state.json': [1024 * KIB, () => lookAtState(directory)],
		} as const).map(([name, [bytes, read]]) => [
			name,
			{
				bytes,
				read(text: string) {
					file(name, text);
					return read();
				},
			},
		]),
	),
	'applications file': {
		bytes: 64 * KIB,
		read: (text) => readBrowserApplications(file('applications', text)).catch(() => {}),
	},
	'file of headers': { bytes: 16 * KIB, read: (text) => readHeaderLines(text, true, () => new Error('refused')) },
	'line of a header': {
		bytes: 256 * KIB,
		around: (text) => `X-A:${text}\u00e9`,
		read: (text) => readHeader(text, true),
	},
	'base address': { bytes: 256 * KIB, around: (text) => `https://a.example/${text}\u00e9`, read: normalizeBaseUrl },
	// Up to 256 MiB on the machine of an operator: as long as it costs no more than its length.
	inventory: { bytes: 256 * KIB, read: (text) => readInventory(file('inventory.jsonl', text)).catch(() => {}) },
	'inventory in CSV': {
		bytes: 256 * KIB,
		read: (text) => readInventory(file('inventory.csv', `deviceId\n${text}`)).catch(() => {}),
	},
	'body of the page and of local sockets': {
		bytes: 64 * KIB,
		read: (text) => pairRequestSchema.safeParse(parseJson(text)),
	},
	...Object.fromEntries(
		Object.entries({ acknowledgement: ackRequestSchema, lease: leaseRequestSchema }).map(([what, schema]) => [
			what,
			{
				bytes: LOCAL_SERVER_LIMITS.bodyBytes,
				read: (text: string) => readJson({ 'content-type': 'application/json' }, Buffer.from(text), schema),
			},
		]),
	),
	'head of a local request': { bytes: LOCAL_SERVER_LIMITS.headerBytes, read: ask },
	// Gathered by an operator, up to 256 MiB of a fleet: as long as they cost no more than their length.
	'reports of devices': {
		bytes: 256 * KIB,
		read: (text) => gatherReports(shell, { from: [file('reports.jsonl', text)] }, Date.now()).catch(() => {}),
	},
	'answer of a store to a query': { bytes: 256 * KIB, read: (text) => readPoints(text) ?? readStoreError(text) },
	transcript: {
		bytes: 1024 * KIB,
		around: (text) =>
			`{"kind":"frame","at":1,"exchange":1,"direction":"toDevice","frame":"text","body":${JSON.stringify(text)}}`,
		read: readTranscript,
	},
	'body in a transcript': { bytes: 1024 * KIB, read: shaper.body },
	'line of a log': { bytes: 64 * KIB, read: shaper.line },
	'sentence with foreign words': { bytes: 64 * KIB, read: shaper.said },
};

const filled = (unit: string, bytes: number, sign = ',') =>
	Array.from({ length: Math.floor(bytes / (unit.length + sign.length)) }, () => unit).join(sign);
const numbered = (bytes: number, write: (n: number) => string) => {
	const parts: string[] = [];
	for (let size = 0, n = 0; size < bytes; n += 1) {
		const part = write(n);
		parts.push(part);
		size += part.length + 1;
	}
	return parts.slice(0, -1).join(',');
};
const SHAPES: Readonly<Record<string, (bytes: number) => string>> = {
	'one name again and again': (bytes) => `{${filled('"token":1', bytes - 2)}}`,
	'unknown names': (bytes) => `{${numbered(bytes - 2, (n) => `"name${n}":${n}`)}}`,
	'unknown names of objects': (bytes) => `{${numbered(bytes - 2, (n) => `"name${n}":{}`)}}`,
	'objects of ever other names': (bytes) => `[${numbered(bytes - 2, (n) => `{"${n}":${n}}`)}]`,
	'names that nearly are known': (bytes) => `{${numbered(bytes - 2, (n) => `"baseUr${n}":1`)}}`,
	'lists in lists': (bytes) => '['.repeat(bytes / 2) + ']'.repeat(bytes / 2),
	'objects in objects': (bytes) => `${'{"a":'.repeat(bytes / 6 - 1)}1${'}'.repeat(bytes / 6 - 1)}`,
	'lists without end': (bytes) => '['.repeat(bytes),
	escapes: (bytes) => `{"message":"${'\\u0041'.repeat((bytes - 16) / 6)}"}`,
	backslashes: (bytes) => `{"message":"${'\\\\'.repeat((bytes - 16) / 2)}"}`,
	'one long number': (bytes) => `{"n":${'9'.repeat(bytes - 8)}}`,
	'one huge text': (bytes) => `{"message":"${'x'.repeat(bytes - 16)}"}`,
	'one huge text of words': (bytes) => `{"message":"${'the token '.repeat((bytes - 16) / 10)}"}`,
	'tiny values': (bytes) => `[${filled('1', bytes - 2)}]`,
	'tiny texts': (bytes) => `[${filled('"a"', bytes - 2)}]`,
	'tiny objects': (bytes) => `[${filled('{}', bytes - 2)}]`,
	'many tokens': (bytes) => `{${numbered(bytes - 2, (n) => `"t${n}":"eyJhbGci.eyJleHAi.c2ln"`)}}`,
	'lines of JSON': (bytes) => filled('{"deviceId":"a"}', bytes, '\n'),
	lines: (bytes) => '\n'.repeat(bytes),
	spaces: (bytes) => ' '.repeat(bytes),
	'white space before a sign': (bytes) => `${' '.repeat(bytes - 1)}x`,
	quotes: (bytes) => '"'.repeat(bytes),
	colons: (bytes) => filled('a:', bytes, ' '),
	'label after label': (bytes) => 'token='.repeat(bytes / 6),
	percents: (bytes) => '%25'.repeat(bytes / 3),
	addresses: (bytes) => 'https://a/'.repeat(bytes / 10),
	'a form': (bytes) => filled('a=b', bytes, '&'),
	commas: (bytes) => ','.repeat(bytes),
	points: (bytes) => 'a.'.repeat(bytes / 2),
	slashes: (bytes) => '/'.repeat(bytes),
	markup: (bytes) => '<'.repeat(bytes),
	'letters of other keyboards': (bytes) => 'Öé_-'.repeat(bytes / 4),
};

/** Many parsers have the same limit of size. */
const made = new Map<string, string>();
function shaped(shape: string, bytes: number): string {
	const key = `${shape} ${bytes}`;
	const text = made.get(key) ?? SHAPES[shape]?.(bytes) ?? '';
	made.set(key, text);
	return text;
}

interface Cost {
	readonly cpuMs: number;
	readonly bytes: number;
	/** The limit of CPU time that holds at this moment. */
	readonly mostMs: number;
}

const weight = ({ cpuMs, bytes, mostMs }: Cost) => Math.max(cpuMs / mostMs, bytes / MOST_MEMORY_BYTES);

/** The highest resident memory since the last reset, in bytes. */
const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * KIB;
const resetPeak = () => writeFileSync('/proc/self/clear_refs', '5');

const cpuMs = () => {
	const { user, system } = process.cpuUsage();
	return (user + system) / 1000;
};

const TINY = `[${filled('1', 1024 * KIB - 2)}]`;
/** The floor of the machine at this moment, in ms. */
function floorMs(): number {
	const before = cpuMs();
	for (let time = 0; time < 5; time += 1) JSON.parse(TINY);
	return (cpuMs() - before) / 5;
}

async function costOf({ read }: Parser, text: string): Promise<Cost> {
	let best: Cost = { cpuMs: Number.POSITIVE_INFINITY, bytes: Number.POSITIVE_INFINITY, mostMs: MOST_CPU_MS };
	for (let run = 0; run < 10 && weight(best) > 1; run += 1) {
		// A collection takes longer than most parsers: only where the rubbish of those before may have counted.
		if (run > 0) globalThis.gc?.();
		resetPeak();
		const before = { cpu: cpuMs(), bytes: peak() };
		try {
			await read(text);
		} catch {
			// A refusal is what most of them deserve.
		}
		const cost = { cpuMs: cpuMs() - before.cpu, bytes: peak() - before.bytes };
		best = {
			cpuMs: Math.min(best.cpuMs, cost.cpuMs),
			bytes: Math.min(best.bytes, cost.bytes),
			mostMs: cost.cpuMs > MOST_CPU_MS ? Math.max(MOST_CPU_MS, MOST_FLOORS * floorMs()) : MOST_CPU_MS,
		};
	}
	return best;
}

const costs: (Cost & { readonly what: string })[] = [];
for (const [parser, asked] of Object.entries(PARSERS))
	for (const shape of Object.keys(SHAPES)) {
		const { around = (text: string) => text } = asked;
		const text = around(shaped(shape, Math.floor(asked.bytes - around('', 0).length)), asked.bytes);
		costs.push({ what: `${parser}: ${shape}`, ...(await costOf(asked, text)) });
	}
await server.close();
rmSync(directory, { recursive: true });

const shown = ({ what, cpuMs, bytes }: (typeof costs)[number]) =>
	`${cpuMs.toFixed(0).padStart(6)} ms${(bytes / KIB / KIB).toFixed(1).padStart(7)} MiB  ${what}`;
const failed = costs.filter((cost) => weight(cost) > 1);
console.log(
	`floor ${floorMs().toFixed(0)} ms; ${costs.length} of ${Object.keys(PARSERS).length} parsers and ${Object.keys(SHAPES).length} texts; the worst ten:`,
);
for (const cost of costs.toSorted((a, b) => weight(b) - weight(a)).slice(0, 10)) console.log(shown(cost));
if (failed.length > 0) {
	console.log(`\nover ${MOST_CPU_MS} ms (${MOST_FLOORS} floors) or ${MOST_MEMORY_BYTES / KIB / KIB} MiB:`);
	for (const cost of failed) console.log(shown(cost));
	process.exitCode = 1;
}
