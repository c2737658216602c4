import { execFileSync } from 'node:child_process';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { exitStatusOf } from '../../src/base/errors.ts';
import { checkSettings } from '../../src/diagnosis/settings-check.runner.ts';
import { encryptCredential } from '../../src/provisioning/encrypt-credential.edge.ts';
import { type ProvisionRecord, wasTaken, wipe, withTaken } from '../../src/provisioning/files.edge.ts';
import { type ProvisionParts, provision } from '../../src/provisioning/provision.runner.ts';
import type { LoadedSettings } from '../../src/settings/load.runner.ts';
import { type AgentPaths, choosePaths } from '../../src/settings/paths.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const SECRET = 'ak-planted-0123456789';
const FILE = { baseUrl: 'https://id.example.com', workflowId: 'check-in', apiKey: SECRET };

interface Place {
	readonly directory: string;
	readonly medium: string;
	readonly paths: AgentPaths;
	bring(content: unknown): Promise<void>;
	take(parts?: Partial<ProvisionParts>): ReturnType<typeof provision>;
	settings(): Promise<unknown>;
	/** Every file below the directory that holds the text. */
	filesWith(text: string): Promise<string[]>;
	pair(): Promise<void>;
}

/** Files of the agent are not owned by another user here. */
const PLACES = { confDirectory: '/nowhere/conf.d', stateDir: '/nowhere' };
const MACHINE = { serials: [], interfaces: [], machineIdHash: 'ab'.repeat(32), unreadable: [] };
const PARTS = {
	credentialsDirectory: '/run/credentials/idv-agent.service',
	seal: async (name: string, secret: string) => Buffer.from(`${name}:${[...secret].reverse().join('')}`),
	check: (settings: LoadedSettings) => checkSettings(settings, process.env, PLACES),
	readFacts: async () => MACHINE,
	now: '2026-11-21T00:00:00.000Z',
};

/** A device that was never started. Its systemd-creds writes the letters of a secret in the opposite order. */
async function givenPlace(): Promise<Place> {
	const directory = await mkdtemp(join(tmpdir(), 'provision-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	const medium = join(directory, 'boot', 'provision.json');
	await mkdir(join(directory, 'boot'));
	await mkdir(join(directory, 'state'), { mode: 0o700 });
	const paths = choosePaths({ config: join(directory, 'etc/config.json'), stateDir: join(directory, 'state') }, {});
	return {
		directory,
		medium,
		paths: { ...paths, configFileIsExplicit: false },
		bring: (content) => writeFile(medium, typeof content === 'string' ? content : JSON.stringify(content, null, 2)),
		take: (parts = {}) =>
			provision([{ name: medium }], {
				paths: { ...paths, configFileIsExplicit: false },
				credstore: join(directory, 'credstore'),
				...PARTS,
				...parts,
			}),
		settings: async () => JSON.parse(await readFile(join(directory, 'etc/conf.d/00-provision.json'), 'utf8')),
		async filesWith(text) {
			const entries = await readdir(directory, { recursive: true, withFileTypes: true });
			const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
			const texts = await Promise.all(files.map((file) => readFile(file, 'latin1')));
			return files.filter((_, index) => texts[index]?.includes(text)).map((file) => file.slice(directory.length + 1));
		},
		async pair() {
			const store = await openStateStore(paths.stateDir);
			const pairing = { baseUrl: 'https://old.example.com', sessionId: null, pairedAt: '2026-01-01T00:00:00.000Z' };
			await store.save({ ...EMPTY_STATE, pairing });
			await store.close();
		},
	};
}

describe('a provisioning file', () => {
	test('that others could have written is not taken, hooks and all, nor one in a directory where they could replace it [F739]', async () => {
		const place = await givenPlace();
		await place.bring({ ...FILE, settings: { hooks: { onOnline: ['/tmp/hook'] } } });
		const refused = { failure: { code: 'file-exposed', message: expect.stringContaining(place.medium) } };
		await chmod(place.medium, 0o666);
		await expect(place.take()).rejects.toMatchObject(refused);
		await chmod(place.medium, 0o644);
		await chmod(join(place.directory, 'boot'), 0o777);
		await expect(place.take()).rejects.toMatchObject(refused);
		await chmod(join(place.directory, 'boot'), 0o1777);
		if (process.getuid?.() === 0) {
			await chown(place.medium, 65_534, 65_534);
			await expect(place.take()).rejects.toMatchObject(refused);
			await chown(place.medium, 0, 0);
		}
		expect(await place.filesWith('00-provision')).toEqual([]);
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
	});

	test('that becomes a pipe before it is wiped keeps no one waiting, and says that the secret is still there', async () => {
		const place = await givenPlace();
		execFileSync('mkfifo', [place.medium]);
		await expect(wipe(place.medium, '')).rejects.toMatchObject({ failure: { code: 'provision-failed' } });
	});

	async function givenCopy(): Promise<Place> {
		const place = await givenPlace();
		const store = await openStateStore(place.paths.stateDir);
		const registeredOn = { serial: null, macAddress: null, machine: 'cd'.repeat(32) };
		const request = { deviceId: 'device-1', deviceType: 'kiosk', workflowId: 'check-in' };
		const saved = { baseUrl: 'https://old.example.com', request, credentialId: '', token: 't', obtainedAt: '' };
		await store.save({ ...EMPTY_STATE, connections: [saved], registeredOn });
		await store.close();
		return place;
	}

	test('on an image with the state of another device in it is refused with what it is, not with how to move that device [F1456]', async () => {
		const place = await givenCopy();
		await place.bring(FILE);
		const { code, message, remedy } = await place.take().catch(({ failure }) => failure);
		expect(code).toBe('already-paired');
		expect(message).toMatch(/^This seems to be a copy of another device: .* was not used\.$/);
		expect(remedy).toMatch(/idv-agent unpair/);
	});

	test('on such an image is taken if it is to replace what is there, and says that this seems to be a copy [F743]', async () => {
		const place = await givenCopy();
		const file = { ...FILE, replace: true };
		await place.bring(file);
		for (const outcome of ['applied', 'unchanged']) {
			const taken = await place.take();
			expect(taken).toMatchObject({ outcome, notices: [{ code: 'identity-changed' }] });
			expect(taken.notices[0]?.message).toMatch(/^This seems to be a copy of another device/);
			await place.bring(file);
		}
		// With an id of its own in the settings it is another device, whatever the state holds.
		const named = { ...file, settings: { deviceId: 'lobby-2' } };
		await place.bring(named);
		await place.take();
		await place.bring(named);
		expect((await place.take()).notices).toEqual([]);
	});

	test('that names no service is taken, and says that the device stays open to the first comer', async () => {
		const place = await givenPlace();
		await place.bring({ settings: { deviceType: 'scanner' } });
		const { outcome, notices } = await place.take();
		expect(outcome).toBe('applied');
		expect(notices.map(({ code }) => code)).toEqual(['open-to-first-comer']);
		await place.bring({ trustedOrigins: ['https://id.example.com'] });
		expect((await place.take()).notices).toEqual([]);
	});

	test('becomes settings and an encrypted secret, and keeps none itself', async () => {
		const place = await givenPlace();
		await place.bring({ ...FILE, trustedOrigins: ['https://id.example.com'], settings: { deviceType: 'scanner' } });
		expect(await place.take()).toMatchObject({
			outcome: 'applied',
			from: place.medium,
			secret: { file: join(place.directory, 'credstore/idv-agent.api-key'), encrypted: true },
			notices: [],
		});
		expect(await place.settings()).toEqual({
			baseUrl: 'https://id.example.com',
			workflowId: 'check-in',
			deviceType: 'scanner',
			pairing: { trustedOrigins: ['https://id.example.com'] },
			credential: { apiKeyFile: '/run/credentials/idv-agent.service/idv-agent.api-key' },
		});
		expect(await place.filesWith(SECRET)).toEqual([]);
		expect(await readdir(join(place.directory, 'boot'))).toEqual(['provision.json.used']);
		expect(await readFile(`${place.medium}.used`, 'utf8')).toContain('https://id.example.com');
		expect((await stat(join(place.directory, 'credstore/idv-agent.api-key'))).mode & 0o777).toBe(0o600);
		expect((await stat(join(place.directory, 'etc/conf.d/00-provision.json'))).mode & 0o777).toBe(0o644);
	});

	test('overwrites the secret in the very file, before it gets another name', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		const before = (await stat(place.medium)).ino;
		await place.take();
		expect((await stat(`${place.medium}.used`)).ino).toBe(before);
	});

	test('the same once more changes nothing, and is wiped again', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		await place.take();
		const written = (await stat(join(place.directory, 'etc/conf.d/00-provision.json'))).mtimeMs;
		await place.bring(FILE);
		expect(await place.take()).toMatchObject({ outcome: 'unchanged' });
		expect(await place.take()).toMatchObject({ outcome: 'none' });
		expect((await stat(join(place.directory, 'etc/conf.d/00-provision.json'))).mtimeMs).toBe(written);
		expect(await place.filesWith(SECRET)).toEqual([]);
	});

	test('also changes nothing on a device that has been paired since', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		await place.take();
		await place.pair();
		await place.bring(FILE);
		expect(await place.take()).toMatchObject({ outcome: 'unchanged' });
	});

	test('another one counts on a device that is not paired', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		await place.take();
		await place.bring({ ...FILE, workflowId: 'boarding' });
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
		expect(await place.settings()).toMatchObject({ workflowId: 'boarding' });
	});

	test('is refused by a paired device, which keeps everything, unless it says replace', async () => {
		const place = await givenPlace();
		await place.pair();
		await place.bring(FILE);
		await expect(place.take()).rejects.toMatchObject({ code: 'already-paired' });
		expect(exitStatusOf('already-paired')).toBe(77);
		await expect(place.take()).rejects.toThrow('https://old.example.com');
		await expect(place.settings()).rejects.toThrow('ENOENT');
		await place.bring({ ...FILE, replace: true });
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
	});

	test('keeps its secret for the agent alone where nothing can be encrypted, and says so', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		const { secret, notices } = await place.take({ seal: async () => null });
		expect(notices.map(({ code }) => code)).toContain('provision-failed');
		const file = join(place.paths.stateDir, 'provisioned.api-key');
		expect(secret).toEqual({ file, encrypted: false });
		expect(notices).toHaveLength(1);
		expect((await stat(file)).mode & 0o777).toBe(0o600);
		expect(await place.settings()).toMatchObject({ credential: { apiKeyFile: file } });
		expect(await place.filesWith(SECRET)).toEqual(['state/provisioned.api-key']);
	});

	test.skipIf(process.getuid?.() !== 0)(
		'gives such a secret to the user of the agent (needs root) [F1864]',
		async () => {
			const place = await givenPlace();
			await chown(place.paths.stateDir, 4711, 4712);
			await place.bring(FILE);
			await place.take({ seal: async () => null });
			expect(await stat(join(place.paths.stateDir, 'provisioned.api-key'))).toMatchObject({ uid: 4711, gid: 4712 });
		},
	);

	test.each([
		['gives the same again', 'cat', true],
		['gives another text', 'echo another', false],
		['fails', 'exit 1', false],
	])(
		'is encrypted only where its decryption %s: the medium is wiped afterwards [F1865]',
		async (_what, decrypt, isGood) => {
			const { directory } = await givenPlace();
			const script = `#!/bin/sh\nif [ "$1" = encrypt ]; then cat; else ${decrypt}; fi\n`;
			await writeFile(join(directory, 'systemd-creds'), script, { mode: 0o755 });
			vi.stubEnv('PATH', `${directory}:${process.env['PATH']}`);
			onTestFinished(() => void vi.unstubAllEnvs());
			expect((await encryptCredential('idv-agent.api-key', SECRET)) !== null).toBe(isGood);
		},
	);

	test('is remembered beside fifteen others, the oldest forgotten first', () => {
		let record: ProvisionRecord = { schemaVersion: 1, taken: [] };
		for (let number = 1; number <= 17; number += 1) record = withTaken(record, `file ${number}`, 'x', PARTS.now);
		expect([1, 2, 17].map((number) => wasTaken(record, `file ${number}`))).toEqual([false, true, true]);
	});

	test('that does not go together with the settings there are strands nobody', async () => {
		const place = await givenPlace();
		await mkdir(join(place.directory, 'etc/conf.d'), { recursive: true });
		await writeFile(join(place.directory, 'etc/conf.d/10-site.json'), '{"credential":{"basicFile":"/x"}}');
		await place.bring(FILE);
		await expect(place.take()).rejects.toMatchObject({ code: 'provision-invalid' });
		await expect(place.take()).rejects.toThrow(/only one of them can be used/);
		await expect(place.settings()).rejects.toThrow('ENOENT');
	});

	test('that an agent could not start with leaves the medium as it is: a file that is missing, a broken file beside it [F630]', async () => {
		const place = await givenPlace();
		const caFile = join(place.directory, 'nowhere.pem');
		await place.bring({ ...FILE, settings: { network: { caFile } } });
		await expect(place.take()).rejects.toMatchObject({
			code: 'provision-invalid',
			message: expect.stringContaining(caFile),
		});
		expect(await readFile(place.medium, 'utf8')).toContain(SECRET);
		await mkdir(join(place.directory, 'etc/conf.d'), { recursive: true });
		await writeFile(join(place.directory, 'etc/conf.d/10-site.json'), '{ "deviceType": ');
		await place.bring(FILE);
		await expect(place.take()).rejects.toThrow(/10-site\.json/);
		expect(await readFile(place.medium, 'utf8')).toContain(SECRET);
		await rm(join(place.directory, 'etc/conf.d/10-site.json'));
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
	});

	test.each([
		[{ telemetry: { otlpUrl: 'https://o.example.com', headersFile: '/nowhere/headers' } }, '/nowhere/headers'],
		[{ local: { http: { port: 8090, applicationsFile: '/nowhere/applications' } } }, '/nowhere/applications'],
		[{ local: { agentGroup: 'no-such-group' } }, 'no-such-group'],
		[{ page: { port: 8080, pinFile: '/nowhere/pin' } }, '/nowhere/pin'],
		[{ page: { port: 8080, pinFile: '/etc/hostname' } }, 'others could read it'],
	])(
		'that the settings of the agent refuse is refused before the medium is wiped: %j [F1581]',
		async (settings, word) => {
			const place = await givenPlace();
			await place.bring({ ...FILE, settings });
			await expect(place.take()).rejects.toThrow(word);
			expect(await readFile(place.medium, 'utf8')).toContain(SECRET);
			expect(await place.filesWith(SECRET)).toEqual(['boot/provision.json']);
		},
	);

	test('is taken with a word on what is probably not meant in it, or between it and what is there [F1581]', async () => {
		const place = await givenPlace();
		await mkdir(join(place.directory, 'etc/conf.d'), { recursive: true });
		await writeFile(join(place.directory, 'etc/conf.d/50-site.json'), '{"local":{"metricsPort":8080}}');
		const payload = Buffer.from(JSON.stringify({ exp: 1_700_000_000 })).toString('base64url');
		const apiKey = `eyJhbGciOiJIUzI1NiJ9.${payload}.${'x'.repeat(43)}`;
		const hooks = { onOnline: ['/nowhere/hook'] };
		await place.bring({ ...FILE, apiKey, settings: { hooks, page: { port: 8080 }, service: { pongBody: 'x' } } });
		const { outcome, notices } = await place.take();
		expect(outcome).toBe('applied');
		expect(notices.map(({ message }) => message).join(' ')).toMatch(
			/same port, 8080.*pongBody has no effect.*nowhere\/hook cannot be run.*The API key in .*provision\.json has ended at 2023-11-14/,
		);
	});

	test.each([
		[
			'a key',
			'{"baseUrl":"https://id.example.com","apiKey":"ak-1111111111","apiKey":"ak-2222222222"}',
			'apiKey is there twice',
		],
		['an address', '{"baseUrl":"https://a.example.com","baseUrl":"https://b.example.com"}', 'baseUrl is there twice'],
		[
			'an address among the settings',
			'{"baseUrl":"https://a.example.com","settings":{"baseUrl":"https://b.example.com"}}',
			'baseUrl stands above "settings" already',
		],
	])('that says %s twice is refused: which one is meant [F1582]', async (_what, text, word) => {
		const place = await givenPlace();
		await place.bring(text);
		await expect(place.take()).rejects.toThrow(word);
		expect(await readFile(place.medium, 'utf8')).toBe(text);
	});

	test('tells which of its settings are set elsewhere, too', async () => {
		const place = await givenPlace();
		await mkdir(join(place.directory, 'etc/conf.d'), { recursive: true });
		await writeFile(join(place.directory, 'etc/conf.d/10-site.json'), '{"workflowId":"boarding"}');
		await place.bring(FILE);
		const { notices } = await place.take();
		expect(notices.map(({ message }) => message)).toEqual([
			`workflowId is set by ${join(place.directory, 'etc/conf.d/10-site.json')} as well, which takes precedence.`,
		]);
	});

	test('on a medium that cannot be written is used all the same, with a warning', async () => {
		const place = await givenPlace();
		const { notices, outcome } = await provisionFromProc(place);
		expect(outcome).toBe('applied');
		expect(notices).toMatchObject([
			{ code: 'provision-failed', message: expect.stringContaining('could not be wiped') },
		]);
	});

	test('taken by another device has no secret any more, and says so', async () => {
		const [first, second] = [await givenPlace(), await givenPlace()];
		await first.bring(FILE);
		await first.take();
		await second.bring(await readFile(`${first.medium}.used`, 'utf8'));
		await expect(second.take()).rejects.toThrow(/was taken by another device/);
	});

	test.each<[what: string, text: string, says: RegExp]>([
		['that is empty', '', /provision\.json: line 1, column 1: the file is empty/],
		...[
			'{ "settings": {}, "replace": true }',
			'{ "baseUrl": null }',
			'{ "trustedOrigins": [] }',
			'{ "settings": { "service": {} } }',
		].map((text): [string, string, RegExp] => [
			`that names nothing (${text})`,
			text,
			/provision\.json: it names neither a service nor a setting/,
		]),
		['with a comma too many', '{\n  "baseUrl": "https://a.example",\n}', /line 3, column 1: there is a comma too many/],
		[
			'with a name that is not known',
			'{\n  "workflow": "x"\n}',
			/line 2, column 15: workflow is not known here; did you mean workflowId/,
		],
		['with a wrong address', '{\n\n"baseUrl": "ftp://x"}', /line 3, column 12: baseUrl must be an https address/],
		[
			'with a wrong setting',
			'{"settings":{\n"heartbeatCadence": 0}}',
			/line 2, column 21: heartbeatCadence must be at least 1/,
		],
		['with a secret without a host', `{"apiKey":"${SECRET}"}`, /baseUrl is missing/],
		[
			'with two secrets',
			`{"baseUrl":"https://a.example","apiKey":"${SECRET}","connection":"x1"}`,
			/only one of apiKey and connection/,
		],
		[
			'with a secret that is none',
			'{"baseUrl":"https://a.example",\n"apiKey":"two words"}',
			/line 2, column 10: apiKey must be one credential/,
		],
	])('%s is named with its place and left for a person to correct [F128]', async (_, text, says) => {
		const place = await givenPlace();
		await place.bring(text);
		await expect(place.take()).rejects.toMatchObject({ code: 'provision-invalid' });
		expect(exitStatusOf('provision-invalid')).toBe(65);
		const message = await place.take().catch(({ message }: Error) => message);
		expect(message).toMatch(says);
		expect(message).not.toContain(SECRET);
		expect(await readFile(place.medium, 'utf8')).toBe(text);
		await place.bring(FILE);
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
	});

	test('is taken as it was once its settings can be written [F129]', async () => {
		const place = await givenPlace();
		await place.bring(FILE);
		const before = await readFile(place.medium, 'utf8');
		await mkdir(join(place.directory, 'etc'));
		await writeFile(join(place.directory, 'etc/conf.d'), 'in the way');
		await expect(place.take()).rejects.toMatchObject({
			code: 'provision-failed',
			failure: { remedy: expect.stringContaining('nothing was taken from the file') },
		});
		expect(await readFile(place.medium, 'utf8')).toBe(before);
		await rm(join(place.directory, 'etc/conf.d'));
		expect(await place.take()).toMatchObject({ outcome: 'applied' });
	});

	test('that is larger than any is refused, also from a pipe', async () => {
		const place = await givenPlace();
		const text = JSON.stringify(FILE).padEnd(64 * 1024 + 1);
		await place.bring(text);
		const parts = { ...PARTS, paths: place.paths, credstore: join(place.directory, 'credstore') };
		const refusal = { code: 'provision-invalid', message: expect.stringContaining('is larger than 65536 bytes') };
		await expect(place.take()).rejects.toMatchObject(refusal);
		await expect(provision([{ name: 'standard input', text }], parts)).rejects.toMatchObject(refusal);
	});

	test('whatever stands in it is taken or refused in words, and no refusal quotes it', async () => {
		const place = await givenPlace();
		const value = fc.oneof(fc.jsonValue(), fc.constant('https://a.example'), fc.constant('check-in'));
		const secret = fc.oneof(fc.constant(SECRET), fc.constant('two words'), fc.jsonValue());
		const contents = fc.record(
			{
				baseUrl: value,
				workflowId: value,
				trustedOrigins: value,
				settings: value,
				replace: value,
				apiKey: secret,
				connection: secret,
			},
			{ requiredKeys: [] },
		);
		await fc.assert(
			fc.asyncProperty(contents, async (content) => {
				await place.bring(content);
				try {
					await place.take();
				} catch (error) {
					expect(error).toMatchObject({ code: 'provision-invalid' });
					expect(String(error)).not.toContain(SECRET);
					return;
				}
				expect(await place.filesWith(SECRET)).toEqual([]);
			}),
			{ numRuns: 100 },
		);
	});
});

/** A file that can be read and never written. */
async function provisionFromProc(place: Place) {
	await place.bring(FILE);
	await chmod(place.medium, 0o400);
	// Root may write everything but what is no file of a disk; a directory in the place of the new name stops it as well.
	await mkdir(`${place.medium}.used`);
	return place.take();
}

describe('an agent that runs unprovisioned', () => {
	test('is online as soon as a file has been taken', async () => {
		const service = await givenService();
		const home = await givenHome();
		const device = await givenAgent({ home });
		await provision(
			[
				{
					name: 'standard input',
					text: JSON.stringify({ baseUrl: service.url, workflowId: 'check-in', apiKey: service.credentials.apiKey }),
				},
			],
			{
				paths: home.paths,
				credstore: join(home.directory, 'credstore'),
				readFacts: PARTS.readFacts,
				check: PARTS.check,
				credentialsDirectory: join(home.directory, 'credstore'),
				// As it is when systemd has decrypted it.
				seal: async (_name, secret) => Buffer.from(secret),
				now: new Date().toISOString(),
			},
		);
		await device.untilLive('check-in');
	});
});
