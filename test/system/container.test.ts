import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { buildExecutable } from '../../scripts/executable.ts';
import { startService } from '../../src/service/embedded-service.ts';
import { ensureTools, prepareTree } from './machine.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const TREES = join(ROOT, 'build/trees');
const USER = 10_001;
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

let directory: string;
let image: string;

/** As docs/containers.md makes it: Debian, the executable and what it links to. */
beforeAll(async () => {
	ensureTools();
	directory = mkdtempSync(join(tmpdir(), 'idv-container-'));
	image = join(directory, 'image');
	const outDir = join(directory, 'built');
	const architecture = process.arch === 'arm64' ? 'arm64' : 'x64';
	const executable = await buildExecutable({ root: ROOT, architecture, outDir }, 'idv-agent');
	execFileSync('cp', ['--archive', prepareTree(TREES, 'bookworm'), image]);
	mkdirSync(join(image, 'usr/lib/idv-agent'));
	cpSync(executable, join(image, 'usr/lib/idv-agent/idv-agent'));
	for (const place of ['var/lib/idv-agent', 'etc/idv-agent']) mkdirSync(join(image, place));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const AGENT = '/usr/lib/idv-agent/idv-agent';

/** What a runtime does for `--read-only --user`, with one volume; the network is the host's. */
const ENTER = `
set -e
mount --bind "$IMAGE" "$IMAGE"
mount -o remount,ro,bind "$IMAGE"
mount -t tmpfs -o mode=755 tmpfs "$IMAGE/run"
mount --bind "$VOLUME" "$IMAGE/var/lib/idv-agent"
mount -t proc proc "$IMAGE/proc"
: > "$IMAGE/run/.containerenv"
mkdir "$IMAGE/run/idv-agent"
chown ${USER}:${USER} "$IMAGE/run/idv-agent"
exec chroot "$IMAGE" setpriv --reuid=${USER} --regid=${USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
`;

/** Begins a container; the process is the first one in it. */
function begin(volume: string, words: readonly string[]): ChildProcess {
	const spaces = ['--mount', '--pid', '--fork', '--kill-child', '--propagation', 'private'];
	const child = spawn('unshare', [...spaces, 'sh', '-c', ENTER, 'sh', AGENT, ...words], {
		env: { PATH, IMAGE: image, VOLUME: volume },
		stdio: ['ignore', 'pipe', 'inherit'],
	});
	// The first process of a container: with it all others end.
	onTestFinished(() => {
		if (child.exitCode === null) process.kill(Number(inside(child)), 'SIGKILL');
	});
	return child;
}

/** The first process in it, as the host knows it. */
function inside(child: ChildProcess): string {
	return readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8').trim();
}

function ask(child: ChildProcess, words: readonly string[]) {
	const at = ['--target', inside(child), '--mount', '--pid'];
	const user = ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'];
	return spawnSync('nsenter', [...at, 'chroot', image, ...user, AGENT, ...words], { encoding: 'utf8', env: { PATH } });
}

/** What it says of itself once its log says that it is online. */
async function untilOnline(child: ChildProcess): Promise<{ deviceId: string }> {
	for await (const line of createInterface({ input: child.stdout as Readable }))
		if (line.includes('"msg":"online"')) break;
	(child.stdout as Readable).resume();
	const { stdout } = ask(child, ['status', '--json']);
	const said = JSON.parse(stdout) as { state: string; deviceId: string };
	expect(said.state).toBe('online');
	return said;
}

test('a container that may write to one volume only is online, healthy, itself again in a new one, and ends at SIGTERM', async () => {
	const service = await startService({ selfRegistration: true });
	onTestFinished(() => service.close());
	const volume = join(directory, 'volume');
	mkdirSync(volume, { mode: 0o700 });
	chownSync(volume, USER, USER);
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { selfRegistration: true } };
	writeFileSync(join(image, 'etc/idv-agent/config.json'), JSON.stringify(settings));
	const ids: string[] = [];
	for (let life = 0; life < 2; life += 1) {
		const child = begin(volume, ['run']);
		const ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve(code ?? signal)));
		ids.push((await untilOnline(child)).deviceId);
		// Of the health check.
		expect(ask(child, ['status']).status).toBe(0);
		process.kill(Number(inside(child)), 'SIGTERM');
		expect(await ended).toBe(0);
	}
	expect(ids[1]).toBe(ids[0]);
	// Another volume is another device, whatever the image and the host are.
	const other = join(directory, 'other');
	mkdirSync(other, { mode: 0o700 });
	chownSync(other, USER, USER);
	expect((await untilOnline(begin(other, ['run']))).deviceId).not.toBe(ids[0]);
});
