import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, openSync, writeSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { ENDPOINTS } from '../../src/protocol/endpoints.ts';
import {
	DEVICE_ID,
	givenAgent,
	givenHome,
	givenPairedAgent,
	type RunningAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { credentialsOf, givenService, registerDevice, send } from '../service/fixture.ts';

const REGISTER = { method: 'POST', path: ENDPOINTS.deviceConnection };

/** Takes all the room that the file system of a directory has. */
function fillUp(directory: string): void {
	const filler = openSync(join(directory, 'filler'), 'w');
	expect(() => {
		for (;;) writeSync(filler, Buffer.alloc(1024));
	}).toThrow('ENOSPC');
	closeSync(filler);
}

/** What a refused pairing said. */
async function refusalOf(pairing: Promise<unknown>): Promise<AgentError['failure']> {
	const error = await pairing.then(
		() => null,
		(reason: unknown) => reason,
	);
	if (error instanceof AgentError) return error.failure;
	throw new Error('The pairing was not refused as it should be.', { cause: error });
}

describe('a Short Token', () => {
	test('takes a new device online [F096]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		expect(device.agent.status()).toMatchObject({ state: 'unpaired', problem: null, workflow: { wanted: null } });
		const code = service.createPairingCode('check-in');
		const result = await device.pair(code.url);
		expect(result).toMatchObject({ deviceId: DEVICE_ID, workflowId: 'check-in', online: true, sessionId: null });
		const status = await device.untilLive('check-in');
		expect(status).toMatchObject({
			state: 'online',
			deviceId: DEVICE_ID,
			baseUrl: service.url,
			workflow: { wanted: 'check-in', live: 'check-in', source: 'pairing' },
			problem: null,
			warnings: [],
		});
		expect(service.devices()).toMatchObject([{ deviceId: DEVICE_ID, workflowId: 'check-in', online: true }]);
		expect(await device.home.untilSaved()).toMatchObject({ attempt: null, connections: [{ baseUrl: service.url }] });
		expect(await device.home.filesWith(code.token)).toEqual([]);
	});

	test('is redeemed once for all who bring it meanwhile, and its outcome is reported once', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const outcomes: unknown[] = [];
		const stop = device.agent.onPairing((outcome) => outcomes.push(outcome));
		const release = service.hold(REGISTER);
		const code = service.createPairingCode('check-in').url;
		const first = device.pair(code);
		await release.received;
		const second = device.agent.pair({ code: `${code}\n` });
		release();
		expect(await second).toEqual(await first);
		expect(registrations(service)).toEqual([201]);
		expect(outcomes).toEqual([{ kind: 'paired', result: await first }]);
		const failure = await refusalOf(device.pair(service.createPairingCode('boarding').url));
		expect(outcomes.slice(1)).toEqual([{ kind: 'failed', failure }]);
		stop();
		await refusalOf(device.pair(code));
		expect(outcomes).toHaveLength(2);
	});

	test('brings its Connection from where `service.tokenPointer` says that the answer has it', async () => {
		const service = await givenService();
		const device = await givenAgent({ settings: { service: { tokenPointer: '/data/session/key' } } });
		const token = 'connection-token-deep-in-the-answer';
		service.failNext(REGISTER, { status: 201, body: { token: 'not-this-one', data: { session: { key: token } } } });
		await device.pair(service.createPairingCode('check-in').url);
		expect(await device.home.savedToken()).toBe(token);
	});

	test.each([503, 403, 401])(
		'brought again to the device that it has paired and whose channel is refused with %i is told as that, and not sent [F1131]',
		async (status) => {
			const service = await givenService();
			const device = await givenAgent();
			service.failNext('/ws/device', { status }, 30);
			const code = service.createPairingCode('check-in').url;
			expect(await device.pair(code)).toMatchObject({ online: false });
			const sent = registrations(service).length;
			for (const replace of [false, true]) {
				const refusal = await refusalOf(device.pair(code, { replace }));
				expect(refusal).toMatchObject({ code: 'already-paired', params: { pairingCode: 'used' } });
				expect(refusal.message).toMatch(/^This device is paired with this code already, and nothing was sent\. /);
				expect(refusal.message).toContain(device.agent.status().problem?.message);
				if (status !== 401) expect(refusal.remedy).toMatch(/^No other code is needed\./);
			}
			expect(registrations(service)).toHaveLength(sent);
		},
	);

	const QUOTA = 'device quota reached';
	test.each([
		{ status: 'error', message: QUOTA },
		{ success: false, message: QUOTA },
		...[
			{ denied: true },
			{ result: 'denied' },
			{ ok: 0 },
			{ success: 'false' },
			{ statusCode: 403 },
			{ code: 40_301 },
		].map((no) => ({ ...no, message: QUOTA })),
	])(
		'whose answer refuses the registration and has a token as well is told as refused where no channel opens with that, and can be tried again [F1772]',
		async (body) => {
			const service = await givenService();
			const device = await givenAgent();
			service.failNext(REGISTER, { status: 200, body: { ...body, token: '0123456789abcdef0123456789abcdef' } });
			const code = service.createPairingCode('check-in').url;
			const refusal = await refusalOf(device.pair(code));
			expect(refusal).toMatchObject({ code: 'request-rejected', params: { pairingCode: 'uncertain' } });
			expect(refusal.message).toMatch(
				/has not registered this device: device quota reached\. The code may have been used\.$/,
			);
			expect(refusal.remedy).toMatch(/^Compare the device settings .*Try the same code again;/);
			const { sentence, problem } = device.agent.status();
			expect(sentence).toContain(QUOTA);
			expect(problem).toMatchObject({ message: refusal.message, remedy: refusal.remedy });
			expect(await device.pair(code)).toMatchObject({ online: true });
			expect(device.agent.status()).toMatchObject({ problem: null });
		},
	);

	test('whose answer refuses the registration beside a token is told with the words of that after a restart as well, and can be tried again [F1807]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const no = { success: false, message: QUOTA, token: '0123456789abcdef0123456789abcdef' };
		service.failNext(REGISTER, { status: 200, body: no });
		const code = service.createPairingCode('check-in').url;
		const refusal = await refusalOf(device.pair(code));
		await device.stop();
		const again = await givenAgent({ home: device.home });
		const told = { message: refusal.message, remedy: refusal.remedy };
		await expect.poll(() => again.agent.status().problem).toMatchObject(told);
		expect(await again.pair(code)).toMatchObject({ online: true });
	});

	test('whose answer says no beside a token that works takes the device online [F1774]', async () => {
		const service = await givenService();
		const device = await givenAgent({ settings: { deviceId: DEVICE_ID } });
		const token = await registerDevice(service, DEVICE_ID, 'check-in');
		service.failNext(REGISTER, { status: 200, body: { success: false, message: QUOTA, token } });
		const told = await device.pair(service.createPairingCode('check-in').url);
		expect(told).toMatchObject({ online: true, sentence: expect.stringMatching(/^Online with /) });
		// Once it has worked, a refusal later is told as any other.
		const kept = async () => (await device.home.untilSaved()).connections.at(-1);
		await expect.poll(kept).toEqual(expect.objectContaining({ worked: true }));
		expect(await kept()).not.toHaveProperty('said');
	});

	test('of another service that gave the same one is another code [F1351]', async () => {
		const [service, other] = [await givenService(), await givenService()];
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		await device.pair(code);
		const theirs = code.replace(service.url, other.url);
		expect(await refusalOf(device.pair(theirs, { replace: true }))).toMatchObject({ code: 'code-expired-or-used' });
		expect(registrations(other)).toEqual([401]);
	});

	test('works once: the same code is refused the second time, and nothing changes [F084]', async () => {
		const service = await givenService();
		const code = service.createPairingCode('check-in');
		const first = await givenAgent();
		await first.pair(code.url);
		const second = await givenAgent({ machine: { 'sys/class/dmi/id/product_serial': 'KIOSK-0002\n' } });
		const refusal = await refusalOf(second.pair(code.url));
		expect(refusal).toMatchObject({ code: 'code-expired-or-used' });
		expect(refusal.message).toContain('used before');
		expect(second.agent.status().state).toBe('unpaired');
		expect(await second.home.untilSaved()).toMatchObject({ attempt: { isPast: true }, connections: [], pairing: null });
	});

	test('that has expired is refused with what to do', async () => {
		let nowMs = Date.now();
		const service = await givenService({ now: () => nowMs, shortTokenTtlSeconds: 60 });
		const device = await givenAgent();
		const code = service.createPairingCode('check-in');
		nowMs += 61_000;
		const refusal = await refusalOf(device.pair(code.url));
		expect(refusal).toMatchObject({
			code: 'code-expired-or-used',
			remedy: expect.stringContaining('new pairing code'),
		});
		expect(refusal.message).toContain('expired');
	});

	test('that nobody has issued is refused', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = `${service.url}/mobile?authorization=Token%20tr-${'x'.repeat(28)}&workflowId=check-in`;
		expect(await refusalOf(device.pair(code))).toMatchObject({ code: 'code-expired-or-used' });
		expect(registrations(service)).toEqual([401]);
	});

	test('survives a workflow that the service does not know', async () => {
		const service = await givenService({ workflows: ['check-in'] });
		const device = await givenAgent();
		const code = service.createPairingCode(null).url;
		expect(await refusalOf(device.pair(code))).toMatchObject({ code: 'workflow-missing' });
		expect(registrations(service)).toEqual([422]);
		const refusal = await refusalOf(device.pair(code, { workflowId: 'chek-in' }));
		expect(refusal).toMatchObject({ code: 'workflow-unknown', message: expect.stringContaining('chek-in') });
		expect(await device.home.untilSaved()).toMatchObject({ assignedWorkflow: null });
		expect(await device.pair(code, { workflowId: 'check-in' })).toMatchObject({ online: true });
	});

	test('of a hand-off names a session, which becomes an event and stands in the status', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const answer = await send(service.url, {
			path: `${ENDPOINTS.sessionStart}?workflowId=check-in`,
			authorization: credentialsOf(service).ApiKey,
			body: {},
		});
		const sessionId = new URL(answer.json.url).searchParams.get('sessionId') ?? '';
		expect(sessionId).toMatch(/^[0-9a-f]{24}$/);
		expect(await device.pair(answer.json.url, { workflowId: 'check-in' })).toMatchObject({ sessionId, online: true });
		const event = await device.untilEvent(({ type }) => type === 'session');
		expect(JSON.parse(event.content)).toEqual({ sessionId, workflowId: 'check-in' });
		expect(device.agent.status().sessionId).toBe(sessionId);
	});
});

describe('a code without a workflow, at a service that lists its workflows', () => {
	const workflowNames = { 'check-in': 'Check in', 'check-out': 'Check out', 'check-out-2': 'Again' };
	const dialect = { workflowNames, codesNameWorkflow: false, configurationPath: '/somewhere/else' };

	test('is completed by the only one that it is good for', async () => {
		const service = await givenService({ dialect });
		const device = await givenAgent();
		const code = service.createPairingCode('check-out').url;
		expect(code).not.toContain('workflowId');
		expect(await device.pair(code)).toMatchObject({ workflowId: 'check-out', online: true });
		expect(registrations(service)).toEqual([422, 201]);
		expect(await device.home.untilSaved()).toMatchObject({
			attempt: null,
			assignedWorkflow: { workflowId: 'check-out', source: 'pairing' },
		});
	});

	test.each(['check-out', 'Check out', 'CHECK OUT'])('is refused with the list, and pairs by %s', async (named) => {
		const service = await givenService({ dialect });
		const device = await givenAgent();
		const code = service.createPairingCode(null).url;
		const refusal = await refusalOf(device.pair(code));
		expect(refusal).toMatchObject({
			code: 'workflow-missing',
			message: expect.stringMatching(
				/offers: Check in \(check-in\), Check out \(check-out\), Again \(check-out-2\)\.$/,
			),
			remedy: expect.stringContaining('The code was not used and stays valid.'),
		});
		expect(JSON.parse(String(refusal.params?.['workflows']))).toEqual(
			Object.entries(workflowNames).map(([id, name]) => ({ id, name })),
		);
		expect(await refusalOf(device.pair(code, { workflowId: 'Chek out' }))).toMatchObject({
			code: 'workflow-unknown',
			message: expect.stringContaining('does not know the workflow Chek out (404). '),
			params: { workflows: refusal.params?.['workflows'] },
		});
		expect(await device.pair(code, { workflowId: named })).toMatchObject({ workflowId: 'check-out', online: true });
	});

	test('is refused with 300 workflows, each of which can be chosen; of more, it says how many', async () => {
		const names = (count: number) =>
			Object.fromEntries(Array.from({ length: count }, (_, index) => [`w-${index}`, `Desk ${index}`]));
		for (const count of [300, 700]) {
			const service = await givenService({ dialect: { ...dialect, workflowNames: names(count) } });
			const device = await givenAgent();
			const code = service.createPairingCode(null).url;
			const { params, message } = await refusalOf(device.pair(code));
			expect(JSON.parse(String(params?.['workflows']))).toHaveLength(Math.min(count, 500));
			expect(params?.['moreWorkflows']).toBe(count > 500 ? count - 500 : undefined);
			expect(message).toContain(`${count - 20} more`);
			expect(await device.pair(code, { workflowId: 'Desk 249' })).toMatchObject({ workflowId: 'w-249' });
		}
	});

	test('is told as expired, and not as incomplete, when it is', async () => {
		const service = await givenService({ dialect });
		const device = await givenAgent();
		const code = `${service.url}/mobile?authorization=Token%20tr-${'x'.repeat(28)}`;
		expect(await refusalOf(device.pair(code))).toMatchObject({ code: 'code-expired-or-used' });
	});

	test('a workflow that the settings name is never exchanged for one of the same name', async () => {
		const service = await givenService({ dialect });
		const device = await givenAgent({ settings: { workflowId: 'Check out' } });
		expect(await refusalOf(device.pair(service.createPairingCode(null).url))).toMatchObject({
			code: 'workflow-unknown',
		});
	});
});

describe('an answer that is lost after the code was sent', () => {
	async function givenLostAnswer() {
		const service = await givenService();
		const device = await givenAgent();
		service.dropBeforeReply(REGISTER);
		const code = service.createPairingCode('check-in');
		const refusal = await refusalOf(device.pair(code.url));
		return { service, device, code, refusal };
	}

	test('is told as it is, written down, and never sent again [F012]', async () => {
		const { service, device, code, refusal } = await givenLostAnswer();
		expect(refusal).toMatchObject({
			code: 'pairing-uncertain',
			remedy: expect.stringContaining('whether the device is listed'),
		});
		expect(refusal.message).toContain('may have used the code up');
		expect(await device.home.untilSaved()).toMatchObject({
			// Enough to tell two codes apart, too little to try others against.
			attempt: { host: new URL(service.url).host, tokenHash: expect.stringMatching(/^[0-9a-f]{16}$/) },
			connections: [],
		});
		expect(await device.home.filesWith(code.token)).toEqual([]);
		device.clock.advance(24 * 3_600_000);
		expect(registrations(service)).toEqual([null]);
		expect(device.agent.status()).toMatchObject({ state: 'unpaired' });
		expect(device.agent.status().sentence).toMatch(/no usable answer.*listed.*new code/);
	});

	test('is still known after a restart, and a new code works [F093]', async () => {
		const { service, device } = await givenLostAnswer();
		await device.stop();
		const again = await givenAgent({ home: device.home });
		expect(again.agent.status().sentence).toContain('no usable answer');
		expect(registrations(service)).toEqual([null]);
		await again.pair(service.createPairingCode('check-in').url);
		await again.untilLive('check-in');
		expect(await again.home.untilSaved()).toMatchObject({ attempt: null });
	});

	test('does not keep the same code from being tried by a person: the service decides', async () => {
		const { device, code } = await givenLostAnswer();
		expect(await refusalOf(device.pair(code.url))).toMatchObject({ code: 'code-expired-or-used' });
	});

	test('also when it breaks off in the middle', async () => {
		const service = await givenService();
		const device = await givenAgent();
		service.replyThenDrop(REGISTER);
		const refusal = await refusalOf(device.pair(service.createPairingCode('check-in').url));
		expect(refusal.code).toBe('pairing-uncertain');
	});

	test('by a service that fails is uncertain as well', async () => {
		const service = await givenService();
		const device = await givenAgent();
		service.failNext(REGISTER, { status: 502 });
		const refusal = await refusalOf(device.pair(service.createPairingCode('check-in').url));
		expect(refusal.code).toBe('pairing-uncertain');
		expect(refusal.message).toContain('502');
	});
});

describe('nothing is spent', () => {
	test('when the service cannot be reached: the code stays valid and works later [F013]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		const back = Promise.withResolvers<void>();
		const restarted = service.restart({ until: back.promise, hard: true });
		const refusal = await refusalOf(device.pair(code));
		expect(refusal).toMatchObject({ code: 'service-unreachable' });
		expect(refusal.message).toContain('The code was not sent.');
		expect(refusal).toMatchObject({
			remedy:
				'Check that the service runs and listens on this port, and the port in baseUrl; a firewall may refuse it, too. Then scan the code again.',
			params: { host: new URL(service.url).host },
		});
		// An unpaired device reconnects nowhere.
		expect(refusal.recovers ?? false).toBe(false);
		expect(await device.home.untilSaved()).toMatchObject({ attempt: null });
		back.resolve();
		await restarted;
		expect(await device.pair(code)).toMatchObject({ online: true });
	});

	test('that is spent already is not called valid by a refusal that asks no service [F1365]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		await device.pair(code);
		await device.agent.unpair();
		const refusal = await refusalOf(device.agent.pair({ code }));
		expect(refusal.code).toBe('origin-unconfirmed');
		expect(refusal.message).toMatch(/belongs there\. The code was not sent\.$/);
		expect(await refusalOf(device.pair(code))).toMatchObject({ params: { pairingCode: 'used' } });
	});

	test('when the state cannot be saved: the code is not sent and the code stays valid', async () => {
		const service = await givenService();
		const home = await givenHome();
		// A directory in the place of the temporary file stops root as well.
		const blocker = join(home.paths.stateDir, 'state.json.new');
		await mkdir(blocker, { recursive: true });
		const device = await givenAgent({ home });
		const code = service.createPairingCode('check-in').url;
		expect(await refusalOf(device.pair(code))).toMatchObject({ code: 'state-unwritable' });
		// Whether the service is there is asked meanwhile, without a credential.
		expect(registrations(service)).toEqual([]);
		await rmdir(blocker);
		expect(await device.pair(code)).toMatchObject({ online: true });
		expect(device.agent.status().warnings).toEqual([]);
	});

	test('when something else answers in the place of the service', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		service.failNext({ method: 'HEAD' }, { status: 302, headers: { location: 'http://login.example/' } });
		const refusal = await refusalOf(device.pair(code));
		expect(refusal).toMatchObject({
			code: 'captive-portal',
			message: expect.stringContaining('The code was not sent.'),
		});
		expect(registrations(service)).toEqual([]);
		expect(await device.pair(code)).toMatchObject({ online: true });
	});

	test('on another host: a redirect is not followed, and the token stays here [F014]', async () => {
		const service = await givenService();
		const other = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		service.failNext(REGISTER, { status: 307, headers: { location: `${other.url}${REGISTER.path}` } });
		const refusal = await refusalOf(device.pair(code));
		expect(refusal.code).toBe('redirect-refused');
		expect(other.requests).toEqual([]);
		expect(await device.home.untilSaved()).toMatchObject({ attempt: null });
		expect(await device.pair(code)).toMatchObject({ online: true });
	});

	test('for a code of another origin than the configured one [F086]', async () => {
		const service = await givenService();
		const rogue = await givenService();
		const device = await givenAgent({ settings: { baseUrl: service.url } });
		const refusal = await refusalOf(device.pair(rogue.createPairingCode('check-in').url));
		expect(refusal.code).toBe('code-for-other-origin');
		expect(refusal.message).toContain(new URL(rogue.url).origin);
		expect(refusal.message).toContain(new URL(service.url).origin);
		expect(rogue.requests).toEqual([]);
	});

	test('before a person has confirmed the host, which is remembered until the device leaves [F088]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url;
		expect(await refusalOf(device.agent.pair({ code }))).toMatchObject({ code: 'origin-unconfirmed' });
		expect(service.requests).toEqual([]);
		await device.pair(code);
		await device.agent.pair({ code: service.createPairingCode('boarding').url, replace: true });
		await device.untilLive('boarding');
		await device.agent.unpair();
		const again = service.createPairingCode('check-in').url;
		expect(await refusalOf(device.agent.pair({ code: again }))).toMatchObject({ code: 'origin-unconfirmed' });
	});

	test('for a code against the workflow of the settings', async () => {
		const service = await givenService();
		const device = await givenAgent({ settings: { workflowId: 'check-in' } });
		const refusal = await refusalOf(device.pair(service.createPairingCode('boarding').url));
		expect(refusal.code).toBe('workflow-fixed');
		expect(refusal.message).toContain(device.home.paths.configFile);
		expect(service.requests).toEqual([]);
	});

	test('while another code is being spent [F094]', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const release = service.hold(REGISTER);
		const first = device.pair(service.createPairingCode('check-in').url);
		await release.received;
		const code = service.createPairingCode('boarding').url;
		expect(await refusalOf(device.pair(code, { replace: true }))).toMatchObject({ code: 'pairing-under-way' });
		expect(await refusalOf(device.agent.unpair())).toMatchObject({ code: 'pairing-under-way' });
		release();
		expect(await first).toMatchObject({ workflowId: 'check-in', online: true });
	});
});

describe('while a code is being spent', () => {
	async function givenHeldPairing(): Promise<{
		device: RunningAgent;
		pairing: ReturnType<RunningAgent['pair']>;
		release: () => void;
	}> {
		const service = await givenService();
		const device = await givenAgent();
		const release = service.hold(REGISTER);
		const pairing = device.pair(service.createPairingCode('check-in').url);
		await release.received;
		return { device, pairing, release };
	}

	test('changed settings do not cut its answer off', async () => {
		const { device, pairing, release } = await givenHeldPairing();
		await device.home.writeSettings({ heartbeatCadence: 10 });
		await device.daemon.reload();
		release();
		expect(await pairing).toMatchObject({ online: true });
	});

	test('the end of the agent waits for the answer, and the next start is online with it', async () => {
		const { device, pairing, release } = await givenHeldPairing();
		const stopped = device.stop();
		release();
		const sentence = 'The agent is stopping: the device goes online when it starts again.';
		expect(await pairing).toMatchObject({ online: false, sentence });
		await stopped;
		const again = await givenAgent({ home: device.home });
		await again.untilLive('check-in');
	});

	test('one that comes while the agent stops is not spent', async () => {
		const service = await givenService();
		const device = await givenAgent();
		const stopped = device.agent.stop();
		expect((await refusalOf(device.pair(service.createPairingCode('check-in').url))).code).toBe('agent-not-running');
		await stopped;
		expect(service.requests).toEqual([]);
	});
});

describe('a paired device', () => {
	test('is moved to another service only on purpose, with both hosts named and no moment offline [F089]', async () => {
		const [from, to] = [await givenService(), await givenService()];
		const [fromHost, toHost] = [new URL(from.url).host, new URL(to.url).host];
		const device = await givenPairedAgent(from);
		const code = to.createPairingCode('boarding').url;
		const refusal = await refusalOf(device.pair(code));
		expect(refusal.code).toBe('already-paired');
		expect(refusal.message).toContain(fromHost);
		expect(refusal.message).toContain(toHost);
		expect(to.requests).toEqual([]);
		expect(device.agent.inspectPairing({ code, replace: true, trustOrigin: new URL(to.url).origin }).changes).toEqual([
			`moves this device from ${fromHost} to ${toHost}`,
			'changes the workflow from check-in to boarding',
			`forgets what came from ${fromHost}, events included`,
		]);

		const order: string[] = [];
		to.on('device-online', () => order.push('online with the new service'));
		from.on('device-offline', () => order.push('offline at the old one'));
		const before = device.statuses.length;
		const left = from.waitFor('device-offline');
		await device.pair(code, { replace: true });
		await left;
		expect(order).toEqual(['online with the new service', 'offline at the old one']);
		const during = device.statuses.slice(before);
		expect(during.filter(({ state }) => state !== 'online')).toEqual([]);
		expect(during.map(({ sentence }) => sentence)).toContain(
			`Online with ${fromHost}, workflow check-in; moving to ${toHost}, workflow boarding.`,
		);
		expect(await device.untilLive('boarding')).toMatchObject({ baseUrl: to.url, problem: null });
	});

	test('stays where it is when the new service does not let it in', async () => {
		const [from, to] = [await givenService(), await givenService()];
		const device = await givenPairedAgent(from);
		const offline = watchOffline(from);
		to.failNext('/ws/device', { status: 403 });
		const result = await device.pair(to.createPairingCode('boarding').url, { replace: true });
		expect(result).toMatchObject({ online: false, workflowId: 'boarding' });
		expect(result.sentence).toContain(`moving to ${new URL(to.url).host}`);
		expect(result.sentence).toContain('403');
		expect(device.agent.status()).toMatchObject({ workflow: { live: 'check-in', wanted: 'boarding' } });
		expect(offline).toEqual([]);
		device.clock.advance(10 * 60_000);
		await device.untilLive('boarding');
	});

	test('forgets everything when it is unpaired: on the disk, in memory and at once', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.agent.setWorkflow('boarding');
		await device.untilLive('boarding');
		// The old Connection goes with a save of its own.
		await device.home.untilSaved(({ connections }) => connections.length === 1);
		const token = await device.home.savedToken();
		expect(await device.home.filesWith(token)).not.toEqual([]);
		const left = service.waitFor('device-offline');
		await device.agent.unpair();
		expect(await device.home.filesWith(token)).toEqual([]);
		expect(await device.home.filesWith('eyJ')).toEqual([]);
		await left;
		expect(device.agent.status()).toMatchObject({
			state: 'unpaired',
			sentence: 'Not paired: scan a pairing code, or run idv-agent pair.',
			workflow: { wanted: null, live: null },
			channel: { state: 'none', lastHeartbeatAt: null },
			sessionId: null,
		});
		await device.stop();
		const again = await givenAgent({ home: device.home });
		expect(again.agent.status().state).toBe('unpaired');
		expect(again.clock.pending).toBe(0);
	});

	test('that was unpaired begins anew when it is paired again', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		await device.agent.unpair();
		const from = device.log.length;
		await device.pair(service.createPairingCode('check-in').url);
		expect(await device.untilState('online')).toMatchObject({ channel: { reconnects: 0 } });
		expect(device.log.slice(from).flatMap(({ level, msg }) => (level === 'info' ? [msg] : []))).toEqual([
			'paired',
			'online',
		]);
		expect(JSON.parse((await device.events()).at(-1)?.content ?? '')).toMatchObject({ from: null });
	});

	test('whose disk is full says that it could not forget, and does so as soon as it can', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		const token = await device.home.savedToken();
		const blocker = join(device.home.paths.stateDir, 'state.json.new');
		await mkdir(blocker);
		expect(await refusalOf(device.agent.unpair())).toMatchObject({
			code: 'state-unwritable',
			message: expect.stringMatching(/^This device is unpaired, but the disk still holds/),
			remedy: expect.stringMatching(/tries again every minute\. Until then a restart brings the pairing back\.$/),
		});
		expect(device.agent.status()).toMatchObject({ state: 'unpaired', warnings: [{ code: 'state-unwritable' }] });
		await rmdir(blocker);
		device.clock.advance(60_000);
		await device.untilStatus(({ warnings }) => warnings.length === 0);
		expect(await device.home.filesWith(token)).toEqual([]);
		// That its events are erased fitted no more than the rest did.
		await device.home.untilSaved(({ pairing, eraseBefore }) => pairing === null && eraseBefore === null);
	});

	test('that keeps an answer which cannot be removed says so, and that no restart brings the pairing back [F1880]', async () => {
		const device = await givenPairedAgent(await givenService());
		const kept = join(device.home.paths.stateDir, 'unread-answer.json');
		await mkdir(join(kept, 'full'), { recursive: true });
		const { message, remedy } = await refusalOf(device.agent.unpair());
		expect(message).toContain(kept);
		expect(remedy).not.toContain('restart');
		expect(remedy).toContain('tries again every minute');
		await rm(kept, { recursive: true });
		await writeFile(kept, '{}');
		device.clock.advance(60_000);
		await expect.poll(() => existsSync(kept)).toBe(false);
	});

	test('that is unpaired knows neither the line nor the time of its service any more [F1881]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		service.dropSockets();
		await device.untilStatus(({ channel }) => channel.recentCuts !== null);
		device.clock.setWall(device.clock.wallMs() + 3_600_000);
		expect(device.agent.status().warnings).toMatchObject([{ code: 'clock-wrong' }]);
		await device.agent.unpair();
		expect(device.agent.status()).toMatchObject({ warnings: [], channel: { recentCuts: null } });
	});

	test('that the service has refused twice, a while online between, is refused once and not again and again [F1882]', async () => {
		const service = await givenService();
		const device = await givenPairedAgent(service);
		for (const refusals of [2, 1]) {
			device.clock.advance(4000);
			service.failNext('/ws/device', { status: 401 }, refusals);
			service.dropSockets();
			await device.untilState('offline');
			for (let refused = 0; refused < refusals; refused += 1) {
				const { channel } = device.agent.status();
				await device.passWait();
				await device.untilStatus(
					({ channel: { nextAttemptAt } }) => nextAttemptAt !== null && nextAttemptAt !== channel.nextAttemptAt,
				);
			}
			expect(device.agent.standing()).toBe('refusedOnce');
			await device.passWait();
			await device.untilState('online');
		}
	});
});

test.runIf(process.geteuid?.() === 0)(
	'a device on a full disk is unpaired at once, and its events go within a minute of room [F551] (needs root)',
	async () => {
		const service = await givenService();
		const home = await givenHome();
		const { stateDir } = home.paths;
		await mkdir(stateDir, { recursive: true });
		execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k,mode=0700', 'tmpfs', stateDir]);
		onTestFinished(() => void execFileSync('umount', ['-l', stateDir]));
		const device = await givenAgent({ home });
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilState('online');
		const token = await home.savedToken();
		service.notify({ type: 'session.started', id: 'n1' });
		await device.untilEvent(({ kind }) => kind === 'session.started');
		fillUp(stateDir);
		await device.agent.unpair().catch(() => {});
		expect(await home.filesWith(token)).toEqual([]);
		await rm(join(stateDir, 'filler'));
		device.clock.advance(60_000);
		await device.untilStatus(({ warnings }) => warnings.every(({ code }) => code !== 'state-unwritable'));
		const kinds = async () => (await device.events()).map(({ kind }) => kind);
		await expect.poll(kinds).not.toContain('session.started');
		await device.stop();
		expect((await givenAgent({ home })).agent.status().state).toBe('unpaired');
	},
);

test.runIf(process.geteuid?.() === 0).each(['while it runs', 'after a start'])(
	'a device without a free byte in any file of the log is unpaired, and nothing of its service is left: %s (needs root) [F845]',
	async (when) => {
		const service = await givenService();
		const home = await givenHome();
		const { stateDir } = home.paths;
		const disk = join(home.directory, 'disk');
		for (const directory of [stateDir, disk]) await mkdir(directory);
		execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k,mode=0700', 'tmpfs', disk]);
		await mkdir(join(disk, 'state'));
		execFileSync('mount', ['--bind', join(disk, 'state'), stateDir]);
		onTestFinished(() => void execFileSync('umount', ['-l', stateDir, disk]));
		let device = await givenAgent({ home });
		await device.pair(service.createPairingCode('check-in').url);
		await device.untilState('online');
		const token = await home.savedToken();
		const bytes = async () => {
			const [file = ''] = (await readdir(stateDir)).filter((name) => name.startsWith('events-'));
			return (await stat(join(stateDir, file))).size;
		};
		/** Stores one event that fills the file up to the end of its last page. */
		const store = async (id: string, text: string) => {
			service.notify({ type: 'session.started', id, text });
			await device.untilEvent(({ content }) => content.includes(`"${id}"`));
			return bytes();
		};
		const before = await store('n1', '');
		const after = await store('n2', '');
		const next = after + (after - before);
		const left = (4096 - (next % 4096)) % 4096;
		expect((await store('n3', 'x'.repeat(left))) % 4096).toBe(0);
		fillUp(disk);
		if (when === 'after a start') {
			await device.stop();
			device = await givenAgent({ home });
			await device.untilState('online');
		}
		await device.agent.unpair();
		expect(await home.filesWith(token)).toEqual([]);
		expect(await home.filesWith('session.started')).toEqual([]);
		await device.stop();
		expect((await givenAgent({ home })).agent.status()).toMatchObject({ state: 'unpaired' });
	},
);

test('a device that ends while it leaves its service erases the events of that service at its next start [F553]', async () => {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	service.notify({ type: 'session.started', id: 'n1' });
	await device.untilEvent(({ kind }) => kind === 'session.started');
	await device.stop();
	const { home } = device;
	const file = join(home.paths.stateDir, 'state.json');
	const { digest, copy, ...state } = JSON.parse(await readFile(file, 'utf8'));
	expect([digest, copy]).not.toContain(undefined);
	// What an unpaired device has saved before it comes to its events.
	const left = { ...state, pairing: null, connections: [], eraseBefore: Date.now() + 1000 };
	for (const name of [file, `${file}.bak`]) await writeFile(name, JSON.stringify(left));
	const again = await givenAgent({ home });
	await expect.poll(async () => (await again.events()).map(({ kind }) => kind)).not.toContain('session.started');
	await home.untilSaved(({ eraseBefore }) => eraseBefore === null);
	expect(await home.filesWith('session.started')).toEqual([]);
});

test('a rescue that brings a Connection of another tenant changes nothing, and the device keeps its own', async () => {
	const connection = (tenant: string) => `h.${Buffer.from(JSON.stringify({ tenant })).toString('base64url')}.s`;
	const service = await givenService();
	const device = await givenAgent();
	service.failNext(REGISTER, { status: 201, body: { token: connection('trial') } });
	await device.pair(service.createPairingCode('check-in').url);
	while (device.agent.standing() !== 'refused') await device.passWait();
	service.failNext(REGISTER, { status: 201, body: { token: connection('two') } });
	const refusal = await refusalOf(device.pair(service.createPairingCode('check-in').url));
	expect(refusal).toMatchObject({ code: 'code-for-other-origin', message: expect.stringContaining('another tenant') });
	expect(await device.home.untilSaved(({ attempt }) => attempt === null)).toMatchObject({
		connections: [{ token: connection('trial') }],
	});
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilLive('check-in');
});
