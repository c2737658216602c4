import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import type { ServiceOptions } from '../../src/service/embedded-service.runner.ts';
import {
	type AgentSetup,
	DEVICE_ID,
	givenAgent,
	givenLine,
	givenPairedAgent,
	registrations,
	watchOffline,
} from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

/** A paired device and what both sides see of it from here on. */
async function givenMover(options: ServiceOptions = {}, setup: AgentSetup = {}) {
	const service = await givenService(options);
	const device = await givenPairedAgent(service, setup);
	const offline = watchOffline(service);
	const first = device.statuses.length;
	const expectNeverOffline = () => {
		expect(offline).toEqual([]);
		expect(device.statuses.slice(first).filter(({ state }) => state !== 'online')).toEqual([]);
		expect(device.agent.status().channel.reconnects).toBe(0);
	};
	return { service, device, offline, expectNeverOffline };
}

describe('the workflow changes without a moment offline', () => {
	test('by command', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		const left = service.waitFor('channel-closed');
		await device.agent.setWorkflow('boarding');
		expect(await device.untilLive('boarding')).toMatchObject({
			workflow: { wanted: 'boarding', source: 'workflow set' },
		});
		expect(await left).toMatchObject({ workflowId: 'check-in', code: 1000 });
		expect(service.devices()).toMatchObject([{ workflowId: 'boarding', online: true }]);
		expectNeverOffline();
		expect((await device.events()).filter(({ type }) => type === 'gap')).toHaveLength(1);
	});

	test('by a message of the service', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		expect(service.changeWorkflow(DEVICE_ID, 'boarding')).toBe(1);
		expect(await device.untilLive('boarding')).toMatchObject({ workflow: { source: 'service message' } });
		expectNeverOffline();
	});

	test('by a flood of messages costs ten registrations a minute, is reported, and ends at the last one [F146]', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		const before = registrations(service).length;
		for (let count = 1; count <= 200; count += 1) service.changeWorkflow(DEVICE_ID, `workflow-${count}`);
		const { warnings } = await device.untilStatus(({ warnings }) =>
			warnings.some(({ code }) => code === 'registering-too-often'),
		);
		expect(warnings.map(({ code }) => code)).toContain('registering-too-often');
		await device.untilStatus(({ workflow }) => workflow.wanted === 'workflow-200');
		expect(registrations(service).length - before).toBeLessThanOrEqual(10);
		expect(device.log.filter(({ code }) => code === 'registering-too-often')).toHaveLength(1);
		device.clock.advance(121_000);
		await device.untilLive('workflow-200');
		expectNeverOffline();
	});

	test('by a settings file, noticed without a signal', async () => {
		const { device, expectNeverOffline } = await givenMover();
		await device.home.writeSettings({ workflowId: 'boarding' });
		expect(await device.untilLive('boarding')).toMatchObject({ workflow: { source: 'file' } });
		expectNeverOffline();
	});

	test('by a file in conf.d that appears', async () => {
		const { device, expectNeverOffline } = await givenMover();
		await writeFile(join(device.home.paths.confDirectory, '50-site.json'), '{"workflowId":"boarding"}');
		await device.untilLive('boarding');
		expectNeverOffline();
	});

	test('by a settings file and a reload', async () => {
		const { device, expectNeverOffline } = await givenMover();
		await device.home.writeSettings({ workflowId: 'boarding' });
		await device.daemon.reload();
		await device.untilLive('boarding');
		expectNeverOffline();
	});

	test('and a cadence as well', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		const closed = service.waitFor('channel-closed');
		await device.home.writeSettings({ heartbeatCadence: 10 });
		await device.daemon.reload();
		await closed;
		expect(registrations(service)).toEqual([201, 201]);
		expectNeverOffline();
	});

	test('several times in a row: the last one counts', async () => {
		const { device, expectNeverOffline } = await givenMover();
		await Promise.all(['a', 'b', 'c', 'boarding'].map((id) => device.agent.setWorkflow(id)));
		await device.untilLive('boarding');
		expectNeverOffline();
	});

	test('back and forth before the first change is done', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		const release = service.hold('/api/device/connection');
		await device.agent.setWorkflow('boarding');
		await release.received;
		await device.agent.setWorkflow('check-in');
		expect(device.agent.status()).toMatchObject({ workflow: { wanted: 'check-in', live: 'check-in' }, problem: null });
		// What a Connection has asked for is seen through, whoever wants the answer.
		const answered = service.waitFor('request');
		release();
		expect(await answered).toMatchObject({ path: '/api/device/connection', status: 201 });
		await device.home.untilSaved(({ connections }) => connections.length === 2);
		expect(device.agent.status()).toMatchObject({ workflow: { wanted: 'check-in', live: 'check-in' }, problem: null });
		expectNeverOffline();
	});

	test('and survives a restart of the agent', async () => {
		const { service, device } = await givenMover();
		await device.agent.setWorkflow('boarding');
		await device.untilLive('boarding');
		await device.stop();
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('boarding')).toMatchObject({ workflow: { source: 'workflow set' } });
		expect(registrations(service)).toEqual([201, 201]);
	});
});

describe('the settings decide', () => {
	test('over a command, which is refused with the file that names the workflow', async () => {
		const { device } = await givenMover({}, { settings: { workflowId: 'check-in' } });
		const error = await device.agent.setWorkflow('boarding').catch((reason: unknown) => reason);
		expect(error).toBeInstanceOf(AgentError);
		expect(error).toMatchObject({
			code: 'workflow-fixed',
			message: expect.stringContaining(device.home.paths.configFile),
		});
		await device.agent.setWorkflow('check-in');
		expect(device.agent.status().workflow).toEqual({
			wanted: 'check-in',
			live: 'check-in',
			waitsUntil: null,
			source: 'file',
		});
	});

	test('over a message of the service, which becomes a warning until the settings change [F092]', async () => {
		const { service, device, expectNeverOffline } = await givenMover({}, { settings: { workflowId: 'check-in' } });
		service.changeWorkflow(DEVICE_ID, 'boarding');
		const { warnings } = await device.untilStatus((status) => status.warnings.length > 0);
		expect(warnings).toMatchObject([{ code: 'workflow-fixed', message: expect.stringContaining('boarding') }]);
		expect(device.agent.status().workflow).toMatchObject({ wanted: 'check-in', live: 'check-in' });
		expect(registrations(service)).toEqual([201]);
		service.changeWorkflow(DEVICE_ID, 'check-in');
		await device.untilStatus((status) => status.warnings.length === 0);
		await device.home.writeSettings({ workflowId: 'boarding' });
		await device.daemon.reload();
		expect(await device.untilLive('boarding')).toMatchObject({ warnings: [] });
		expectNeverOffline();
	});

	test('and when they name none any more, the last assignment counts again', async () => {
		const { device, expectNeverOffline } = await givenMover();
		await device.home.writeSettings({ workflowId: 'boarding' });
		await device.daemon.reload();
		await device.untilLive('boarding');
		await device.home.writeSettings({});
		await device.daemon.reload();
		expect(await device.untilLive('check-in')).toMatchObject({ workflow: { source: 'pairing' } });
		expectNeverOffline();
	});
});

describe('a change that the service refuses', () => {
	test('for want of a credential leaves the device online on the old workflow and says what is missing', async () => {
		const { service, device, expectNeverOffline } = await givenMover({ acceptConnectionForRegistration: false });
		await device.agent.setWorkflow('boarding');
		const status = await device.untilStatus(({ problem }) => problem !== null);
		expect(status).toMatchObject({
			state: 'online',
			workflow: { wanted: 'boarding', live: 'check-in' },
			problem: { code: 'access-forbidden' },
		});
		expect(status.sentence).toMatch(
			/^Online with .*, workflow check-in; moving to workflow boarding does not succeed: .*403.*scan a new pairing code.*credential\.apiKeyFile/,
		);
		expectNeverOffline();
		// The new code is for the workflow that is wanted.
		await device.pair(service.createPairingCode('boarding').url, { replace: true });
		expect(await device.untilLive('boarding')).toMatchObject({ problem: null });
		expectNeverOffline();
	});

	test('for an unknown workflow does as well, and is taken back by going back [F074]', async () => {
		const { device, expectNeverOffline } = await givenMover({ workflows: ['check-in'] });
		await device.agent.setWorkflow('chek-in');
		const status = await device.untilStatus(({ problem }) => problem !== null);
		expect(status).toMatchObject({ problem: { code: 'workflow-unknown' }, workflow: { live: 'check-in' } });
		const told = (line: { level?: unknown }) => line.level === 'warn';
		expect(await device.untilLogged(told)).toMatchObject({
			code: 'workflow-unknown',
			msg: expect.stringMatching(/^moving to workflow chek-in does not succeed: .*404/),
		});
		await device.agent.setWorkflow('check-in');
		expect(device.agent.status()).toMatchObject({ problem: null, workflow: { wanted: 'check-in', live: 'check-in' } });
		expectNeverOffline();
	});

	test('with 5xx is tried again automatically, even if the answer sounds like an unknown workflow', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		const body = { code: 'workflow-unknown', detail: 'Unknown workflow boarding.' };
		service.failNext('/api/device/connection', { status: 500, body });
		await device.agent.setWorkflow('boarding');
		expect(await device.untilLogged(({ level }) => level === 'warn')).toMatchObject({ code: 'service-failed' });
		device.clock.advance(120_000);
		await device.untilLive('boarding');
		expectNeverOffline();
	});

	test('is tried again automatically, after the wait that the service asked for [F071]', async () => {
		const { service, device, expectNeverOffline } = await givenMover();
		service.failNext('/api/device/connection', { status: 503, headers: { 'retry-after': '60' } }, 2);
		await device.agent.setWorkflow('boarding');
		const waits = (attempt: number) =>
			device.untilLogged((line) => line.msg === 'wait' && line['generation'] === 2 && line['attempt'] === attempt);
		await waits(2);
		device.clock.advance(59_000);
		expect(registrations(service)).toEqual([201, 503]);
		device.clock.advance(61_000);
		await waits(4);
		expect(registrations(service)).toEqual([201, 503, 503]);
		device.clock.advance(120_000);
		await device.untilLive('boarding');
		expect(device.log.filter(({ level }) => level === 'warn')).toHaveLength(1);
		expectNeverOffline();
	});
});

describe('a service that ends the old channel when the new link registers', () => {
	test('has the device over without a refusal being counted [F068]', async () => {
		const { service, device } = await givenMover({ endOldChannelOnRegistration: true });
		const first = device.statuses.length;
		await device.agent.setWorkflow('boarding');
		await device.untilLive('boarding');
		const seen = device.statuses.slice(first);
		expect(seen.filter(({ state }) => state === 'blocked')).toEqual([]);
		expect(seen.flatMap(({ problem }) => problem?.code ?? [])).not.toContain('credential-refused');
		expect(service.requests.filter(({ status }) => status === 401)).toEqual([]);
		await device.stop();
		expect((await device.home.untilSaved()).connections).toHaveLength(1);
	});

	/** A device in the middle of a change: the service has registered it and ended its channel, the answer is on its way. */
	async function givenHalfMoved() {
		const service = await givenService({ endOldChannelOnRegistration: true });
		const line = await givenLine(service);
		const device = await givenAgent();
		const code = service.createPairingCode('check-in').url.replace(service.url, line.url);
		await device.pair(code);
		await device.untilLive('check-in');
		const registered = service.waitFor('registered');
		const release = line.holdAnswers();
		await device.agent.setWorkflow('boarding');
		await registered;
		return { service, device, release };
	}

	test('does not strand a device that is asked for yet another workflow meanwhile', async () => {
		const { device, release } = await givenHalfMoved();
		const first = device.statuses.length;
		await device.agent.setWorkflow('lounge');
		release();
		expect(await device.untilLive('lounge')).toMatchObject({ problem: null });
		const states = device.statuses.slice(first).map(({ state }) => state);
		expect(states.filter((state) => state !== 'online' && state !== 'offline')).toEqual([]);
	});

	test('does not strand a device that is told to stay meanwhile', async () => {
		const { device, release } = await givenHalfMoved();
		await device.untilState('offline');
		await device.agent.setWorkflow('check-in');
		release();
		expect(await device.untilLive('check-in')).toMatchObject({ problem: null });
		expect(device.statuses.filter(({ state }) => state === 'blocked')).toEqual([]);
	});

	test('does not strand a device that stops meanwhile', async () => {
		const { service, device, release } = await givenHalfMoved();
		const stopped = device.stop();
		release();
		await stopped;
		const again = await givenAgent({ home: device.home });
		await again.untilLive('boarding');
		expect(registrations(service)).toEqual([201, 201]);
	});

	test('does not leave a device that is unpaired meanwhile with a Connection', async () => {
		const { device, release } = await givenHalfMoved();
		await device.agent.unpair();
		release();
		await device.stop();
		expect(await device.home.filesWith('eyJ')).toEqual([]);
	});
});

describe('a workflow that is set by a caller who waits until it is live', () => {
	const WAIT = { waitMs: 15_000 };
	const atPairing = { wanted: 'check-in', live: 'check-in', source: 'pairing' };

	/** A paired device and a wish that the service has not answered yet. */
	async function givenHeld(options: ServiceOptions = {}) {
		const mover = await givenMover(options);
		const release = mover.service.hold('/api/device/connection');
		const caller = new AbortController();
		const asked = mover.device.agent.setWorkflow('boarding', { ...WAIT, signal: caller.signal });
		const outcome = asked.then(
			() => null,
			(error: AgentError) => error.code,
		);
		await release.received;
		expect(mover.device.agent.status().workflow).toMatchObject({ wanted: 'boarding', live: 'check-in' });
		return { ...mover, release, caller, outcome };
	}

	test('and that the service refuses leaves nothing in force [F503]', async () => {
		const { device, expectNeverOffline } = await givenMover({ workflows: ['check-in'] });
		await expect(device.agent.setWorkflow('typo', WAIT)).rejects.toMatchObject({ code: 'workflow-unknown' });
		expect(device.agent.status()).toMatchObject({ workflow: atPairing, problem: null });
		await device.home.untilSaved(({ assignedWorkflow }) => assignedWorkflow?.source === 'pairing');
		expectNeverOffline();
	});

	test('and that is answered too late leaves nothing in force, whatever the answer is [F504]', async () => {
		const { service, device, release, outcome, expectNeverOffline } = await givenHeld();
		device.clock.advance(WAIT.waitMs);
		expect(await outcome).toBe('request-timeout');
		const answered = service.waitFor('request');
		release();
		expect(await answered).toMatchObject({ path: '/api/device/connection', status: 201 });
		await device.home.untilSaved(
			({ assignedWorkflow, connections }) => assignedWorkflow?.source === 'pairing' && connections.length === 2,
		);
		expect(device.agent.status()).toMatchObject({ workflow: atPairing, problem: null });
		expectNeverOffline();
	});

	test('and whose caller is gone leaves nothing in force', async () => {
		const { device, caller, release, outcome } = await givenHeld();
		caller.abort();
		expect(await outcome).toBe('request-timeout');
		expect(device.agent.status()).toMatchObject({ workflow: atPairing });
		release();
	});

	test('stays as long as another caller waits for it', async () => {
		const { device, release, outcome } = await givenHeld();
		const late = device.agent
			.setWorkflow('boarding', { waitMs: 1000 })
			.catch(({ code, message }: AgentError) => [code, message]);
		await new Promise((resolve) => setImmediate(resolve));
		device.clock.advance(1000);
		expect(await late).toEqual(['request-timeout', 'Workflow boarding is not live after 1 s.']);
		expect(device.agent.status()).toMatchObject({ workflow: { wanted: 'boarding' } });
		release();
		expect(await outcome).toBeNull();
		await device.untilLive('boarding');
	});

	test('gives way to what another source asks for meanwhile, which stays', async () => {
		const { service, device, release, outcome } = await givenHeld();
		service.changeWorkflow(DEVICE_ID, 'check-out');
		expect(await outcome).toBe('workflow-conflict');
		release();
		expect(await device.untilLive('check-out')).toMatchObject({ workflow: { source: 'service message' } });
	});

	test('stays where another source asks for the same, also if it is late', async () => {
		const { service, device, release, outcome } = await givenHeld();
		service.changeWorkflow(DEVICE_ID, 'boarding');
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		device.clock.advance(WAIT.waitMs);
		expect(await outcome).toBe('request-timeout');
		release();
		expect(await device.untilLive('boarding')).toMatchObject({ workflow: { source: 'service message' } });
	});

	test('leaves the one that was in force before several in a row that failed', async () => {
		const { device, release, outcome } = await givenHeld({ workflows: ['check-in', 'boarding'] });
		const other = device.agent.setWorkflow('typo', WAIT).catch((error: AgentError) => error.code);
		release();
		expect([await outcome, await other]).toEqual(['workflow-conflict', 'workflow-unknown']);
		expect(device.agent.status()).toMatchObject({ workflow: atPairing });
	});

	test('is not in force under a setting that comes and goes meanwhile', async () => {
		const { device, release, outcome } = await givenHeld();
		await device.home.writeSettings({ workflowId: 'check-in' });
		await device.daemon.reload();
		expect(await outcome).toBe('workflow-conflict');
		release();
		await device.home.writeSettings({});
		await device.daemon.reload();
		expect(device.agent.status()).toMatchObject({ workflow: atPairing });
	});

	test('is forgotten by a restart before it was live, and kept by one after', async () => {
		const { device, release, outcome } = await givenHeld();
		await device.home.untilSaved(({ assignedWorkflow }) => assignedWorkflow?.workflowId === 'boarding');
		const kept = readFileSync(join(device.home.paths.stateDir, 'state.json'));
		release();
		expect(await outcome).toBeNull();
		await device.stop();
		const after = await givenAgent({ home: device.home });
		expect(await after.untilLive('boarding')).toMatchObject({ workflow: { source: 'workflow set' } });
		await after.stop();
		// As a power cut would have left it.
		await writeFile(join(device.home.paths.stateDir, 'state.json'), kept);
		await rm(join(device.home.paths.stateDir, 'state.json.bak'), { force: true });
		const again = await givenAgent({ home: device.home });
		expect(await again.untilLive('check-in')).toMatchObject({ workflow: atPairing });
	});
});

describe('a message that the service sends again', () => {
	test('does not undo what was decided since', async () => {
		const { service, device } = await givenMover();
		const message = { type: 'workflow.changed', id: 'change-1', workflowId: 'boarding' };
		service.notify(message);
		await device.untilLive('boarding');
		await device.agent.setWorkflow('check-in');
		await device.untilLive('check-in');
		service.notify(message);
		service.notify({ type: 'after' });
		await device.untilEvent(({ kind }) => kind === 'after');
		expect(device.agent.status().workflow).toEqual({
			wanted: 'check-in',
			live: 'check-in',
			waitsUntil: null,
			source: 'workflow set',
		});
	});

	test('with a workflow that is none is kept as an event and not acted on', async () => {
		const { service, device } = await givenMover();
		service.notify({ type: 'workflow.changed', workflowId: ' boarding' });
		service.notify({ type: 'workflow.changed' });
		await device.untilEvent(({ number }) => number === 3);
		expect(device.agent.status().workflow).toMatchObject({ wanted: 'check-in', source: 'pairing' });
	});
});

test('an unpaired device has no workflow to change', async () => {
	const device = await givenAgent();
	await expect(device.agent.setWorkflow('boarding')).rejects.toMatchObject({ code: 'unpaired' });
	expect(device.agent.status().workflow).toEqual({ wanted: null, live: null, waitsUntil: null, source: null });
});
