/**
 * `idv probe`: finds out how a service fills what the interface leaves open, and writes the settings for its devices. Says
 * beforehand what it creates and does nothing without `--yes`; never prints a secret, never replaces a file unasked.
 */
import { randomBytes, randomUUID, scryptSync } from 'node:crypto';
import { closeSync, existsSync, openSync, realpathSync, rmSync, statSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { constants } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import { inWords } from '../base/files.edge.ts';
import { openShaper } from '../base/shapes.edge.ts';
import { createTranscript } from '../base/transcript.ts';
import type { Shell } from '../cli/output.runner.ts';
import { VERSION } from '../cli/version.runner.ts';
import { openRuntime } from '../connection/runtime.runner.ts';
import { createServiceClient } from '../connection/service-client.edge.ts';
import { secretsOf } from '../protocol/authorization.ts';
import { DEFAULT_HEARTBEAT_CADENCE, workflowIdSchema } from '../protocol/device-connection.ts';
import { cleanText } from '../protocol/problem.ts';
import { findExposedFiles } from '../settings/exposed-files.runner.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { targetOfCode } from './api-key.runner.ts';
import { endedBy, tellDevice } from './probe-device-report.runner.ts';
import { settingsFrom } from './probe-findings.runner.ts';
import { MAX_REQUESTS } from './probe-pace.ts';
import { runProbe } from './probe-run.runner.ts';
import { asRead, type ProbeReport } from './probe-state.runner.ts';
import { replaceFile } from './secret-output.runner.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.runner.ts';

export interface ProbeFlags extends TargetFlags {
	/** A file with a pairing code or Short Token, which is spent; `-` for standard input. */
	readonly codeFile?: string | undefined;
	/** Left out: the one that the code names. */
	readonly workflow?: string | undefined;
	readonly yes?: boolean | undefined;
	readonly createKey?: boolean | undefined;
	/** File for the settings; one that is there is replaced only with `force`. */
	readonly out?: string | undefined;
	readonly force?: boolean | undefined;
	readonly seconds: number;
	readonly channelPath?: readonly string[] | undefined;
	readonly queryName?: readonly string[] | undefined;
	readonly subprotocol?: string | undefined;
	readonly header?: readonly string[] | undefined;
	readonly headersFile?: string | undefined;
	/** File for a device that goes on as the one that was registered: a `provision.json`. */
	readonly device?: string | undefined;
	readonly transcript?: string | undefined;
}

export async function probeService(shell: Shell, flags: ProbeFlags): Promise<void> {
	checkPlaces(flags);
	const given = checkGiven(flags);
	const target = await (flags.codeFile === undefined ? resolveTarget(shell, flags) : targetOfCode(shell, flags));
	const named = 'workflowId' in target && typeof target.workflowId === 'string' ? target.workflowId : undefined;
	const workflowId = checkWorkflow(flags.workflow ?? named);
	if (flags.createKey && target.authorization.scheme === 'Token')
		throw new AgentError('usage', '--create-key requires a credential that works more than once.', {
			remedy: 'Leave it out, or give another credential with --authorization-file.',
		});
	const deviceId = `idv-probe-${idOf(target).toString('hex')}`;
	const plan = planOf(flags, target, deviceId, workflowId);
	if (!flags.yes)
		throw new AgentError('usage', `Nothing was sent. ${plan.join(' ')}`, { remedy: 'Run it again with --yes.' });
	if (!shell.isJson) for (const line of plan) shell.line(line);

	const ids = { deviceId, workflowId };
	const keep = (outcome: Kept) => save(flags, outcome, target.baseUrl, ids);
	const report = await run(shell, flags, target, ids, given, keep);
	const settings = settingsFrom(target.baseUrl, flags.workflow, report.findings);
	const unsaved = await keep(report);
	const code =
		target.authorization.scheme === 'Token' && (report.connection ?? report.answer?.candidates[0]) ? 'used' : undefined;
	const stopped = withForce(flags, report.stopped ?? unsaved);
	tell(shell, flags, { ...report, stopped, code }, settings, unsaved === null);
	// As shells say it.
	if (report.endedBy !== null) shell.caller.exitCode = 128 + constants.signals[report.endedBy];
}

/** The same code again means the same command, which replaces no file that this run has written. */
function withForce({ out, device, transcript, force }: ProbeFlags, stopped: Failure | null): Failure | null {
	const written = [out, device, transcript].find((file) => file !== undefined && existsSync(file));
	if (written === undefined || force || !stopped?.remedy.includes('the same code again')) return stopped;
	return { ...stopped, remedy: `${stopped.remedy} Add --force then: this run has written ${written}.` };
}

/** The same each time for a code: one whose answer was lost may be good for the same device again. It costs time to find a short code by it. */
const idOf = ({ baseUrl, authorization }: Target) =>
	authorization.scheme === 'Token' ? scryptSync(authorization.credential, baseUrl, 4) : randomBytes(4);

/** Beside the file of the device: the answer that may hold its Connection. */
const answerPlace = ({ device }: ProbeFlags) => (device === undefined ? undefined : `${device}.answer`);

/** @returns why a file could not be written: what was found is printed all the same. */
async function save(
	flags: ProbeFlags,
	{ lines, connection, answer, findings }: Kept,
	baseUrl: string,
	{ deviceId, workflowId }: Readonly<Record<'deviceId' | 'workflowId', string>>,
): Promise<Failure | null> {
	const settings = settingsFrom(baseUrl, flags.workflow, findings);
	const { service, heartbeatCadence } = settingsFrom(baseUrl, flags.workflow, findings, true);
	// What is undefined is left out of JSON.
	const further = { deviceId, heartbeatCadence, service };
	const device = connection && asFile({ baseUrl, workflowId, connection, settings: further });
	// Each whatever becomes of the others, and first the one that a code was spent on.
	const files = [
		[flags.device, device, undefined],
		[answerPlace(flags), answer && asFile({ baseUrl, workflowId, deviceId, ...answer }), undefined],
		[flags.out, asFile(settings), 0o644],
		[flags.transcript, lines.length > 0 ? `${lines.join('\n')}\n` : null, undefined],
	] as const;
	let failed: Failure | null = null;
	const note = (error: unknown) => {
		failed ??= toFailure(error);
	};
	for (const [file, text, mode] of files)
		if (file !== undefined && text !== null) await replaceFile(file, text, mode).catch(note);
	// What was kept for the case that nothing more is found is a secret too many once the Connection is told.
	const [, [kept]] = files;
	if (kept !== undefined && answer === null && connection !== null) await rm(kept, { force: true }).catch(note);
	return failed;
}

const asFile = (document: object) => `${JSON.stringify(document, null, '\t')}\n`;

/** The settings as a device reads them, from the file where one is named. */
async function written({ out }: ProbeFlags, settings: object): Promise<LoadedSettings> {
	if (out === undefined) return asRead(JSON.parse(asFile(settings)));
	await replaceFile(out, asFile(settings), 0o644);
	const paths = choosePaths({ config: out }, {});
	return loadSettings({ paths: { ...paths, confDirectory: `${paths.configFile}.d` }, env: {}, sets: [] });
}

interface Kept extends ProbeReport {
	/** Of the transcript. */
	readonly lines: readonly string[];
}

interface Outcome extends Kept {
	/** The signal that interrupted it. */
	readonly endedBy: (typeof SIGNALS)[number] | null;
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

async function run(
	shell: Shell,
	flags: ProbeFlags,
	target: Target,
	request: { deviceId: string; workflowId: string },
	given: object,
	keep: (outcome: Kept) => Promise<unknown>,
): Promise<Outcome> {
	const lines: string[] = [];
	const { host, hostname } = new URL(target.baseUrl);
	const paths = (flags.channelPath ?? []).flatMap((path) => path.split('/'));
	const ids = [request.deviceId, request.workflowId, ...paths, ...(flags.subprotocol?.split(/,\s*/) ?? [])];
	const userAgent = `idv/${VERSION}`;
	const { baseUrl, caFile = null } = target;
	const resolved = asRead({ baseUrl, network: { caFile }, service: given });
	// No device would take it either.
	const [exposed] = await findExposedFiles({ ...resolved, documents: [] });
	if (exposed) throw asError(exposed);
	const opened = await openRuntime(resolved, { userAgent, env: target.env });
	const { network, secretValues = [] } = opened;
	// A path or a subprotocol may be, or hold, what is a secret elsewhere.
	const secrets = [...secretValues, ...secretsOf(target.authorization)];
	const own = [host, hostname, ...ids].filter((one) => one !== '' && !secrets.some((secret) => one.includes(secret)));
	const over = new AbortController();
	let endedBy: Outcome['endedBy'] = null;
	const end = (signal: (typeof SIGNALS)[number]) => {
		endedBy ??= signal;
		over.abort();
	};
	// A second one ends the process at once.
	for (const signal of SIGNALS) process.once(signal, end);
	try {
		const report = await runProbe({
			signal: over.signal,
			clock: shell.clock,
			target,
			network,
			client: createServiceClient({ network, userAgent, secretValues }),
			...{ given: { ...given }, headers: opened.headersFor(target.baseUrl) },
			version: VERSION,
			request: { ...request, deviceType: 'kiosk', heartbeatCadence: DEFAULT_HEARTBEAT_CADENCE },
			seconds: flags.seconds,
			channelPaths: flags.channelPath ?? [],
			known: { queryNames: flags.queryName, subprotocol: flags.subprotocol },
			save: (settings) => written(flags, settings),
			keep: (report) => keep({ ...report, lines }),
			createKey: flags.createKey ?? false,
			transcript: createTranscript((line) => void lines.push(line), Date.now, openShaper, own),
			onStep: (text) => {
				if (!shell.isJson) shell.line(text);
			},
		});
		return { ...report, lines, endedBy };
	} finally {
		for (const signal of SIGNALS) process.removeListener(signal, end);
		await opened.close();
	}
}

/** Whatever is wrong with a file that is named, before a code is spent on what could not be kept. @throws AgentError `usage`. */
function checkPlaces(flags: ProbeFlags): void {
	const { out, device, transcript, codeFile, authorizationFile, headersFile, caFile, force } = flags;
	const written = [
		...Object.entries({ '--out': out, '--device': device, '--transcript': transcript }),
		['--device', answerPlace(flags)] as const,
	];
	const read = Object.entries({
		...{ '--code-file': codeFile, '--authorization-file': authorizationFile },
		...{ '--headers-file': headersFile, '--ca-file': caFile },
	});
	const known = new Map(read.flatMap(([flag, file]) => (file && file !== '-' ? [[sameFor(file), flag]] : [])));
	for (const [flag, file] of written) {
		if (file === undefined) continue;
		const other = known.get(sameFor(file));
		if (other !== undefined)
			throw new AgentError('usage', `${other} and ${flag} name the same file, ${file}.`, {
				remedy: 'Name another file.',
			});
		known.set(sameFor(file), flag);
	}
	for (const [, file] of written) {
		if (file === undefined) continue;
		if (!force && existsSync(file))
			throw new AgentError('usage', `${file} is there already.`, { remedy: 'Name another file, or add --force.' });
		const fault = whyNotWritable(file);
		if (fault !== null)
			throw new AgentError('usage', `${file} cannot be written: ${fault}.`, { remedy: 'Name another file.' });
	}
}

/** The same text for each name of a file, whichever links lead to it. */
function sameFor(file: string): string {
	const path = resolve(file);
	try {
		return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
	} catch {
		return path;
	}
}

function whyNotWritable(file: string): string | null {
	try {
		if (file.endsWith('/') || (existsSync(file) && !statSync(file).isFile())) return 'it is not a regular file';
		const trial = `${resolve(file)}.${randomUUID()}`;
		closeSync(openSync(trial, 'wx', 0o600));
		rmSync(trial);
		return null;
	} catch (error) {
		return inWords(error);
	}
}

/** Each value as the setting that it becomes. @returns those that are settings whatever is found. @throws AgentError `usage`. */
function checkGiven({ channelPath = [], queryName = [], subprotocol, header = [], headersFile }: ProbeFlags) {
	const values: readonly (readonly [flag: string, service: Readonly<Record<string, unknown>>])[] = [
		...channelPath.map((path) => ['--channel-path', { channelPath: path }] as const),
		...queryName.map((name) => ['--query-name', { queryName: name }] as const),
		...(subprotocol === undefined ? [] : [['--subprotocol', { subprotocol }] as const]),
		...header.map((line) => ['--header', { headers: [line] }] as const),
	];
	for (const [flag, service] of values) {
		const [problem] = asRead({ service }).problems;
		if (problem)
			throw new AgentError('usage', problem.message.replace(/^probe: service\.\w+(?: \[0\])?/, flag), {
				remedy: 'Correct it; nothing was sent.',
			});
	}
	return {
		...(header.length > 0 && { headers: header }),
		...(headersFile !== undefined && { headersFile: resolve(headersFile) }),
	};
}

/** @throws AgentError `usage`. */
function checkWorkflow(given: string | undefined): string {
	const read = workflowIdSchema.safeParse(given);
	if (read.success) return read.data;
	throw new AgentError('usage', given === undefined ? 'No workflow is named.' : '--workflow is not a workflow id.', {
		remedy: 'Name the workflow of the device with --workflow ID.',
	});
}

function planOf(
	flags: ProbeFlags,
	{ baseUrl, authorization, credentialFrom }: Target,
	deviceId: string,
	workflowId: string,
): string[] {
	const isCode = authorization.scheme === 'Token';
	return [
		`Registers the device ${deviceId} for workflow ${workflowId} at ${baseUrl}: one device connection, which stays until it ends.`,
		isCode ? `Uses up the code from ${credentialFrom}.` : `Uses the credential from ${credentialFrom}.`,
		flags.createKey ? 'Creates the API key idv-probe, which ends after 60 s.' : 'Creates no API key.',
		`Sends at most ${MAX_REQUESTS} requests, ten in a minute, watches the channel for ${flags.seconds} s, and runs a device with the settings for as long.`,
		'Start a session for this workflow now and then while it runs: kinds, ids and acknowledgements are only seen in notifications that come.',
	];
}

function tell(
	shell: Shell,
	flags: ProbeFlags,
	report: ProbeReport & { readonly code: 'used' | undefined },
	settings: object,
	isSaved: boolean,
): void {
	const { findings, requests, messages, words, device, connection, answer, isTaken, stopped, isInterrupted, code } =
		report;
	const file = isSaved ? flags.out : undefined;
	const deviceFile = isSaved && connection !== null ? flags.device : undefined;
	const answerFile = isSaved && answer !== null ? answerPlace(flags) : undefined;
	if (shell.isJson) {
		const ended = isInterrupted && { interrupted: true };
		const files = { ...(file && { file }), ...(deviceFile && { deviceFile }), ...(answerFile && { answerFile }) };
		const found = { findings, requests, messages, words, settings, device };
		const said = { ...found, ...(code && { pairingCode: code }), ...files, ...ended };
		if (stopped) shell.fail(stopped, said);
		else shell.json(said);
		return;
	}
	const bySureness = (['proved', 'guessed', 'not seen'] as const).flatMap((sure) =>
		findings.filter((one) => one.certainty === sure),
	);
	shell.line();
	shell.table([
		['Point', 'Tried', 'Found', 'How sure'],
		...bySureness.map(({ point, tried, found, certainty }) => [point, tried, cleanText(found, 160), certainty]),
	]);
	for (const one of words) shell.line(`The service says: ${cleanText(one, 300)}`);
	shell.line(`\nRequests: ${requests} of at most ${MAX_REQUESTS}; messages on channels: ${messages}.`);
	shell.line(`Settings: ${JSON.stringify(settings)}`);
	const own = findings.some(({ isOwn }) => isOwn) ? ' and the path of its own' : '';
	const worth = device
		? `a device ${device.isServed ? 'was online' : 'had an open channel'} with it${own}${endedBy(device).length > 0 ? ' until the service ended its channel' : ''}`
		: `no device was online with it${'service' in settings ? '' : ': the address alone'}`;
	if (file !== undefined) shell.line(`Saved: ${file} (${worth})`);
	if (deviceFile !== undefined) shell.line(`Saved: ${deviceFile} (a provision.json with the Connection: a secret)`);
	if (answerFile !== undefined)
		shell.line(
			`Saved: ${answerFile} (the answer to the registration: a secret). ${isTaken ? 'A channel has opened, and nothing proves which of its texts is the Connection' : 'No channel has lasted with a Connection from it'}${deviceFile === undefined && answer?.candidates[0] ? ': if the operator knows which of its candidates is the one, a provision.json with that brings this device online without another code' : ''}.`,
		);
	if (file !== undefined && flags.headersFile !== undefined)
		shell.line(
			`The settings name ${resolve(flags.headersFile)}, and none of its headers: put that file at the same path on each device, or name its place there in service.headersFile.`,
		);
	if (code) shell.line('The code is used up.');
	if (device) tellDevice(shell, device);
	if (isInterrupted) shell.line('It was interrupted: the rest was not tried.');
	if (stopped) shell.fail(stopped);
}
