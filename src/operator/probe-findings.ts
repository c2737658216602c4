/** The conclusions of `idv probe`, each with how sure it is, and the settings that follow. Pure. */
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { readNotification } from '../protocol/channel.ts';
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';
import { parseJson } from '../protocol/json.ts';
import { cleanText } from '../protocol/problem.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import {
	heartbeatAnswers,
	kindOf,
	messagesOf,
	namedLife,
	type ReadingSettings,
	type TokenPlace,
} from './probe-readings.ts';
import type { Handshake } from './probe-search.ts';
import type { Life } from './probe-wire.ts';

/** How sure a finding is: tried with and without, or only seen once, or not seen. */
export type Certainty = 'proved' | 'guessed' | 'not seen';

export interface Finding {
	/** Of the ledger (`src/protocol/assumptions.ts`). */
	readonly point: string;
	readonly tried: string;
	readonly found: string;
	readonly certainty: Certainty;
	/** Settings that follow, without `service.`; left out where the default holds. */
	readonly settings?: Readonly<Record<string, unknown>>;
}

/** The contents of the settings file: the address, and each value that differs from its default. */
export function settingsFrom(baseUrl: string, workflowId: string | undefined, findings: readonly Finding[]) {
	const found: Record<string, unknown> = Object.assign({}, ...findings.map(({ settings }) => settings));
	// Easier to read than JSON in a text.
	const service = Object.fromEntries(
		Object.entries(found).map(([name, value]) => [
			name,
			Array.isArray(value) ? value.map(asDocument) : asDocument(value),
		]),
	);
	return {
		baseUrl,
		...(workflowId !== undefined && { workflowId }),
		...(Object.keys(service).length > 0 && { service }),
	};
}

const asDocument = (body: unknown) => (typeof body === 'string' && body.startsWith('{') ? parseJson(body) : body);

export function tokenFinding({ pointer }: TokenPlace, isConfirmed: boolean): Finding {
	return {
		point: 'token-place',
		tried: 'every text of the answer',
		found: pointer ?? 'a usual place',
		certainty: isConfirmed ? 'proved' : 'guessed',
		...(pointer !== null && { settings: { tokenPointer: pointer } }),
	};
}

export function lifeFinding(token: string, body: string): Finding {
	const point = { point: 'connection-life', tried: 'the Connection itself, and the answer around it' };
	const life = readTokenLife(token);
	if (life) return { ...point, found: 'the Connection says when it ends', certainty: 'proved' };
	const named = namedLife(body, Date.now());
	if (named === null) return { ...point, found: 'neither says when it ends', certainty: 'not seen' };
	return {
		...point,
		found: `${named} s, by the answer`,
		certainty: 'guessed',
		settings: { connectionLifeSeconds: named },
	};
}

export const nextFinding = (place: string): Finding => ({
	point: 'next-connection',
	tried: 'the same Connection, then the one that the channel had named',
	found: `each handshake takes the one at ${place} of the channel before`,
	certainty: 'proved',
	settings: { nextConnection: place },
});

/** The findings of a handshake that was accepted. @param certainty `proved` only where it was refused without the Connection. */
export function handshakeFindings(
	{ path, inHeader, inQuery, subprotocols }: Handshake,
	certainty: Certainty,
): Finding[] {
	const [place] = inQuery;
	const auth = inHeader || place === undefined ? 'header' : place.form === 'token' ? 'queryToken' : 'query';
	const [subprotocol] = subprotocols;
	const finding = (point: string, tried: string, found: string, setting: Record<string, unknown> | false): Finding => ({
		...{ point, tried, found, certainty },
		...(setting && { settings: setting }),
	});
	const queryName = place && place.name !== AUTHORIZATION_PARAMETER && { queryName: place.name };
	return [
		finding(
			'channel-path',
			'places that the service named, then usual ones',
			path,
			path !== DEFAULT_CHANNEL_PATH && { channelPath: path },
		),
		finding(
			'channel-handshake',
			'header and query together, then each alone',
			auth,
			auth !== 'header' && { channelAuth: auth },
		),
		...(place && auth !== 'header'
			? [finding('query-name', 'usual names together, then fewer', place.name, queryName || false)]
			: []),
		finding(
			'subprotocol',
			subprotocol === undefined ? 'none offered' : 'names that the service gave, and usual ones',
			subprotocol ?? 'none required',
			subprotocol !== undefined && { subprotocol },
		),
	];
}

interface Watched {
	readonly life: Life;
	readonly form: ReadingSettings;
	/** How soon an answer comes. */
	readonly settleMs: number;
	/** What the channel was opened with besides. */
	readonly settings: Readonly<Record<string, unknown>>;
}

/** What the life of a channel shows. */
export function lifeFindings({ life, form, settleMs, settings }: Watched): Finding[] {
	const { frameContents, jsonInBinary, kindPointer, notificationIdPointer } = form;
	const firsts = Array.isArray(settings['firstMessages']) ? settings['firstMessages'].length : 0;
	const { pingKind, pongBody = '{"type":"pong"}', ackBody, heartbeatMode } = settings;
	const replies = [...(pingKind ? [pongBody] : []), ...(ackBody ? [ackBody] : [])].map((one) =>
		likeTemplate(String(one)),
	);
	const said = life.said.slice(firsts).filter(({ text }) => !replies.some((isReply) => isReply(text)));
	const beats = heartbeatMode === 'ping' ? [] : said.map(({ atMs }) => atMs);
	const answers = heartbeatAnswers(life, beats, settleMs, form).filter((kind) => kind !== pingKind);
	const messages = messagesOf(life.heard, form);
	// The number of a heartbeat in its answer tells no notification from another.
	const withId = messages.filter(({ text }) => readNotification({ type: 'text', text }, form).serviceId !== null);
	const isCount = withId.length > 0 && withId.every(({ text }) => answers.includes(kindOf(text, form)));
	const kinds = [...new Set(messages.map(({ text }) => kindOf(text, form)))].filter(
		(kind) => !answers.includes(kind) && kind !== pingKind,
	);
	const lasted = life.ended === null;
	const lastMs = Math.max(life.pongAtMs, ...messages.map(({ atMs }) => atMs));
	const lives = beats.length > 1 && lastMs >= (beats.at(-2) ?? 0);
	const contents = { ...(frameContents && { frameContents }), ...(jsonInBinary && { jsonInBinary }) };
	const isRead = lasted && lives;
	const isMute = lasted && life.pings > 0 && life.pongs === 0;
	return [
		...(Object.keys(contents).length > 0
			? [found('frame-contents', 'every frame that came', Object.keys(contents).join(', '), 'proved', contents)]
			: []),
		...(settings['heartbeatMode'] || settings['heartbeatBody']
			? []
			: [
					found(
						'heartbeat-message',
						'ours',
						isRead ? 'taken' : 'not found out: nothing came after the last one',
						isRead ? 'proved' : 'not seen',
					),
				]),
		found(
			'heartbeat-answer',
			'messages after each heartbeat, and only then',
			answers.join(', ') || 'no proved answer',
			answers.length > 0 ? 'proved' : 'not seen',
			answers.length > 0 && { ignoreKinds: answers },
		),
		found(
			'notification-kind',
			'every message that came',
			[...(kindPointer === undefined ? [] : [`at ${kindPointer}`]), ...kinds.map((kind) => cleanText(kind, 64))].join(
				', ',
			) || 'no message',
			kinds.length === 0 ? 'not seen' : 'guessed',
			kindPointer !== undefined && { kindPointer },
		),
		...(notificationIdPointer === undefined
			? []
			: [
					found(
						'notification-id',
						'every message that came',
						isCount ? 'none but in answers to heartbeats' : `at ${notificationIdPointer}`,
						isCount ? 'not seen' : 'guessed',
						!isCount && { notificationIdPointer },
					),
				]),
		found(
			'dead-channel',
			'WebSocket pings',
			life.pongs > 0 ? 'pings are answered' : isMute ? 'pings are not answered' : 'not found out',
			life.pongs > 0 || isMute ? 'proved' : 'not seen',
			(isMute || settings['silenceLimitSeconds'] === 0) && { silenceLimitSeconds: 0 },
		),
	];
}

/** Whether a text was made from a template: its fixed parts are in it. */
export function likeTemplate(template: string): (text: string) => boolean {
	const parts = template.split(/"?\{\w+\}"?/).filter((part) => part.length > 1);
	return (text) => parts.every((part) => text.includes(part));
}

function found(
	point: string,
	tried: string,
	what: string,
	certainty: Certainty,
	settings: Record<string, unknown> | false = false,
): Finding {
	return { point, tried, found: what, certainty, ...(settings && { settings }) };
}

const CONFIRMS =
	/ok|ready|ack|welcome|hello|success|accept|subscri|auth|connect|regist|join|establish|confirm|init|logged|opened|bound/i;

/** The kind of the one message that answers the first ones; `null` for none. */
export function confirmationIn(life: Life, form: ReadingSettings, settleMs: number): string | null {
	const [said] = life.said;
	const messages = messagesOf(life.heard, form);
	const answer = messages.find(({ atMs }) => said !== undefined && atMs >= said.atMs && atMs - said.atMs <= settleMs);
	const kind = answer ? kindOf(answer.text, form) : '';
	const isOnly = messages.filter(({ text }) => kindOf(text, form) === kind).length === 1;
	return isOnly && CONFIRMS.test(kind) && !/^(?:unknown|text|binary)$|error|fail|denied/i.test(kind) ? kind : null;
}
