/** The settings of a dialect, `service.*`: how this service is spoken to where it differs from the published interface. */
import * as z from 'zod';
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { DEFAULT_MESSAGE_BYTES, HEARTBEAT_FIELDS, MAX_FRAME_BYTES } from '../protocol/channel.ts';
import { DEFAULT_CHANNEL_PATH, ENDPOINTS } from '../protocol/endpoints.ts';
import { later, made } from '../protocol/later.ts';
import { file, flag, list, number, oneOf, optionalNumber, optionalText, setting } from './setting-kinds.ts';
import {
	channelPlace,
	closeCodes,
	frameContents,
	kindOfMessage,
	messageTemplate,
	nextPlace,
	pointer,
	registrationPath,
	serviceHeader,
	text,
	tokenPlace,
} from './value-schemas.ts';

export const SERVICE_SETTINGS = {
	tokenPointer: optionalText(
		tokenPlace,
		'Place of the Connection token in the answer to a registration: a JSON pointer such as /data/token, header:NAME, cookie:NAME, or "" for the whole body (in a file or --set; an empty variable is not set).',
	),
	registrationPath: setting(
		'text',
		registrationPath,
		ENDPOINTS.deviceConnection,
		'Path under baseUrl at which the device registers; it may have a query, and {deviceId} and {workflowId} in it.',
	),
	channelPath: setting(
		'text',
		channelPlace,
		DEFAULT_CHANNEL_PATH,
		'Path of the notification channel under baseUrl, or its whole address (wss://…) where it is elsewhere; it may have a query, and {deviceId} and {workflowId} in it. A change is tried beside the live channel.',
	),
	channelAuth: oneOf(
		['header', 'query', 'queryToken'],
		'header',
		'How the channel is authorized: header; query ("Connection TOKEN" in a parameter); queryToken (the token alone in it). A change is tried beside the live channel.',
	),
	queryName: setting(
		'text',
		later(() => text.regex(/^[\w.~-]{1,64}$/, 'must be the name of a query parameter such as authorization')),
		AUTHORIZATION_PARAMETER,
		'Name of the query parameter that carries the Connection where channelAuth is query or queryToken.',
	),
	subprotocol: optionalText(
		later(() => text.regex(/^[\w!#$%&'*+.^`|~-]{1,64}$/, 'must be the name of a WebSocket subprotocol')),
		'WebSocket subprotocol that the channel asks for; default: none. A change is tried beside the live channel.',
	),
	firstMessages: setting(
		'list',
		later(() => z.array(made(messageTemplate('first'))).max(8, 'must have at most 8 entries')),
		[],
		'Messages that the device sends as soon as the channel is open (authenticate, subscribe): texts or JSON with {token} (the Connection), {deviceId}, {workflowId}, {sentAt}, {sentAtMs} in them. A change is tried beside the live channel.',
	),
	confirmKind: optionalText(
		kindOfMessage,
		'Kind of the message that confirms a channel: until it comes the device is not online, and after 10 s the agent opens the channel again. The message is not kept. A change is tried beside the live channel.',
	),
	heartbeatMode: oneOf(
		['frame', 'ping', 'off'],
		'frame',
		'Heartbeats as a JSON frame, as a WebSocket ping, or not at all; a change is tried beside the live channel.',
	),
	heartbeatBody: optionalText(
		messageTemplate('heartbeat'),
		'Heartbeat in another form: a text or JSON with {deviceId}, {workflowId}, {sequence}, {sentAt}, {sentAtMs}, {uptimeSeconds} in it. A change is tried beside the live channel.',
	),
	heartbeatFields: setting(
		'list',
		later(() =>
			z.array(z.enum(HEARTBEAT_FIELDS, `must be one of ${HEARTBEAT_FIELDS.join(', ')}`)).max(HEARTBEAT_FIELDS.length),
		),
		[],
		'Additional fields of heartbeats: agentVersion, problemCode, planRevision, planRing, planReason (why the plan was refused), updateReason (why an ordered version is not installed), updateTakenBack (the version); for services that take them.',
	),
	pingKind: optionalText(
		kindOfMessage,
		"Kind of a message that is the application's own ping: it is answered with pongBody and not kept.",
	),
	pongBody: setting(
		'text',
		messageTemplate('answer'),
		'{"type":"pong"}',
		'Answer to a message of pingKind: a text or JSON with {id}, {deviceId}, {workflowId}, {sentAt}, {sentAtMs} in it.',
	),
	ackBody: optionalText(
		messageTemplate('answer'),
		'Acknowledgement of each notification: a text or JSON with {id}, {deviceId}, {workflowId}, {sentAt}, {sentAtMs} in it; default: none. It is sent once the notification is stored (events.durable: in memory or on the disk) or, while the disk takes nothing, once all applications have it. If it has {id} in it, a notification without an id is not acknowledged.',
	),
	frameContents: setting(
		'text',
		frameContents,
		'auto',
		'Messages in one frame: one; body (the JSON after STOMP headers); lines, array or a pointer to an array (/events), at most 1000; auto (one, or up to 64 lines or records of objects).',
	),
	jsonInBinary: flag(false, 'Whether a binary frame that holds JSON is read like a text one.'),
	ignoreKinds: list(
		kindOfMessage,
		64,
		'Kinds of messages that are not notifications (answers to heartbeats, chatter): the agent counts them, but does not keep them or run a hook.',
	),
	maxMessageBytes: number(
		1024,
		MAX_FRAME_BYTES,
		DEFAULT_MESSAGE_BYTES,
		'Largest message that is kept, 1024 to 16777216 bytes; a larger one is dropped and becomes an event with its size.',
	),
	connectionLifeSeconds: optionalNumber(
		60,
		315_360_000,
		'Life of a Connection that does not state its own, 60 to 315360000 seconds: the agent renews it before that time is over.',
	),
	silenceLimitSeconds: optionalNumber(
		0,
		86_400,
		'Seconds of silence that end a channel, 0 for never; default: two pings (at least 10 s). A change is tried beside the live channel.',
	),
	kindPointer: optionalText(
		pointer,
		'JSON pointer to the kind of a notification; it takes precedence over type, event and kind.',
	),
	notificationIdPointer: optionalText(
		pointer,
		'JSON pointer to the id of a notification, by which duplicates are recognised; default: /id.',
	),
	closeCodes: setting(
		'object',
		closeCodes,
		{},
		'Meaning of close codes, such as {"4001": "refused", "4002": "retry"}: refused (the Connection), replaced (another channel took its place) or retry (an outage).',
	),
	nextConnection: optionalText(
		nextPlace,
		'Place of the next Connection, if it changes with each handshake: header:NAME of the upgrade, or a JSON pointer into a message, which is then not kept. A change is tried beside the live channel.',
	),
	headers: list(
		serviceHeader,
		32,
		'Headers (Name: value) of every request to the service, and of the channel, such as "X-Tenant: north".',
	),
	headersFile: file('File with secret headers for the same requests, one Name: value on each line; requires baseUrl.'),
	actOnMessages: flag(true, 'Whether workflow.changed and connection.revoked from the service are acted on.'),
} as const;
