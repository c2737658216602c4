/** `idv-agent version`: which program this is, and the formats that it reads. */
import { execFileSync } from 'node:child_process';
import { PLAN_FORMATS } from '../fleet/plan-format.ts';
import { STATE_SCHEMA_VERSION } from '../state/device-state.ts';
import type { Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

/** Built in by the bundler. */
declare const IDV_AGENT_COMMIT: string | null | undefined;

export async function showVersion(shell: Shell): Promise<void> {
	const { arch, platform, version: node } = process;
	const formats = { state: STATE_SCHEMA_VERSION, plans: PLAN_FORMATS };
	const about = { version: VERSION, commit: readCommit(), node, architecture: `${platform}-${arch}`, formats };
	const rows = [
		['Version', about.version],
		['Commit', about.commit ?? 'unknown'],
		['Node', about.node],
		['Architecture', about.architecture],
		['Formats', `state ${formats.state}, ${formats.plans.join(', ')}`],
	];
	if (shell.isJson) shell.json(about);
	else shell.table(rows);
}

/** 40 hexadecimal digits; `null` where the sources were not a checkout. */
function readCommit(): string | null {
	if (typeof IDV_AGENT_COMMIT !== 'undefined') return IDV_AGENT_COMMIT;
	try {
		const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore'];
		return execFileSync('git', ['rev-parse', 'HEAD'], { cwd: import.meta.dirname, stdio, encoding: 'utf8' }).trim();
	} catch {
		return null;
	}
}
