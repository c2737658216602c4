/** The version of this program: built in by the bundler, read from package.json in a checkout. */
import { readFileSync } from 'node:fs';

declare const IDV_AGENT_VERSION: string | undefined;

export const VERSION: string = typeof IDV_AGENT_VERSION === 'string' ? IDV_AGENT_VERSION : readVersion();

function readVersion(): string {
	const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
	return (JSON.parse(text) as { version: string }).version;
}
