/**
 * The plot in the README: the storm of 1,000 devices after an outage, from the table in docs/measurements.md that `npm run bench:storm`
 * printed. `node scripts/storm-plot.ts` writes docs/pictures/storm.svg again.
 */
import { readFileSync, writeFileSync } from 'node:fs';

const at = (name: string) => new URL(`../${name}`, import.meta.url);
const [, table = ''] = readFileSync(at('docs/measurements.md'), 'utf8').split('| 1,000 devices |');
const rows = [...(table.split('\n\n')[0] ?? '').matchAll(/^\| ([^|]+) \| ([^|]+) \| ([\d,.]+) \| ([\d.]+) \|$/gm)].map(
	([, name = '', back = '', peak = '', wasted = '']) => ({ name, back, peak: Number(peak.replace(',', '')), wasted }),
);
const LEFT = 190;
const STEP = 24;
const widest = Math.max(...rows.map(({ peak }) => peak));
const bars = rows.map(({ name, back, peak, wasted }, index) => {
	const y = 62 + index * STEP;
	const width = (peak / widest) * 330;
	const own = name === 'idv-agent' ? ' class="own"' : '';
	const label = back.startsWith('>')
		? `not back after 60 s, ${wasted} wasted`
		: `back after ${back} s, ${wasted} wasted`;
	return `<text x="${LEFT - 10}" y="${y + 12}" text-anchor="end"${own}>${name}</text>
<rect x="${LEFT}" y="${y}" width="${width.toFixed(0)}" height="16"${own}/>
<text x="${(LEFT + width + 8).toFixed(0)}" y="${y + 12}">${peak}/s, ${label.replace('>', '&gt;')}</text>`;
});
writeFileSync(
	at('docs/pictures/storm.svg'),
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 ${80 + rows.length * STEP}" role="img" aria-label="1,000 devices after an outage">
<style>text{font:13px sans-serif;fill:#222}rect{fill:#9fb3c8}.own{font-weight:bold}rect.own{fill:#0b6bcb}.back{fill:#fff}</style>
<rect class="back" width="100%" height="100%"/>
<text x="20" y="24" class="own">1,000 agents after an outage of 30 s, at a service that takes 100 connections a second</text>
<text x="20" y="44">Bar: most handshakes in one second. Beside it: when 99 % were back, and wasted handshakes for each device.</text>
${bars.join('\n')}
</svg>
`,
);
