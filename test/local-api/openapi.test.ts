/** `/v1/openapi.json` against the agent that serves it: routes and document hold each other in both directions. */
import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatDocument } from '../../scripts/openapi-document.ts';
import { localRoutes } from '../../src/local-api/routes.runner.ts';
import type { LocalRoute } from '../../src/local-api/server/local-server.edge.ts';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import type { EmbeddedService } from '../../src/service/embedded-service.runner.ts';
import { givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';
import { type Answered, type Asked, type AskedListener, ask } from './local-asking.ts';

const ORIGIN = 'https://kiosk.example.com';
const TOKEN = 'kiosk-token-0123456789012345678901';

interface Operation {
	readonly operationId: string;
	readonly 'x-idv-entrances': readonly AskedListener[];
	readonly requestBody?: { readonly content: Content };
	readonly responses: Readonly<Record<string, { readonly content?: Content; readonly headers?: object }>>;
}
type Content = Readonly<Record<string, { readonly schema?: object }>>;

interface LocalDocument {
	readonly openapi: string;
	readonly info: { readonly version: string };
	readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
	readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

/** The table as it is: none of its handlers is called. */
const ROUTES = localRoutes(...([{}, {}] as unknown as Parameters<typeof localRoutes>));

async function givenDevice() {
	const service = await givenService();
	const home = await givenHome();
	const applicationsFile = await home.secretFile('applications', `kiosk ${ORIGIN} ${TOKEN}`);
	const settings = { local: { metricsPort: 0, http: { port: 0, applicationsFile } } };
	const device = await givenPairedAgent(service, { home, settings });
	const document: LocalDocument = (await ask(device, LOCAL_ROUTES.document)).json;
	return { service, device, document };
}

const askOn = (device: RunningAgent, socket: AskedListener, path: string, asked: Asked = {}) => {
	const own = socket === 'browser' ? { Origin: ORIGIN, Authorization: `Bearer ${TOKEN}` } : {};
	return ask(device, path, { ...asked, socket, headers: { ...own, ...asked.headers } });
};

const pathOf = ({ path, prefix }: LocalRoute) => (prefix ? `${path}{path}` : path);
const methodsOf = ({ method }: LocalRoute) =>
	method === '*' ? ['get', 'head', 'post', 'put', 'patch', 'delete'] : [method.toLowerCase()];
const operationsOf = ({ paths }: LocalDocument) =>
	Object.entries(paths).flatMap(([path, operations]) =>
		Object.entries(operations).map(([method, operation]) => ({ path, method, operation })),
	);

/** Validates by the schemas of the document, each closed: a field that is not described does not fit. */
function readSchemas(document: LocalDocument): (schema: object | undefined) => ValidateFunction {
	const ajv = new Ajv2020({ allErrors: true, strict: false });
	formats.default(ajv);
	const closed = JSON.parse(JSON.stringify(document.components), (_, value) =>
		value?.type === 'object' && value.properties ? { ...value, additionalProperties: false } : value,
	);
	ajv.addSchema({ $id: 'document', components: closed });
	return (schema) => {
		const { $ref } = schema as { $ref?: string };
		return ajv.compile($ref === undefined ? (schema ?? false) : { $ref: `document${$ref}` });
	};
}

function expectToFit(validate: ValidateFunction, value: unknown, what: string): void {
	expect({ what, fits: validate(value), errors: validate.errors ?? [] }).toEqual({ what, fits: true, errors: [] });
}

test('docs/openapi.json, which is in the package, is the document of this version', async () => {
	// `node scripts/openapi-document.ts` writes it again.
	expect(readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8')).toBe(formatDocument());
	const { document } = await givenDevice();
	const { info: _, ...rest } = document;
	expect(rest).toEqual((({ info: _, ...kept }) => kept)(JSON.parse(formatDocument())));
});

test('the document is valid OpenAPI 3.1, the same on every listener that has it', async () => {
	const { device, document } = await givenDevice();
	expect(document.openapi).toMatch(/^3\.1\./);
	expect(document.info.version).toBe(device.agent.status().agentVersion);
	expect(await new Validator().validate({ ...document })).toEqual({ valid: true });
	for (const socket of ['admin', 'browser'] as const)
		expect((await askOn(device, socket, LOCAL_ROUTES.document)).json).toEqual(document);
});

test('every route is described: its methods, its listeners, what it takes and what it answers', async () => {
	const { document } = await givenDevice();
	const described = operationsOf(document).map(({ path, method, operation }) => ({
		path,
		method,
		listeners: operation['x-idv-entrances'],
		takesJson: operation.requestBody?.content['application/json']?.schema !== undefined,
		answers: Object.keys(operation.responses).some((status) => /^2/.test(status)),
		problems: Object.keys(operation.responses['default']?.content ?? {}),
	}));
	const there = ROUTES.flatMap((route) =>
		methodsOf(route).map((method) => ({
			path: pathOf(route),
			method,
			listeners: [...route.listeners],
			takesJson: typeof route.body === 'object',
			answers: true,
			// A HEAD has none of them, and the service sends what it likes.
			problems: method === 'head' ? [] : ['application/problem+json', ...(route.body === 'raw' ? ['*/*'] : [])],
		})),
	);
	const byName = (one: { path: string; method: string }, other: { path: string; method: string }) =>
		`${one.path} ${one.method}`.localeCompare(`${other.path} ${other.method}`);
	expect(described.sort(byName)).toEqual(there.sort(byName));
	expect(new Set(there.map(({ path }) => path))).toEqual(
		new Set(Object.values(LOCAL_ROUTES).map((path) => (path === LOCAL_ROUTES.service ? `${path}{path}` : path))),
	);
	const ids = operationsOf(document).map(({ operation }) => operation.operationId);
	expect(new Set(ids).size).toBe(ids.length);
});

test('every described path answers where the document says, and nowhere else', async () => {
	const { device, document } = await givenDevice();
	for (const { path, method, operation } of operationsOf(document))
		for (const socket of ['agent', 'admin', 'browser', 'probe'] as const) {
			// A body that no route takes: nothing is moved by asking, and the route is reached all the same.
			const leave = 'text/event-stream' in (operation.responses['200']?.content ?? {});
			const asked = { method: method.toUpperCase(), leave, ...(operation.requestBody && { body: null }) };
			if (/reconnect|unpair/.test(path) && socket === 'admin') continue;
			const { status, json } = await askOn(device, socket, path.replace('{path}', 'api/nothing'), asked);
			const isHere = operation['x-idv-entrances'].includes(socket);
			const what = `${method} ${path} on ${socket}`;
			if (isHere) expect([what, [403, 405].includes(status), json?.code]).toEqual([what, false, json?.code]);
			else expect([what, status, json?.code]).toEqual([what, 403, method === 'head' ? undefined : 'access-denied']);
			if (isHere && status === 404) expect(path).toContain('{path}');
		}
});

test('every answer of the service and every refusal of the agent under /v1/service/ is described, for each method that is passed on', async () => {
	const { service, device, document } = await givenDevice();
	const fits = readSchemas(document)({ $ref: '#/components/schemas/Problem' });
	const operations = document.paths[`${LOCAL_ROUTES.service}{path}`] ?? {};
	for (const [method, { responses }] of Object.entries(operations))
		for (const status of [200, 204, 304, 404, 409, 500, 503]) {
			const type = status === 204 || status === 304 ? undefined : 'text/x-tea';
			service.failNext('/api/tea', { status, ...(type && { headers: { 'content-type': type }, body: 'tea' }) });
			for (const path of ['api/tea', 'api/device/connection']) {
				const told = await ask(device, `${LOCAL_ROUTES.service}${path}`, { method: method.toUpperCase() });
				const isOwn = told.headers['idv-agent-effect'] !== undefined;
				expect([told.status, isOwn]).toEqual(path === 'api/tea' ? [status, false] : [403, true]);
				const described = responses[told.status] ?? responses[`${String(told.status)[0]}XX`] ?? responses['default'];
				const types = Object.keys(described?.content ?? {});
				const what = `${method} ${told.status} ${told.text}`;
				if (told.text === '') expect([what, method === 'head' ? types : []]).toEqual([what, []]);
				else if (isOwn) expectToFit(fits, told.json, what);
				else expect([what, types]).toEqual([what, expect.arrayContaining(['*/*'])]);
				if (isOwn) expect(Object.keys(described?.headers ?? {})).toEqual(['Idv-Agent-Effect']);
			}
		}
	expect(Object.keys(operations)).toHaveLength(6);
});

/** A request for each operation that really does what it says, in an order in which each can. */
function requestsOf(
	service: EmbeddedService,
	device: RunningAgent,
): [string, AskedListener, string, string, unknown?][] {
	const { url: code } = service.createPairingCode('boarding');
	const trustOrigin = new URL(code).origin;
	const id = device.agent.status().newestEventId;
	return [
		['getDocument', 'agent', 'GET', LOCAL_ROUTES.document],
		['getStatus', 'agent', 'GET', LOCAL_ROUTES.status],
		['getEvents', 'agent', 'GET', `${LOCAL_ROUTES.events}?consumer=kiosk`],
		['acknowledgeEvents', 'browser', 'POST', LOCAL_ROUTES.ack, { consumer: 'kiosk', id }],
		['forgetConsumer', 'agent', 'POST', LOCAL_ROUTES.forget, { consumer: 'kiosk' }],
		['reportHook', 'agent', 'POST', LOCAL_ROUTES.hookReport, { outcome: 'exited' }],
		['holdLease', 'browser', 'POST', LOCAL_ROUTES.leases, { name: 'kiosk', seconds: 30 }],
		['getLeases', 'agent', 'GET', LOCAL_ROUTES.leases],
		['releaseLease', 'agent', 'POST', LOCAL_ROUTES.leaseRelease, { name: 'kiosk' }],
		['getIdentity', 'agent', 'GET', LOCAL_ROUTES.identity],
		['acceptIdentity', 'admin', 'POST', LOCAL_ROUTES.identityAccept],
		['getScanners', 'agent', 'GET', LOCAL_ROUTES.scanners],
		['getSettings', 'admin', 'GET', LOCAL_ROUTES.settings],
		['getMetrics', 'probe', 'GET', LOCAL_ROUTES.metrics],
		['getLive', 'probe', 'GET', LOCAL_ROUTES.live],
		['getReady', 'probe', 'GET', LOCAL_ROUTES.ready],
		['inspectPairing', 'admin', 'POST', LOCAL_ROUTES.pairInspect, { code, trustOrigin }],
		['pair', 'admin', 'POST', LOCAL_ROUTES.pair, { code, trustOrigin, replace: true }],
		['setWorkflow', 'admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId: 'check-in' }],
		['reconnect', 'admin', 'POST', LOCAL_ROUTES.reconnect],
		['getLog', 'admin', 'GET', LOCAL_ROUTES.log],
		['getAudit', 'admin', 'GET', LOCAL_ROUTES.audit],
		['getPlan', 'admin', 'GET', LOCAL_ROUTES.plan],
		['forgetPlan', 'admin', 'POST', LOCAL_ROUTES.planForget],
		['eraseEvents', 'admin', 'POST', LOCAL_ROUTES.erase, { session: 'x' }],
		['unpair', 'admin', 'POST', LOCAL_ROUTES.unpair],
		['getReady', 'probe', 'GET', LOCAL_ROUTES.ready],
	];
}

test('what the routes really answer fits the schemas of the document, to the last field', async () => {
	const { service, device, document } = await givenDevice();
	service.notify({ type: 'session.started', id: 'n-1' });
	service.sendRaw('no JSON');
	await device.untilEvent(({ format }) => format === 'text');
	const validateBy = readSchemas(document);
	const operations = new Map(operationsOf(document).map(({ operation }) => [operation.operationId, operation]));
	const asked = new Set<string>();
	for (const [name, socket, method, path, body] of requestsOf(service, device)) {
		const operation = operations.get(name) ?? expect.fail(name);
		if (body !== undefined) {
			const takes = operation.requestBody?.content['application/json']?.schema;
			expectToFit(validateBy(takes), body, `request of ${name}`);
		}
		const { status, headers, json } = await askOn(device, socket, path, { method, body });
		const content = operation.responses[status]?.content ?? expect.fail(`${name} answered ${status}`);
		const type = (headers['content-type'] ?? '').split(';')[0] ?? '';
		expect(Object.keys(content)).toContain(type);
		const schema = content[type]?.schema;
		if (json !== undefined && schema) expectToFit(validateBy(schema), json, `answer of ${name}`);
		asked.add(name);
	}
	const others = [...operations.keys()].filter((name) => /^askService|^stream/.test(name));
	expect(new Set([...operations.keys()].filter((name) => !asked.has(name)))).toEqual(new Set(others));
});

test.each([
	['streamEvents', LOCAL_ROUTES.eventStream, LOCAL_ROUTES.events, 'Event'],
	['streamStatus', LOCAL_ROUTES.statusStream, LOCAL_ROUTES.status, 'Status'],
])(
	'%s has a path of its own, and the older path answers the same to those who accept a stream',
	async (name, path, older, schema) => {
		const { service, device, document } = await givenDevice();
		service.notify({ type: 'hello', id: 'n-1' });
		await device.untilEvent(({ kind }) => kind === 'hello');
		const described = operationsOf(document).find(({ operation }) => operation.operationId === name)?.operation;
		expect(described?.responses['200']?.content).toEqual({
			'text/event-stream': { schema: { $ref: `#/components/schemas/${schema}` } },
		});
		const fits = readSchemas(document)({ $ref: `#/components/schemas/${schema}` });
		for (const [asked, headers] of [
			[path, {}],
			[path, { accept: 'application/json' }],
			[older, { accept: 'text/event-stream' }],
		] as const) {
			const { headers: got, text } = await ask(device, asked, { headers, leave: true });
			expect(got['content-type']).toMatch(/^text\/event-stream/);
			const [, data = ''] = /^data: (.*)$/m.exec(text) ?? expect.fail(text);
			expectToFit(fits, JSON.parse(data), name);
		}
	},
);

test('a stream on its own path resumes after an id', async () => {
	const { service, device } = await givenDevice();
	for (const id of ['1', '2']) service.notify({ type: `kind-${id}`, id });
	const { id } = await device.untilEvent(({ kind }) => kind === 'kind-1');
	await device.untilEvent(({ kind }) => kind === 'kind-2');
	for (const [path, headers] of [
		[`${LOCAL_ROUTES.eventStream}?since=${id}`, {}],
		[LOCAL_ROUTES.eventStream, { 'Last-Event-ID': id }],
	] as const)
		expect((await ask(device, path, { headers, leave: true })).text).toMatch(
			/^id: .*\n(?:event: .*\n)?data: .*"kind-2"/,
		);
});

test('refusals are the described problem', async () => {
	const { device, document } = await givenDevice();
	const fits = readSchemas(document)({ $ref: '#/components/schemas/Problem' });
	const refused: [number, Promise<Answered>][] = [
		[404, ask(device, '/v1/nothing')],
		[405, ask(device, LOCAL_ROUTES.status, { method: 'DELETE' })],
		[403, ask(device, LOCAL_ROUTES.unpair, { method: 'POST' })],
		[415, ask(device, LOCAL_ROUTES.leases, { method: 'POST', bytes: '{}' })],
		[422, ask(device, LOCAL_ROUTES.leases, { method: 'POST', body: { name: '', other: 1 } })],
		[413, ask(device, LOCAL_ROUTES.leases, { method: 'POST', body: { name: 'x'.repeat(20_000) } })],
		[403, ask(device, `${LOCAL_ROUTES.service}api/device/connection`, { method: 'POST' })],
		[401, ask(device, LOCAL_ROUTES.status, { socket: 'browser', headers: { Origin: ORIGIN } })],
	];
	for (const [expected, asking] of refused) {
		const { status, headers, json } = await asking;
		expect([status, headers['content-type']]).toEqual([expected, 'application/problem+json']);
		expectToFit(fits, json, String(expected));
	}
});

test('a body that a route takes fits its described schema: the document is no stricter than the agent', async () => {
	const { document } = await givenDevice();
	const validateBy = readSchemas(document);
	for (const route of ROUTES) {
		if (typeof route.body !== 'object') continue;
		const operation = document.paths[route.path]?.[route.method.toLowerCase()];
		const fits = validateBy(operation?.requestBody?.content['application/json']?.schema);
		const { body: schema } = route;
		const word = fc.oneof(fc.constantFrom('kiosk', 'a.b-c_d', 'e-1', 'https://id.example.com', ' ', ''), fc.string());
		const value = fc.oneof(word, fc.boolean(), fc.integer({ min: -1, max: 3601 }), fc.double(), fc.constant(null));
		const names = ['code', 'workflowId', 'replace', 'trustOrigin', 'consumer', 'id', 'name', 'seconds'];
		const body = fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.string()), value, { maxKeys: 4 });
		const plausible = fc.record(
			{ code: word, consumer: word, id: word, name: word, workflowId: word, seconds: value },
			{ requiredKeys: [] },
		);
		fc.assert(
			fc.property(fc.oneof(body, plausible), (candidate) => {
				const taken = schema.safeParse(candidate).success;
				if (taken) expectToFit(fits, candidate, route.path);
			}),
			{ numRuns: 300 },
		);
	}
});
