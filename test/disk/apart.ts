/** A damaged device as it is in the field: `idv-agent doctor` looks at it, and `idv-agent run` is a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { untilStatus } from '../../src/cli/local-agent.runner.ts';
import { createLocalClient } from '../../src/client/local-client.edge.ts';
import { LOCAL_ROUTES, type Status } from '../../src/protocol/local-api.ts';
import { type Found, readEverything, refused, settles } from './found.ts';

const BIN = join(import.meta.dirname, '../../bin/idv-agent');
const INTERNAL = 70;
/** A device that is paired is online by then. */
const ONLINE_WITHIN_SECONDS = 20;

/** A command that is killed when it does not end: then its status is `null`. */
function command(directory: string, limitMs: number, ...words: readonly string[]) {
	const group = String(process.getgid?.() ?? 0);
	const child = spawn(
		process.execPath,
		[BIN, ...words, '--config', 'config.json', '--state-dir', 'state', '--run-dir', 'run'],
		{
			...{ cwd: directory, timeout: limitMs, killSignal: 'SIGKILL', stdio: ['ignore', 'pipe', 'pipe'] },
			env: { ...process.env, IDV_AGENT_LOCAL_AGENT_GROUP: group, IDV_AGENT_LOCAL_ADMIN_GROUP: group },
		},
	);
	const said = { stdout: '', stderr: '' };
	child.stdout.on('data', (text) => (said.stdout += text));
	child.stderr.on('data', (text) => (said.stderr += text));
	const ended = once(child, 'close').then(([status]) => ({ status: status as number | null, ...said }));
	return { child, ended };
}

/** `null` when the doctor or the agent does not answer in time. */
export async function startApart(directory: string, limitMs: number): Promise<Found | null> {
	mkdirSync(join(directory, 'run'), { recursive: true });
	const doctor = await command(directory, limitMs, 'doctor', '--json', '--check', 'state', '--check', 'disk-space')
		.ended;
	if (doctor.status === null) return null;
	if (doctor.status === INTERNAL || !doctor.stdout.startsWith('{'))
		return refused('internal', `doctor: ${doctor.status} ${doctor.stderr}`);
	const { child, ended } = command(directory, limitMs, 'run');
	const isStarted = new Promise<boolean>((resolve) => {
		createInterface(child.stdout).on('line', (line) => line.includes('"msg":"started"') && resolve(true));
		void ended.then(() => resolve(false));
	});
	if (await isStarted) {
		const client = createLocalClient({ runDir: join(directory, 'run') });
		const first = (await client.request('agent', 'GET', LOCAL_ROUTES.status)) as Status;
		await untilStatus(client, first, settles, ONLINE_WITHIN_SECONDS);
		const found = await readEverything(directory);
		child.kill();
		return (await ended).status === null ? null : found;
	}
	const { status, stderr } = await ended;
	const code = /\[([a-z-]+)\]\s*$/.exec(stderr)?.[1] ?? 'internal';
	return status === null ? null : refused(status === INTERNAL ? 'internal' : code, stderr);
}
