/**
 * The pictures of docs/measurements.md, from the last line that `npm run suite -- bench:device --json` prints:
 * `npm run suite -- bench:device --json | tail -n 1 | node scripts/footprint-plots.ts` writes docs/pictures/start-timeline.svg and
 * docs/pictures/memory.svg again.
 */
import { readFileSync, writeFileSync } from 'node:fs';

interface Figure {
	readonly value: number;
	readonly floor?: number;
}

interface Figures {
	readonly ratios: Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, Figure>>>>>>;
	/** Milliseconds by step, by program; none where strace was missing. */
	readonly timeline?: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

const STYLE =
	'<style>text{font:13px sans-serif;fill:#222}rect{fill:#9fb3c8}.own{font-weight:bold}rect.own{fill:#0b6bcb}.back{fill:#fff}line{stroke:#bbb}</style>';

const picture = (height: number, label: string, parts: readonly string[]) =>
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 ${height}" role="img" aria-label="${label}">
${STYLE}
<rect class="back" width="100%" height="100%"/>
${parts.join('\n')}
</svg>
`;

/** A row for each step: where it is reached, by the agent and, as a thin bar, by F1. */
export function drawTimeline(timeline: NonNullable<Figures['timeline']>): string {
	const [floor = {}, agent = {}] = Object.values(timeline);
	const steps = Object.entries(agent).toSorted(([, one], [, other]) => one - other);
	const [left, wide] = [270, 440];
	const longest = Math.max(...Object.values(agent), ...Object.values(floor));
	const at = (ms: number) => left + (ms / longest) * wide;
	let before = 0;
	const rows = steps.map(([name, ms], index) => {
		const y = 62 + index * 26;
		const from = before;
		before = ms;
		const beside = floor[name];
		return `<text x="${left - 10}" y="${y + 12}" text-anchor="end">${name}</text>
<rect class="own" x="${at(from).toFixed(1)}" y="${y}" width="${Math.max(1, at(ms) - at(from)).toFixed(1)}" height="12"/>
<text x="${(at(ms) + 6).toFixed(1)}" y="${y + 11}">${ms.toFixed(1)}${beside === undefined ? '' : ` (F1 ${beside.toFixed(1)})`}</text>${
			beside === undefined
				? ''
				: `\n<rect x="${left}" y="${y + 14}" width="${(at(beside) - left).toFixed(1)}" height="4"/>`
		}`;
	});
	return picture(80 + steps.length * 26, 'A start, step by step', [
		'<text x="20" y="24" class="own">A start with a saved Connection: milliseconds from the execution to each step</text>',
		'<text x="20" y="44">Blue: the agent, from the step before. Grey: F1, the least program that has the channel open. Under strace.</text>',
		...rows,
	]);
}

/** Anonymous and proportional memory of every program of the run. */
export function drawMemory(ratios: Figures['ratios']): string {
	const table = ratios['memory and idle CPU'] ?? {};
	const [first = {}] = Object.values(table);
	const rows = [
		{ name: 'F1: ws only', pss: first['PSS, MiB']?.floor ?? 0, anonymous: first['anonymous, MiB']?.floor ?? 0 },
		...Object.entries(table).map(([name, figures]) => ({
			name,
			pss: figures['PSS, MiB']?.value ?? 0,
			anonymous: figures['anonymous, MiB']?.value ?? 0,
		})),
	];
	const [left, wide] = [230, 420];
	const most = Math.max(...rows.map(({ pss }) => pss));
	const bars = rows.map(({ name, pss, anonymous }, index) => {
		const y = 62 + index * 28;
		const own = name.startsWith('idv-agent') ? ' class="own"' : '';
		return `<text x="${left - 10}" y="${y + 14}" text-anchor="end"${own}>${name}</text>
<rect x="${left}" y="${y}" width="${((pss / most) * wide).toFixed(1)}" height="18"/>
<rect class="own" x="${left}" y="${y}" width="${((anonymous / most) * wide).toFixed(1)}" height="18"/>
<text x="${(left + (pss / most) * wide + 8).toFixed(1)}" y="${y + 14}">${anonymous.toFixed(1)} of ${pss.toFixed(1)} MiB</text>`;
	});
	return picture(80 + rows.length * 28, 'Memory beside others', [
		'<text x="20" y="24" class="own">Memory once settled: the agent, the floor, and agents of others in the same run</text>',
		'<text x="20" y="44">Blue: anonymous, what a small device really gives. Grey: the proportional share of all pages, files included.</text>',
		...bars,
	]);
}

if (import.meta.main) {
	const { ratios, timeline } = JSON.parse(readFileSync(0, 'utf8').trim().split('\n').at(-1) ?? '') as Figures;
	const file = (name: string) => new URL(`../docs/pictures/${name}.svg`, import.meta.url);
	if (timeline) writeFileSync(file('start-timeline'), drawTimeline(timeline));
	else process.stderr.write('The benchmark found no strace: docs/pictures/start-timeline.svg stays as it is.\n');
	writeFileSync(file('memory'), drawMemory(ratios));
}
