/** Writes the table of open points into docs/open-points.md: `node scripts/integrators-table.ts`. A test holds the two together. */
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { formatAssumptions } from '../src/protocol/assumptions.ts';
import { listSettings } from '../src/settings/table.ts';

const PAGE = resolve(import.meta.dirname, '../docs/open-points.md');
const [BEGIN, END] = ['<!-- open points: from src/protocol/assumptions.ts -->', '<!-- end of the open points -->'];

/** The page with its table made again from the ledger and the settings. */
export function withTable(page: string): string {
	const about = new Map([...listSettings()].map(([path, setting]) => [path, setting.about]));
	const table = formatAssumptions((setting) => (about.get(setting) ?? '').replaceAll('|', '\\|'));
	const [before = '', rest = ''] = page.split(BEGIN);
	return `${before}${BEGIN}\n\n${table}\n\n${END}${rest.split(END)[1] ?? ''}`;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href)
	writeFileSync(PAGE, withTable(readFileSync(PAGE, 'utf8')));
