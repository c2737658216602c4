/**
 * Protocols of others that a channel may speak, each a row: what tells it, and what a device says in it by its specification. What stands here
 * need not be guessed from words. Pure.
 */

interface Family {
	/** As they are registered, or as the usual servers have them. */
	readonly subprotocols: readonly string[];
	/** In the path of the channel, its subprotocol, or anything that came on it. */
	readonly signs: RegExp;
	/** What the words of the service may name that the row asks for. */
	readonly names?: RegExp;
	/** Sets of settings without `service.`, the likely ones first. @param named by the service. */
	readonly settings: (named: readonly string[]) => readonly Readonly<Record<string, unknown>>[];
}

const json = JSON.stringify;
/** Of one channel: `service.firstMessages` takes eight. */
const MAX_NAMED = 3;

const graphql = (verb: string, named: readonly string[]) => {
	const fields = [...new Set([...named, 'deviceNotifications', 'notifications'])].slice(0, MAX_NAMED);
	const queries = fields.flatMap((field) => ['kind', 'type'].map((kind) => `subscription { ${field} { id ${kind} } }`));
	const payload = { authorization: 'Connection {token}', token: '{token}' };
	return [
		json({ type: 'connection_init', payload }),
		...queries.map((query, index) => json({ id: `${index + 1}`, type: verb, payload: { query } })),
	];
};

const FAMILIES: readonly Family[] = [
	{
		subprotocols: ['graphql-transport-ws'],
		signs: /graphql-transport-ws/,
		names: /Did you mean "(\w+)"/g,
		settings: (named) => [
			{
				firstMessages: graphql('subscribe', named),
				heartbeatBody: '{"type":"ping"}',
				pingKind: 'ping',
				ignoreKinds: ['connection_ack', 'pong'],
			},
		],
	},
	{
		subprotocols: ['graphql-ws'],
		signs: /graphql-ws/,
		names: /Did you mean "(\w+)"/g,
		settings: (named) => [
			{ firstMessages: graphql('start', named), heartbeatMode: 'ping', ignoreKinds: ['connection_ack', 'ka'] },
		],
	},
	{
		subprotocols: ['v12.stomp', 'v11.stomp', 'v10.stomp'],
		signs: /\bstomp\b/i,
		names: /(\/(?:queue|topic|user|exchange)\/[\w./-]*\w)/g,
		settings: (named) =>
			[...new Set([...named, '/queue/ws/device', '/user/queue/notifications'])]
				.slice(0, MAX_NAMED)
				.map((destination) => ({
					firstMessages: [
						'CONNECT\naccept-version:1.2,1.1\nhost:/\nheart-beat:0,0\nauthorization:Connection {token}\n\n\0',
						`SUBSCRIBE\nid:0\ndestination:${destination}\nack:auto\n\n\0`,
					],
					heartbeatBody: '\n',
				})),
	},
	{
		subprotocols: ['actioncable-v1-json'],
		signs: /actioncable|confirm_subscription|"type":\s*"ping",\s*"message":\s*\d{10}\b/i,
		settings: () => [
			{
				firstMessages: ['ws/device', 'DeviceChannel', 'NotificationsChannel'].map((channel) =>
					json({ command: 'subscribe', identifier: json({ channel }) }),
				),
				heartbeatMode: 'ping',
				ignoreKinds: ['welcome', 'ping', 'confirm_subscription', 'reject_subscription'],
			},
		],
	},
	{
		subprotocols: [],
		signs: /\/websocket(?:$|\s)|\bphx_/,
		settings: () => [
			{
				firstMessages: ['device', 'devices'].map((topic, index) =>
					json([`${index + 1}`, `${index + 1}`, `${topic}:{deviceId}`, 'phx_join', { token: '{token}' }]),
				),
				heartbeatBody: '[null,"h{sequence}","phoenix","heartbeat",{}]',
				kindPointer: '/3',
				ignoreKinds: ['phx_reply'],
			},
		],
	},
	{
		subprotocols: [],
		signs: /signalr|"Handshake was canceled|\/\w*hub\b|\x1e/i,
		settings: () => [
			{
				firstMessages: ['{"protocol":"json","version":1}\x1e'],
				heartbeatBody: '{"type":6}\x1e',
				kindPointer: '/target',
				ignoreKinds: ['6'],
			},
		],
	},
	{
		// Pusher.
		subprotocols: [],
		signs: /"pusher:/,
		names: /"channel\\*"\s*:\s*\\*"([\w@=.;-]+)/g,
		settings: (named) => [
			{
				firstMessages: [...new Set([...named, 'device', 'ws-device'])]
					.slice(0, MAX_NAMED)
					.map((channel) => json({ event: 'pusher:subscribe', data: { channel, auth: '{token}' } })),
				heartbeatBody: '{"event":"pusher:ping","data":{}}',
				ignoreKinds: ['pusher:connection_established', 'pusher_internal:subscription_succeeded', 'pusher:pong'],
			},
		],
	},
	{
		// Socket.IO, on Engine.IO 4.
		subprotocols: [],
		signs: /^0\{\s*"sid"/m,
		settings: () => [
			{ firstMessages: [`40${json({ token: '{token}' })}`], heartbeatMode: 'ping', pingKind: '2', pongBody: '3' },
		],
	},
	{
		subprotocols: [],
		signs: /"jsonrpc"/,
		names: /([a-z][\w./]*[./_]?subscribe|\w+[./_](?:attach|register|listen|join))\b/gi,
		settings: (named) => [
			{
				firstMessages: [
					...new Set([...named.slice(0, MAX_NAMED), 'subscribe', 'device.subscribe', 'authenticate']),
				].map((method, index) =>
					json({
						...{ jsonrpc: '2.0', id: index + 1, method },
						params: { channel: 'ws/device', deviceId: '{deviceId}', workflowId: '{workflowId}', token: '{token}' },
					}),
				),
				// Without an id it is answered in no way, known or not.
				heartbeatBody: json({ jsonrpc: '2.0', method: 'heartbeat', params: { sequence: '{sequence}' } }),
			},
		],
	},
];

/** Offered where a service wants a subprotocol and names none. */
export const FAMILY_SUBPROTOCOLS = FAMILIES.flatMap(({ subprotocols }) => subprotocols);

/** @param said all that tells of the channel, in one text. */
export function familySettings(said: string): Readonly<Record<string, unknown>>[] {
	return FAMILIES.filter(({ signs }) => said.search(signs) >= 0)
		.slice(0, 1)
		.flatMap(({ names, settings }) =>
			settings(names === undefined ? [] : [...said.matchAll(names)].map(([, name]) => name ?? '')),
		);
}
