/**
 * The OpenAPI document of the local interface, made from the route table, the zod schemas and the words beside them when
 * somebody asks for it. Loaded only then. Describes routes, never decides what they do.
 */
import * as z from 'zod';
import {
	ackResultSchema,
	eventPageSchema,
	eventSchema,
	failureSchema,
	forgetResultSchema,
	identityReportSchema,
	leaseReportSchema,
	liveReportSchema,
	logReportSchema,
	pairPreviewSchema,
	pairResultSchema,
	problemSchema,
	readyReportSchema,
	scannerReportSchema,
	statusSchema,
} from '../protocol/local-answers.ts';
import {
	ackRequestSchema,
	forgetRequestSchema,
	leaseReleaseSchema,
	leaseRequestSchema,
	pairRequestSchema,
	workflowRequestSchema,
} from '../protocol/local-api.ts';
import { PROBLEM_CONTENT_TYPE } from '../protocol/problem.ts';
import { type Content, FIELD_WORDS, PARAMETERS, ROUTE_WORDS, type RouteWords } from './openapi-words.ts';
import type { LocalMethod, LocalRoute } from './server/local-server.ts';

const REQUESTS = {
	AckRequest: ackRequestSchema,
	ForgetRequest: forgetRequestSchema,
	LeaseRequest: leaseRequestSchema,
	LeaseRelease: leaseReleaseSchema,
	PairRequest: pairRequestSchema,
	WorkflowRequest: workflowRequestSchema,
} as const;

const ANSWERS = {
	Status: statusSchema,
	Event: eventSchema,
	EventPage: eventPageSchema,
	AckResult: ackResultSchema,
	ForgetResult: forgetResultSchema,
	LeaseReport: leaseReportSchema,
	IdentityReport: identityReportSchema,
	ScannerReport: scannerReportSchema,
	PairPreview: pairPreviewSchema,
	PairResult: pairResultSchema,
	LiveReport: liveReportSchema,
	LogReport: logReportSchema,
	ReadyReport: readyReportSchema,
	Problem: problemSchema,
	ProblemSummary: failureSchema,
} as const;
export type AnswerName = keyof typeof ANSWERS;

/** What a route with the method `*` is described by. */
const METHODS: readonly LocalMethod[] = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

type Json = Record<string, unknown>;

/**
 * OpenAPI 3.1, for all entrances; `x-idv-entrances` says on which of them an operation is answered.
 * @throws Error for a route, a body or a field that nobody has described: a fault, and a test looks for it.
 */
export function describeRoutes(routes: readonly LocalRoute[], version: string): Json {
	const paths: Record<string, Json> = {};
	for (const route of routes) {
		const path = route.prefix ? `${route.path}{path}` : route.path;
		const methods = route.method === '*' ? METHODS : [route.method];
		paths[path] ??= {};
		for (const method of methods) Object.assign(paths[path], { [method.toLowerCase()]: describe(route, method) });
	}
	return {
		openapi: '3.1.1',
		info: {
			title: 'idv-agent local interface',
			version,
			description:
				'For kiosk applications on agent.sock, for administration on admin.sock; where the settings ask for it, on ' +
				'loopback for applications in a browser and for scrapers. Each operation says where it is answered (x-idv-entrances).',
			license: { name: 'MIT', identifier: 'MIT' },
		},
		servers: [
			{ url: 'http://agent', description: 'Over a Unix socket: any host name will do.' },
			{
				url: 'http://127.0.0.1:{port}',
				description: 'local.http.port for applications in a browser, local.metricsPort for scrapers.',
				variables: { port: { default: '8766' } },
			},
		],
		paths,
		components: {
			schemas: { ...toSchemas(REQUESTS, 'input'), ...toSchemas(ANSWERS, 'output') },
			securitySchemes: {
				applicationToken: {
					type: 'http',
					scheme: 'bearer',
					description:
						'For applications in a browser only: the token beside their origin in local.http.applicationsFile. An ' +
						'EventSource puts it into ?access_token=.',
				},
			},
		},
	};
}

function describe({ method, path, prefix, body, sockets }: LocalRoute, as: LocalMethod): Json {
	const words = ROUTE_WORDS[`${method} ${path}`];
	if (!words) throw new Error(`${method} ${path} is not described`);
	const { name, summary, description } = words;
	const parameters = [...(words.parameters ?? []).map((known) => PARAMETERS[known]), ...(prefix ? [PATH] : [])];
	return {
		operationId: method === '*' ? `${name}${as.charAt(0)}${as.slice(1).toLowerCase()}` : name,
		summary,
		...(description && { description }),
		'x-idv-entrances': sockets,
		...(sockets.includes('browser') && { security: [{}, { applicationToken: [] }] }),
		...(parameters.length > 0 && { parameters }),
		...describeBody(body, as),
		responses: describeAnswers(words),
	};
}

/** The rest of the path of a prefix. */
const PATH = {
	name: 'path',
	in: 'path',
	required: true,
	description: 'Path below the base URL of the service, with its slashes and its query.',
	schema: { type: 'string' },
};

function describeBody(body: LocalRoute['body'], method: LocalMethod): Json {
	if (body === undefined) return {};
	if (body === 'raw') return method === 'GET' ? {} : { requestBody: { content: { '*/*': {} } } };
	const name = Object.entries(REQUESTS).find(([, schema]) => schema === body)?.[0];
	if (!name) throw new Error('a body has no name in the document');
	return { requestBody: { required: true, content: { 'application/json': { schema: refer(name) } } } };
}

function describeAnswers({ answers }: RouteWords): Json {
	const described = Object.entries(answers).map(([status, { about, content = {} }]) => [
		status,
		{ description: about, ...(Object.keys(content).length > 0 && { content: describeContent(content) }) },
	]);
	const problem = {
		description: 'What went wrong and what to do about it.',
		content: { [PROBLEM_CONTENT_TYPE]: { schema: refer('Problem') } },
	};
	return { ...Object.fromEntries(described), default: problem };
}

function describeContent(content: Content): Json {
	const schemas = Object.entries(content).map(([type, schema]) => [
		type,
		schema === 'any' ? {} : { schema: schema === 'text' ? { type: 'string' } : refer(schema) },
	]);
	return Object.fromEntries(schemas);
}

function refer(name: string): Json {
	return { $ref: schemaPath(name) };
}

function schemaPath(name: string): string {
	return `#/components/schemas/${name}`;
}

function toSchemas(named: Readonly<Record<string, z.ZodType>>, io: 'input' | 'output'): Json {
	const registry = z.registry<{ id: string }>();
	for (const [id, schema] of Object.entries(named)) registry.add(schema, { id });
	const { schemas } = z.toJSONSchema(registry, {
		io,
		uri: schemaPath,
		override({ jsonSchema }) {
			// The format says it, and can be read.
			if (jsonSchema.format) delete jsonSchema.pattern;
			if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
			if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
			// New fields may come; who asks must not send any.
			if (io === 'output') delete jsonSchema.additionalProperties;
		},
	});
	const entries = Object.entries(schemas).map(([name, { $schema, $id, ...schema }]) => {
		for (const [field, words] of Object.entries(FIELD_WORDS[name] ?? {})) setDescription(schema, name, field, words);
		return [name, schema];
	});
	return Object.fromEntries(entries);
}

/** @param field dotted path of a property. */
function setDescription(schema: Json, name: string, field: string, words: string): void {
	const found = field.split('.').reduce<Json | undefined>((at, key) => {
		return (at?.['properties'] as Record<string, Json> | undefined)?.[key];
	}, schema);
	if (!found) throw new Error(`${name} has no field ${field}`);
	found['description'] = words;
}
