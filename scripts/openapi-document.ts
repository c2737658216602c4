/**
 * The document of the local interface without a running agent: `docs/openapi.json`, which `node scripts/openapi-document.ts` writes
 * again, and the types of the client. No handler of the route table is called.
 */
import { readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { describeRoutes } from '../src/local-api/openapi.ts';
import { localRoutes } from '../src/local-api/routes.runner.ts';

const read = (name: string) => new URL(`../${name}`, import.meta.url);

export function localDocument() {
	const { version } = JSON.parse(readFileSync(read('package.json'), 'utf8')) as { version: string };
	return describeRoutes(localRoutes(...([{}, {}] as unknown as Parameters<typeof localRoutes>)), version);
}

export const formatDocument = () => `${JSON.stringify(localDocument(), null, '\t')}\n`;

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === import.meta.filename)
	writeFileSync(read('docs/openapi.json'), formatDocument());
