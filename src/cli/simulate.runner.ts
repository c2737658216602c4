/** `idv-agent simulate`: the flags, the consent, the signals and what is printed. */
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { AgentError, EXIT, failure } from '../base/errors.ts';
import { trimHeap } from '../daemon/heap.edge.ts';
import { deviceIdSchema, workflowIdSchema } from '../protocol/device-connection.ts';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { openSimulatedRuntime } from '../simulation/runtime.runner.ts';
import { type MoveOptions, startSimulation } from '../simulation/simulation.runner.ts';
import { shares } from './command-line.runner.ts';
import { counted, type Shell } from './output.runner.ts';
import { describeMove, makeReport, printReport, type SimulationReport } from './simulation-report.runner.ts';
import { showSimulation } from './simulation-table.runner.ts';
import { VERSION } from './version.runner.ts';

/** As the help of each flag says; times are in seconds. */
export interface SimulateFlags {
	readonly devices: number;
	readonly service: string;
	readonly iOwnThisService?: boolean | undefined;
	readonly apiKeyFile?: string | undefined;
	readonly selfRegistration?: boolean | undefined;
	readonly workflow: string;
	readonly ramp?: number | undefined;
	readonly for?: number | undefined;
	readonly move?: string | undefined;
	readonly rings: string;
	readonly ringSeconds: number;
	readonly cadence: number;
	readonly prefix: string;
	readonly set?: readonly string[] | undefined;
}

/** Devices that start in a second by default: fast enough for a test, harmless to a small service. */
const STARTS_PER_SECOND = 50;
/** Files that a process has open besides its channels. */
const OTHER_FILES = 128;

/** Runs until `--for` is over or Ctrl-C. @throws AgentError when it cannot start. */
export async function simulate(shell: Shell, flags: SimulateFlags): Promise<void> {
	const baseUrl = ownService(flags);
	const workflowId = checkedWorkflow('--workflow', flags.workflow);
	const move = readMove(flags);
	if (!deviceIdSchema.safeParse(`${flags.prefix}-00001`).success)
		throw new AgentError('usage', '--prefix does not make valid device ids.', {
			remedy: 'Give a short name, such as sim.',
		});
	checkFiles(flags.devices * (move ? 2 : 1) + OTHER_FILES);
	const runtime = await openSimulatedRuntime({
		version: VERSION,
		env: shell.env,
		sets: [...(flags.set ?? []), `baseUrl=${baseUrl}`, `heartbeatCadence=${flags.cadence}`, ...credentialSets(flags)],
	});
	try {
		trimHeap();
		const residentBefore = process.memoryUsage.rss();
		const simulation = startSimulation({
			devices: flags.devices,
			runtime,
			version: VERSION,
			workflowId,
			rampMs: (flags.ramp ?? flags.devices / STARTS_PER_SECOND) * 1000,
			prefix: flags.prefix,
		});
		const ended = untilEnded(flags.for);
		const shown = showSimulation(simulation, shell.isJson ? shell.caller.stderr : shell.caller.stdout);
		const moving =
			move &&
			setTimeout(() => {
				const onRing: MoveOptions['onRing'] = (...ring) => shown.say(describeMove(move.workflowId, ...ring));
				void simulation.move({ ...move, onRing });
			}, move.afterMs);
		await ended;
		clearTimeout(moving ?? undefined);
		shown.stop();
		trimHeap();
		const report = makeReport(simulation, { service: baseUrl, residentBefore });
		await simulation.stop();
		tell(shell, report);
	} finally {
		await runtime.close();
	}
}

function tell(shell: Shell, report: SimulationReport): void {
	if (!shell.isJson) printReport(shell, report);
	const { devices, online, move } = report;
	const message =
		online < devices
			? `${online} of ${devices} devices were online at the end.`
			: move && move.live < devices
				? `${move.live} of ${counted(devices, 'device')} were online with ${move.workflowId} at the end.`
				: null;
	if (message !== null) shell.fail(failure('devices-offline', message), report);
	else if (shell.isJson) shell.json(report);
}

/** @throws AgentError `usage` for an invalid address, or for a service elsewhere without consent. */
function ownService({ service, iOwnThisService }: SimulateFlags): string {
	const baseUrl = normalizeBaseUrl(service);
	if (baseUrl === null)
		throw new AgentError('usage', '--service is not an http or https address without user, query or fragment.', {
			remedy: 'Give the base URL, such as http://127.0.0.1:8490.',
		});
	if (isLoopback(baseUrl) || iOwnThisService) return baseUrl;
	throw new AgentError('usage', `${new URL(baseUrl).host} is not on this machine, and many devices put a load on it.`, {
		remedy: 'Pass --i-own-this-service if you run that service or have permission from its operator.',
	});
}

function credentialSets({ apiKeyFile, selfRegistration }: SimulateFlags): string[] {
	if (apiKeyFile !== undefined) return [`credential.apiKeyFile=${resolve(apiKeyFile)}`];
	if (selfRegistration) return ['credential.selfRegistration=true'];
	throw new AgentError('usage', 'No flag says how the devices register.', {
		remedy: 'Give --api-key-file FILE, or --self-registration where the service allows it.',
	});
}

function readMove({ move, rings, ringSeconds }: SimulateFlags) {
	const percents = shares(rings);
	if (move === undefined) return null;
	const [, workflow, seconds] = /^(.+)@(\d{1,6})$/.exec(move) ?? [];
	if (workflow === undefined)
		throw new AgentError('usage', '--move must be a workflow and the seconds after the start.', {
			remedy: 'Write it as face-check@60.',
		});
	const workflowId = checkedWorkflow('--move', workflow);
	return { workflowId, afterMs: Number(seconds) * 1000, rings: percents, ringMs: ringSeconds * 1000 };
}

function checkedWorkflow(flag: string, text: string): string {
	const read = workflowIdSchema.safeParse(text);
	if (read.success) return read.data;
	throw new AgentError('usage', `${flag}: the workflow ${read.error.issues[0]?.message ?? 'is not valid'}.`, {
		remedy: 'Correct its name.',
	});
}

const LIMITS = '/proc/self/limits';

/** Node has already raised the limit to its maximum. @throws AgentError `usage` when it is still too low. */
function checkFiles(needed: number): void {
	const limits = existsSync(LIMITS) ? readFileSync(LIMITS, 'utf8') : '';
	const [, limit] = /^Max open files\s+(\d+)\s/m.exec(limits) ?? [];
	if (limit === undefined || Number(limit) >= needed) return;
	const message = `This many devices require about ${needed} open files; this process may open ${limit}.`;
	throw new AgentError('usage', message, {
		remedy: `Raise the limit first (ulimit -n ${needed}), or simulate fewer devices.`,
	});
}

/** A terminal and a launcher may both pass the same signal on. */
const SAME_SIGNAL_MS = 1000;

/** Resolves after so many seconds, or at the first signal; another one later ends the process at once. */
function untilEnded(seconds: number | undefined): Promise<void> {
	return new Promise((end) => {
		let firstAtMs: number | null = null;
		const onSignal = () => {
			firstAtMs ??= performance.now();
			if (performance.now() - firstAtMs > SAME_SIGNAL_MS) process.exit(EXIT.temporary);
			end();
		};
		process.on('SIGINT', onSignal);
		process.on('SIGTERM', onSignal);
		if (seconds !== undefined) setTimeout(end, seconds * 1000).unref();
	});
}
