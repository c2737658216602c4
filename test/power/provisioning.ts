/** Power cuts while a provision.json is taken into use, with its medium, settings and credentials all on the lossy disk. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, inject } from 'vitest';
import type { LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

const SECRET = 'ak-SECRET-0123456789abcdef';

/** Starts the command; everything but the file that was brought lies below `root`. */
export function runProvision(program: string, file: string, root: string) {
	const at = (path: string) => join(root, path);
	const places = ['--config', at('etc/config.json'), '--state-dir', at('state'), '--run-dir', at('run')];
	const args = [program, 'provision', file, ...places, '--credstore', at('credstore')];
	const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
	let printed = '';
	for (const stream of [child.stdout, child.stderr])
		stream.on('data', (text) => {
			printed += text;
		});
	const ended = once(child, 'close').then(() => ({ status: child.exitCode, printed }));
	return { pid: child.pid ?? 0, ended };
}

/** The next start does again what was cut off: settings and credential are in force and the secret is off the medium. */
export async function cutWhileProvisioning(
	disk: LossyDisk,
	cut: Cut,
	program: Planted | 'sound' = 'sound',
): Promise<void> {
	const { model, seed, random } = cut;
	await disk.format();
	const at = (path: string) => join(disk.directory, path);
	for (const directory of ['etc/conf.d', 'state', 'credstore', 'medium', 'run'])
		mkdirSync(at(directory), { recursive: true });
	writeFileSync(at('etc/config.json'), '{}\n');
	const medium = at('medium/provision.json');
	const document = {
		baseUrl: 'https://id.example.com',
		workflowId: 'check-in',
		settings: { heartbeatCadence: 60 },
		apiKey: SECRET,
	};
	writeFileSync(medium, `${JSON.stringify(document, null, 2)}${'\n'.repeat(Math.floor(random() * 6000))}`);
	await disk.flush();

	const provision = () => runProvision(inject('programs')[program], medium, disk.directory);
	const { pid, ended } = provision();
	await disk.arm({ model, seed, steps: Math.floor(random() * 40), victim: pid });
	const first = await ended;
	const report = await disk.cut({ model, seed });
	await disk.powerOn();
	const story = () => `first: ${first.printed}, ${JSON.stringify(report)}`;
	const inForce = () => {
		expect(readFileSync(at('etc/conf.d/00-provision.json'), 'utf8'), story()).toContain('heartbeatCadence');
		const [encrypted, plain] = [at('credstore/idv-agent.api-key'), at('state/provisioned.api-key')];
		expect(existsSync(encrypted) || existsSync(plain), story()).toBe(true);
		for (const file of [encrypted, plain])
			if (existsSync(file)) expect(readFileSync(file).length, story()).toBeGreaterThanOrEqual(SECRET.length);
	};
	if (first.status === 0) inForce();
	// As at the next boot: the unit runs where the file still is.
	if (existsSync(medium)) {
		const second = await provision().ended;
		expect(second.status, `${story()}second: ${second.printed}`).toBe(0);
	}
	inForce();
	const inClear = await disk.holding(SECRET);
	// Where systemd-creds cannot encrypt, it lies in a file of the agent's; on the medium it must never.
	expect(
		inClear.filter((path) => path !== '/state/provisioned.api-key'),
		story(),
	).toEqual([]);
}
