/** Starts the agent over a damaged state directory and says what it has: one directory after another, each sent as a message. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { toFailure } from '../../src/base/errors.ts';
import { statusWhen } from '../../src/cli/run.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { type Found, readEverything, refused, settles } from './found.ts';

const GROUP = String(process.getgid?.() ?? 0);

async function look(directory: string): Promise<Found> {
	const runDir = join(directory, 'run');
	mkdirSync(runDir, { recursive: true });
	const paths = {
		...{
			configFile: join(directory, 'config.json'),
			configFileIsExplicit: false,
			confDirectory: join(directory, 'conf.d'),
		},
		...{ stateDir: join(directory, 'state'), runDir, credentialsDirectory: null },
	};
	let daemon: Awaited<ReturnType<typeof startDaemon>>;
	try {
		daemon = await startDaemon({
			...{ version: '0.0.0-test', paths, env: {}, machineRoot: directory },
			sets: [`local.agentGroup=${GROUP}`, `local.adminGroup=${GROUP}`],
			logTo: { write() {} },
		});
	} catch (error) {
		const { code, message } = toFailure(error);
		return refused(code, message);
	}
	const { agent } = daemon;
	// Who waits for this has a deadline.
	await statusWhen(agent, settles);
	const found = await readEverything(directory);
	await daemon.stop();
	return found;
}

process.on('message', (directory: string) => {
	look(directory).then(
		(found) => process.send?.(found),
		(error: Error) => process.send?.(refused('internal', error.stack ?? error.message)),
	);
});
