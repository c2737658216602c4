import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { chownSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { ROOT } from './built.ts';

const PAGE = readFileSync(join(ROOT, 'docs/containers.md'), 'utf8');
const PATH = '/usr/sbin:/usr/bin:/sbin:/bin';

const block = (kind: string) => new RegExp(`\`\`\`${kind}\\n([^]*?)\`\`\``).exec(PAGE)?.[1] ?? '';
/** The last stage of the page's Containerfile, by instruction; one that is not there stops the test with its name. */
const stage = block('dockerfile')
	.split(/^FROM /m)
	.at(-1)
	?.replaceAll('\\\n', ' ')
	.split('\n')
	.map((line) => /^([A-Z]+) (.*)$/.exec(line));
function instruction(name: string, fits: (line: string) => boolean = () => true): string {
	const found = stage?.find((match) => match?.[1] === name && fits(match[2] ?? ''))?.[2];
	if (!found) throw new Error(`docs/containers.md has no ${name}`);
	return found;
}
const wordsOf = (name: string) => JSON.parse(/\[.*\]/.exec(instruction(name))?.[0] ?? '') as [string, ...string[]];
const [UID = '', GID = ''] = instruction('USER').split(':');
const VARIABLES = Object.fromEntries(
	instruction('ENV')
		.split(' ')
		.map((one) => one.split('=')),
);
const STATE = instruction('VOLUME');
const HOME = instruction('COPY').split(' ').at(-1) ?? '';
/** What the compose file mounts over the read-only root, and how. */
const compose = block('yaml');
const [, SOCKETS = ''] = /^ +- sockets:(\S+)/m.exec(compose) ?? [];
const [, SETTINGS = ''] = /^ +- \.\/config:(\S+):ro/m.exec(compose) ?? [];
const [, SOCKET_OPTIONS = ''] = /type: tmpfs, .*o: "([^"]+)"/.exec(compose) ?? [];

let directory: string;
let image: string;

/** As docs/containers.md makes it; Debian's packages and the executable are there already. */
beforeAll(async () => {
	const { executable, tree } = inject('built');
	directory = mkdtempSync(join(tmpdir(), 'idv-container-'));
	image = join(directory, 'image');
	execFileSync('cp', ['--archive', tree, image]);
	cpSync(executable, join(image, HOME, 'idv-agent'));
	const steps = instruction('RUN', (line) => !line.startsWith('apt-get'));
	execFileSync('chroot', [image, 'sh', '-ec', steps], { env: { PATH } });
	for (const place of [SETTINGS, SOCKETS]) mkdirSync(join(image, place), { recursive: true });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** What a runtime does for the compose file; the network is the host's. `MARK` is what it leaves of its own. */
const ENTER = `
set -e
mount --bind "$IMAGE" "$IMAGE"
mount -o remount,ro,bind "$IMAGE"
mount -t tmpfs -o ${SOCKET_OPTIONS} tmpfs "$IMAGE${SOCKETS}"
mount --bind "$VOLUME" "$IMAGE${STATE}"
mount -t proc proc "$IMAGE/proc"
exec chroot "$IMAGE" env "$MARK" setpriv --reuid=${UID} --regid=${GID} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
`;

/** Neither leaves a file where the agent could look for it. */
const MARKS = { podman: 'container=podman', kubernetes: 'KUBERNETES_SERVICE_HOST=10.96.0.1' };

/** Begins a container; the process is the first one in it. */
function begin(volume: string, mark = MARKS.podman): ChildProcess {
	const spaces = ['--mount', '--pid', '--fork', '--kill-child', '--propagation', 'private'];
	const child = spawn('unshare', [...spaces, 'sh', '-c', ENTER, 'sh', ...wordsOf('ENTRYPOINT')], {
		env: { PATH, ...VARIABLES, IMAGE: image, VOLUME: volume, MARK: mark },
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
	const user = ['setpriv', `--reuid=${UID}`, `--regid=${GID}`, '--clear-groups'];
	return spawnSync('nsenter', [...at, 'chroot', image, ...user, ...words], {
		encoding: 'utf8',
		env: { PATH, ...VARIABLES },
	});
}

/** What it says of itself once its log says that it is online. */
async function untilOnline(child: ChildProcess): Promise<{ deviceId: string }> {
	for await (const line of createInterface({ input: child.stdout as Readable }))
		if (line.includes('"msg":"online"')) break;
	(child.stdout as Readable).resume();
	const { stdout } = ask(child, [...wordsOf('HEALTHCHECK'), '--json']);
	const said = JSON.parse(stdout) as { state: string; deviceId: string };
	expect(said.state).toBe('online');
	return said;
}

test('a container as docs/containers.md makes it, with one volume to write to, is online, healthy, itself again in a new one, and ends at SIGTERM', async () => {
	const service = await startService({ selfRegistration: true });
	onTestFinished(() => service.close());
	const volume = join(directory, 'volume');
	mkdirSync(volume, { mode: 0o700 });
	chownSync(volume, Number(UID), Number(GID));
	const settings = { baseUrl: service.url, workflowId: 'check-in', credential: { selfRegistration: true } };
	writeFileSync(join(image, SETTINGS, 'config.json'), JSON.stringify(settings));
	const ids: string[] = [];
	for (let life = 0; life < 2; life += 1) {
		const child = begin(volume);
		const ended = new Promise((resolve) => child.on('exit', (code, signal) => resolve(code ?? signal)));
		ids.push((await untilOnline(child)).deviceId);
		expect(ask(child, wordsOf('HEALTHCHECK')).status).toBe(0);
		// By their numbers, groups are given that the image has no names for.
		expect(ask(child, ['idv-agent', 'doctor', '--check', 'local-socket']).stdout).toMatch(/^ok +local-socket/m);
		process.kill(Number(inside(child)), instruction('STOPSIGNAL') as NodeJS.Signals);
		expect(await ended).toBe(0);
	}
	expect(ids[1]).toBe(ids[0]);
	// Another volume is another device, whatever the image and the host are.
	const other = join(directory, 'other');
	mkdirSync(other, { mode: 0o700 });
	chownSync(other, Number(UID), Number(GID));
	expect((await untilOnline(begin(other, MARKS.kubernetes))).deviceId).not.toBe(ids[0]);
});
