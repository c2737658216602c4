/**
 * Draws the first queries of docs/monitoring/dashboard.json as a metrics store answers them: docs/pictures/fleet.svg.
 * `node scripts/fleet-picture.ts http://127.0.0.1:8428 [hours] > docs/pictures/fleet.svg`
 */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';

const [store = 'http://127.0.0.1:8428', hours = '2'] = process.argv.slice(2);
const TITLES = ['Online over time', 'Why not online', 'Live workflow', 'Plan on the devices'];
const [WIDTH, HEIGHT, PAD] = [460, 190, 12];
const COLOURS = ['#2f6fde', '#d9822b', '#3a9d5d', '#c23b4a', '#7d57c1', '#6b7280'];

interface Series {
	readonly metric: Readonly<Record<string, string>>;
	readonly values: readonly (readonly [number, string])[];
}

const { panels } = JSON.parse(readFileSync(resolve(import.meta.dirname, '../docs/monitoring/dashboard.json'), 'utf8'));
const endS = Math.floor(Date.now() / 1000);
const startS = endS - Number(hours) * 3600;

async function ask(query: string): Promise<readonly Series[]> {
	const search = new URLSearchParams({ query, start: String(startS), end: String(endS), step: '60' });
	const response = await fetch(`${store}/api/v1/query_range?${search}`);
	if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
	const { data } = (await response.json()) as { data: { result: readonly Series[] } };
	return data.result;
}

const escapeXml = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

function draw(title: string, series: readonly Series[], x: number, y: number): string {
	const most = Math.max(1, ...series.flatMap(({ values }) => values.map(([, value]) => Number(value))));
	const [left, top, right, bottom] = [x + 44, y + 34, x + WIDTH - PAD, y + HEIGHT - 34];
	const lines = series.slice(0, COLOURS.length).map(({ metric, values }, index) => {
		const colour = COLOURS[index];
		const points = values.map(([at, value]) => {
			const across = left + ((at - startS) / (endS - startS)) * (right - left);
			return `${across.toFixed(1)},${(bottom - (Number(value) / most) * (bottom - top)).toFixed(1)}`;
		});
		const name = Object.values(metric).join(' ') || 'devices';
		const legend = `<text x="${left + index * 96}" y="${y + HEIGHT - 10}" fill="${colour}">${escapeXml(name)}</text>`;
		return `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points.join(' ')}"/>${legend}`;
	});
	return [
		`<rect x="${x + 4}" y="${y + 4}" width="${WIDTH - 8}" height="${HEIGHT - 8}" rx="6" fill="#fff" stroke="#d5d9e0"/>`,
		`<text x="${x + PAD + 4}" y="${y + 24}" font-weight="bold" fill="#1f2937">${escapeXml(title)}</text>`,
		`<text x="${left - 6}" y="${top + 4}" text-anchor="end" fill="#6b7280">${most}</text>`,
		`<text x="${left - 6}" y="${bottom}" text-anchor="end" fill="#6b7280">0</text>`,
		`<line x1="${left}" y1="${bottom}" x2="${right}" y2="${bottom}" stroke="#d5d9e0"/>`,
		...lines,
	].join('\n');
}

const drawn: string[] = [];
for (const [index, title] of TITLES.entries()) {
	const panel = panels.find((one: { title: string }) => one.title === title);
	drawn.push(draw(title, await ask(panel.targets[0].expr), (index % 2) * WIDTH, Math.floor(index / 2) * HEIGHT));
}
process.stdout.write(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${2 * WIDTH} ${2 * HEIGHT}" width="${2 * WIDTH}" height="${2 * HEIGHT}" font-family="sans-serif" font-size="12" role="img" aria-label="A fleet in four charts"><title>A fleet in four charts</title>\n<rect width="100%" height="100%" fill="#f3f4f6"/>\n${drawn.join('\n')}\n</svg>\n`,
);
