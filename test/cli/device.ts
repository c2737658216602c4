/** A device that runs against an embedded service in this process. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { type EmbeddedService, type ServiceOptions, startService } from '../../src/service/embedded-service.ts';
import { type AtTheEnd, givenHome, type Home, type Outcome, type RunningCommand } from './command.ts';

/** The workflows that the service knows. */
export const WORKFLOWS = ['document-check', 'face-check'];

export interface Device {
	readonly service: EmbeddedService;
	readonly home: Home;
	readonly daemon: RunningCommand;
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

/** An agent that runs and is not paired. */
export async function givenDevice(options: DeviceOptions = {}): Promise<Device> {
	const { atTheEnd = onTestFinished } = options;
	const service = await startService({ workflows: WORKFLOWS, ...options.service });
	atTheEnd(() => service.close());
	const home = await givenHome(options.settings ?? { pairing: { trustedOrigins: [service.url] } }, atTheEnd);
	return asDevice(service, home, await home.run());
}

/** Paired for `document-check`, which is the pairing's to name, and online. */
export async function givenPaired(options: DeviceOptions = {}): Promise<Device> {
	const device = await givenDevice(options);
	expect(await device.pair(device.code())).toMatchObject({ status: 0 });
	return device;
}

/** Online by an API key with the workflow that the settings fix, without a pairing. */
export async function givenProvisioned(settings: object = {}): Promise<Device> {
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
	const daemon = await home.run();
	await online;
	return asDevice(service, home, daemon);
}

function asDevice(service: EmbeddedService, home: Home, daemon: RunningCommand): Device {
	return {
		service,
		home,
		daemon,
		code: (workflowId = 'document-check') => service.createPairingCode(workflowId).url,
		pair: (code, ...flags) => home.agent(['pair', '-', ...flags], { input: `${code}\n` }),
		registrations: () => service.requests.filter(({ path }) => path === '/api/device/connection').length,
	};
}
