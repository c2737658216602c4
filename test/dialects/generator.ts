/** Services that fill the open points of the interface in ways of their own: each drawn from a seed, every field of the dialect at random. */
import type { DialectOptions } from '../../src/service/embedded-service.runner.ts';

/** Places that somebody who reads the interface might give the channel: written down without the probe's list. */
const CHANNEL_PATHS = [
	'/ws/device',
	'/api/ws/device',
	'/api/v1/ws/device',
	'/v1/ws/device',
	'/ws',
	'/device/ws',
	'/api/device/ws',
	'/ws/devices',
	'/notifications',
] as const;

/** Uniform in [0, 1), the same numbers for the same seed (mulberry32). */
export function randomOf(seed: number): () => number {
	let state = seed >>> 0;
	return () => {
		state = (state + 0x6d2b79f5) >>> 0;
		let mixed = Math.imul(state ^ (state >>> 15), state | 1);
		mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
		return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
	};
}

/** Seconds between two pings of an application: short, so that one that is not answered is noticed within a test. */
const PING_SECONDS = 0.4;

/** A whole dialect: no field is left to its default by mistake. */
export function drawDialect(seed: number): Required<DialectOptions> {
	const random = randomOf(seed);
	const pick = <Value>(...values: readonly [Value, ...Value[]]): Value =>
		values[Math.floor(random() * values.length)] ?? values[0];
	const word = () =>
		Array.from({ length: 3 + Math.floor(random() * 6) }, () =>
			String.fromCharCode(97 + Math.floor(random() * 26)),
		).join('');
	const place = () => {
		const names = ['token', 'data', 'result', 'device', 'session', 'a/b', 'x~y', word(), '0', '1'];
		const depth = Math.floor(random() * 5);
		const group = Array.from({ length: depth }, () => pick(names[0] ?? '', ...names.slice(1)));
		const last = pick('token', 'connectionToken', 'accessToken', 'value', 'key', 'jwt', word());
		return [...group, last].map((name) => `/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
	};
	const kind = pick('ping', 'PING', 'hello', 'keepalive', 'are-you-there', 'heartbeat-request');
	const shape = { op: word(), device: '*', n: 1 };
	return {
		tokenIn: pick('json', 'json', 'json', 'text', 'header'),
		tokenPointer: pick('/token', '', '/connectionToken', place(), place(), place()),
		tokenHeader: pick('x-connection', 'X-Device-Token', `x-${word()}`),
		tokenPrefix: pick('', '', 'Connection ', 'Bearer ', 'token='),
		gzipAnswers: pick(false, true),
		connectionForm: pick('jwt', 'opaque'),
		channelPath: pick<string>(...CHANNEL_PATHS),
		channelAuth: pick('either', 'header', 'query', 'queryToken'),
		queryName: pick(
			'authorization',
			'token',
			'access_token',
			'auth',
			'connectionToken',
			'connection_token',
			'connection',
			'key',
		),
		subprotocol: pick(null, null, 'v1', 'device.v1', `${word()}.v${1 + Math.floor(random() * 9)}`),
		answersPing: pick(true, true, false),
		appPing: pick(null, null, {
			kind,
			everySeconds: PING_SECONDS,
			answer: pick<{ type: string }>({ type: 'pong' }, { type: kind }, { type: kind.replace('ping', 'pong') }),
		}),
		heartbeatAck: pick(null, null, 'heartbeat.ack', 'ack', word()),
		heartbeats: pick<Required<DialectOptions>['heartbeats']>('any', 'any', 'none', shape),
		idleTimeoutSeconds: pick(null, null, 20, 30, 60),
		refusalStatus: pick(401, 403),
		channelRefusalStatus: pick(401, 403, 404, 410),
		registrationLimit: pick(null, {
			perMinute: 2 + Math.floor(random() * 8),
			window: pick('sliding', 'fixed'),
			countsRefused: pick(false, true),
			retryAfter: pick(false, true),
		}),
		apiKeyPaths: [pick('/api/security/apikeys', '/api/apikey', '/api/security/apikey')],
		codesNameWorkflow: pick(true, false),
		workflowNames: pick<Record<string, string> | null>(null, { 'check-in': 'Check in', 'check-out': 'Check out' }),
		configurationPath: pick('/api/device/configuration', `/api/${word()}`),
	};
}
