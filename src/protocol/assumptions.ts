/**
 * The ledger of what the published interface leaves open: each point once, with what is assumed, the settings for a service
 * that differs, and how the embedded service shows the other way. Data only: the table for integrators, `config show
 * --explain`, the hints of errors and of the doctor, and the generator of services in the tests are made from it.
 * Code that rests on a point says `assumed (id)`; a test finds one that is not here.
 */

export interface Assumption {
	/** Permanent, kebab-case. */
	readonly id: string;
	/** The open question, and where its answer would stand in docs/service-interface.md. */
	readonly open: string;
	readonly section: string;
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
	/** The file under `test/` that shows it. */
	readonly test: string;
}

const point = (
	id: string,
	section: string,
	open: string,
	assumed: string,
	more: Partial<Pick<Assumption, 'settings' | 'dialect' | 'failures' | 'hint'>> & { readonly test: string },
): Assumption => ({ id, section, open, assumed, settings: [], dialect: [], failures: [], hint: '', ...more });

export const ASSUMPTIONS: readonly Assumption[] = [
	point(
		'token-place',
		'Endpoints 2',
		'Where the Connection token is in the answer to a registration.',
		'The first of `token`, `connectionToken`, `authorization`, `connection.token`; else a JSON string or a text body. A leading `Connection ` is dropped.',
		{
			settings: ['service.tokenPointer'],
			dialect: ['tokenIn', 'tokenPointer', 'tokenHeader', 'tokenPrefix', 'gzipAnswers'],
			failures: ['answer-unreadable'],
			hint: 'Set service.tokenPointer to the place of the Connection token.',
			test: 'protocol/registration-answer.test.ts',
		},
	),
	point(
		'channel-path',
		'Endpoints 6',
		'The full path of the channel `ws/device`.',
		'`/ws/device` under the base URL.',
		{
			settings: ['service.channelPath'],
			dialect: ['channelPath'],
			failures: ['channel-not-found', 'channel-rejected'],
			hint: 'Check service.channelPath.',
			test: 'connection/channel.test.ts',
		},
	),
	point(
		'channel-handshake',
		'Endpoints 6',
		'How the channel is authorized.',
		'By the header `Authorization: Connection …`.',
		{
			settings: ['service.channelAuth'],
			dialect: ['channelAuth'],
			failures: ['credential-refused', 'access-forbidden', 'channel-rejected'],
			hint: 'If the Connection is new, check service.channelAuth: some services take it in the query.',
			test: 'connection/handshake.test.ts',
		},
	),
	point(
		'query-name',
		'Authentication',
		'Names of the query-string parameters that carry a credential.',
		'`authorization`, with `<scheme> <credential>` as in the hand-off URL.',
		{
			settings: ['service.queryName', 'service.channelAuth'],
			dialect: ['queryName'],
			failures: ['credential-refused', 'access-forbidden'],
			hint: 'Where channelAuth is query or queryToken, check service.queryName.',
			test: 'connection/handshake.test.ts',
		},
	),
	point('subprotocol', 'Endpoints 6', 'Whether the channel wants a WebSocket subprotocol.', 'None is asked for.', {
		settings: ['service.subprotocol'],
		dialect: ['subprotocol'],
		failures: ['channel-rejected'],
		hint: 'If the service wants a subprotocol, name it in service.subprotocol.',
		test: 'connection/handshake.test.ts',
	}),
	point(
		'heartbeat-message',
		'Device connection, heartbeatCadence',
		'The form of a heartbeat.',
		'One JSON text frame on the channel: `type: "heartbeat"`, `deviceId`, `workflowId`, `sequence`, `sentAt`, `uptimeSeconds`.',
		{
			settings: ['service.heartbeatBody', 'service.heartbeatFields', 'service.heartbeatMode'],
			dialect: ['heartbeats'],
			failures: ['poison-message', 'connection-lost'],
			hint: 'If the service ends the channel at each heartbeat, set service.heartbeatBody or service.heartbeatMode.',
			test: 'connection/handshake.test.ts',
		},
	),
	point('heartbeat-cadence', 'Limits', 'Default and bounds of `heartbeatCadence`.', '30 s; 1 to 86,400 are accepted.', {
		settings: ['heartbeatCadence'],
		test: 'protocol/device-connection.test.ts',
	}),
	point(
		'heartbeat-answer',
		'Endpoints 6',
		'Whether the service answers heartbeats, or sends messages other than notifications.',
		'Every message is a notification.',
		{ settings: ['service.ignoreKinds'], dialect: ['heartbeatAck'], test: 'connection/handshake.test.ts' },
	),
	point(
		'application-ping',
		'Endpoints 6',
		'Whether the service sends pings of its own making as messages and wants an answer.',
		"It uses WebSocket's own pings.",
		{
			settings: ['service.pingKind', 'service.pongBody'],
			dialect: ['appPing'],
			failures: ['connection-lost'],
			hint: 'If the channel is cut although it is in use, the service may wait for an answer: set service.pingKind and service.pongBody.',
			test: 'connection/handshake.test.ts',
		},
	),
	point(
		'dead-channel',
		'Endpoints 6',
		'Whether WebSocket pings are answered, and how long a channel may be silent.',
		'Pings are answered; silence for two pings, at least 10 s, ends the channel.',
		{
			settings: ['service.silenceLimitSeconds'],
			dialect: ['answersPing', 'idleTimeoutSeconds'],
			failures: ['channel-silent'],
			hint: 'For a service that answers no ping, set service.silenceLimitSeconds to 0.',
			test: 'connection/channel.test.ts',
		},
	),
	point(
		'notification-kind',
		'Events',
		'The kinds of notifications and where a notification names its kind.',
		'`type`, else `event`, else `kind`, else `unknown`; everything else passes through as it came.',
		{ settings: ['service.kindPointer'], test: 'protocol/channel.test.ts' },
	),
	point(
		'notification-id',
		'Events',
		'Whether a notification has an id, and what the id means.',
		'`id`; two messages are the same only if id, kind and content are.',
		{ settings: ['service.notificationIdPointer'], test: 'events/store.test.ts' },
	),
	point(
		'message-size',
		'Limits',
		'How large a message may be.',
		'1 MiB; a larger one, up to 16 MiB, is dropped and becomes an event with its size; above that the channel ends.',
		{
			settings: ['service.maxMessageBytes'],
			failures: ['poison-message'],
			hint: 'The limit of 16 MiB for one message cannot be raised: ask the operator for smaller ones.',
			test: 'connection/channel.test.ts',
		},
	),
	point(
		'agent-messages',
		'Events',
		'Whether the service tells a device of a changed workflow or of a Connection that is no longer valid.',
		'`workflow.changed` with `workflowId`, and `connection.revoked`, are acted on.',
		{ settings: ['service.actOnMessages'], test: 'workflow/workflow.test.ts' },
	),
	point(
		'errors',
		'Errors',
		'Status codes of errors and the form of their bodies.',
		'The status decides, the body is detail; the embedded service answers RFC 9457 problem documents.',
		{ dialect: ['refusalStatus', 'channelRefusalStatus'], test: 'connection/classify-failure.test.ts' },
	),
	point(
		'close-codes',
		'Endpoints 6',
		'The meaning of the end of a channel.',
		'1008, 4401 and 4403 refuse the Connection, 4409 says that another one took its place; the rest is an outage.',
		{ test: 'connection/classify-failure.test.ts' },
	),
	point(
		'api-key-path',
		'Endpoints 3',
		'Which of the published paths creates API keys.',
		'`/api/security/apikeys`, then `/api/apikey`, then `/api/security/apikey`, on 404 or 405 each.',
		{ dialect: ['apiKeyPaths'], test: 'operator/keys.test.ts' },
	),
	point(
		'pairing-code-answer',
		'Endpoints 1',
		'The answer of the QR code endpoint.',
		'PNG, or SVG or JSON by `Accept`; the code holds `/mobile?authorization=Token%20…&workflowId=…`.',
		{ test: 'operator/codes.test.ts' },
	),
	point(
		'code-workflow',
		'Endpoints 1',
		'Whether a pairing code names a workflow.',
		'It may; a code without one takes the workflow of the settings, of `pair --workflow`, or one that the service lists in its refusal (`workflows: [{id, name}]`).',
		{
			settings: ['workflowId'],
			dialect: ['codesNameWorkflow', 'workflowNames', 'configurationPath'],
			failures: ['workflow-missing'],
			hint: 'Name the workflow: workflowId in the settings, or pair --workflow.',
			test: 'pairing/rules.test.ts',
		},
	),
	point(
		'message-bounds',
		'Limits',
		'The largest request, and the lengths of identifiers in it.',
		'64 KiB in the embedded service; identifiers of up to 128 characters.',
		{ test: 'protocol/device-connection.test.ts' },
	),
	point(
		'hand-off-workflows',
		'Endpoints 5',
		'How several workflows are passed in the query.',
		'Repeated `workflowId` parameters; comma-separated ones are accepted.',
		{ test: 'protocol/hand-off.test.ts' },
	),
	point('hand-off-life', 'Limits', 'The largest `ttl` of a session.', '30 days.', {
		test: 'protocol/hand-off.test.ts',
	}),
	point(
		'connection-life',
		'Authentication, rule 4',
		'How long a Connection lives and whether it says so.',
		'A JWT says so by `exp` and is renewed at 80 % of its life; so is another one where the setting states its life, else it is replaced when the service refuses it.',
		{
			settings: ['service.connectionLifeSeconds'],
			dialect: ['connectionForm'],
			failures: ['credential-refused', 'connection-revoked'],
			hint: 'If Connections that do not say their life end regularly, set service.connectionLifeSeconds.',
			test: 'connection/connection-tokens.test.ts',
		},
	),
	point(
		'short-token-life',
		'Limits',
		'How long a Short Token lives.',
		'A code is used as soon as it is scanned; in the embedded service it lives 300 s.',
		{ test: 'service/pairing.test.ts' },
	),
	point(
		'registering-credentials',
		'Authentication, rule 2',
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
			test: 'service/access.test.ts',
		},
	),
	point(
		're-registration',
		'Authentication, rule 3',
		'Whether a live Connection may register again for its own device.',
		'It is tried after a reusable credential; a refusal is not a failure of the old link.',
		{ test: 'connection/supervisor.test.ts' },
	),
	point(
		'rate-limits',
		'Limits',
		'Rate limits of the service.',
		'429 and 503 with `Retry-After`, which is a floor; the agent itself registers at most 10 times a minute.',
		{ dialect: ['registrationLimit'], test: 'connection/backoff.test.ts' },
	),
	point(
		'permissions',
		'Authentication, rule 5',
		'The complete list of permissions, and which operation wants which.',
		'`ephemeral_device:write` for codes and registrations, `deeplink:write` for sessions; a key grants only what its maker has.',
		{ test: 'service/access.test.ts' },
	),
	point(
		'device-list',
		'Session and device records',
		'An endpoint that lists devices.',
		'None is published; the embedded service has one of its own for trials.',
		{ test: 'service/pairing.test.ts' },
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
