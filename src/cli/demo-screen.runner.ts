/** The lower part of a terminal that stays still while lines scroll above it; with `TERM=dumb` it is printed once. */
import { stripVTControlCharacters } from 'node:util';

/** Terminals as `process.stdout` and `process.stdin` are. */
export interface Terminal {
	readonly out: Pick<NodeJS.WriteStream, 'write' | 'columns' | 'on' | 'off'>;
	readonly keys: Pick<NodeJS.ReadStream, 'isTTY' | 'setRawMode' | 'on' | 'off' | 'resume' | 'pause'>;
	readonly env: Readonly<Record<string, string | undefined>>;
}

/** Whether text goes out without any escape sequence for its look. */
export const isPlain = (isTerminal: boolean, env: Terminal['env']) =>
	!isTerminal || Boolean(env['NO_COLOR']) || env['TERM'] === 'dumb';

/** @param fixed the lines that stay. @param onKey told of each key, in lower case; Ctrl-C is `q`. */
export function openScreen({ out, keys, env }: Terminal, fixed: () => string[], onKey: (key: string) => void) {
	const canMove = env['TERM'] !== 'dumb';
	let rows = 0;
	let shown = '';

	/** Lines that are longer than the terminal is wide take several rows. */
	const heightOf = (lines: readonly string[]) =>
		lines.reduce(
			(sum, line) => sum + Math.max(1, Math.ceil(stripVTControlCharacters(line).length / (out.columns || 80))),
			0,
		);
	const paint = (above: string) => {
		const lines = fixed();
		const text = `${lines.join('\n')}\n`;
		if (!canMove && shown !== '') {
			out.write(above);
			return;
		}
		out.write(`${rows > 0 ? `\x1b[${rows}A\r\x1b[J` : ''}${above}${text}`);
		shown = text;
		rows = heightOf(lines);
	};
	const draw = () => {
		if (`${fixed().join('\n')}\n` !== shown) paint('');
	};
	const resized = () => {
		// The terminal has folded the lines again, by its own rules: what is above is left as it is.
		if (!canMove) return;
		rows = heightOf(shown.split('\n').slice(0, -1));
		paint('');
	};
	const pressed = (bytes: Buffer) => {
		for (const key of bytes.toString().toLowerCase()) onKey(key === '\x03' ? 'q' : key);
	};
	out.on('resize', resized);
	if (keys.isTTY) {
		keys.setRawMode(true);
		keys.on('data', pressed);
		keys.resume();
	}
	paint('');
	return {
		/** One line above the part that stays. */
		say: (line: string) => paint(`${line}\n`),
		/** The part again, after something in it has changed. */
		draw,
		/** Gives the terminal back. The last state stays on it. */
		close(): void {
			out.off('resize', resized);
			if (!keys.isTTY) return;
			keys.off('data', pressed);
			keys.setRawMode(false);
			keys.pause();
		},
	};
}
