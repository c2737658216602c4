/** The OpenAPI document of the local interface, made from the route table. Loaded only when a caller asks for it. */
import * as z from 'zod';
import { made } from '../protocol/later.ts';
import * as localAnswers from '../protocol/local-answers.ts';
import { EFFECT_HEADER, PROBLEM_CONTENT_TYPE } from '../protocol/problem.ts';
import { settingsReportSchema } from '../protocol/settings-report.ts';
import type { LocalListener, LocalMethod, LocalRoute } from './server/local-server.edge.ts';

/** Each schema of an answer has the name in the document that it has in the source: `statusSchema` is `Status`. */
type NameOf<Key> = Key extends `${infer Name}Schema` ? Capitalize<Name> : never;
const answers = { ...localAnswers, settingsReportSchema };
export type AnswerName = NameOf<keyof typeof answers>;
const ANSWERS = Object.fromEntries(
	Object.entries(answers)
		.filter(([key]) => key.endsWith('Schema'))
		.map(([key, schema]) => [key.charAt(0).toUpperCase() + key.slice(1, -'Schema'.length), schema as z.ZodType]),
);

/** By content type: the name of a schema, `text`, or `any` for bytes that the agent does not interpret. */
type Content = Readonly<Record<string, AnswerName | 'text' | 'any'>>;

/** One row of the route table: how a route is reached and handled, and its words in the document. */
export interface DescribedRoute extends LocalRoute {
	/** The page has routes of its own. */
	readonly listeners: readonly Exclude<LocalListener, 'page'>[];
	/** `operationId`: the name in a generated client. */
	readonly name: string;
	readonly summary: string;
	readonly description?: string;
	/** Query and headers, as OpenAPI has them. */
	readonly parameters?: readonly object[];
	/** By status; problems are added, and to a raw route what the service answers in their place. */
	readonly answers: Readonly<Record<string, { readonly about: string; readonly content: Content }>>;
}

/** The operations of a route with the method `*`. */
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;

type Json = Record<string, unknown>;

/** OpenAPI 3.1, for all listeners; `x-idv-entrances` says on which. @throws Error for a body without a name. */
export function describeRoutes(routes: readonly DescribedRoute[], version: string): Json {
	const paths: Record<string, Json> = {};
	for (const route of routes) {
		const path = route.prefix ? `${route.path}{path}` : route.path;
		const methods = route.method === '*' ? METHODS : [route.method];
		paths[path] ??= {};
		for (const method of methods) Object.assign(paths[path], { [method.toLowerCase()]: describe(route, method) });
	}
	const requests = routes.flatMap(({ body }) => (typeof body === 'object' ? [[nameOf(body), body] as const] : []));
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
			{ url: 'http://agent', description: 'Over a Unix socket: any host name works.' },
			{
				url: 'http://127.0.0.1:{port}',
				description: 'local.http.port for applications in a browser, local.metricsPort for scrapers.',
				variables: { port: { default: '8766' } },
			},
		],
		// The sockets ask for no credential: their file mode decides who may use them.
		security: [],
		paths,
		components: {
			schemas: { ...toSchemas(Object.fromEntries(requests), 'input'), ...toSchemas(ANSWERS, 'output') },
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

function describe(route: DescribedRoute, as: LocalMethod | 'HEAD'): Json {
	const { method, name, summary, description, listeners, prefix, body } = route;
	const parameters = [...(route.parameters ?? []), ...(prefix ? [PATH] : [])];
	return {
		operationId: method === '*' ? `${name}${as.charAt(0)}${as.slice(1).toLowerCase()}` : name,
		summary,
		...(description && { description }),
		'x-idv-entrances': listeners,
		...(listeners.includes('browser') && { security: [{}, { applicationToken: [] }] }),
		...(parameters.length > 0 && { parameters }),
		...describeBody(body, as),
		responses: describeAnswers(route, as),
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

function describeBody(body: LocalRoute['body'], method: LocalMethod | 'HEAD'): Json {
	if (body === undefined) return {};
	if (body === 'raw') return method === 'GET' || method === 'HEAD' ? {} : { requestBody: { content: { '*/*': {} } } };
	const required = !body.safeParse(undefined).success;
	return { requestBody: { required, content: { 'application/json': { schema: refer(nameOf(body)) } } } };
}

function nameOf(body: z.ZodType): string {
	const id = body.meta()?.id;
	if (!id) throw new Error('a body has no name in the document');
	return id;
}

function describeAnswers({ answers: byStatus, body }: DescribedRoute, as: LocalMethod | 'HEAD'): Json {
	const content = (of: Json) => (as === 'HEAD' || Object.keys(of).length === 0 ? {} : { content: of });
	const described = Object.entries(byStatus).map(([status, answer]) => [
		status,
		{ description: answer.about, ...content(describeContent(answer.content)) },
	]);
	const isPassedOn = body === 'raw';
	const problem = {
		description: isPassedOn
			? 'The answer of the service, or a problem of the agent.'
			: 'What went wrong and what to do about it.',
		...(isPassedOn && { headers: { [EFFECT_HEADER]: EFFECT } }),
		...content({ [PROBLEM_CONTENT_TYPE]: { schema: refer('Problem') }, ...(isPassedOn && { '*/*': {} }) }),
	};
	return { ...Object.fromEntries(described), '4XX': problem, default: problem };
}

const EFFECT = {
	description:
		"Whether the request can have had an effect. On each of the agent's own answers, and on none of the service.",
	schema: { type: 'string', enum: ['none', 'possible'] },
};

function describeContent(content: Content): Json {
	const schemas = Object.entries(content).map(([type, schema]) => [
		type,
		schema === 'any' ? {} : { schema: schema === 'text' ? { type: 'string' } : refer(schema) },
	]);
	return Object.fromEntries(schemas);
}

const refer = (name: string): Json => ({ $ref: schemaPath(name) });
const schemaPath = (name: string) => `#/components/schemas/${name}`;

function toSchemas(named: Readonly<Record<string, z.ZodType>>, io: 'input' | 'output'): Json {
	const registry = z.registry<{ id: string }>();
	for (const [id, schema] of Object.entries(named)) registry.add(made(schema), { id });
	const { schemas } = z.toJSONSchema(registry, {
		io,
		uri: schemaPath,
		override({ jsonSchema }) {
			// The format says the same, and is readable.
			if (jsonSchema.format) delete jsonSchema.pattern;
			if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
			if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
			// New fields may come in an answer; a request must not have any.
			if (io === 'output') delete jsonSchema.additionalProperties;
			// Generators take a field with a default for one that is always there, and then require it in a request.
			if (io === 'input' && 'default' in jsonSchema) {
				jsonSchema.description = `${jsonSchema.description ?? ''} Default: ${jsonSchema.default}.`.trim();
				delete jsonSchema.default;
			}
		},
	});
	// By name: the order of the registry depends on what was loaded first.
	const sorted = Object.entries(schemas).toSorted(([one], [other]) => (one < other ? -1 : 1));
	return Object.fromEntries(sorted.map(([name, { $schema, $id, ...schema }]) => [name, schema]));
}
