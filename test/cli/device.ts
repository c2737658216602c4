/** A device that runs, in this process unless it is wanted apart, against an embedded service in this process. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { VERSION } from '../../src/cli/version.runner.ts';
import { startDaemon } from '../../src/daemon/daemon.runner.ts';
import { type EmbeddedService, type ServiceOptions, startService } from '../../src/service/embedded-service.runner.ts';
import { choosePaths } from '../../src/settings/paths.runner.ts';
import { type AtTheEnd, givenHome, type Home, type Outcome, type RunningCommand } from './command.ts';

/** The workflows that the service knows. */
export const WORKFLOWS = ['document-check', 'face-check'];

type Ending = { end(): Promise<unknown> };

export interface Device<Daemon = Ending> {
	readonly service: EmbeddedService;
	readonly home: Home;
	readonly daemon: Daemon;
	/** A fresh code; `null` for one that names no workflow. */
	code(workflowId?: string | null): string;
	/** Pipes a code into `idv-agent pair`. */
	pair(code: string, ...flags: string[]): Promise<Outcome>;
	/** How often the service was asked for a Connection. */
	registrations(): number;
}

export interface DeviceOptions {
	/** Default: trusts the service. */
	readonly settings?: unknown;
	readonly service?: ServiceOptions;
	readonly atTheEnd?: AtTheEnd;
}

/** How the agent runs: `asProcess` for what only a process shows. */
type Start<Daemon> = (home: Home, atTheEnd: AtTheEnd) => Promise<Daemon>;
export const asProcess: Start<RunningCommand> = (home) => home.run();

const inThisProcess: Start<Ending> = async ({ env }, atTheEnd) => {
	const daemon = await startDaemon({
		version: VERSION,
		paths: choosePaths({}, env),
		env,
		sets: [],
		logTo: { write: () => {} },
	});
	let ending: Promise<unknown> | undefined;
	const end = () => {
		ending ??= daemon.stop();
		return ending;
	};
	atTheEnd(async () => void (await end()));
	return { end };
};

/** An agent that runs and is not paired. */
export async function givenDevice(options?: DeviceOptions): Promise<Device>;
export async function givenDevice<Daemon>(options: DeviceOptions, start: Start<Daemon>): Promise<Device<Daemon>>;
export async function givenDevice(options: DeviceOptions = {}, start: Start<Ending> = inThisProcess): Promise<Device> {
	const { atTheEnd = onTestFinished } = options;
	const service = await startService({ workflows: WORKFLOWS, ...options.service });
	atTheEnd(() => service.close());
	const home = await givenHome(options.settings ?? { pairing: { trustedOrigins: [service.url] } }, atTheEnd);
	return asDevice(service, home, await start(home, atTheEnd));
}

/** Paired for `document-check`, which is the pairing's to name, and online. */
export async function givenPaired(options?: DeviceOptions): Promise<Device>;
export async function givenPaired<Daemon>(options: DeviceOptions, start: Start<Daemon>): Promise<Device<Daemon>>;
export async function givenPaired(options: DeviceOptions = {}, start: Start<Ending> = inThisProcess): Promise<Device> {
	const device = await givenDevice(options, start);
	expect(await device.pair(device.code())).toMatchObject({ status: 0 });
	return device;
}

/** Online by an API key with the workflow that the settings fix, without a pairing. */
export async function givenProvisioned(settings?: object): Promise<Device>;
export async function givenProvisioned<Daemon>(settings: object, start: Start<Daemon>): Promise<Device<Daemon>>;
export async function givenProvisioned(settings: object = {}, start: Start<Ending> = inThisProcess): Promise<Device> {
	const service = await startService({ workflows: WORKFLOWS });
	onTestFinished(() => service.close());
	const home = await givenHome();
	const apiKeyFile = join(home.directory, 'key');
	await writeFile(apiKeyFile, service.credentials.apiKey, { mode: 0o600 });
	await home.writeSettings({
		baseUrl: service.url,
		workflowId: 'document-check',
		credential: { apiKeyFile },
		...settings,
	});
	const online = service.waitFor('device-online');
	const daemon = await start(home, onTestFinished);
	await online;
	return asDevice(service, home, daemon);
}

function asDevice(service: EmbeddedService, home: Home, daemon: Ending): Device {
	return {
		service,
		home,
		daemon,
		code: (workflowId = 'document-check') => service.createPairingCode(workflowId).url,
		pair: (code, ...flags) => home.agent(['pair', '-', ...flags], { input: `${code}\n` }),
		registrations: () => service.requests.filter(({ path }) => path === '/api/device/connection').length,
	};
}
