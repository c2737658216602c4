/** The kiosk applications of the README, as they stand there, against a running agent and the embedded service. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import type { EmbeddedService } from '../../src/service/embedded-service.ts';
import { givenService } from '../service/fixture.ts';
import { givenAgent, givenPairedAgent, type RunningAgent } from './harness.ts';

const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8');
const SOCKET = '/run/idv-agent/agent.sock';

/** The code under `<!-- example: NAME -->`. */
function exampleOf(name: string): string {
	const [, code] = new RegExp(`<!-- example: ${name} -->\\n\`\`\`\\w+\\n(.*?)\\n\`\`\``, 's').exec(README) ?? [];
	return code ?? expect.fail(`the README has no example ${name}`);
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
	// What it starts ends with it.
	const child = spawn(program, [file], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
	const lines: string[] = [];
	let looking = () => {};
	for (const stream of [child.stdout, child.stderr])
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

function killGroup({ pid }: ChildProcess): void {
	if (pid !== undefined) process.kill(-pid, 'SIGKILL');
}

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

test.runIf(isThere('curl'))('the application in curl waits for events and acknowledges them', async () => {
	const { service, device } = await givenDevice();
	const running = await runExample(device, 'curl', 'sh', 'sh');
	expect(await running.untilPrinted('"sentence"')).toContain('Online with');
	service.notify({ type: 'one', id: 'n-1' });
	await running.untilPrinted('"kind":"one"');
	await expectAcknowledged(device, service, 'kiosk-sh', running);
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
	'the application in Python goes on after a restart of the agent, and gets nothing twice',
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
