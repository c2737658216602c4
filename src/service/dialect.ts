/**
 * How this service differs from what the product assumes. The interface leaves these points open; each field here is one of
 * them, and its default is our assumption. Owns names, bounds and defaults; applies nothing.
 *
 * Every field is independent of the others, so that a generator may draw each at random. `parseDialect({})` is the service
 * as we assume it. `describe()` of each field is its documentation: a table can be made from {@link dialectSchema}.
 */
import * as z from 'zod';
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { DEFAULT_CHANNEL_PATH, ENDPOINTS } from '../protocol/endpoints.ts';

const path = z.string().regex(/^\/[^?#\s]*$/, 'must begin with a slash, without query or fragment');
const pointer = z.string().regex(/^(\/[^/]*)*$/, 'must be a JSON pointer (RFC 6901)');
/** RFC 9110 token: the form of a header name, a subprotocol, and here also of a query parameter. */
const word = z.string().regex(/^[\w!#$%&'*+.^`|~-]{1,64}$/, 'must be one word');
const kind = z.string().min(1).max(256);
const seconds = z.number().positive().max(86_400);

export const dialectSchema = z.strictObject({
	tokenIn: z
		.enum(['json', 'text', 'header'])
		.default('json')
		.describe(
			'Part of the 201 answer to a registration that carries the Connection: JSON, a plain text body, a header.',
		),
	tokenPointer: pointer
		.default('/token')
		.describe('Place of the Connection in a JSON answer. Empty: the whole body is one JSON string. Digits make lists.'),
	tokenHeader: word.default('x-connection').describe('Header that carries the Connection; the body is then {}.'),
	tokenPrefix: z
		.string()
		.regex(/^[ -~]{0,64}$/, 'must be printable ASCII')
		.default('')
		.describe('Text before the Connection in the answer, such as "Connection ". It is not part of the credential.'),
	gzipAnswers: z
		.boolean()
		.default(false)
		.describe(
			'Every HTTP answer with a body is compressed (Content-Encoding: gzip), whether the client accepts it or not.',
		),
	connectionForm: z
		.enum(['jwt', 'opaque'])
		.default('jwt')
		.describe('Opaque: nothing in the Connection can be read by its holder, and the answer does not say when it ends.'),

	channelPath: path.default(DEFAULT_CHANNEL_PATH).describe('Path of the channel, below the base path.'),
	channelAuth: z
		.enum(['either', 'header', 'query', 'queryToken'])
		.default('either')
		.describe(
			'Where the channel looks for the credential; queryToken: it is there without its scheme. No other place counts.',
		),
	queryName: word
		.default(AUTHORIZATION_PARAMETER)
		.describe('Query parameter that carries "<scheme> <credential>", on the channel and everywhere else.'),
	subprotocol: word
		.nullable()
		.default(null)
		.describe('WebSocket subprotocol that the client must offer; without it the upgrade is refused with 400.'),
	answersPing: z.boolean().default(true).describe('Whether WebSocket pings get a pong.'),
	appPing: z
		.strictObject({
			kind: kind.default('ping').describe('`type` of the message that the service sends.'),
			everySeconds: seconds.default(30),
			answer: z.json().default({ type: 'pong' }).describe('The JSON text frame that must come back, in any spelling.'),
		})
		.nullable()
		.default(null)
		.describe('Application-level ping. A ping that is not answered before the next one closes the channel with 4408.'),
	heartbeatAck: kind
		.nullable()
		.default(null)
		.describe('Kind of the message {type, sequence} that answers each heartbeat; null: heartbeats are not answered.'),
	heartbeats: z
		.union([z.enum(['any', 'none']), z.record(z.string(), z.json())])
		.default('any')
		.describe(
			'Frames that a device may send. any: ours count as heartbeats, other frames are session data. none: any frame is refused (pings only). An object: every frame must be JSON of this shape, with the same keys; a text is compared, but "*" allows any text; a number stands for any number, a boolean for any boolean. A refused frame closes the channel with 4400.',
		),
	idleTimeoutSeconds: seconds
		.nullable()
		.default(null)
		.describe(
			'Like a load balancer: a channel without a byte in either direction for this long is cut without a close frame.',
		),

	refusalStatus: z
		.union([z.literal(401), z.literal(403)])
		.default(401)
		.describe('Status for a credential that is missing, unknown, spent or expired, on every endpoint but the channel.'),
	channelRefusalStatus: z
		.union([z.literal(401), z.literal(403), z.literal(404), z.literal(410)])
		.default(401)
		.describe('The same for the channel. Many frameworks answer every refused upgrade with 403.'),
	registrationLimit: z
		.strictObject({
			perMinute: z.int().min(1).max(100_000).default(10),
			window: z.enum(['sliding', 'fixed']).default('sliding'),
			countsRefused: z.boolean().default(false).describe('Whether requests over the limit count as well.'),
			retryAfter: z.boolean().default(true).describe('Whether a 429 says when to try again.'),
		})
		.nullable()
		.default(null)
		.describe('Registrations a minute for each client address; more are refused with 429.'),
	apiKeyPaths: z
		.array(path)
		.min(1)
		.default([...ENDPOINTS.apiKeys])
		.describe('Paths under which API keys are created; the other known ones are answered with 404.'),

	codesNameWorkflow: z
		.boolean()
		.default(true)
		.describe('Whether the link in a pairing code names its workflow. The token is bound to the workflow either way.'),
	workflowNames: z
		.record(z.string(), z.string())
		.nullable()
		.default(null)
		.describe(
			'Names of workflows by id. With it, GET `configurationPath` lists {workflows: [{id, name}]} for every credential that may register (a Short Token stays unspent), and so does the refusal of a registration without a workflow, or with an unknown one.',
		),
	configurationPath: path.default('/api/device/configuration').describe('See `workflowNames`.'),
});

/** Every field with its default in place. */
export type Dialect = z.output<typeof dialectSchema>;
/** Only the fields that differ. */
export type DialectOptions = z.input<typeof dialectSchema>;

/** @throws Error naming the first field that is wrong. */
export function parseDialect(options: DialectOptions = {}): Dialect {
	const read = dialectSchema.safeParse(options);
	if (read.success) return read.data;
	const [issue] = read.error.issues;
	throw new Error(`dialect.${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'is not valid'}.`);
}

/** The body, headers and content type of an answer that carries a Connection. */
export function placeToken(
	{ tokenIn, tokenPointer, tokenHeader, tokenPrefix }: Dialect,
	token: string,
	rest: Readonly<Record<string, string>>,
): { readonly headers: Readonly<Record<string, string>>; readonly body: string } {
	const text = `${tokenPrefix}${token}`;
	if (tokenIn === 'text') return { headers: { 'content-type': 'text/plain' }, body: text };
	const headers = { 'content-type': 'application/json' };
	if (tokenIn === 'header') return { headers: { ...headers, [tokenHeader.toLowerCase()]: text }, body: '{}' };
	const keys = tokenPointer.split('/').slice(1);
	const document = keys.reduceRight<unknown>((value, raw) => {
		const key = raw.replaceAll('~1', '/').replaceAll('~0', '~');
		if (!/^\d$/.test(key)) return Object.fromEntries([[key, value]]);
		return [...new Array<null>(Number(key)).fill(null), value];
	}, text);
	const isObject = typeof document === 'object' && !Array.isArray(document);
	return { headers, body: JSON.stringify(isObject ? { ...rest, ...document } : document) };
}

/** Whether JSON has the shape that {@link dialectSchema}'s `heartbeats` describes. */
export function hasShape(shape: unknown, value: unknown): boolean {
	if (typeof shape === 'string') return typeof value === 'string' && (shape === '*' || shape === value);
	if (typeof shape !== 'object') return typeof value === typeof shape;
	if (typeof value !== 'object' || value === null || shape === null) return value === shape;
	const keys = Object.keys(shape);
	return (
		keys.length === Object.keys(value).length &&
		keys.every((key) => Object.hasOwn(value, key) && hasShape(Object(shape)[key], Object(value)[key]))
	);
}
