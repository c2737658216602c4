/** Builds the agent, sound and with each planted fault, once for all files. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { buildAgent, PLANTED, type Planted } from './programs.ts';

export async function setup({ provide }: TestProject): Promise<() => void> {
	const directory = mkdtempSync(join(tmpdir(), 'idv-power-'));
	const names = Object.keys(PLANTED) as Planted[];
	const planted = await Promise.all(names.map(async (name) => [name, await buildAgent(directory, name)] as const));
	provide('programs', { ...Object.fromEntries(planted), sound: await buildAgent(directory, null) } as never);
	return () => rmSync(directory, { recursive: true, force: true });
}
