/** A device as it is after its pairing, for what boots with a saved Connection. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { createEventStore } from '../../src/events/store.edge.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { choosePaths } from '../../src/settings/paths.runner.ts';

/** Directories and groups of a device of its own. */
export function flagsFor(base: string): string[] {
	const group = String(process.getgid?.() ?? 0);
	const sets = [`local.agentGroup=${group}`, `local.adminGroup=${group}`].flatMap((set) => ['--set', set]);
	return ['--state-dir', join(base, 'state'), '--run-dir', join(base, 'run'), ...sets];
}

/** A device as it is after its pairing. @param sets further settings that it is paired with, such as `network.caFile=…`. */
export async function pairOnce(
	to: EmbeddedService,
	base: string,
	sets: readonly string[] = [],
): Promise<{ flags: string[]; tokenFile: string }> {
	const flags = flagsFor(base);
	const daemon = await startDaemon({
		version: 'bench',
		paths: choosePaths({ stateDir: join(base, 'state'), runDir: join(base, 'run') }, {}),
		env: {},
		sets: [...flags.filter((_, index, all) => all[index - 1] === '--set'), ...sets],
		logTo: { write: () => {} },
	});
	const { origin } = new URL(to.url);
	await daemon.agent.pair({ code: to.createPairingCode('document-check').url, trustOrigin: origin });
	const tokenFile = join(base, 'token');
	const state = JSON.parse(await readFile(join(base, 'state', 'state.json'), 'utf8')) as {
		connections: { token: string }[];
	};
	await writeFile(tokenFile, state.connections.at(-1)?.token ?? '', { mode: 0o600 });
	await daemon.stop();
	return { flags, tokenFile };
}

/** A thousand events in the state directory, as on a device whose application was away. */
export async function keepEvents(stateDir: string): Promise<void> {
	const store = createEventStore({
		directory: stateDir,
		epoch: 'bench',
		bounds: { maxCount: 1000, maxBytes: 4 * 1024 * 1024, maxAgeMs: 86_400_000 },
	});
	for (let number = 1; number <= 1000; number += 1)
		store.append({
			at: new Date().toISOString(),
			type: 'notification',
			kind: 'session.started',
			serviceId: `n-${number}`,
			workflowId: 'document-check',
			format: 'json',
			content: JSON.stringify({ type: 'session.started', id: `n-${number}`, sessionId: '65a1b2c3d4e5f60718293a4b' }),
		} as Parameters<typeof store.append>[0]);
	await store.settled();
	await store.close();
}
