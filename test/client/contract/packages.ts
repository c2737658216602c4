/** The packages of this folder, as its lock file has them. */
import { existsSync } from 'node:fs';
import { run } from './run.ts';

export async function setup(): Promise<void> {
	const here = import.meta.dirname;
	if (!existsSync(`${here}/node_modules/typescript`)) await run('npm', ['ci', '--ignore-scripts', '--no-audit'], here);
}
