/** The report at the end of a simulation: one document for programs, a few lines for people. Its names are permanent. */
import { sentenceOf } from '../base/sentences.ts';
import type { Outage } from '../simulation/figures.ts';
import type { Ring } from '../simulation/rings.runner.ts';
import type { SharedProblem, Simulation } from '../simulation/simulation.runner.ts';
import { printLine, printTable } from './output.ts';

/** Times in seconds. */
export interface SimulationReport {
	readonly schemaVersion: 1;
	readonly service: string;
	readonly devices: number;
	readonly seconds: number;
	/** Online at the end. */
	readonly online: number;
	readonly everOnline: number;
	/** When all were online for the first time; `null` if they never were. */
	readonly allOnlineAfterSeconds: number | null;
	readonly registrations: { readonly begun: number; readonly failed: number };
	/** Of the channel. */
	readonly handshakes: {
		readonly begun: number;
		readonly opened: number;
		readonly failed: number;
		readonly peakPerSecond: number;
	};
	readonly heartbeats: number;
	/** How often a device that was online no longer was. */
	readonly losses: number;
	/** Times in which fewer than 99 % were online, after they had been. */
	readonly outages: readonly {
		readonly atSeconds: number;
		readonly fewestOnline: number;
		/** `null`: not before the end. */
		readonly backAfterSeconds: number | null;
		readonly handshakes: number;
		readonly peakHandshakesPerSecond: number;
	}[];
	readonly move: {
		readonly workflowId: string;
		readonly told: number;
		/** Online with the new workflow at the end. */
		readonly live: number;
		readonly refused: number;
		/** How often a device was offline since the move began. */
		readonly losses: number;
		readonly doneAfterSeconds: number | null;
	} | null;
	/** Failures of the devices that are not online at the end. */
	readonly problems: readonly SharedProblem[];
	/** Resident memory of this process, and what each device has added to it. */
	readonly memory: { readonly residentBytes: number; readonly bytesPerDevice: number };
}

/** `residentBefore`: before the first device, in bytes. */
export function makeReport(
	simulation: Pick<Simulation, 'figures' | 'problems'>,
	{ service, residentBefore }: { readonly service: string; readonly residentBefore: number },
): SimulationReport {
	const residentBytes = process.memoryUsage.rss();
	const {
		devices,
		elapsedMs,
		phases,
		everOnline,
		allOnlineAfterMs,
		handshakes,
		heartbeats,
		losses,
		outages,
		move,
		registrations,
	} = simulation.figures();
	const { begun, opened, failed, peak } = handshakes;
	return {
		schemaVersion: 1,
		service,
		devices,
		seconds: toSeconds(elapsedMs),
		online: phases.online,
		everOnline,
		allOnlineAfterSeconds: orNull(allOnlineAfterMs),
		registrations,
		handshakes: { begun, opened, failed, peakPerSecond: peak },
		heartbeats,
		losses,
		outages: outages.map(reportOutage),
		move: move && {
			workflowId: move.workflowId,
			told: move.told,
			live: move.live,
			refused: move.refused,
			losses: move.losses,
			doneAfterSeconds: orNull(move.doneAfterMs),
		},
		problems: simulation.problems(),
		memory: { residentBytes, bytesPerDevice: Math.max(0, Math.round((residentBytes - residentBefore) / devices)) },
	};
}

function reportOutage(outage: Outage): SimulationReport['outages'][number] {
	return {
		atSeconds: toSeconds(outage.atMs),
		fewestOnline: outage.fewestOnline,
		backAfterSeconds: orNull(outage.backAfterMs),
		handshakes: outage.handshakes,
		peakHandshakesPerSecond: outage.peakHandshakes,
	};
}

const toSeconds = (ms: number) => Math.round(ms / 100) / 10;
const orNull = (ms: number | null) => (ms === null ? null : toSeconds(ms));

export function printReport(report: SimulationReport): void {
	const { devices, online, handshakes, move, outages } = report;
	const allOnline =
		report.allOnlineAfterSeconds === null
			? `${report.everOnline} were at some time`
			: `all for the first time after ${report.allOnlineAfterSeconds} s`;
	printLine();
	printTable([
		['Ran', `${report.seconds} s against ${report.service}`],
		['Online', `${online} of ${devices} at the end; ${allOnline}`],
		[
			'Handshakes',
			`${handshakes.begun}, of which ${handshakes.failed} failed; at most ${handshakes.peakPerSecond} a second`,
		],
		['Registrations', `${report.registrations.begun}, of which ${report.registrations.failed} failed`],
		['Heartbeats', String(report.heartbeats)],
		...(move
			? [
					[
						'Moved',
						`${move.live} of ${devices} to ${move.workflowId}${move.doneAfterSeconds === null ? '' : ` in ${move.doneAfterSeconds} s`}; offline meanwhile: ${move.losses}`,
					],
				]
			: []),
		...outages.map(({ atSeconds, fewestOnline, backAfterSeconds, peakHandshakesPerSecond }) => [
			'Outage',
			`at ${atSeconds} s, ${devices - fewestOnline} offline; ${
				backAfterSeconds === null ? 'not over at the end' : `99 % back ${backAfterSeconds} s later`
			}; at most ${peakHandshakesPerSecond} handshakes a second`,
		]),
		...report.problems.map((problem) => ['Problem', `${problem.devices} devices: ${sentenceOf(problem, 'over')}`]),
		['Memory', memoryWords(report)],
	]);
}

export function describeMove(workflowId: string, { percent, from, to }: Ring, number: number, count: number): string {
	return `ring ${number} of ${count}, up to ${percent} %: ${to - from} devices move to ${workflowId}`;
}

/** Fewer devices than this say nothing of what one takes. */
const MANY = 100;

function memoryWords({ devices, memory: { residentBytes, bytesPerDevice } }: SimulationReport): string {
	const all = `${Math.round(residentBytes / 2 ** 20)} MiB in all`;
	return devices < MANY ? all : `${Math.round(bytesPerDevice / 1024)} KiB a device, ${all}`;
}
