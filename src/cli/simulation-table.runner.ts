/** The live table of a simulation: one row written over on a terminal, a row now and then elsewhere. */
import type { Outage } from '../simulation/figures.ts';
import type { Simulation, SimulationFigures } from '../simulation/simulation.runner.ts';

const TERMINAL_EVERY_MS = 1000;
/** A log file does not need a row a second. */
const FILE_EVERY_MS = 5000;
/** The cursor back to the first column, and the row away. */
const CLEAR_ROW = '\r\x1b[2K';

const COLUMNS = ['   time', 'online', 'connecting', 'waiting', 'not started', 'handshakes/s', 'heartbeats/s'];

export function showSimulation(
	simulation: Pick<Simulation, 'figures'>,
	out: { readonly isTTY?: boolean; write(text: string): unknown },
) {
	const isTerminal = out.isTTY === true;
	let before = simulation.figures();
	let outagesTold = 0;
	let endsTold = 0;

	const row = (figures: SimulationFigures) => {
		const seconds = Math.max(0.001, (figures.elapsedMs - before.elapsedMs) / 1000);
		const { phases } = figures;
		const cells = [
			`${Math.floor(figures.elapsedMs / 1000)} s`,
			phases.online,
			phases.connecting,
			phases.waiting,
			phases.notStarted,
			Math.round((figures.handshakes.begun - before.handshakes.begun) / seconds),
			Math.round((figures.heartbeats - before.heartbeats) / seconds),
		];
		before = figures;
		return cells.map((cell, column) => String(cell).padStart(COLUMNS[column]?.length ?? 0)).join('  ');
	};
	const line = (text: string) => out.write(isTerminal ? `${CLEAR_ROW}${text}\n` : `${text}\n`);

	const tellOutages = ({ outages, devices }: SimulationFigures) => {
		const over = outages.filter(({ backAfterMs }) => backAfterMs !== null);
		if (outages.length > outagesTold) line(`          an outage: fewer than 99 % of ${devices} devices are online`);
		const last = over.at(-1);
		if (over.length > endsTold && last) line(`          ${describeEnd(last)}`);
		outagesTold = outages.length;
		endsTold = over.length;
	};
	const show = () => {
		const figures = simulation.figures();
		tellOutages(figures);
		out.write(isTerminal ? `${CLEAR_ROW}${row(figures)}` : `${row(figures)}\n`);
	};

	line(COLUMNS.join('  '));
	// Rates are differences over time: nothing else can say when the next row is due.
	const timer = setInterval(show, isTerminal ? TERMINAL_EVERY_MS : FILE_EVERY_MS);
	timer.unref();
	return {
		/** A line of its own between the rows. */
		say: (text: string) => line(`          ${text}`),
		/** Prints the last row. */
		stop() {
			clearInterval(timer);
			show();
			if (isTerminal) out.write('\n');
		},
	};
}

function describeEnd({ backAfterMs, peakHandshakes }: Outage): string {
	const seconds = ((backAfterMs ?? 0) / 1000).toFixed(1);
	return `99 % were back ${seconds} s after the outage began; at most ${peakHandshakes} handshakes a second`;
}
