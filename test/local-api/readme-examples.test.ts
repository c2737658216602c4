/** The kiosk applications of the README and docs/kiosk-software.md and the test of docs/backend.md, as they stand there, against a running agent and the embedded service. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { bundle } from '../../scripts/bundle.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { diesWithTheRun } from '../harness/children.ts';
import { givenAgent, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const DOCUMENTS = ['README.md', 'docs/kiosk-software.md', 'docs/backend.md']
	.map((name) => readFileSync(new URL(`../../${name}`, import.meta.url), 'utf8'))
	.join('\n');
const SOCKET = '/run/idv-agent/agent.sock';

/** The code under `<!-- example: NAME -->`. */
function exampleOf(name: string): string {
	const [, code] = new RegExp(`<!-- example: ${name} -->\\n\`\`\`\\w+\\n(.*?)\\n\`\`\``, 's').exec(DOCUMENTS) ?? [];
	return code ?? expect.fail(`the documents have no example ${name}`);
}

/** A program that is not here leaves its example untested, and says so. */
function isThere(program: string): boolean {
	const found = spawnSync(program, ['--version']).status === 0;
	if (!found) console.warn(`SKIPPED: the ${program} example of the README was not run, ${program} is not installed.`);
	return found;
}

interface Application {
	/** The first line, printed or to come, that holds the text. */
	untilPrinted(text: string): Promise<string>;
	readonly lines: readonly string[];
}

/** Runs an example, with the socket of this device in the place of the usual one. */
async function runExample(
	device: RunningAgent,
	name: string,
	program: string,
	extension: string,
): Promise<Application> {
	const code = exampleOf(name);
	expect(code).toContain(SOCKET);
	const file = join(device.home.directory, `kiosk.${extension}`);
	await writeFile(file, code.replaceAll(SOCKET, join(device.home.paths.runDir, 'agent.sock')));
	if (code.includes('idv-agent/')) await installPackage(device.home.directory);
	// What it starts ends with it.
	const [command = '', ...words] = diesWithTheRun(program, [file]);
	const child = spawn(command, words, { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
	return readLines(child, name);
}

/** What a process prints, line by line; its group ends with the test. */
function readLines(child: ChildProcess, name: string): Application {
	const lines: string[] = [];
	let looking = () => {};
	for (const stream of [child.stdout, child.stderr])
		if (stream)
			createInterface({ input: stream }).on('line', (line) => {
				lines.push(line);
				looking();
			});
	onTestFinished(async () => {
		if (child.exitCode !== null || child.signalCode !== null) return;
		const ended = once(child, 'close');
		killGroup(child);
		await ended;
	});
	return {
		lines,
		untilPrinted: (text) =>
			new Promise((resolve, reject) => {
				looking = () => {
					const found = lines.find((line) => line.includes(text));
					if (found !== undefined) resolve(found);
				};
				child.once('close', () => reject(new Error(`${name} ended before it said ${text}: ${lines.join('\n')}`)));
				looking();
			}),
	};
}

/** The libraries as the package has them, in the `node_modules` of a directory. */
async function installPackage(directory: string): Promise<void> {
	const root = resolve(import.meta.dirname, '../..');
	const installed = join(directory, 'node_modules/idv-agent');
	const entries = { client: 'src/client/client.runner.ts', testing: 'src/service/testing.ts' };
	await bundle({ root, entries, outDir: join(installed, 'dist') });
	await cp(join(root, 'package.json'), join(installed, 'package.json'));
}

function killGroup({ pid }: ChildProcess): void {
	if (pid !== undefined) process.kill(-pid, 'SIGKILL');
}

/** A port that was free a moment ago. */
async function findFreePort(): Promise<number> {
	const server = createServer().listen(0, '127.0.0.1');
	await once(server, 'listening');
	const { port } = server.address() as AddressInfo;
	server.close();
	await once(server, 'close');
	return port;
}

/** Runs lines of a shell in their own process group, which ends with the test. */
function runShell(text: string, directory: string): Application {
	const PATH = `${resolve(import.meta.dirname, '../../bin')}:${process.env['PATH']}`;
	const [command = '', ...words] = diesWithTheRun('sh', ['-c', `${text}\nwait`]);
	const child = spawn(command, words, { cwd: directory, env: { ...process.env, PATH }, detached: true });
	return readLines(child, 'the shell');
}

test('the trial service and the device beside it start when their lines are pasted at once, and hear of each other [F873]', async () => {
	const directory = await mkdtemp(join(tmpdir(), 'idv-readme-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const port = await findFreePort();
	const running = runShell(exampleOf('device').replaceAll('8490', String(port)), directory);
	await running.untilPrinted('Sent to ');
	expect(running.lines).toContain(`Online with 127.0.0.1:${port}, workflow document-check.`);
	expect(running.lines).toContain('Sent to 1 device.');
});

async function givenDevice() {
	const service = await givenService();
	return { service, device: await givenPairedAgent(service) };
}

/** It asks for more only when it has acknowledged what it got. */
async function expectAcknowledged(
	device: RunningAgent,
	service: EmbeddedService,
	consumer: string,
	running: Application,
) {
	service.notify({ type: 'two', id: 'n-2' });
	await running.untilPrinted('"two"');
	const { events } = device.agent;
	const kinds = events.after(events.positionOf(consumer), 10).entries.map(({ kind }) => kind);
	expect([[], ['two']]).toContainEqual(kinds);
}

test.runIf(isThere('curl'))('the application in curl waits for events and acknowledges them (needs curl)', async () => {
	const { service, device } = await givenDevice();
	const running = await runExample(device, 'curl', 'sh', 'sh');
	expect(await running.untilPrinted('"sentence"')).toContain('Online with');
	service.notify({ type: 'one', id: 'n-1' });
	await running.untilPrinted('"kind":"one"');
	await expectAcknowledged(device, service, 'kiosk-sh', running);
});

test('the application of the README prints what comes', async () => {
	const { service, device } = await givenDevice();
	const running = await runExample(device, 'readme', process.execPath, 'mjs');
	service.notify({ type: 'one', id: 'n-1' });
	expect(await running.untilPrinted('one ')).toBe('one {"type":"one","id":"n-1"}');
});

test('the test of a backend passes, with the service as a library', async () => {
	const directory = await mkdtemp(join(tmpdir(), 'idv-readme-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	await installPackage(directory);
	await writeFile(join(directory, 'backend.mjs'), exampleOf('testing'));
	const { status, stdout } = spawnSync(process.execPath, ['backend.mjs'], { cwd: directory, encoding: 'utf8' });
	expect(stdout).toMatch(/# pass 1\n|pass 1\n/);
	expect(status).toBe(0);
});

test('the application in Node holds a lease, asks the service and acknowledges', async () => {
	const { service, device } = await givenDevice();
	const running = await runExample(device, 'node', process.execPath, 'mjs');
	const forwarded = service.waitFor('request', ({ path }) => path === '/api/sessions/s-7');
	service.notify({ type: 'one', id: 'n-1', sessionId: 's-7' });
	expect(await running.untilPrinted(' one ')).toContain('"sessionId":"s-7"');
	expect(await forwarded).toMatchObject({ method: 'GET', authorizationScheme: 'Connection' });
	expect(await running.untilPrinted('the service answers')).toBe('the service answers 404');
	await expectAcknowledged(device, service, 'kiosk-node', running);
	expect(device.agent.leases.list().leases).toEqual([]);
});

test.runIf(isThere('python3'))(
	'the application in Python goes on after a restart of the agent, and gets nothing twice (needs python3)',
	async () => {
		const { service, device } = await givenDevice();
		const running = await runExample(device, 'python', 'python3', 'py');
		service.notify({ type: 'one', id: 'n-1' });
		expect(await running.untilPrinted(' one ')).toContain('{"type": "one", "id": "n-1"}');
		await device.stop();
		const again = await givenAgent({ home: device.home, clock: device.clock });
		await again.untilState('online');
		service.notify({ type: 'two', id: 'n-2' });
		await running.untilPrinted(' two ');
		expect(running.lines.filter((line) => / (one|two) /.test(line))).toHaveLength(2);
	},
);
