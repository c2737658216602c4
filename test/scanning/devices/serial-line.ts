/** A serial scanner that is plugged in and pulled out: two pseudo-terminals that socat joins, with the names udev gives. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, readdir, rm, stat, symlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';

export interface SerialScanner {
	/** Its name below `by-id`. */
	readonly path: string;
	/** Sends exactly this; resolves when the line has taken it. */
	send(bytes: string | Uint8Array): Promise<void>;
	/** How many descriptors of other processes than socat stand for it. */
	users(): Promise<number>;
	unplug(): Promise<void>;
}

/** @throws Error saying how to get socat. */
export function requireSocat(): void {
	if (spawnSync('socat', ['-V']).status !== 0)
		throw new Error('This suite needs socat: apt-get install --no-install-recommends socat');
}

/** @param root of the file system of the machine. @param name as udev calls it. */
export async function plugSerial(root: string, name = 'usb-Honeywell_HF680_1-if00'): Promise<SerialScanner> {
	const path = join(root, 'dev/serial/by-id', name);
	const device = join(root, `pty-${name}`);
	const far = join(root, `far-${name}`);
	const raw = 'pty,raw,echo=0';
	const socat = spawn('socat', ['-d', '-d', `${raw},link=${device}`, `${raw},link=${far}`], {
		stdio: ['ignore', 'ignore', 'pipe'],
	});
	onTestFinished(() => void socat.kill('SIGKILL'));
	await untilReady(socat);
	await mkdir(dirname(path), { recursive: true });
	await symlink(device, path);
	return {
		path,
		async send(bytes) {
			const file = await open(far, 'w');
			await file.writeFile(bytes);
			await file.close();
		},
		users: () => countUsers(device, socat.pid),
		async unplug() {
			await rm(path);
			socat.kill('SIGTERM');
			await once(socat, 'exit');
		},
	};
}

function untilReady({ stderr }: ChildProcess): Promise<void> {
	let said = '';
	return new Promise((resolve) => {
		stderr?.on('data', (chunk: Buffer) => {
			said = (said + chunk.toString()).slice(-2000);
			if (said.includes('starting data transfer loop')) resolve();
		});
	});
}

async function countUsers(device: string, except: number | undefined): Promise<number> {
	const node = await stat(device);
	const others = (await readdir('/proc')).filter((name) => /^\d+$/.test(name) && name !== String(except));
	let users = 0;
	for (const pid of others) {
		const links = await readdir(`/proc/${pid}/fd`).catch(() => []);
		for (const fd of links) {
			// Not by its name: in a container beside this another line has the same.
			const of = await stat(`/proc/${pid}/fd/${fd}`).catch(() => null);
			if (of?.dev === node.dev && of.ino === node.ino) users += 1;
		}
	}
	return users;
}
