/** The report at the end of a simulation: one document for programs, a few lines for people. Its names are permanent. */
import { sentenceOf } from '../base/sentences.ts';
import type { Ring } from '../simulation/rings.runner.ts';
import type { Simulation, SimulationFigures } from '../simulation/simulation.runner.ts';
import type { Shell } from './output.runner.ts';

/** Times are in seconds; `null` where it did not happen before the end. `residentBefore`: before the first device, in bytes. */
export function makeReport(
	simulation: Pick<Simulation, 'figures' | 'problems'>,
	{ service, residentBefore }: { readonly service: string; readonly residentBefore: number },
) {
	const residentBytes = process.memoryUsage.rss();
	const { devices, elapsedMs, phases, handshakes, outages, move, ...figures } = simulation.figures();
	const { begun, opened, failed, peak } = handshakes;
	return {
		schemaVersion: 1,
		service,
		devices,
		seconds: toSeconds(elapsedMs),
		online: phases.online,
		everOnline: figures.everOnline,
		allOnlineAfterSeconds: orNull(figures.allOnlineAfterMs),
		registrations: figures.registrations,
		/** Of the channel. */
		handshakes: { begun, opened, failed, peakPerSecond: peak },
		heartbeats: figures.heartbeats,
		/** How often a device that was online no longer was. */
		losses: figures.losses,
		/** Times in which fewer than 99 % were online, after they had been. */
		outages: outages.map((outage) => ({
			atSeconds: toSeconds(outage.atMs),
			fewestOnline: outage.fewestOnline,
			backAfterSeconds: orNull(outage.backAfterMs),
			handshakes: outage.handshakes,
			peakHandshakesPerSecond: outage.peakHandshakes,
		})),
		/** Since it began; `live` is counted at the end. */
		move: move && moveInSeconds(move),
		/** Failures of the devices that are not online at the end. */
		problems: simulation.problems(),
		/** Resident memory of this process, and what each device has added to it. */
		memory: { residentBytes, bytesPerDevice: Math.max(0, Math.round((residentBytes - residentBefore) / devices)) },
	};
}
export type SimulationReport = ReturnType<typeof makeReport>;

const toSeconds = (ms: number) => Math.round(ms / 100) / 10;
const moveInSeconds = ({ doneAfterMs, ...move }: NonNullable<SimulationFigures['move']>) => ({
	...move,
	doneAfterSeconds: orNull(doneAfterMs),
});
const orNull = (ms: number | null) => (ms === null ? null : toSeconds(ms));

export function printReport(shell: Shell, report: SimulationReport): void {
	const { devices, online, handshakes, move, outages } = report;
	const allOnline =
		report.allOnlineAfterSeconds === null
			? `${report.everOnline} were at some time`
			: `all for the first time after ${report.allOnlineAfterSeconds} s`;
	shell.line();
	shell.table([
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
