/** What tests of `idv` share: a service for a whole file, a directory for each test, and the variables of a pipeline. */
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, beforeEach, expect, onTestFinished } from 'vitest';
import { formatAuthorization } from '../../src/protocol/authorization.ts';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { atTheEndOfAll, finish, type Outcome } from '../cli/command.ts';
import { expectJsonRefusal, expectRefusal, type WantedRefusal } from '../cli/refusal.ts';
import { credentialsOf } from '../service/fixture.ts';

type Scheme = keyof ReturnType<typeof credentialsOf>;

/** `<scheme> <credential>` of a service's own. */
export function authorizationOf(scheme: Scheme, service: EmbeddedService): string {
	return formatAuthorization(credentialsOf(service)[scheme]);
}

export interface Operator {
	/** Knows the workflows `checkin` and `checkout`. */
	readonly service: EmbeddedService;
	/** Empty when the test begins; `XDG_CONFIG_HOME` as well. */
	readonly directory: string;
	env(scheme?: Scheme, of?: EmbeddedService): Record<string, string>;
	/** Runs `idv` to its end, with Basic for the service unless told otherwise. */
	idv(args: readonly string[], env?: Record<string, string>, input?: string): Promise<Outcome>;
	/** Refused alike for people and for programs. */
	expectRefused(expected: WantedRefusal, args: readonly string[], env?: Record<string, string>): Promise<void>;
	/** Writes a file into the directory; returns its path. */
	file(name: string, content: string, mode?: number): Promise<string>;
}

/** To be called once, at the top of a file. */
export function operatorOfFile(): Operator {
	const atTheEnd = atTheEndOfAll();
	let service: EmbeddedService;
	let directory: string;
	beforeAll(async () => {
		service = await startService({ workflows: ['checkin', 'checkout'] });
		atTheEnd(() => service.close());
	});
	beforeEach(async () => {
		directory = await mkdtemp(join(tmpdir(), 'idv-operator-'));
		onTestFinished(() => rm(directory, { recursive: true, force: true }));
	});
	const operator: Operator = {
		get service() {
			return service;
		},
		get directory() {
			return directory;
		},
		env: (scheme = 'Basic', of = service) => ({
			IDV_URL: of.url,
			IDV_AUTHORIZATION: authorizationOf(scheme, of),
			XDG_CONFIG_HOME: directory,
		}),
		idv: (args, env = operator.env(), input) => finish('idv', args, env, input),
		async expectRefused(expected, args, env) {
			const [plain, json] = await Promise.all([operator.idv(args, env), operator.idv([...args, '--json'], env)]);
			expectRefusal(plain, expected);
			expectJsonRefusal(json, expected);
		},
		async file(name, content, mode = 0o600) {
			const path = join(directory, name);
			await writeFile(path, content);
			await chmod(path, mode);
			return path;
		},
	};
	return operator;
}

/** `600`. */
export async function modeOf(path: string): Promise<string> {
	return ((await stat(path)).mode & 0o777).toString(8);
}

/** The JSON of a command that went well and had nothing to complain about. */
// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
export function succeeded({ status, stdout, stderr }: Outcome): any {
	expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
	return JSON.parse(stdout);
}
