import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { findInspectionTarget } from '../../src/diagnosis/inspection-target.runner.ts';
import { gatherBundle, MAX_FILE_CHARACTERS } from '../../src/diagnosis/support-bundle.runner.ts';
import { loadSettings } from '../../src/settings/load.runner.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { RECENT_LOG_CHARACTERS, rememberLog } from '../../src/status/recent-log.ts';
import { leftOf, SECRETS, spellings } from '../base/spellings.ts';
import { fixture } from '../connection/network-peers.ts';

const secret = () => randomBytes(15).toString('base64url');

/** A device that does not run, with a secret in every place that there is, and a journal that repeats them all. */
async function givenDevice() {
	const directory = await mkdtemp(join(tmpdir(), 'bundle-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	const file = async (name: string, text: string) => {
		await writeFile(join(directory, name), text, { mode: 0o600 });
		return join(directory, name);
	};
	const known = {
		apiKey: secret(),
		basic: secret(),
		connection: secret(),
		pin: '83510927',
		application: randomBytes(30).toString('base64url'),
		proxy: `p@ss/${secret()}`,
		proxyVariable: secret(),
		siteToken: secret(),
		saved: secret(),
		backup: secret(),
		damaged: secret(),
		unread: secret(),
		worked: secret(),
		handed: secret(),
		pinBefore: '20948135',
		applicationBefore: randomBytes(30).toString('base64url'),
		keyLine: (await readFile(fixture('client.key'), 'utf8')).split('\n')[1] ?? '',
	};
	const settings = {
		baseUrl: 'https://id.example.com',
		credential: {
			apiKeyFile: await file('api-key', known.apiKey),
			basicFile: await file('basic', `operator:${known.basic}`),
			connectionFile: await file('connection', `Connection ${known.connection}\n`),
		},
		network: {
			proxy: `http://kiosk:${encodeURIComponent(known.proxy)}@proxy.example:3128`,
			clientCertificateFile: fixture('client.pem'),
			clientKeyFile: fixture('client.key'),
		},
		page: { pinFile: await file('pin', known.pin) },
		local: {
			http: { port: 0, applicationsFile: await file('applications', `kiosk https://k.example ${known.application}`) },
		},
		hooks: { onOnline: ['/usr/bin/notify', 'a-plain-word-that-is-a-password'] },
	};
	const stateDir = join(directory, 'state');
	await mkdir(stateDir);
	const stateWith = (token: string) => {
		const request = { deviceId: 'KIOSK-7', workflowId: 'check-in' };
		const obtainedAt = '2026-11-21T07:00:00.000Z';
		const connection = { baseUrl: settings.baseUrl, request, credentialId: '', token, obtainedAt };
		const workedCredential = { id: 'abc', baseUrl: settings.baseUrl, sent: `ApiKey ${known.worked}` };
		const lastPieces = {
			'page.pinFile': known.pinBefore,
			'local.http.applicationsFile': `kiosk https://k.example ${known.applicationBefore}`,
		};
		return JSON.stringify({ ...EMPTY_STATE, connections: [connection], workedCredential, lastPieces });
	};
	await writeFile(join(stateDir, 'state.json'), stateWith(known.saved));
	await writeFile(join(stateDir, 'state.json.bak'), stateWith(known.backup));
	await writeFile(join(stateDir, 'state.json.corrupt-2026'), stateWith(known.damaged).slice(0, -40));
	const unread = {
		schemaVersion: 1,
		attemptId: 'a',
		at: new Date().toISOString(),
		status: 201,
		baseUrl: settings.baseUrl,
		request: { deviceId: 'KIOSK-7', workflowId: 'check-in' },
		sessionId: null,
		assignsWorkflow: true,
		confirmsOrigin: null,
		texts: [{ place: '/data/access', text: known.unread }],
	};
	await writeFile(join(stateDir, 'unread-answer.json'), JSON.stringify(unread));
	await mkdir(join(directory, 'credentials'));
	await writeFile(join(directory, 'credentials', 'idv-agent.api-key'), known.handed);
	await writeFile(join(directory, 'credentials', 'dmi-serial'), 'SERIAL-4711\n');

	const config = await file('config.json', JSON.stringify(settings));
	const inspected = await findInspectionTarget(
		{ config, stateDir, runDir: join(directory, 'run') },
		{
			HTTPS_PROXY: `kiosk:${known.proxyVariable}@proxy.example:3128`,
			SITE_TOKEN: known.siteToken,
			// A password that is also the mark by which others are found.
			SITE_PASSWORD: 'password',
			CREDENTIALS_DIRECTORY: join(directory, 'credentials'),
		},
	);
	const loaded = await loadSettings(inspected);
	const bundle = (journal: string | null, doctor: unknown = {}) =>
		gatherBundle({ inspected, loaded, doctor, journal, agentVersion: '0', at: '2026-11-21T07:00:00Z' });
	return { known, bundle };
}

describe('a support bundle', () => {
	test('has none of the secrets of the device, whatever repeats them', async () => {
		const { known, bundle } = await givenDevice();
		const journal = Object.entries(known).flatMap(([name, value]) => [
			`${name} is ${value} here`,
			`${name} in a URL ${encodeURIComponent(value)}`,
			`${name} in base64 ${Buffer.from(`user:${value}`).toString('base64')}`,
		]);
		const files = await bundle(journal.join('\n'), { told: Object.values(known) });
		const text = files.map((one) => one.text).join('\n');
		const forms = (value: string) => [value, encodeURIComponent(value)];
		const found = Object.entries(known).filter(([, value]) => forms(value).some((form) => text.includes(form)));
		expect(found).toEqual([]);
		// The lines themselves are there, and what is no secret is.
		expect(text).toMatch(/ is \[\w+-\d+-[0-9a-f]{6}\] here/);
		expect(text).toContain('KIOSK-7');
		expect(text).not.toContain('a-plain-word-that-is-a-password');
		// The key that worked last is not even there as a shape.
		expect(text).toContain('"workedCredential"');
		expect(text).not.toContain('"sent"');
	});

	test('keeps the shapes of the journal, and none that others have written elsewhere; equal texts have one mark in all of it [F1570]', async () => {
		const { bundle } = await givenDevice();
		const written = '[word-6-739164]';
		const checks = [`closed: ${written}`, 'closed: zanzibar4711'].map((message) => ({ id: 'channel', message }));
		const files = await bundle(`closed: ${written}\nclosed: zanzibar4711`, { checks });
		const of = (name: string) => files.find((one) => one.name === name)?.text ?? '';
		expect(of('log.txt')).toContain(written);
		expect(of('doctor.json')).not.toContain('739164');
		const mark = /\[\w+-12-[0-9a-f]{6}\]/;
		expect(mark.exec(of('doctor.json'))?.[0]).toBe(mark.exec(of('log.txt'))?.[0] ?? 'none');
	});

	test('has nothing of texts that nobody knows', async () => {
		const { bundle } = await givenDevice();
		const jwt = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${secret()}.${secret()}`;
		const lines = (['Bearer', 'Basic', 'Token', 'Connection', 'ApiKey'] as const).map(
			(scheme) => `${scheme} ${secret()}1`,
		);
		const unknown = [jwt, ...lines.map((line) => line.split(' ')[1] ?? ''), secret(), secret(), secret(), secret()];
		const [key = '', link = '', parameter = '', json = ''] = unknown.slice(-4);
		const journal = [
			...lines,
			jwt,
			`-----BEGIN EC PRIVATE KEY-----\n${key}\n-----END EC PRIVATE KEY-----`,
			`https://id.example.com/mobile?authorization=Token%20${link}&sessionId=1`,
			`password=${parameter}`,
			`{"secret": "${json}"}`,
		].join('\n');
		const text = (await bundle(journal)).map((one) => one.text).join('\n');
		expect(unknown.filter((one) => text.includes(one))).toEqual([]);
	});

	test('has no spelling of a secret, in the journal, in a finding, in a setting, or in a label [F701]', async () => {
		const { bundle } = await givenDevice();
		for (const secret of Object.values(SECRETS)) {
			const texts = spellings(secret, 31);
			const journal = texts.map(([, text]) =>
				`id.example.com answered 400: The token ${text} has expired.`.replaceAll(/[\r\n]/g, ' '),
			);
			const doctor = {
				checks: texts.map(([, text]) => ({ id: 'service', message: `${text} was said`, labels: { site: text } })),
			};
			const files = await bundle(journal.join('\n'), doctor);
			const all = files.map((one) => one.text).join('\n');
			const found = texts
				.filter(([, text]) => leftOf(all, secret, text) !== null)
				.map(([name, text]) => [name, leftOf(all, secret, text)]);
			expect(found).toEqual([]);
			expect(all).toContain('id.example.com answered 400: The token [');
		}
	});

	test('tells what is in it, and of a log too long keeps the newest whole lines', async () => {
		const { bundle } = await givenDevice();
		const journal = Array.from({ length: 60_000 }, (_, index) => `line ${index} of a log that goes on and on`).join(
			'\n',
		);
		const files = await bundle(journal);
		const [readme] = files;
		for (const { name } of files.slice(1)) expect(readme?.text).toMatch(new RegExp(`^${name} `, 'm'));
		const system = JSON.parse(files.find(({ name }) => name === 'system.json')?.text ?? '');
		// A container may not say how many cores there are, nor how warm they are.
		expect(Object.keys(system.machine)).toEqual(expect.arrayContaining(['physicalCores', 'celsius']));
		const log = files.find(({ name }) => name === 'log.txt')?.text ?? '';
		expect(log.length).toBeLessThanOrEqual(MAX_FILE_CHARACTERS + 100);
		expect(log).toMatch(/^\[older lines left out\]\nline \[digits-5-\w{6}\] of/);
		expect(log).toMatch(/ of a log that goes on and on$/);
	});

	test('without a journal and without an agent says why there is no log', async () => {
		const { bundle } = await givenDevice();
		const log = (await bundle(null)).find(({ name }) => name === 'log.txt')?.text;
		expect(log).toMatch(/no journal .* No agent listens on/);
	});
});

test('the log in memory passes every line on and keeps the newest, within its bound', () => {
	const written: string[] = [];
	const { destination, lines } = rememberLog({ form: 'terminal', write: (line) => void written.push(line) });
	expect(destination.form).toBe('terminal');
	const line = 'x'.repeat(1000);
	for (let index = 0; index < 100; index += 1) destination.write(`${index} ${line}\n`);
	expect(written).toHaveLength(100);
	expect(lines().at(-1)).toBe(`99 ${line}`);
	expect(lines().join('').length).toBeLessThanOrEqual(RECENT_LOG_CHARACTERS);
	expect(lines().length).toBeGreaterThan(20);
	// A line that is longer than all that is kept leaves nothing behind, and no fault.
	destination.write(`${'y'.repeat(RECENT_LOG_CHARACTERS + 1)}\n`);
	expect(lines()).toEqual([]);
});

test('the log in memory keeps as much after an erasure as before it [F1877]', () => {
	const { destination, lines, forget } = rememberLog({ write() {} });
	for (const round of [1, 2, 3]) {
		for (let index = 0; index < 64; index += 1) destination.write(`${'x'.repeat(RECENT_LOG_CHARACTERS / 64)}\n`);
		expect([round, lines().length]).toEqual([round, 64]);
		forget();
		expect(lines()).toEqual([]);
	}
});
