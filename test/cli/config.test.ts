import { chmod, chown, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { remarkOf } from '../../src/cli/config.runner.ts';
import { listSettings } from '../../src/settings/table.ts';
import { fixture } from '../connection/network-peers.ts';
import { beginsFake, STEERING, steeringIn } from '../fixtures/foreign-text.ts';
import { finishApart, givenHome } from './command.ts';
import { expectRefusal } from './refusal.ts';

describe('config show', () => {
	test('tells every setting, where it comes from, and no secret', async () => {
		const home = await givenHome({ heartbeatCadence: 12, network: { proxy: 'http://user:geheim@proxy.example:3128' } });
		const show = ['config', 'show', '--set', 'deviceType=scanner'];
		const [plain, json, explained] = await Promise.all([
			home.agent(show),
			home.agent([...show, '--json']),
			home.agent([...show, '--explain']),
		]);
		expect(plain.status).toBe(0);
		expect(plain.stdout).toMatch(/^heartbeatCadence +12 +\S*config\.json$/m);
		expect(plain.stdout).toMatch(/^deviceType +scanner +--set deviceType$/m);
		expect(plain.stdout).toMatch(/^deviceId +KIOSK-7 +IDV_AGENT_DEVICE_ID$/m);
		expect(plain.stdout).toMatch(/^service\.channelPath +\/ws\/device +default$/m);
		expect(plain.stdout).toMatch(/^network\.proxy +http:\/\/\[secret\]@proxy\.example:3128 +\S*config\.json$/m);
		const { settings, problems } = JSON.parse(json.stdout);
		expect(settings.map(({ path }: { path: string }) => path)).toEqual([...listSettings().keys()]);
		expect(problems).toEqual([]);
		expect(explained.stdout).toMatch(
			/^heartbeatCadence = 12 \(.*config\.json\)\n {2}Seconds between .*\n {2}The interface leaves open: .*\n {2}IDV_AGENT_HEARTBEAT_CADENCE\n/m,
		);
		for (const { stdout } of [plain, json, explained]) expect(stdout).not.toContain('geheim');
	});
});

describe('config check', () => {
	test('refuses settings that others may change, with the command that mends it', async () => {
		const home = await givenHome({ heartbeatCadence: 10 });
		const { stderr } = await home.agent(['config', 'check']);
		expect(stderr).toBe('');
		const file = join(home.directory, 'config.json');
		await chmod(file, 0o666);
		const words = new RegExp(`${file} .*others could change it.* chmod 0644 ${file}`);
		expectRefusal(await home.agent(['config', 'check']), { status: 78, code: 'file-exposed', words });
	});

	test.skipIf(process.getuid?.() !== 0)(
		"by root finds what the agent's user may not read (needs root) [F1248]",
		async () => {
			const home = await givenHome();
			const secret = join(home.directory, 'key');
			await writeFile(secret, 'a-key-0123456789abcdef\n', { mode: 0o600 });
			await home.writeSettings({ baseUrl: 'https://id.example.com', credential: { apiKeyFile: secret } });
			await mkdir(home.stateDir);
			await chmod(home.directory, 0o755);
			await chown(home.stateDir, 65534, 65534);
			const check = (args: string[], env: Readonly<Record<string, string>> = home.env) =>
				finishApart('idv-agent', ['config', 'check', ...args], env);
			const words = new RegExp(`${secret} \\(credential.apiKeyFile\\) cannot be read by nobody, the user of the agent`);
			expectRefusal(await check([]), { status: 78, code: 'settings-unreadable', words });
			await chown(secret, 65534, 65534);
			expect(await check([])).toMatchObject({ status: 0, stderr: '' });
			const file = home.configFile;
			await chmod(file, 0o600);
			expectRefusal(await check([]), {
				status: 78,
				code: 'settings-unreadable',
				words: new RegExp(`${file} \\(settings\\)`),
			});
			// One that is checked before it is put in place is its author's.
			const { IDV_AGENT_CONFIG: _, ...env } = home.env;
			const named = await check(['--config', file], env);
			expect(named).toMatchObject({ status: 0, stderr: expect.stringContaining('cannot be read by nobody') });
		},
	);

	test('names every mistake on a line of its own, with its path and the nearest name, and ends with 78', async () => {
		const home = await givenHome({
			heartbeatCadance: 10,
			heartbeatCadence: 0,
			service: { chanelPath: '/x', channelAuth: 'body' },
			pairing: { trustedOrigins: ['https://a.example', 7] },
			baseUrl: 'http://id.example.com',
		});
		const [plain, json] = await Promise.all([
			home.agent(['config', 'check']),
			home.agent(['config', 'check', '--json']),
		]);
		const desired = [
			/heartbeatCadance is not a setting; did you mean heartbeatCadence\?/,
			/heartbeatCadence must be at least 1/,
			/service\.chanelPath is not a setting; did you mean service\.channelPath\?/,
			/service\.channelAuth must be "header", "query" or "queryToken"/,
			/pairing\.trustedOrigins \[1\] must be a text/,
			/baseUrl must begin with https:\/\//,
		];
		const lines = plain.stderr.trimEnd().split('\n');
		expect(lines).toHaveLength(desired.length);
		for (const [index, words] of desired.entries()) {
			expect(lines[index]).toMatch(/^Error: .*config\.json: .* \[settings-invalid\]$/);
			expect(lines[index]).toMatch(words);
		}
		expect(plain).toMatchObject({ status: 78, stdout: '' });
		expect(JSON.parse(json.stdout)).toMatchObject({
			valid: false,
			problems: desired.map(() => ({ code: 'settings-invalid' })),
		});
		expect(json).toMatchObject({ status: 78, stderr: '' });
	});

	test.each([{}, { heartbeatCadence: 0 }, { local: { http: { applicationsFile: '/nowhere' } } }])(
		'ends with 78 for the headers of telemetry, too, beside %j [F1401]',
		async (other) => {
			const telemetry = { otlpUrl: 'https://metrics.example.com/', headersFile: '/nowhere' };
			const home = await givenHome({ ...other, telemetry });
			for (const json of [[], ['--json']]) {
				const { status, stdout, stderr } = await home.agent(['config', 'check', ...json]);
				expect(status).toBe(78);
				expect(stdout + stderr).toContain('telemetry.headersFile /nowhere cannot be read');
			}
		},
	);

	test('says where a mistake stands: the value, an entry of a list, what stands in the way of a group', async () => {
		const home = await givenHome(
			'{\n  "heartbeatCadance": 10,\n  "pairing": {\n    "trustedOrigins": [\n      "https://a.example",\n      7\n    ]\n  },\n  "service": 5,\n  "local.agentGroup": 7\n}',
		);
		const { stderr } = await home.agent(['config', 'check']);
		const places = stderr
			.trimEnd()
			.split('\n')
			.map((line) => /config\.json: (line \d+, column \d+): (\S+) /.exec(line)?.slice(1));
		expect(places).toEqual([
			['line 2, column 23', 'heartbeatCadance'],
			['line 6, column 7', 'pairing.trustedOrigins'],
			['line 9, column 14', 'service'],
			['line 10, column 23', 'local.agentGroup'],
		]);
	});

	const IS_NOT_TEXT = 'must be a text.';
	test.each<[what: string, settings: object, told: readonly string[]]>([
		[
			'an address beside a credential and headers',
			{ baseUrl: 7, credential: { selfRegistration: true }, service: { headersFile: '/nowhere' } },
			[
				`baseUrl ${IS_NOT_TEXT}`,
				"service.headersFile /nowhere cannot be read: it is not there (ENOENT). Put the file there, readable for the agent's user, with one header on each line, such as X-Tenant: north.",
			],
		],
		[
			'a certificate beside its key',
			{ network: { clientCertificateFile: 7, clientKeyFile: '/nowhere' } },
			[`network.clientCertificateFile ${IS_NOT_TEXT}`],
		],
		[
			'a certificate without a key',
			{ network: { clientCertificateFile: '/nowhere' } },
			['network.clientCertificateFile and network.clientKeyFile belong together: set both or none.'],
		],
		[
			'the applications beside their port',
			{ local: { http: { port: 8480, applicationsFile: 7 } } },
			[`local.http.applicationsFile ${IS_NOT_TEXT}`],
		],
		[
			'a cadence beside a limit that is compared with it',
			{ heartbeatCadence: 'x', service: { silenceLimitSeconds: 5 } },
			['heartbeatCadence must be a whole number of seconds.'],
		],
		[
			'a limit that is compared with another one',
			{ heartbeatCadence: 600, service: { silenceLimitSeconds: 'x', connectionLifeSeconds: 700 } },
			['service.silenceLimitSeconds must be a whole number.'],
		],
		[
			'a switch beside what it switches on',
			{ update: { enabled: 'yes', window: '03:00-04:00' } },
			['update.enabled must be true or false.'],
		],
	])('tells %s once [F807]', async (_, settings, told) => {
		const home = await givenHome(settings);
		const { stderr, status } = await home.agent(['config', 'check']);
		const lines = stderr.trimEnd().split('\n');
		const words = lines.map((line) => line.replace(/^Error: (\S+: line \d+, column \d+: )?|(?<=\S) \[[a-z-]+\]$/g, ''));
		expect([status, words]).toEqual([78, told]);
	});

	test('tells once that others may change the applications file [F808]', async () => {
		const home = await givenHome();
		const applicationsFile = join(home.directory, 'applications');
		await writeFile(applicationsFile, '');
		await chmod(applicationsFile, 0o666);
		await writeFile(
			join(home.directory, 'config.json'),
			JSON.stringify({ local: { http: { port: 8480, applicationsFile } } }),
		);
		const { stderr } = await home.agent(['config', 'check']);
		expect(stderr.match(/others could change it/g)).toHaveLength(1);
	});

	test('warns of what is valid and probably not meant: a name twice, a port twice, a hook that cannot run [F552]', async () => {
		const directory = await mkdtemp(join(tmpdir(), 'idv-hook-'));
		onTestFinished(() => rm(directory, { recursive: true }));
		const script = join(directory, 'on');
		await writeFile(script, '#!/bin/sh\r\nexit 0\r\n', { mode: 0o755 });
		const home = await givenHome(
			'{"page":{"port":8480},"local":{"metricsPort":8480},"heartbeatCadence":20,\n"hooks":{"onOnline":["bin/on"],"onOffline":["/nowhere/off"],"onPaired":["/etc"],"onNeedsPerson":["ls"],"onPairingFailed":["no-such-program"],"onPairingUnconfirmed":["SCRIPT"]},\n"heartbeatCadence":10,"pairing":{"trustedOrigins":["https://a.example"]}}'.replace(
				'SCRIPT',
				script,
			),
		);
		const [plain, json] = await Promise.all([
			home.agent(['config', 'check']),
			home.agent(['config', 'check', '--json']),
		]);
		expect([plain.status, plain.stdout]).toEqual([0, 'The settings are valid.\n']);
		expect(plain.stderr.replaceAll(home.directory, '')).toBe(
			[
				'Warning: /config.json: line 3, column 1: heartbeatCadence is there twice; the last one applies.',
				'Warning: local.metricsPort and page.port are the same port, 8480: only one can listen there.',
				'Warning: hooks.onOnline: bin/on is not an absolute path, and hooks run in /.',
				'Warning: hooks.onOffline: /nowhere/off cannot be run: it is not there (ENOENT).',
				'Warning: hooks.onPaired: /etc is not a file.',
				'Warning: hooks.onPairingFailed: no-such-program is not in the PATH.',
				`Warning: hooks.onPairingUnconfirmed: ${script} has Windows line ends, so that its first line does not name a program.`,
				'',
			].join('\n'),
		);
		const { valid, notices } = JSON.parse(json.stdout);
		expect([json.status, valid, notices.length]).toEqual([0, true, 7]);
	});

	test('finds a hook without a path only where hooks look for it [F639]', async () => {
		const directory = await mkdtemp(join(tmpdir(), 'idv-hook-'));
		onTestFinished(() => rm(directory, { recursive: true }));
		await writeFile(join(directory, 'on-online'), '#!/bin/sh\n', { mode: 0o755 });
		const home = await givenHome('{"hooks":{"onOnline":["on-online"],"onPaired":["ls"]}}');
		const found = async (path: string) => (await home.agent(['config', 'check'], { env: { PATH: path } })).stderr;
		expect(await found(`${directory}:${process.env['PATH']}`)).toContain(
			'hooks.onOnline: on-online is in the PATH of this shell only',
		);
		expect(await found(process.env['PATH'] ?? '')).toBe('Warning: hooks.onOnline: on-online is not in the PATH.\n');
	});

	test('opens every file that is named, and warns of limits that contradict each other and of settings without effect [F631]', async () => {
		const home = await givenHome({
			baseUrl: 'https://id.example.com',
			heartbeatCadence: 60,
			credential: { apiKeyFile: '/nowhere/key' },
			network: { caFile: '/nowhere/ca.pem' },
			page: { pinFile: '/nowhere/pin' },
			telemetry: { otlpUrl: 'https://metrics.example', headersFile: '/nowhere/headers' },
			service: { silenceLimitSeconds: 5, queryName: 'token', confirmKind: 'ping', pingKind: 'ping' },
			fleet: { publicKeys: [`ed25519:${Buffer.alloc(32).toString('base64')}`] },
		});
		const env = { IDV_AGENT_HEARTBEAT_CADENCE: '' };
		const { stdout } = await home.agent(['config', 'check', '--json'], { env });
		const { valid, problems, notices } = JSON.parse(stdout);
		const words = (told: { message: string }[]) => told.map(({ message }) => message).join('\n');
		expect(valid).toBe(false);
		for (const file of ['key', 'ca.pem', 'pin', 'headers']) expect(words(problems)).toContain(`/nowhere/${file}`);
		for (const told of [
			/service\.silenceLimitSeconds is less than two pings take: a silence of 10 s/,
			/service\.queryName has no effect: service\.channelAuth is header/,
			/service\.confirmKind is service\.pingKind as well: .* the channel is never confirmed/,
			/fleet\.publicKeys has no effect: fleet\.planUrl is not set/,
			/page\.pinFile has no effect: page\.port is not set/,
		])
			expect(words(notices)).toMatch(told);
	});

	test('beside a file that cannot be read calls no setting without effect [F1357]', async () => {
		const home = await givenHome({ page: { port: 8765, pinFile: '/nowhere/pin' } });
		const directory = join(dirname(home.configFile), 'conf.d');
		await mkdir(directory);
		for (const name of ['1.json', '2.json']) {
			const file = join(directory, name);
			await (name === '1.json' ? writeFile(file, '{"page":') : mkdir(file));
			const { stdout } = await home.agent(['config', 'check', '--json']);
			expect(JSON.parse(stdout)).toMatchObject({ valid: false, notices: [] });
			await rm(file, { recursive: true });
		}
	});

	test.each([
		['http://127.0.0.1:8080', 0, /^Warning: .*network\.proxy has no effect: baseUrl is on this device/m],
		['https://id.example.com', 0, /^$/],
		['https://id.example.com', 10, /^$/],
	])('of a proxy for %s: warns where none is asked, and not of a limit of %i s', async (baseUrl, limit, words) => {
		const service = { silenceLimitSeconds: limit };
		const home = await givenHome({ baseUrl, service, network: { proxy: 'http://proxy.example:3128' } });
		expect((await home.agent(['config', 'check'])).stderr).toMatch(words);
	});

	test('says where a file is no JSON', async () => {
		const home = await givenHome('{\n\t"workflowId": "a",\n}');
		const { status, stderr } = await home.agent(['config', 'check']);
		expect(stderr).toMatch(
			/^Error: .*config\.json: line 3, column 1: there is a comma too many before this\. \[settings-invalid\]\n$/,
		);
		expect(status).toBe(78);
	});

	test('opens the files that settings name, as the agent would', async () => {
		const home = await givenHome();
		const secret = join(home.directory, 'key');
		await writeFile(secret, 'two\nlines\n');
		await chmod(secret, 0o600);
		const authorities = join(home.directory, 'ca.pem');
		const certificate = await readFile(fixture('ca.pem'), 'utf8');
		await writeFile(authorities, certificate + certificate.replace('MII', 'AAA'));
		const half = join(home.directory, 'half.pem');
		await writeFile(half, certificate + certificate.slice(0, -40));
		const check = (...sets: string[]) =>
			home.agent([
				'config',
				'check',
				'--set',
				'baseUrl=https://id.example.com',
				...sets.flatMap((set) => ['--set', set]),
			]);
		const [missing, unusable, authority, damaged, cut, applications, both] = await Promise.all([
			check(`credential.apiKeyFile=${home.directory}/none`),
			check(`credential.apiKeyFile=${secret}`),
			check(`network.caFile=${secret}`),
			check(`network.caFile=${authorities}`),
			check(`network.caFile=${half}`),
			check('local.http.port=8766', `local.http.applicationsFile=${secret}`),
			check(`credential.apiKeyFile=${home.directory}/none`, `network.caFile=${secret}`),
		]);
		for (const [outcome, words] of [
			[missing, /none cannot be read: it is not there/],
			[unusable, /key has more than one line/],
			[authority, /network\.caFile \S+ has no readable PEM certificate/],
			[cut, /network\.caFile \S+ has 2 certificates, and number 2 is damaged/],
			[damaged, /network\.caFile \S+ has 2 certificates, and number 2 is damaged/],
			[both, /none cannot be read: it is not there[\s\S]*network\.caFile \S+ has no readable PEM certificate/],
			[applications, /applications file .*key cannot be used: line 1: it is not "name origin token"/],
		] as const) {
			expect(outcome.status).toBe(78);
			expect(outcome.stderr).toMatch(words);
		}
	});

	test('of a good file says so, and which variable was probably meant', async () => {
		const home = await givenHome({ workflowId: 'document-check' });
		// Those of flags, and one that is empty, name no setting either.
		const flags = { IDV_AGENT_CODE_CACHE: 'make', IDV_AGENT_JSON: '0', IDV_AGENT_OTHER: '' };
		const env = { IDV_AGENT_BASEURL: 'https://x.example', ...flags };
		const { status, stdout, stderr } = await home.agent(['config', 'check'], { env });
		expect({ status, stdout }).toEqual({ status: 0, stdout: 'The settings are valid.\n' });
		expect(stderr).toBe('Warning: The variable IDV_AGENT_BASEURL names no setting; did you mean IDV_AGENT_BASE_URL?\n');
	});

	test('of a file that was named and is not there is a problem', async () => {
		const home = await givenHome();
		const { status, stderr } = await home.agent(['config', 'check', '--config', join(home.directory, 'none.json')]);
		expect(stderr).toMatch(/none\.json cannot be read: it is not there/);
		expect(status).toBe(78);
	});

	test('of a --set without a value or with an unknown name names it', async () => {
		const homes = await Promise.all([givenHome(), givenHome()]);
		const outcomes = await Promise.all([
			homes[0].agent(['run', '--set', 'heartbeatCadence']),
			homes[1].agent(['run', '--set', 'heartbeat=3']),
		]);
		expectRefusal(outcomes[0], {
			status: 78,
			code: 'settings-invalid',
			words: /--set heartbeatCadence: .*whole number/,
		});
		expectRefusal(outcomes[1], { status: 78, code: 'settings-invalid', words: /--set heartbeat: .*not a setting/ });
	});
});

test.each([
	['baseUrl', 'baseUrl: must be an address.', 'must be an address.'],
	['baseUrl', '/etc/a.json: baseUrl: must be an address.', '/etc/a.json: must be an address.'],
	['baseUrl', 'credential.apiKeyFile needs baseUrl: see there.', 'credential.apiKeyFile needs baseUrl: see there.'],
])('config show leaves out the name of %s at the beginning of "%s" alone', (path, refused, words) => {
	// Nothing else is on the disk: that the value is in force since then would be said of what is refused.
	for (const since of [undefined, '2026-11-27T00:00:00.000Z']) {
		const setting = { path, value: null, source: 'default', where: null, refused, since } as never;
		expect(remarkOf(setting)).toBe(`${path}: was refused: ${words}`);
	}
});

test('a name of settings or of a provisioning file that steers terminals and has line ends is told on one line [F1371]', async () => {
	const home = await givenHome({ [STEERING]: 1, service: { [STEERING]: 1, messages: { [STEERING]: 1 } } });
	const file = join(home.directory, 'provision.json');
	await writeFile(file, JSON.stringify({ baseUrl: 'http://127.0.0.1:1', [STEERING]: 1, settings: { [STEERING]: 1 } }), {
		mode: 0o600,
	});
	for (const args of [
		['config', 'check'],
		['provision', file],
		['doctor', '--check', 'settings'],
	]) {
		const { stdout, stderr } = await home.agent(args);
		expect(stdout + stderr).toMatch(/PWN.*FAKE.* is not (?:a setting|known here)/);
		expect([args[0], steeringIn(stdout + stderr), beginsFake(stdout + stderr)]).toEqual([args[0], [], false]);
		const json = await home.agent([...args, '--json']);
		expect(steeringIn(json.stdout)).toEqual([]);
	}
});
