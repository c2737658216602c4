/** `idv-agent/client` against a running agent and the embedded service. */
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { AgentProblem, createClient, type LocalEvent } from '../../src/client/client.runner.ts';
import { givenAgent, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const clientOf = ({ home }: RunningAgent) => createClient({ socketPath: join(home.paths.runDir, 'agent.sock') });

async function givenDevice() {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	return { service, device, client: clientOf(device) };
}

const problemOf = (asking: Promise<unknown>): Promise<AgentProblem> =>
	asking.then(
		() => expect.fail('nothing was refused'),
		(error: unknown) => (error instanceof AgentProblem ? error : expect.fail(String(error))),
	);

test('the status is that of the agent', async () => {
	const { device, client } = await givenDevice();
	expect(await client.status()).toEqual(device.agent.status());
	expect((await client.identity()).deviceId.value).toBe(device.agent.status().deviceId);
});

test('an event is acknowledged when the loop asks for the next one, and comes again after a loop that failed', async () => {
	const { service, device, client } = await givenDevice();
	for (const id of ['1', '2', '3']) service.notify({ type: `kind-${id}`, id });
	await device.untilEvent(({ kind }) => kind === 'kind-3');
	const read = async (until: string) => {
		const kinds: string[] = [];
		for await (const { type, kind } of client.events({ consumer: 'kiosk' })) {
			if (type === 'gap') continue;
			kinds.push(kind);
			if (kind === until) throw Object.assign(new Error('the application fails here'), { kinds });
		}
	};
	await expect(read('kind-2')).rejects.toMatchObject({ kinds: ['kind-1', 'kind-2'] });
	await expect(read('kind-3')).rejects.toMatchObject({ kinds: ['kind-2', 'kind-3'] });
	const { events } = await client.eventPage({ consumer: 'kiosk' });
	expect(events.map(({ kind }) => kind)).toEqual(['kind-3']);
	const last = events.at(-1)?.id ?? '';
	expect(await client.acknowledge('kiosk', last)).toEqual({ consumer: 'kiosk', position: last });
	expect((await client.eventPage({ consumer: 'kiosk' })).events).toEqual([]);
	expect(await client.forget('kiosk')).toEqual({ consumer: 'kiosk', known: true });
});

test('a loop waits for the next event, also across a restart of the agent, and ends with its signal', async () => {
	const { service, device, client } = await givenDevice();
	const retried: string[] = [];
	const stop = new AbortController();
	const away = Promise.withResolvers<void>();
	const seen: LocalEvent[] = [];
	const reading = (async () => {
		const onRetry = ({ code }: AgentProblem) => {
			retried.push(code);
			away.resolve();
		};
		for await (const event of client.events({ consumer: 'kiosk', signal: stop.signal, onRetry })) {
			seen.push(event);
			if (event.kind === 'after') stop.abort();
		}
	})();
	service.notify({ type: 'before', id: '1' });
	await device.untilEvent(({ kind }) => kind === 'before');
	await device.stop();
	await away.promise;
	const again = await givenAgent({ home: device.home });
	await again.untilLive('check-in');
	service.notify({ type: 'after', id: '2' });
	await reading;
	expect(retried.every((code) => code === 'agent-not-running')).toBe(true);
	expect(seen.filter(({ type }) => type === 'notification').map(({ kind }) => kind)).toEqual(['before', 'after']);
	expect((await clientOf(again).eventPage({ consumer: 'kiosk' })).events).toEqual([]);
});

test('without a consumer it resumes after an id, and acknowledges nothing', async () => {
	const { service, device, client } = await givenDevice();
	for (const id of ['1', '2', '3']) service.notify({ type: `kind-${id}`, id });
	const { id: since } = await device.untilEvent(({ kind }) => kind === 'kind-1');
	const kinds: string[] = [];
	for await (const { kind } of client.events({ since })) if (kinds.push(kind) === 2) break;
	expect((await client.eventPage({ since })).events.map(({ kind }) => kind)).toEqual(['kind-2', 'kind-3']);
	expect(kinds).toEqual(['kind-2', 'kind-3']);
});

test('a signal that is aborted while nothing comes ends the loop, and leaves no connection', async () => {
	const { device, client } = await givenDevice();
	const { id: since } = await device.untilEvent(({ type }) => type === 'gap');
	const stop = new AbortController();
	onTestFinished(() => stop.abort());
	const reading = (async () => {
		for await (const { kind } of client.events({ since, signal: stop.signal })) return kind;
		return 'ended';
	})();
	await client.status();
	stop.abort();
	expect(await reading).toBe('ended');
});

test('a lease is held while the work is done, and released also when the work fails', async () => {
	const { client } = await givenDevice();
	const names = async () => (await client.leases()).leases.map(({ name }) => name);
	expect(await client.withLease('kiosk', names)).toEqual(['kiosk']);
	await expect(client.withLease('kiosk', () => Promise.reject(new Error('failed')))).rejects.toThrow('failed');
	expect(await names()).toEqual([]);
	await client.hold('by-hand', 30);
	expect(await names()).toEqual(['by-hand']);
	expect((await client.release('by-hand')).leases).toEqual([]);
});

test('the service answers through the agent, whatever its status, with bodies both ways', async () => {
	const { service, client } = await givenDevice();
	service.failNext('/api/tea', { status: 418, headers: { 'x-pot': 'short' }, body: { stout: true } });
	const answer = await client.service('api/tea?cups=2', { method: 'POST', body: { sugar: 1 } });
	expect([answer.status, answer.headers.get('x-pot'), await answer.json()]).toEqual([418, 'short', { stout: true }]);
	service.failNext('/api/none', { status: 204 });
	const empty = await client.service('/api/none', { method: 'DELETE' });
	expect([empty.status, await empty.text()]).toEqual([204, '']);
	const refused = await client.service('api/device/connection', { method: 'POST', body: 'text' });
	expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([403, 'access-denied']);
});

test('a refusal of the agent has its code, status and remedy', async () => {
	const { client } = await givenDevice();
	const { status, code, remedy } = await problemOf(client.hold('not a name'));
	expect([status, code]).toEqual([422, 'body-invalid']);
	expect(remedy).not.toBe('');
	const loop = async () => {
		for await (const { kind } of client.events({ consumer: 'not a name' })) return kind;
	};
	expect((await problemOf(loop())).code).toBe('body-invalid');
});

test('no agent: each call says so', async () => {
	const client = createClient({ socketPath: '/nonexistent/agent.sock' });
	for (const asking of [client.status(), client.service('api/x')]) {
		const problem = await problemOf(asking);
		expect([problem.status, problem.code]).toEqual([0, 'agent-not-running']);
		expect(problem.message).toContain('/nonexistent/agent.sock');
	}
});
