import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createNetwork, type NetworkSettings } from '../../src/connection/network.edge.ts';
import { fetchPlan, type PlanRequest } from '../../src/fleet/fetch-plan.edge.ts';
import { connectProxy, fixture, identity, refusedPort } from '../connection/network-peers.ts';
import { etagOf, givenPlanServer, type Mood } from '../fixtures/plans.ts';

const PLAN = '{"format":"idv-fleet-plan/1","revision":1}';

async function look(url: string, more: Partial<PlanRequest> = {}, settings: NetworkSettings = {}) {
	const network = await createNetwork(settings, {});
	onTestFinished(() => network.close());
	return fetchPlan(network, { ...requestFor(url), ...more });
}

function requestFor(url: string): PlanRequest {
	return {
		url: new URL(url),
		etag: null,
		userAgent: 'idv-agent/test',
		deadlineMs: 15_000,
		maxBytes: 10_000,
		signal: new AbortController().signal,
	};
}

const reasonOf = (looking: Promise<unknown>) =>
	looking.then(
		() => 'none',
		({ code, message }: { code: string; message: string }) => `${code}: ${message}`,
	);

describe('a plan over https', () => {
	const secure = () => givenPlanServer(PLAN, identity('server'));

	test('comes from a server whose authority the settings name, and from no other', async () => {
		const { url } = await secure();
		const found = await look(url, {}, { caFile: fixture('ca.pem') });
		expect(found).toMatchObject({ kind: 'changed', etag: etagOf(Buffer.from(PLAN)) });
		expect(found.kind === 'changed' && Buffer.from(found.bytes).toString()).toBe(PLAN);
		expect(await reasonOf(look(url))).toMatch(/^plan-unreachable: The fleet plan was not fetched: .*certificate/);
	});

	test('resumes the TLS session at the next look, which opens no full handshake', async () => {
		const resumed: boolean[] = [];
		const server = await secure();
		server.behave((response, body, request) => {
			resumed.push((request.socket as TLSSocket).isSessionReused());
			response.writeHead(200).end(body);
		});
		const network = await createNetwork({ caFile: fixture('ca.pem') }, {});
		onTestFinished(() => network.close());
		for (let looks = 0; looks < 3; looks += 1) await fetchPlan(network, requestFor(server.url));
		expect(resumed).toEqual([false, true, true]);
	});

	test('comes from no other, whatever the environment says, with and without a proxy', async () => {
		const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
		process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
		onTestFinished(() => {
			if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
			else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before;
		});
		const { url, answers } = await secure();
		expect(await reasonOf(look(url))).toMatch(/certificate/);
		const proxy = await connectProxy({ targetPort: Number(new URL(url).port) });
		const named = url.replace('127.0.0.1', 'service.test');
		const proxied = look(named, {}, { proxy: `http://127.0.0.1:${proxy.port}` });
		expect(await reasonOf(proxied)).toMatch(/certificate/);
		expect(answers).toEqual([]);
	});

	test('goes through the proxy', async () => {
		const { url, answers } = await secure();
		const proxy = await connectProxy({ targetPort: Number(new URL(url).port) });
		const settings = { proxy: `http://127.0.0.1:${proxy.port}`, caFile: fixture('ca.pem') };
		const named = url.replace('127.0.0.1', 'service.test');
		expect(await look(named, {}, settings)).toMatchObject({ kind: 'changed' });
		expect(answers).toEqual([200]);
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:\d+ /);
	});

	test('is not fetched when the proxy is not there, which the reason names', async () => {
		const settings = { proxy: `http://127.0.0.1:${await refusedPort()}` };
		const reason = await reasonOf(look('https://service.test/plan.json', {}, settings));
		expect(reason).toContain("The proxy on the way to service.test can't be reached (ECONNREFUSED)");
	});

	test('is not fetched past a proxy that refuses', async () => {
		const proxy = await connectProxy({ status: 403 });
		const settings = { proxy: `http://127.0.0.1:${proxy.port}` };
		expect(await reasonOf(look('https://service.test/plan.json', {}, settings))).toMatch(/^plan-unreachable: .*proxy/i);
	});
});

const moods: [string, Mood, string, RegExp][] = [
	['404', (response) => void response.writeHead(404).end('no'), 'plan-unreachable', /answered 404/],
	[
		'a redirect',
		(response) => void response.writeHead(302, { location: 'https://x.test/' }).end(),
		'plan-unreachable',
		/redirect \(302\)/,
	],
	['503', (response) => void response.writeHead(503).end(), 'plan-unreachable', /answered 503/],
	['304 nobody asked for', (response) => void response.writeHead(304).end(), 'plan-unreachable', /answered 304/],
	['no answer', (response) => void response.destroy(), 'plan-unreachable', /was not fetched/],
	[
		'half a body',
		(response, body) =>
			void response
				.writeHead(200, { 'content-length': body.length })
				.write(body.subarray(0, 20), () => response.destroy()),
		'plan-unreachable',
		/was not fetched|was cut off/,
	],
	[
		'half a body in chunks',
		(response, body) => void response.writeHead(200).write(body.subarray(0, 20), () => response.destroy()),
		'plan-unreachable',
		/was not fetched|was cut off/,
	],
	[
		'gzip that is none',
		(response, body) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end(body),
		'plan-invalid',
		/cannot be unpacked/,
	],
	[
		'half a gzip',
		(response, body) =>
			void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(body).subarray(0, 30)),
		'plan-invalid',
		/cannot be unpacked/,
	],
	[
		'another coding',
		(response, body) => void response.writeHead(200, { 'content-encoding': 'compress' }).end(body),
		'plan-invalid',
		/unsupported Content-Encoding/,
	],
	[
		'too much',
		(response) => void response.writeHead(200).end(Buffer.alloc(10_001, 0x20)),
		'plan-invalid',
		/larger than 10000 bytes/,
	],
	[
		'a bomb',
		(response) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync(Buffer.alloc(1_000_000))),
		'plan-invalid',
		/larger than 10000 bytes/,
	],
];
test.each(moods)('%s is no plan, and is told as what it is', async (_, mood, code, words) => {
	const server = await givenPlanServer(PLAN);
	server.behave(mood);
	const reason = await reasonOf(look(server.url));
	expect(reason).toMatch(words);
	expect(reason.split(':')[0]).toBe(code);
});

test('without encryption a plan comes from this machine only', async () => {
	const { url } = await givenPlanServer(PLAN);
	expect(await look(url)).toMatchObject({ kind: 'changed' });
	expect(await reasonOf(look('http://service.test/plan.json'))).toMatch(/is not fetched without encryption/);
});

test('a query opens an object store, and is never told', async () => {
	const { url, answers } = await givenPlanServer(PLAN);
	expect(await look(`${url}?signature=s3cret`)).toMatchObject({ kind: 'changed' });
	expect(answers).toEqual([200]);
	const closed = `http://127.0.0.1:${await refusedPort()}/plan.json?signature=s3cret`;
	const reason = await reasonOf(look(closed));
	expect(reason).toMatch(/^plan-unreachable/);
	expect(reason).not.toMatch(/s3cret|plan\.json/);
});

test('an answer that drips is given up at the deadline', async () => {
	const server = await givenPlanServer(PLAN);
	server.behave((response) => {
		response.writeHead(200);
		const drip = setInterval(() => response.write(' '), 20);
		response.on('close', () => clearInterval(drip));
	});
	expect(await reasonOf(look(server.url, { deadlineMs: 300 }))).toMatch(
		/^plan-unreachable: The fleet plan was not fetched/,
	);
});

test('one that is called off ends at once, and nothing is left of it [F1843]', async () => {
	const server = await givenPlanServer(PLAN);
	const asked = new Promise<void>((resolve) => server.behave(() => resolve()));
	const abort = new AbortController();
	const looking = reasonOf(look(server.url, { signal: abort.signal }));
	await asked;
	abort.abort(new Error('called off'));
	expect(await looking).toMatch(/^plan-unreachable: .* was lost\.$/);
	await server.untilAnswered(1);
});

test('of an answer that is no plan nothing more is read: its connection is gone at once', async () => {
	const server = await givenPlanServer(PLAN);
	server.behave((response) => response.writeHead(503).write('It goes on'));
	expect(await reasonOf(look(server.url))).toMatch(/answered 503 instead of the fleet plan/);
	await server.untilAnswered(1);
});

test.each(['identity', 'gzip'])('a plan may be as large as it may be, and not a byte larger: %s', async (coding) => {
	const server = await givenPlanServer(PLAN);
	const plan = Buffer.from(JSON.stringify({ text: 'x'.repeat(1000) }));
	const sent = coding === 'gzip' ? gzipSync(plan) : plan;
	server.behave((response) => response.writeHead(200, { 'Content-Encoding': coding }).end(sent));
	expect(await look(server.url, { maxBytes: plan.length })).toMatchObject({ kind: 'changed', bytes: plan });
	expect(await reasonOf(look(server.url, { maxBytes: plan.length - 1 }))).toMatch(/^plan-invalid: .* is larger than/);
});
