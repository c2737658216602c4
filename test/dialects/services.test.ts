/**
 * Services in four stacks, each written from docs/service-interface.md alone by its own choices where that is silent. With nothing but the
 * published commands `idv` makes an API key, a pairing code and a session at each; `idv probe` takes one code; and a device with the
 * two files that it writes is online and has every notification under the kind and the id that the service gave it.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test as plain } from 'vitest';
import { type AtTheEnd, finish } from '../cli/command.ts';
import { readAll } from '../harness/read-all.ts';
import { givenPlace } from './device.ts';

const HERE = join(import.meta.dirname, 'services');
const OPERATOR = ['operator', 'a-secret-of-the-operator'];
/** Notifications that a device has to have as they were sent. */
const COMPARED = 6;

/** By Debian's packages, but for the last one. */
const STACKS: Readonly<Record<string, () => Promise<readonly [string, ...string[]]>>> = {
	'python3-tornado': async () => ['/usr/bin/python3', join(HERE, 'tornado_service.py')],
	'Go with gorilla/websocket': async () => [await built(join(HERE, 'gorilla_service.go'))],
	'Ruby with websocket-driver': async () => ['ruby', join(HERE, 'driver_service.rb')],
	"npm's websocket": async () => [process.execPath, join(HERE, 'npm_service.cjs')],
};

/** Debian has its Go libraries as sources, without modules. */
async function built(source: string): Promise<string> {
	const cache = join(tmpdir(), 'idv-go');
	const program = join(cache, 'gorilla_service');
	const env = { ...process.env, GO111MODULE: 'off', GOPATH: '/usr/share/gocode', GOCACHE: cache, GOFLAGS: '' };
	const { status, stderr } = spawnSync('go', ['build', '-o', program, source], { env, encoding: 'utf8' });
	if (status !== 0) throw new Error(`go build: ${stderr ?? 'go is not installed'}`);
	return program;
}

async function startService(stack: keyof typeof STACKS, atTheEnd: AtTheEnd) {
	const [command = '', ...args] = (await STACKS[stack]?.()) ?? [];
	const child = spawn(command, [...args, ...OPERATOR], { stdio: ['ignore', 'pipe', 'ignore'] });
	const gone = once(child, 'close');
	atTheEnd(async () => {
		child.kill('SIGKILL');
		await gone;
	});
	const told: string[] = [];
	const lines = createInterface({ input: child.stdout }).on('line', (line) => void told.push(line));
	while (!told.some((line) => line.startsWith('port '))) await once(lines, 'line');
	return { url: `http://127.0.0.1:${told[0]?.slice(5)}`, told };
}

plain.concurrent.for(Object.keys(STACKS))('a service by %s', async (stack, { expect, onTestFinished }) => {
	const service = await startService(stack, onTestFinished);
	const place = await givenPlace(onTestFinished);
	const config = await mkdtemp(join(tmpdir(), 'idv-services-'));
	onTestFinished(() => rm(config, { recursive: true, force: true }));
	const idv = async (authorization: string, ...args: readonly string[]) => {
		const env = { IDV_AUTHORIZATION: authorization, IDV_URL: service.url, XDG_CONFIG_HOME: config };
		const { status, stdout, stderr } = await finish('idv', [...args, '--json'], env);
		expect(status, `${args.join(' ')}\n${stdout}${stderr}`).toBe(0);
		return JSON.parse(stdout);
	};
	const basic = `Basic ${OPERATOR.join(':')}`;
	const permissions = 'deeplink:write,ephemeral_device:write';
	const key = await idv(basic, 'apikey', 'create', '--name', 'trial', '--permissions', permissions);
	const session = await idv(`ApiKey ${key.token}`, 'session', 'start', '--workflow', 'check-in');
	expect(session.url).toMatch(/\/mobile\?authorization=Token%20\w+&sessionId=\w+$/);
	const code = await idv(`ApiKey ${key.token}`, 'qrcode', '--workflow', 'check-in');

	const handedOn = join(place.directory, 'device.json');
	const files = ['--out', place.settingsFile, '--device', handedOn];
	const args = ['--url', service.url, '--code-file', '-', '--yes', '--seconds', '4', '--json', ...files];
	const probed = await place.probe(args, {}, code.url);
	const about = `${probed.stdout}${probed.stderr}`;
	expect(probed.status, about).toBe(0);
	const { requests, device: ran } = JSON.parse(probed.stdout);
	expect(requests).toBeLessThanOrEqual(30);
	expect(ran, about).toMatchObject({ isOnline: true, closes: [] });
	expect(service.told).not.toContain('lost');

	const { connection, workflowId, settings } = JSON.parse(await readFile(handedOn, 'utf8'));
	const connectionFile = await place.secretFile('connection', connection);
	const device = await place.startDevice({ workflowId, deviceId: settings.deviceId, credential: { connectionFile } });
	await device.untilStatus(({ state }) => state === 'online');
	const before = service.told.length;
	const notifications = () => readAll(device.agent.events).entries.filter(({ type }) => type === 'notification');
	await device.untilEvent(() => notifications().length >= 2 * COMPARED);
	const sent = service.told.slice(before).map((line) => line.split(' '));
	const [, first] = sent.find(([what, to]) => what === 'sent' && to === settings.deviceId)?.slice(1) ?? [];
	const got = notifications().map(({ serviceId, kind }) => `${serviceId} ${kind}`);
	const from = got.findIndex((one) => one.startsWith(`${first} `));
	const expected = sent.filter(([what]) => what === 'sent').map(([, , id, kind]) => `${id} ${kind}`);
	expect(got.slice(from, from + COMPARED), about).toEqual(expected.slice(0, COMPARED));
	expect(new Set(got).size, about).toBe(got.length);
});
