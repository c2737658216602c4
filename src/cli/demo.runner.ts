/** `idv-agent demo`, which `npm start` runs: the real agent and the embedded service, told step by step. */
import { existsSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { styleText } from 'node:util';
import { makeTemporaryDirectory } from '../base/files.edge.ts';
import { createLocalClient, type LocalClient } from '../client/local-client.edge.ts';
import { type Daemon, startDaemon } from '../daemon/daemon.runner.ts';
import { formatAuthorization } from '../protocol/authorization.ts';
import { ENDPOINTS, endpointUrl } from '../protocol/endpoints.ts';
import type { HandOffRecord } from '../protocol/hand-off.ts';
import { LOCAL_ROUTES, type PairResult } from '../protocol/local-api.ts';
import { readSingleCode } from '../scanning/picture-reader.edge.ts';
import { type EmbeddedService, startService } from '../service/embedded-service.runner.ts';
import { renderQrTerminal } from '../service/qr-code.runner.ts';
import { choosePaths } from '../settings/paths.runner.ts';
import { isPlain, openScreen } from './demo-screen.runner.ts';
import type { Shell } from './output.runner.ts';
import { statusWhen } from './run.ts';
import { VERSION } from './version.runner.ts';

/** Each step of the story has this long. */
const STEP_MS = 20_000;
const WORKFLOWS = ['document-check', 'face-check'] as const;
const PICTURE = 'demo-pairing-code.png';

interface DemoContext {
	readonly shell: Shell;
	readonly service: EmbeddedService;
	readonly daemon: Daemon;
	readonly client: LocalClient;
	readonly runDir: string;
}

export async function demo(shell: Shell, flags: { readonly once?: boolean | undefined }): Promise<void> {
	// Fails before anything starts where that directory is gone.
	process.cwd();
	const startedAt = performance.now();
	const directory = makeTemporaryDirectory('idv-agent-demo-');
	let current = 'start';
	let isDone = false;
	let isStopped = false;
	const cleanup: (() => Promise<unknown>)[] = [() => rm(directory, { recursive: true, force: true })];
	const end = async () => {
		for (const step of cleanup.splice(0).reverse()) await step().catch(() => {});
	};
	// From the first moment, so that an interrupted story leaves no directory behind; npm may pass a signal on a second time.
	const stop = () => {
		if (isStopped) return;
		isStopped = true;
		void end().finally(() => process.exit(isDone ? 0 : 75));
	};
	process.on('SIGINT', stop);
	process.on('SIGTERM', stop);
	const step = async <Result>(title: string, run: () => Promise<Result>): Promise<Result> => {
		current = title;
		shell.line(`\n▸ ${title}`);
		return withDeadline(run(), title);
	};

	try {
		const context = await step('A service starts on this machine', () => startBoth(shell, directory, cleanup));
		const picture = await step('It makes a pairing code', () => makeCode(context, directory));
		await step('The agent reads the picture like a scanner, and pairs', () => pairByPicture(context, picture));
		await step('The device is online and sends heartbeats', () => showOnline(context));
		await step('A backend starts a session; the device is notified', () => startSession(context));
		await step('The workflow changes, and the device is never offline', () => changeWorkflow(context));
		await step('The service closes its port for a second; the agent reconnects automatically', () =>
			restartService(context),
		);
		const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
		shell.line(`\nThat was the whole story, in ${seconds} s.`);
		if (!flags.once && shell.caller.stdout.isTTY) {
			isDone = true;
			return await invite(context, directory, { cleanup, stop });
		}
		if (!flags.once) shell.line('On a terminal it stays up, with lines to paste and keys to press.');
		return await end();
	} catch (error) {
		if (isStopped) return;
		shell.caller.stderr.write(
			`\nThe demo failed at "${current}": ${error instanceof Error ? error.message : String(error)}\n`,
		);
		await end();
		shell.caller.exitCode = 70;
	}
}

async function startBoth(shell: Shell, directory: string, cleanup: (() => Promise<unknown>)[]): Promise<DemoContext> {
	const service = await startService({ workflows: [...WORKFLOWS] });
	cleanup.push(() => service.close());
	say(shell, `The embedded service listens at ${service.url} and knows the workflows ${WORKFLOWS.join(' and ')}.`);
	const paths = choosePaths({ stateDir: join(directory, 'state'), runDir: join(directory, 'run') }, {});
	const daemon = await startDaemon({
		version: VERSION,
		paths: { ...paths, configFile: join(directory, 'config.json'), confDirectory: join(directory, 'conf.d') },
		env: {},
		// Without a serial number of its own the machine of a newcomer still gets a name that is easy to read.
		sets: ['heartbeatCadence=2', 'deviceId=demo-kiosk', 'log.level=error', 'page.port=0', ...OWN_GROUPS],
	});
	cleanup.push(() => daemon.stop());
	say(shell, `The agent runs. ${daemon.agent.status().sentence}`);
	if (daemon.addresses.page) say(shell, `Its page for the device's own screen is at ${daemon.addresses.page}`);
	return { shell, service, daemon, client: createLocalClient({ runDir: paths.runDir }), runDir: paths.runDir };
}

/** The groups of an installed device are not there on a newcomer's machine: the sockets stay this user's own. */
const OWN_GROUPS = [`local.agentGroup=${process.getgid?.() ?? 0}`, `local.adminGroup=${process.getgid?.() ?? 0}`];

/** @returns where the picture of the code is. */
async function makeCode({ shell, service }: DemoContext, directory: string): Promise<string> {
	const query = new URLSearchParams({ workflowId: WORKFLOWS[0] });
	const url = endpointUrl(service.url, ENDPOINTS.pairingCode, query);
	const authorization = formatAuthorization({ scheme: 'Basic', ...service.credentials.basic });
	const answer = await fetch(url, { headers: { authorization, accept: 'image/png' } });
	const bytes = Buffer.from(await answer.arrayBuffer());
	const save = async (path: string) => {
		await writeFile(path, bytes, { mode: 0o600 });
		return path;
	};
	// The working directory may not be writable.
	const picture = await save(resolve(PICTURE)).catch(() => save(join(directory, PICTURE)));
	say(shell, `GET ${url.pathname}${url.search} answered with a picture, saved as ${picture}.`);
	say(shell, 'It looks like this; it works once, and for five minutes:');
	shell.line();
	shell.drawn(`${renderQrTerminal(await readSingleCode(picture), plain(shell))}\n`);
	return picture;
}

async function pairByPicture({ shell, service, client }: DemoContext, picture: string): Promise<void> {
	const code = await readSingleCode(picture);
	say(shell, 'Read: a deep link with a Short Token. The host is shown and confirmed before anything is spent.');
	const asked = { code, trustOrigin: new URL(service.url).origin };
	const paired = await client.request('admin', 'POST', LOCAL_ROUTES.pair, asked, { deadlineMs: STEP_MS });
	const { deviceId, workflowId } = paired as PairResult;
	say(shell, `Registered as ${deviceId} for workflow ${workflowId}; the Connection is saved.`);
}

async function showOnline({ shell, service, daemon }: DemoContext): Promise<void> {
	const heartbeat = service.waitFor('heartbeat', undefined, STEP_MS);
	const status = await statusWhen(daemon.agent, ({ state }) => state === 'online');
	say(shell, status.sentence);
	const { heartbeat: frame } = await heartbeat;
	say(shell, `The service received a heartbeat over ws/device: ${JSON.stringify(frame)}`);
}

async function startSession({ shell, service, daemon }: DemoContext): Promise<void> {
	const heard = nextEvent(daemon, 'session.started');
	const url = endpointUrl(service.url, ENDPOINTS.sessionStart, new URLSearchParams({ workflowId: WORKFLOWS[0] }));
	const authorization = formatAuthorization({ scheme: 'ApiKey', credential: service.credentials.apiKey });
	const response = await fetch(url, {
		method: 'POST',
		headers: { authorization, 'content-type': 'application/json' },
		body: JSON.stringify({ metadata: { visitor: 'V-104' }, ttl: 600 }),
	});
	const record = (await response.json()) as HandOffRecord;
	say(shell, `POST ${url.pathname} answered ${response.status}: the hand-off URL ends at ${record.expiresAt}.`);
	const { id, kind, content } = await heard;
	const { sessionId } = JSON.parse(content) as { sessionId: string };
	say(shell, `The kiosk application gets event ${id}: ${kind}, session ${sessionId}.`);
}

async function changeWorkflow({ shell, client, service, daemon }: DemoContext): Promise<void> {
	const offline: string[] = [];
	const stop = daemon.agent.onStatus(() => {
		const { state, sentence } = daemon.agent.status();
		if (state !== 'online') offline.push(sentence);
	});
	const stopListening = service.on('device-offline', ({ reason }) => offline.push(reason));
	await client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId: WORKFLOWS[1] });
	const status = await statusWhen(daemon.agent, ({ workflow }) => workflow.live === WORKFLOWS[1]);
	stop();
	stopListening();
	if (offline.length > 0) throw new Error(`the device was offline in between: ${offline.join('; ')}`);
	say(shell, status.sentence);
	say(shell, 'The new link was online before the old one was closed: neither side saw the device offline.');
}

async function restartService({ shell, service, daemon }: DemoContext): Promise<void> {
	const gone = statusWhen(daemon.agent, ({ state }) => state === 'offline');
	const back = service.restart({ downMs: 1000, hard: true });
	say(shell, 'It keeps its signing key and its list of devices, as a service with a database does.');
	const { problem } = await gone;
	say(shell, `Offline: ${problem?.message ?? 'the service is away.'} ${problem?.remedy ?? ''}`.trim());
	await back;
	const status = await statusWhen(daemon.agent, ({ state }) => state === 'online');
	say(shell, `${status.sentence} Reconnects: ${status.channel.reconnects}.`);
}

const plain = (shell: Shell) => isPlain(shell.caller.stdout.isTTY, shell.env);
const now = () => new Date().toISOString().slice(11, 19);

/** The part of the screen that stays: what to open, what to paste, what to press. */
function invitationOf({ shell, service, daemon, runDir }: DemoContext, keyFile: string): string[] {
	const command = (name: string) => (existsSync(`bin/${name}`) ? `bin/${name}` : name);
	const status = daemon.agent.status();
	const target = `--workflow ${status.workflow.live ?? WORKFLOWS[0]} --url ${service.url} --authorization-file ${keyFile}`;
	const bold = (text: string) => (plain(shell) ? text : styleText('bold', text));
	const seconds = Math.round((Date.now() - Date.parse(status.channel.since ?? '')) / 1000);
	// The sentence of an outage counts its seconds, and begins at 0.
	const sentence = status.state === 'offline' && seconds < 2 ? `Offline: ${status.problem?.message}` : status.sentence;
	return [
		'',
		bold(sentence),
		'',
		`${bold('Open this page')}      ${daemon.addresses.page ?? 'none: its port could not be opened'}`,
		`${bold('Start a session')}     ${command('idv')} session start ${target}`,
		`${bold('Make a code')}         ${command('idv')} qrcode ${target}`,
		`${bold('Read as the kiosk')}   ${command('idv-agent')} events --follow --run-dir ${runDir}`,
		'',
		`${bold('r')} restarts the service, ${bold('w')} changes the workflow, ${bold('q')} ends`,
	];
}

async function invite(
	context: DemoContext,
	directory: string,
	{ cleanup, stop }: { cleanup: (() => Promise<unknown>)[]; stop: () => void },
): Promise<void> {
	const { shell, service, daemon, client } = context;
	const keyFile = join(directory, 'key');
	await writeFile(keyFile, `ApiKey ${service.credentials.apiKey}\n`, { mode: 0o600 });
	let isBusy = false;
	const run = (what: string, action: () => Promise<unknown>) => {
		if (isBusy) return;
		isBusy = true;
		screen.say(`${now()}  ${what}`);
		const failed = (error: unknown) =>
			screen.say(`${now()}  ${error instanceof Error ? error.message : String(error)}`);
		void action()
			.catch(failed)
			.finally(() => {
				isBusy = false;
			});
	};
	const keys: Record<string, () => void> = {
		r: () => run('You restart the service: it is away for 3 s.', () => service.restart({ downMs: 3000, hard: true })),
		w() {
			const workflowId = WORKFLOWS.find((id) => id !== daemon.agent.status().workflow.wanted) ?? WORKFLOWS[0];
			const change = () => client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId });
			run(`You change the workflow to ${workflowId}.`, change);
		},
		q: stop,
	};
	const screen = openScreen(
		{ out: shell.caller.stdout, keys: shell.caller.stdin, env: shell.env },
		() => invitationOf(context, keyFile),
		(key) => keys[key]?.(),
	);
	let last = daemon.agent.status().state;
	const stopWatching = daemon.agent.onStatus(() => {
		const { state, problem } = daemon.agent.status();
		if (state !== last)
			screen.say(`${now()}  ${state === 'offline' ? `Offline: ${problem?.message}` : `Now ${state}.`}`);
		last = state;
		screen.draw();
	});
	const unsubscribe = daemon.agent.events.subscribe((entries) => {
		for (const { id, kind } of entries) screen.say(`${now()}  Event ${id}: ${kind}`);
	});
	// First of all: an agent that stops is unpaired for a moment.
	cleanup.push(async () => {
		stopWatching();
		unsubscribe();
		screen.close();
	});
}

function nextEvent({ agent }: Daemon, kind: string): Promise<{ id: string; kind: string; content: string }> {
	return new Promise((done) => {
		const stop = agent.events.subscribe((entries) => {
			const entry = entries.find((one) => one.kind === kind);
			if (!entry) return;
			stop();
			done(entry);
		});
	});
}

function withDeadline<Result>(running: Promise<Result>, title: string): Promise<Result> {
	const { promise, reject } = Promise.withResolvers<never>();
	const timer = setTimeout(() => reject(new Error(`${title}: nothing happened within ${STEP_MS / 1000} s`)), STEP_MS);
	return Promise.race([running, promise]).finally(() => clearTimeout(timer));
}

function say(shell: Shell, text: string): void {
	shell.line(`  ${text}`);
}
