/**
 * Secrets of every kind planted in every place where one can come to stand; none may come out anywhere: not in the support
 * bundle, the log at its most talkative, a message, the status, or in what the kernel shows of the process.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join, resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startService } from '../../../src/service/embedded-service.runner.ts';
import { finish, follow, givenHome, type Outcome } from '../../cli/command.ts';
import { expectRefusal } from '../../cli/refusal.ts';
import { fixture } from '../../connection/network-peers.ts';

const ORIGIN = 'https://kiosk.example.com';

/** Secrets by where each was planted. */
function createGarden() {
	const planted = new Map<string, string>();
	const plant = (where: string, secret = randomBytes(18).toString('base64url')): string => {
		planted.set(where, secret);
		return secret;
	};
	return {
		planted,
		plant,
		jwt: (where: string) => {
			const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
			const body = part({ sub: where, nonce: randomBytes(12).toString('hex') });
			return plant(where, `${part({ alg: 'HS256' })}.${body}.${randomBytes(24).toString('base64url')}`);
		},
		/** Where a planted secret stands in a text, as it is or as it travels. */
		found: (text: string, except: RegExp = /^$/) =>
			[...planted].flatMap(([where, secret]) =>
				!except.test(where) && formsOf(secret).some((form) => text.includes(form)) ? [where] : [],
			),
	};
}

const formsOf = (secret: string) => [
	secret,
	encodeURIComponent(secret),
	JSON.stringify(secret).slice(1, -1),
	Buffer.from(secret).toString('base64').replace(/=+$/, ''),
];

/** What a process and those that it started show to whoever may look. */
async function readProcesses(pid: number): Promise<{ argv: string; environ: string }> {
	const read = (file: string) => readFile(`/proc/${pid}/${file}`, 'utf8');
	const children = (await read(`task/${pid}/children`)).split(' ').filter(Boolean).map(Number);
	const below = await Promise.all(children.map(readProcesses));
	return {
		argv: [await read('cmdline'), ...below.map(({ argv }) => argv)].join('\n'),
		environ: [await read('environ'), ...below.map(({ environ }) => environ)].join('\n'),
	};
}

function post(port: number, path: string, body: unknown, headers: Record<string, string> = {}): Promise<string> {
	const answered = Promise.withResolvers<string>();
	const text = JSON.stringify(body);
	const asked = request({ port, path, method: 'POST', headers: { 'content-type': 'application/json', ...headers } });
	asked.on('response', async (response) => {
		let said = '';
		for await (const chunk of response) said += chunk;
		answered.resolve(said);
	});
	asked.on('error', answered.reject);
	asked.end(text);
	return answered.promise;
}

test('forty secrets go in, and none comes out', async () => {
	const { planted, plant, jwt, found } = createGarden();
	const service = await startService({ workflows: ['document-check'] });
	onTestFinished(() => service.close());
	const home = await givenHome();
	const secretFile = async (name: string, text: string) => {
		await writeFile(join(home.directory, name), text, { mode: 0o600 });
		return join(home.directory, name);
	};

	// Credentials in files, each of its own kind.
	const apiKeyFile = await secretFile('api-key', plant('API key', service.credentials.apiKey));
	const basicFile = await secretFile('basic', `operator:${plant('password of Basic')}`);
	const connectionFile = await secretFile('connection', `Connection ${jwt('Connection of an operator')}`);
	const pinFile = await secretFile('pin', plant('PIN', String(randomInt(10_000_000, 99_999_999))));
	const key = await readFile(fixture('client.key'), 'utf8');
	const clientKeyFile = await secretFile('client.key', key);
	plant('key of the client certificate', key.split('\n')[1]);
	const application = plant('token of a browser application', randomBytes(30).toString('base64url'));
	const applicationsFile = await secretFile('applications', `kiosk ${ORIGIN} ${application}\n`);

	// A hook that says what hooks should not say, and shows what it was given to see.
	const spoken = [
		`Authorization: Bearer ${plant('Bearer in the stderr of a hook')}`,
		`Authorization: Basic ${Buffer.from(`u:${plant('Basic in the stderr of a hook')}`).toString('base64')}`,
		`sent ApiKey ${plant('ApiKey in the stderr of a hook')} and`,
		`Connection ${plant('Connection in the stderr of a hook')}`,
		`Token ${plant('Short Token in the stderr of a hook')}`,
		`{"api_key":"${plant('JSON in the stderr of a hook')}"}`,
		`password=${plant('parameter in the stderr of a hook')}`,
		`Cookie: session=${plant('cookie in the stderr of a hook')}`,
		`https://id.example.com/mobile?authorization=Token%20${plant('hand-off URL in the stderr of a hook')}&sessionId=1`,
		`postgres://kiosk:${plant('URL with a password in the stderr of a hook')}@db.example/x`,
		`see ${jwt('JWT in the stderr of a hook')}`,
		`-----BEGIN PRIVATE KEY----- ${plant('private key in the stderr of a hook')} -----END PRIVATE KEY-----`,
	];
	const seen = join(home.directory, 'seen-by-the-hook');
	const hookFile = await secretFile(
		'hook.sh',
		`env >>${seen}\ncat >/dev/null\nline=$(cat ${home.directory}/line)\necho "$line" >&2\n`,
	);
	await secretFile('line', 'nothing yet');

	const settings = {
		baseUrl: service.url,
		workflowId: 'document-check',
		credential: { apiKeyFile },
		network: {
			proxy: `http://kiosk:${plant('password of the proxy in the settings')}@proxy.example:3128`,
			clientCertificateFile: fixture('client.pem'),
			clientKeyFile,
		},
		hooks: { onNotification: ['/bin/sh', hookFile, `--token=${plant('argument of a hook')}`] },
		page: { port: 0, pinFile },
		local: { http: { port: 0, applicationsFile } },
		log: { level: 'debug' },
	};
	await home.writeSettings(settings);

	// Variables of whoever started it.
	const env = {
		...home.env,
		HTTPS_PROXY: `http://kiosk:${plant('variable: password of a proxy')}@proxy.example:3128`,
		SITE_API_TOKEN: plant('variable: token of the site'),
		KIOSK_NOTE: plant('variable: with a harmless name'),
	};
	const online = service.waitFor('device-online');
	const daemon = follow('idv-agent', ['run'], env);
	await online;
	const pageUrl = /http:\/\/127\.0\.0\.1:(\d+)/.exec(
		await daemon.untilLine(/page.*127\.0\.0\.1|127\.0\.0\.1:\d+.*page/i),
	);
	await daemon.untilLine(/"msg":"online"/);
	const saved = await readFile(join(home.stateDir, 'state.json'), 'utf8');
	plant('Connection in the state', (JSON.parse(saved) as { connections: { token: string }[] }).connections[0]?.token);
	await writeFile(
		join(home.stateDir, 'state.json.corrupt-2026'),
		`{"connections":[{"token":"${plant('Connection in a damaged state')}","obt`,
	);

	// What the service sends: notifications, also ones that are none.
	for (const line of spoken) {
		await secretFile('line', line);
		service.notify({ type: 'session.started', contents: plant(`notification ${planted.size}`) });
		await daemon.untilLine(/onNotification ended/);
	}
	service.sendRaw(`raw text with ${plant('notification that is no JSON')}`);
	service.notify({
		type: 'hand-off',
		url: `${service.url}/mobile?authorization=Token%20${plant('hand-off URL in a notification')}`,
	});

	// What people do wrong.
	const outcomes: Outcome[] = [];
	const agent = async (args: string[], input?: string) => {
		outcomes.push(await finish('idv-agent', args, env, input));
	};
	const link = (token: string) => `${service.url}/mobile?authorization=Token%20${token}&workflowId=document-check`;
	await agent(
		['pair', '-', '--replace'],
		link(plant('code that the service refuses', `tr-${randomBytes(14).toString('hex')}`)),
	);
	await agent(
		['pair', '-', '--replace'],
		`https://rogue.example/mobile?authorization=Token%20${plant('code of a stranger')}`,
	);
	await agent(['pair', '-', '--inspect'], plant('code that is none'));
	await agent(['pair', plant('code as an argument', `c${randomBytes(18).toString('base64url')}`)]);
	await agent([
		'pair',
		plant('code as an argument that looks like a flag', `-${randomBytes(18).toString('base64url')}`),
	]);
	await agent(['run', `--token=${plant('flag that there is not')}`]);
	const spent = service.createPairingCode('document-check').url;
	plant('code that was spent', new URL(spent).searchParams.get('authorization')?.slice('Token '.length));
	await agent(['pair', '-', '--replace'], spent);
	if (pageUrl) {
		const said = await post(Number(pageUrl[1]), '/api/pair', {
			code: link(plant('code on the page')),
			pin: plant('PIN that is wrong', String(randomInt(10_000_000, 99_999_999))),
		});
		outcomes.push({ status: 0, stdout: said, stderr: '' });
	}

	// What the service, and what stands in its place, says in its errors and when it closes a channel.
	const bodies = [
		{ detail: `Bearer ${plant('Bearer in an error of the service')} has expired` },
		{ message: `no key ${jwt('JWT in an error of the service')}` },
		{ error: `see https://id.example.com/x?token=${plant('URL in an error of the service')}` },
		`authorization: Basic ${Buffer.from(`u:${plant('Basic in an error of the service')}`).toString('base64')}`,
	];
	for (const body of bodies) {
		service.failNext('/ws/device', { status: 403, body }, 1);
		service.dropSockets();
		await agent(['reconnect']);
		await agent(['status']);
		await agent(['status', '--json']);
		// A person at the device reads what the service said.
		expect(outcomes.at(-1)?.stdout).toMatch(/answered 403: ./);
	}
	const back = service.waitFor('device-online');
	await agent(['reconnect']);
	await back;
	service.closeChannels(4403, `Token ${plant('reason of a close')} is over`);
	await daemon.untilLine(/4403/);
	await agent(['status']);

	// A push that names every credential at once: what is wrong is told, and the bundle has all of them to leave out.
	await home.writeSettings({ ...settings, credential: { apiKeyFile, basicFile, connectionFile } });
	await daemon.untilLine(/only one of them can be used/);
	await agent(['config', 'check']);
	await agent(['config', 'show']);
	await agent(['doctor']);
	await agent(['doctor', '--json']);
	await agent(['identity']);

	expect(planted.size).toBeGreaterThanOrEqual(40);
	expect(new Set(planted.values()).size).toBe(planted.size);

	const bundle = join(home.directory, 'bundle.tar.gz');
	await agent(['support-bundle', '--out', bundle]);
	expect(outcomes.at(-1)).toMatchObject({ status: 0, stderr: '' });
	expect((await stat(bundle)).mode & 0o777).toBe(0o600);
	const listed = execFileSync('tar', ['-tzf', bundle], { encoding: 'utf8' }).trim().split('\n');
	const files = listed.map((name) => name.replace(/^[^/]*\//, ''));
	expect(files).toEqual(
		expect.arrayContaining(['README.txt', 'status.json', 'doctor.json', 'settings.json', 'log.txt']),
	);
	const contents = execFileSync('tar', ['-xOzf', bundle], { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
	// It says something, or finding nothing would prove nothing.
	expect(contents).toMatch(/KIOSK-7[\s\S]*"msg":"online"/);
	expect(contents).toContain('READ IT BEFORE YOU SEND IT');

	const { argv, environ } = await readProcesses(daemon.pid);
	const { stdout, stderr } = await daemon.end();
	expect(stdout).toContain('"level":"debug"');
	expect({
		bundle: found(contents),
		log: found(stdout),
		errors: found(stderr),
		// Words of the service reach the person at the device as they are.
		messages: found(
			outcomes.map((outcome) => outcome.stdout + outcome.stderr).join('\n'),
			/error of the service|reason of a close/,
		),
		argv: found(argv),
		// What somebody else put into its environment is there, and is all that is there.
		environ: found(environ, /^variable: /),
		// A hook gets nothing of it.
		hook: found(await readFile(seen, 'utf8')),
		// The directory of the state is the one place, and 0600 is what guards it.
		names: found((await readdir(home.directory, { recursive: true })).join('\n')),
	}).toEqual({ bundle: [], log: [], errors: [], messages: [], argv: [], environ: [], hook: [], names: [] });
}, 120_000);

test('a bundle never takes the place of another file', async () => {
	const home = await givenHome();
	const out = join(home.directory, 'mine.tar.gz');
	await writeFile(out, 'something else');
	expectRefusal(await home.agent(['support-bundle', '--out', out]), {
		status: 74,
		code: 'bundle-unwritable',
		words: /a file already/,
	});
	expect(await readFile(out, 'utf8')).toBe('something else');
});

test('the unit leaves no core file, and no secret where the environment or the command line is shown', async () => {
	const unit = await readFile(resolve(import.meta.dirname, '../../../systemd/idv-agent.service'), 'utf8');
	expect(unit).toMatch(/^LimitCORE=0$/m);
	expect(unit).toMatch(/^ExecStart=\/usr\/bin\/idv-agent run$/m);
	expect(unit).not.toMatch(/^(?:Environment|SetCredential)=.*(?:token|secret|password|key)/im);
});
