/**
 * The ledger of what the published interface leaves open: each point once, with what is assumed, the settings for a service
 * that differs, and how the embedded service shows the other way. Data only: the table for integrators, `config show
 * --explain`, the hints of errors and of the doctor, and the generator of services in the tests are made from it.
 * Code that rests on a point says `assumed (id)`; a test finds one that is not here.
 */

export interface Assumption {
	/** Permanent, kebab-case. */
	readonly id: string;
	/** The open question. */
	readonly open: string;
	/** The way in which the agent and the embedded service behave. */
	readonly assumed: string;
	/** Settings for a service that does it in another way; empty where nothing has to be set. */
	readonly settings: readonly string[];
	/** Fields of the embedded service's dialect (`src/service/dialect.ts`) that behave in another way. */
	readonly dialect: readonly string[];
	/** Codes of failures at which this point is the likely cause. */
	readonly failures: readonly string[];
	/** The first thing to look at when one of them comes, as an instruction. */
	readonly hint: string;
}

const point = (
	id: string,
	open: string,
	assumed: string,
	more: Partial<Pick<Assumption, 'settings' | 'dialect' | 'failures' | 'hint'>> = {},
): Assumption => ({ id, open, assumed, settings: [], dialect: [], failures: [], hint: '', ...more });

export const ASSUMPTIONS: readonly Assumption[] = [
	point(
		'token-place',
		'Where the Connection token is in the answer to a registration.',
		'The first of `token`, `connectionToken`, `authorization`, `connection.token`; else a JSON string or a text body. A leading `Connection ` is dropped.',
		{
			settings: ['service.tokenPointer'],
			dialect: ['tokenIn', 'tokenPointer', 'tokenHeader', 'tokenPrefix', 'gzipAnswers'],
			failures: ['answer-unreadable'],
			hint: 'Set service.tokenPointer to the place of the Connection token.',
		},
	),
	point(
		'registration-path',
		'Whether a deployment registers devices at the published path.',
		'`POST /api/device/connection` under the base URL.',
		{
			settings: ['service.registrationPath'],
			failures: ['bad-response'],
			hint: 'If the service registers devices at another path, set service.registrationPath.',
		},
	),
	point(
		'channel-path',
		'The full path of the channel `ws/device`, and whether it names the device or is at another address.',
		'`/ws/device` under the base URL, the same for every device.',
		{
			settings: ['service.channelPath'],
			dialect: ['channelPath'],
			failures: ['channel-not-found', 'channel-rejected'],
			hint: 'Check service.channelPath.',
		},
	),
	point('channel-handshake', 'How the channel is authorized.', 'By the header `Authorization: Connection …`.', {
		settings: ['service.channelAuth'],
		dialect: ['channelAuth'],
		failures: ['credential-refused', 'access-forbidden', 'channel-rejected'],
		hint: 'If the Connection is new, check service.channelAuth: some services take it in the query.',
	}),
	point(
		'query-name',
		'Names of the query-string parameters that carry a credential.',
		'`authorization`, with `<scheme> <credential>` as in the hand-off URL.',
		{
			settings: ['service.queryName', 'service.channelAuth'],
			dialect: ['queryName'],
			failures: ['credential-refused', 'access-forbidden'],
			hint: 'Where channelAuth is query or queryToken, check service.queryName.',
		},
	),
	point('subprotocol', 'Whether the channel requires a WebSocket subprotocol.', 'None is asked for.', {
		settings: ['service.subprotocol'],
		dialect: ['subprotocol'],
		failures: ['channel-rejected'],
		hint: 'If the service wants a subprotocol, name it in service.subprotocol.',
	}),
	point('extra-headers', 'Whether a gateway before the service requires headers of its own.', 'It does not.', {
		settings: ['service.headers', 'service.headersFile'],
	}),
	point(
		'first-messages',
		'Whether a device sends something first on an open channel, and how it learns that the channel is accepted.',
		'It sends nothing; an answered ping, any message or 3 s without an end confirm the channel.',
		{
			settings: ['service.firstMessages', 'service.confirmKind'],
			failures: ['handshake-timeout', 'connection-lost'],
			hint: 'If the service waits for a message when the channel opens, set service.firstMessages.',
		},
	),
	point('acknowledgement', 'Whether the service requires an acknowledgement of each notification.', 'It does not.', {
		settings: ['service.ackBody'],
	}),
	point(
		'frame-contents',
		'How many messages a frame holds, and whether a binary frame may hold JSON.',
		'One; or up to 64 lines with a JSON object each. Binary frames are kept as bytes.',
		{ settings: ['service.frameContents', 'service.jsonInBinary'] },
	),
	point(
		'heartbeat-message',
		'The form of a heartbeat.',
		'One JSON text frame on the channel: `type: "heartbeat"`, `deviceId`, `workflowId`, `sequence`, `sentAt`, `uptimeSeconds`.',
		{
			settings: ['service.heartbeatBody', 'service.heartbeatFields', 'service.heartbeatMode'],
			dialect: ['heartbeats'],
			failures: ['poison-message', 'connection-lost'],
			hint: 'If the service ends the channel at each heartbeat, set service.heartbeatBody or service.heartbeatMode.',
		},
	),
	point('heartbeat-cadence', 'Default and bounds of `heartbeatCadence`.', '30 s; 1 to 86,400 are accepted.', {
		settings: ['heartbeatCadence'],
	}),
	point(
		'heartbeat-answer',
		'Whether the service answers heartbeats, or sends messages other than notifications.',
		'Every message is a notification.',
		{ settings: ['service.ignoreKinds'], dialect: ['heartbeatAck'] },
	),
	point(
		'application-ping',
		'Whether the service sends pings of its own as messages and expects an answer.',
		"It uses WebSocket's own pings.",
		{
			settings: ['service.pingKind', 'service.pongBody'],
			dialect: ['appPing'],
			failures: ['connection-lost'],
			hint: 'If the channel is cut although it is in use, the service may wait for an answer: set service.pingKind and service.pongBody.',
		},
	),
	point(
		'dead-channel',
		'Whether WebSocket pings are answered, and how long a channel may be silent.',
		'Pings are answered; silence for two pings, at least 10 s, ends the channel.',
		{
			settings: ['service.silenceLimitSeconds'],
			dialect: ['answersPing', 'idleTimeoutSeconds'],
			failures: ['channel-silent'],
			hint: 'For a service that answers no ping, set service.silenceLimitSeconds to 0.',
		},
	),
	point(
		'notification-kind',
		'The kinds of notifications and where a notification names its kind.',
		'`type`, else `event`, else `kind`, a word before a number; else `unknown`. Everything else passes through as it came.',
		{ settings: ['service.kindPointer'] },
	),
	point(
		'notification-id',
		'Whether a notification has an id, and what the id means.',
		'`id`; two messages are the same only if id, kind and content are.',
		{ settings: ['service.notificationIdPointer'] },
	),
	point(
		'message-size',
		'How large a message may be.',
		'1 MiB; a larger one, up to 16 MiB, is dropped and becomes an event with its size; above that the channel ends.',
		{
			settings: ['service.maxMessageBytes'],
			failures: ['poison-message'],
			hint: 'The limit of 16 MiB for one message cannot be raised: ask the operator for smaller ones.',
		},
	),
	point(
		'agent-messages',
		'Whether the service tells a device of a changed workflow or of a Connection that is no longer valid.',
		'`workflow.changed` with `workflowId`, and `connection.revoked`, are acted on.',
		{ settings: ['service.actOnMessages'] },
	),
	point(
		'errors',
		'Status codes of errors and the form of their bodies.',
		'The status decides, the body is detail; the embedded service answers RFC 9457 problem documents.',
		{ dialect: ['refusalStatus', 'channelRefusalStatus'] },
	),
	point(
		'close-codes',
		'The meaning of the end of a channel.',
		'1008, 4401 and 4403 refuse the Connection, 4409 says that another one took its place; the rest is an outage, except a code from 4000 that ends fresh channels again and again: it refuses the Connection.',
		{ settings: ['service.closeCodes'] },
	),
	point(
		'api-key-path',
		'Which of the published paths creates API keys.',
		'`/api/security/apikeys`, then `/api/apikey`, then `/api/security/apikey`, on 404 or 405 each.',
		{ dialect: ['apiKeyPaths'] },
	),
	point(
		'pairing-code-answer',
		'The answer of the QR code endpoint.',
		'PNG, or SVG or JSON by `Accept`; the code holds `/mobile?authorization=Token%20…&workflowId=…`.',
	),
	point(
		'code-workflow',
		'Whether a pairing code names a workflow.',
		'It may; a code without one takes the workflow of the settings, of `pair --workflow`, or one that the service lists in its refusal (`workflows: [{id, name}]`).',
		{
			settings: ['workflowId'],
			dialect: ['codesNameWorkflow', 'workflowNames', 'configurationPath'],
			failures: ['workflow-missing'],
			hint: 'Name the workflow: workflowId in the settings, or pair --workflow.',
		},
	),
	point(
		'message-bounds',
		'The largest request, and the lengths of identifiers in it.',
		'64 KiB in the embedded service; identifiers of up to 128 characters.',
	),
	point(
		'hand-off-workflows',
		'How several workflows are passed in the query.',
		'Repeated `workflowId` parameters; comma-separated ones are accepted.',
	),
	point('hand-off-life', 'The largest `ttl` of a session.', '30 days.'),
	point(
		'connection-life',
		'How long a Connection lives and whether it says so.',
		'A JWT says so by `exp` and is renewed at 80 % of its life; so is any other, if the setting states its life; else it is replaced when the service refuses it.',
		{
			settings: ['service.connectionLifeSeconds'],
			dialect: ['connectionForm'],
			failures: ['credential-refused', 'connection-revoked'],
			hint: 'If Connections that do not say their life end regularly, set service.connectionLifeSeconds.',
		},
	),
	point('next-connection', 'Whether a Connection is good for more than one channel.', 'It is, until it ends.', {
		settings: ['service.nextConnection'],
		failures: ['credential-refused', 'connection-revoked'],
		hint: 'If each Connection opens one channel only, set service.nextConnection to the place of the next one.',
	}),
	point(
		'short-token-life',
		'How long a Short Token lives.',
		'A code is used as soon as it is scanned; in the embedded service it lives 300 s.',
	),
	point(
		'registering-credentials',
		'Which credentials may register a device, with which permissions.',
		'Token, ApiKey with `ephemeral_device:write`, Basic, or a provisioned Connection; without any only where it is switched on.',
		{
			settings: [
				'credential.apiKeyFile',
				'credential.basicFile',
				'credential.connectionFile',
				'credential.selfRegistration',
			],
			failures: ['access-forbidden'],
			hint: 'Check that the credential may register devices (ephemeral_device:write).',
		},
	),
	point(
		're-registration',
		'Whether a live Connection may register again for its own device.',
		'It is tried after a reusable credential; a refusal is not a failure of the old link.',
	),
	point(
		'rate-limits',
		'Rate limits of the service.',
		'429 and 503 with `Retry-After`, which is a floor; the agent itself registers at most 10 times a minute.',
		{ dialect: ['registrationLimit'] },
	),
	point(
		'permissions',
		'The complete list of permissions, and which operation requires which.',
		'`ephemeral_device:write` for codes and registrations, `deeplink:write` for sessions; a key grants only what its maker has.',
	),
	point(
		'device-list',
		'An endpoint that lists devices.',
		'None is published; the embedded service has one of its own for trials.',
	),
];

/** The things to look at when a failure has this code, besides its own remedy: at most one sentence for each open point. */
export function hintsFor(code: string): readonly string[] {
	return ASSUMPTIONS.filter(({ failures, hint }) => hint !== '' && failures.includes(code)).map(({ hint }) => hint);
}

/** The open points for which a setting exists. */
export function assumptionsOf(setting: string): readonly Assumption[] {
	return ASSUMPTIONS.filter(({ settings }) => settings.includes(setting));
}

/** The table for integrators, as Markdown. */
export function formatAssumptions(boundsOf: (setting: string) => string): string {
	const row = ({ open, assumed, settings }: Assumption) =>
		`| ${open} | ${assumed} | ${settings.map((name) => `\`${name}\`: ${boundsOf(name)}`).join('<br>') || 'none needed'} |`;
	return ['| What is open | What we do | Setting |', '|---|---|---|', ...ASSUMPTIONS.map(row)].join('\n');
}
