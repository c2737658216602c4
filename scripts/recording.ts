/**
 * The picture in the README: `npm start` at a real pseudo-terminal (`script` of util-linux), line by line when each appeared, as an
 * SVG that plays once. `node scripts/recording.ts` writes docs/pictures/start.svg again.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..');
/** Of the picture; the terminal is wider than any line, so that a row is a line. */
const COLUMNS = 130;
/** Milliseconds after the screen stays still, and the key that is pressed then. */
const KEYS = [
	[1500, 'w'],
	[3500, 'r'],
	[9000, 'q'],
] as const;

interface Line {
	readonly text: string;
	readonly atMs: number;
}

async function record(): Promise<Line[]> {
	const command = `stty cols 400 rows 60 && exec ${join(ROOT, 'bin/idv-agent')} demo`;
	const env = { ...process.env, TERM: 'xterm', NO_COLOR: '1' };
	const child = spawn('script', ['-qfec', command, '/dev/null'], {
		cwd: ROOT,
		env,
		stdio: ['pipe', 'pipe', 'inherit'],
	});
	const startedAt = performance.now();
	let lines: Line[] = [];
	let isStill = false;
	child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
		const atMs = performance.now() - startedAt;
		// The only movement of the demo: so many rows up, and everything below is new.
		for (const part of chunk.split(/(?=\x1b\[\d+A)/)) {
			const [moved = '', rows = '0'] = /^\x1b\[(\d+)A\r\x1b\[J/.exec(part) ?? [];
			const before = lines.slice(lines.length - Number(rows));
			lines = lines.slice(0, lines.length - Number(rows));
			for (const text of part.slice(moved.length).replaceAll('\r', '').split('\n').slice(0, -1))
				lines.push(before.find((line) => line.text === text) ?? { text, atMs });
		}
		if (isStill || !chunk.includes('q ends')) return;
		isStill = true;
		for (const [afterMs, key] of KEYS) setTimeout(() => child.stdin.write(key), afterMs);
	});
	await once(child, 'close');
	return lines;
}

const markup = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
const LINE = 17;

/** The code in blocks is left out: a font decides whether its rows touch. */
function draw(lines: readonly Line[]): string {
	const shown = lines
		.filter(({ text }) => !/[▀▄█]/.test(text))
		// This checkout and its temporary directory are not for others.
		.map((line) => ({
			...line,
			text: line.text.replaceAll(ROOT, '…').replaceAll(/idv-agent-demo-\w+/g, 'idv-agent-demo-x'),
		}))
		.filter(({ text }, index, all) => text !== '' || all[index - 1]?.text !== '');
	const rows = shown.flatMap(({ text, atMs }) => {
		const pieces = text.match(new RegExp(`.{1,${COLUMNS}}`, 'g')) ?? [''];
		return pieces.map((piece) => ({ piece, atMs }));
	});
	const height = (rows.length + 2) * LINE;
	const drawn = rows.map(({ piece, atMs }, index) => {
		const kind = piece.startsWith('▸') ? ' class="step"' : '';
		const delay = (atMs / 1000).toFixed(1);
		return `<text xml:space="preserve" x="16" y="${(index + 2) * LINE}"${kind} style="animation-delay:${delay}s">${markup(piece)}</text>`;
	});
	return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${COLUMNS * 7.9 + 32} ${height}" role="img" aria-label="npm start at a terminal">
<style>rect{fill:#101418}text{font:13px monospace;fill:#d7dde3;white-space:pre;opacity:0;animation:come .01s forwards}.step{fill:#7fd0ff}
@keyframes come{to{opacity:1}}@media(prefers-reduced-motion){text{animation:none;opacity:1}}</style>
<rect width="100%" height="100%" rx="8"/>
${drawn.join('\n')}
</svg>
`;
}

writeFileSync(join(ROOT, 'docs/pictures/start.svg'), draw(await record()));
