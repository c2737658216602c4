/** The conclusions of `idv probe`, each with how sure it is, and the settings that follow. Pure. */
import { AUTHORIZATION_PARAMETER } from '../protocol/authorization.ts';
import { DEFAULT_CHANNEL_PATH } from '../protocol/endpoints.ts';
import { parseJson, resolvePointer } from '../protocol/json.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import { ackAnswers, asides, heartbeatAnswers } from './probe-asides.runner.ts';
import { isWithin } from './probe-form.runner.ts';
import {
	kindOf,
	messagesOf,
	NAMELESS,
	namedLife,
	type ReadingSettings,
	type TokenPlace,
} from './probe-readings.runner.ts';
import type { Handshake } from './probe-search.ts';
import type { Life } from './probe-wire.runner.ts';

/** How sure a finding is: tried with and without, or only seen once, or not seen. */
export type Certainty = 'proved' | 'guessed' | 'not seen';

export interface Finding {
	/** Of the ledger (`src/protocol/assumptions.ts`). */
	readonly point: string;
	readonly tried: string;
	readonly found: string;
	readonly certainty: Certainty;
	/** No other device may have its settings. */
	readonly isOwn?: boolean;
	/** Settings that follow, those of the service without `service.`; left out where the default holds. */
	readonly settings?: Readonly<Record<string, unknown>>;
}

/** The contents of the settings file: the address, and each value that differs from its default. @param isOwn for this device alone. */
export function settingsFrom(baseUrl: string, workflowId: string | undefined, all: readonly Finding[], isOwn = false) {
	const findings = all.filter((one) => (isOwn || !one.isOwn) && one.certainty !== 'not seen');
	const { heartbeatCadence, ...found }: Record<string, unknown> = Object.assign(
		{},
		...findings.map(({ settings }) => settings),
	);
	const ignoreKinds = [...new Set(findings.flatMap(({ settings }) => settings?.['ignoreKinds'] ?? []))];
	if (ignoreKinds.length > 0) Object.assign(found, { ignoreKinds });
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
		...(heartbeatCadence !== undefined && { heartbeatCadence }),
		...(Object.keys(service).length > 0 && { service }),
	};
}

const asDocument = (body: unknown) =>
	typeof body === 'string' && /^[{[]/.test(body) ? (parseJson(body) ?? body) : body;

export function finding(
	point: string,
	tried: string,
	found: string,
	certainty: Certainty,
	settings: Record<string, unknown> | false = false,
): Finding {
	return { point, tried, found, certainty, ...(settings && { settings }) };
}

export function tokenFinding({ pointer }: TokenPlace, isConfirmed: boolean): Finding {
	return finding(
		'token-place',
		'every text of the answer',
		pointer ?? 'a usual place',
		isConfirmed ? 'proved' : 'guessed',
		pointer !== null && { tokenPointer: pointer },
	);
}

/** Of `service.connectionLifeSeconds`. */
const LEAST_LIFE_S = 60;

/** @param answeredMs when the answer came: what a Connection has left is told from then on. */
export function lifeFinding(token: string, body: string, answeredMs: number): Finding {
	const found = finding.bind(null, 'connection-life', 'the Connection itself, and the answer around it');
	if (readTokenLife(token)) return found('the Connection says when it ends', 'proved');
	const { seconds: named, unread } = namedLife(body, answeredMs);
	if (named === null && unread !== null)
		return found(
			`the answer tells of it at ${unread}, in a way that is not read: see service.connectionLifeSeconds`,
			'not seen',
		);
	return named === null
		? found('neither says when it ends', 'not seen')
		: found(`${named} s, by the answer`, 'guessed', named >= LEAST_LIFE_S && { connectionLifeSeconds: named });
}

/** Nothing where the service ended no silent channel, or where no heartbeat is often enough. @param silencesMs that it ended: one may be chance. */
export function cadenceFindings(silencesMs: readonly number[]): Finding[] {
	const idleMs = Math.min(...silencesMs);
	const heartbeatCadence = Math.floor(idleMs / 2000);
	if (heartbeatCadence < 1 || !Number.isFinite(idleMs)) return [];
	const found = `${heartbeatCadence} s: the service ends a channel that is silent for ${Math.round(idleMs / 1000)} s`;
	const certainty = silencesMs.length > 1 ? 'proved' : 'guessed';
	return [
		finding('heartbeat-cadence', 'the default, then half of the silence', found, certainty, { heartbeatCadence }),
	];
}

export function nextFinding(nextConnection: string, certainty: Certainty): Finding {
	const found = `each handshake takes the one at ${nextConnection} of the channel before`;
	return finding('next-connection', 'the one that a channel had named', found, certainty, { nextConnection });
}

/** The findings of a handshake that was accepted. @param certainty `proved` only where it was refused without the Connection. */
export function handshakeFindings(
	{ path, inHeader, inQuery, subprotocols }: Handshake,
	certainty: Certainty,
	{ given, ownPaths }: { readonly given?: string | undefined; readonly ownPaths: ReadonlySet<string> },
): Finding[] {
	const isOwn = ownPaths.has(path.replace(/\?.*/, ''));
	const [place] = inHeader ? [] : inQuery;
	const auth = place === undefined ? 'header' : place.form === 'token' ? 'queryToken' : 'query';
	const [subprotocol] = subprotocols;
	const found = (point: string, what: string, tried: string, setting: Record<string, unknown> | false) =>
		finding(point, tried, what, certainty, setting);
	const isNamed = place && place.name !== AUTHORIZATION_PARAMETER;
	return [
		{
			...found(
				'channel-path',
				isOwn ? `${path}, of this device alone` : path,
				'places that the service named, then usual ones',
				path !== DEFAULT_CHANNEL_PATH && { channelPath: path },
			),
			...(isOwn && { isOwn }),
		},
		found(
			'channel-handshake',
			auth,
			'header and query together, then each alone',
			place !== undefined && { channelAuth: auth },
		),
		...(place
			? [
					found(
						'query-name',
						place.name,
						'usual names together, then fewer',
						isNamed ? { queryName: place.name } : false,
					),
				]
			: []),
		...(subprotocol === undefined
			? []
			: // No handshake was made without the one that was given.
				given === undefined
				? [found('subprotocol', subprotocol, 'names that the service gave, and usual ones', { subprotocol })]
				: [finding('subprotocol', 'the one that was given', subprotocol, 'guessed', { subprotocol })]),
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

/** Names of contents beside the array of a frame that are not kept. */
function unkept({ heard }: Life, form: ReadingSettings): string[] {
	const { frameContents = '', ...others } = form;
	const [at, own] = [frameContents.replace(/\/[^/]*$/, ''), frameContents.replace(/.*\//, '')];
	if (own === '' || !frameContents.startsWith('/')) return [];
	const names = heard.flatMap((frame) => {
		const kept = new Set(messagesOf([frame], form).map(({ text }) => JSON.stringify(parseJson(text))));
		const [whole] = messagesOf([frame], { ...others, frameContents: 'one' });
		const beside = Object.entries(Object(resolvePointer(parseJson(whole?.text ?? ''), at)));
		const isKept = (value: unknown) => [value].flat().every((one) => kept.has(JSON.stringify(one)));
		const isWhole = kept.has(JSON.stringify(parseJson(whole?.text ?? '')));
		return isWhole ? [] : beside.flatMap(([name, value]) => (name === own || isKept(value) ? [] : [name]));
	});
	return [...new Set(names)].slice(0, 8);
}

function contentsFound(life: Life, form: ReadingSettings): string {
	const most = Math.max(0, ...life.heard.map((one) => messagesOf([one], form).length));
	const { frameContents, jsonInBinary } = form;
	const names = unkept(life, form).join(', ');
	const lost = names === '' ? '' : ` (not kept, as it has no kind: ${names})`;
	return [
		...(frameContents ? [`${frameContents}: a message holds up to ${most} notifications${lost}`] : []),
		...(jsonInBinary ? ['jsonInBinary'] : []),
	].join(', ');
}

/** What the life of a channel shows that no event of a device does. */
export function lifeFindings({ life, form, settleMs, settings }: Watched): Finding[] {
	const { frameContents, jsonInBinary, kindPointer, notificationIdPointer } = form;
	const tried = 'every message that came';
	const contents = { ...(frameContents && { frameContents }), ...(jsonInBinary && { jsonInBinary }) };
	const isKept = unkept(life, form).length === 0;
	const answers = heartbeatAnswers(life, settleMs, form, settings);
	const receipts = ackAnswers(life, settleMs, form, settings);
	const after = `what comes after each heartbeat${receipts.length > 0 ? ' or acknowledgement' : ''}, and only then`;
	const isMute = life.ended === null && life.pings > 0 && life.pongs === 0;
	const isAside = asides(life, form, settleMs, settings);
	const notifications = messagesOf(life.heard, form).filter(({ text }) => !isAside(text));
	const seen = notifications.length > 0;
	const isKnown = kindPointer !== undefined || notifications.some(({ text }) => !NAMELESS.includes(kindOf(text, form)));
	const place = kindPointer ?? (isKnown ? 'a usual place' : 'none of the usual places');
	const kinds = new Set(notifications.map(({ text }) => kindOf(text, form)));
	const documents = notifications.map(({ text }) => parseJson(text));
	const isDoubtful = kindPointer !== undefined && kinds.size === 1 && isWithin(kindPointer, documents);
	return [
		...(Object.keys(contents).length > 0
			? [
					finding(
						'frame-contents',
						'every frame that came',
						contentsFound(life, form),
						isKept ? 'proved' : 'guessed',
						contents,
					),
				]
			: []),
		answers.length + receipts.length > 0
			? finding('heartbeat-answer', after, [...answers, ...receipts].join(', '), 'proved', {
					ignoreKinds: [...answers, ...receipts],
				})
			: finding('heartbeat-answer', after, 'no proved answer', 'not seen'),
		finding(
			'notification-kind',
			tried,
			seen
				? `at ${place}${isDoubtful ? ': a mere guess, the same in each and within what it is about' : ''}`
				: 'no notification',
			seen && isKnown ? 'guessed' : 'not seen',
			kindPointer !== undefined && { kindPointer },
		),
		finding(
			'notification-id',
			tried,
			notificationIdPointer === undefined ? 'at the usual place, or none' : `at ${notificationIdPointer}`,
			seen ? 'guessed' : 'not seen',
			notificationIdPointer !== undefined && { notificationIdPointer },
		),
		finding(
			'dead-channel',
			'WebSocket pings',
			life.pongs > 0 ? 'pings are answered' : isMute ? 'pings are not answered' : 'not found out',
			life.pongs > 0 || isMute ? 'proved' : 'not seen',
			(isMute || settings['silenceLimitSeconds'] === 0) && { silenceLimitSeconds: 0 },
		),
	];
}
