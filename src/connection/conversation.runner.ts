/**
 * The talk on one channel besides heartbeats: first messages and what confirms them, answers to pings of the application's
 * own making, acknowledgements, and the next Connection. Knows no socket. Source: assumed (first-messages), assumed (acknowledgement), assumed (application-ping), assumed (next-connection).
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Clock, isoNow } from '../base/clock.edge.ts';
import { type Failure, failure } from '../base/errors.ts';
import { type Frame, kindsOf, type Notification, readNotification, readNumber } from '../protocol/channel.ts';
import { messagesIn } from '../protocol/frame-messages.ts';
import { parseJson } from '../protocol/json.ts';
import { type RegistrationAnswer, readAnswerTexts, tokenIn } from '../protocol/registration-answer.ts';
import { asksForId, fillTemplate, type TemplateFields } from '../protocol/templates.ts';
import { readTokenLife } from '../protocol/token-life.ts';
import type { Settings } from '../settings/table.ts';
import { freshConnection } from './connection-tokens.runner.ts';
import type { Connection } from './link.ts';
import type { Registration } from './supervisor.ts';

/** Of a message that is waited for after the first ones. */
const CONFIRM_WITHIN_MS = 10_000;
/** Answers to pings at once; then one a second. */
const MOST_PONGS = 20;
/** Acknowledgements of the same message at once; each further one waits for twice as long after the one before, from a second on. */
const MOST_ACKNOWLEDGED = 5;
/** Messages of which is known how often they were acknowledged. */
const MOST_COUNTED = 1000;

export interface ConversationParts {
	readonly clock: Pick<Clock, 'monotonicMs' | 'wallMs' | 'schedule'>;
	readonly startedAtMs: number;
	readonly registration: Registration;
	readonly token: string;
	readonly host: string;
	/** Where the next Connection is looked for, the surest place first. */
	readonly nextPlaces: (registration: Registration, own: string | null) => readonly string[];
	/** As they are now. */
	readonly settings: () => Settings['service'];
	readonly send: (text: string) => boolean;
	/** Takes a message that is for applications. @returns whether it will be stored. */
	readonly keep: (message: Frame) => boolean;
	/** Resolves when what was kept so far is stored. */
	readonly stored: () => Promise<void>;
	readonly onConfirmed: () => void;
	/** The Connection for the next handshake has come. */
	readonly onConnection: (connection: Connection) => void;
	/** What should confirm the channel did not come. */
	readonly onUnconfirmed: (failure: Failure) => void;
}

export type Conversation = ReturnType<typeof converse>;

export function converse(parts: ConversationParts) {
	const { clock, send } = parts;
	const { firstMessages, confirmKind, nextConnection } = parts.settings();
	let places = parts.nextPlaces(parts.registration, nextConnection);
	let sequence = 0;
	let cancel = () => {};
	let isConfirmed = false;
	let isOver = false;
	let pongsUntilMs = Number.NEGATIVE_INFINITY;

	const acknowledged = new Map<string, { readonly times: number; readonly lastMs: number }>();

	const fields = (more: Partial<TemplateFields>): Partial<TemplateFields> => ({
		deviceId: parts.registration.request.deviceId,
		workflowId: parts.registration.request.workflowId,
		sequence: ++sequence,
		sentAt: isoNow(clock),
		sentAtMs: clock.wallMs(),
		uptimeSeconds: Math.round((clock.monotonicMs() - parts.startedAtMs) / 1000),
		...more,
	});

	const stop = () => {
		isOver = true;
		cancel();
	};

	function confirm(): void {
		if (isConfirmed) return;
		isConfirmed = true;
		parts.onConfirmed();
	}

	/** Whether the Connection for the next handshake is in this answer. */
	function changes(answer: RegistrationAnswer): boolean {
		const texts = readAnswerTexts(answer);
		const found = places.map((from, index) => ({ from, index, token: tokenIn(texts, from) }));
		const [named] = found.flatMap(({ token, ...at }) => (token === null ? [] : [{ ...at, token }]));
		if (!named) return false;
		const { from, index, token } = named;
		// A place that is less sure is not read from now on.
		places = places.slice(0, index + 1);
		if (token !== parts.token)
			parts.onConnection({ ...freshConnection({ token, life: readTokenLife(token) }, clock, parts.settings()), from });
		return true;
	}

	/** The service has answered the handshake, and may have spent the Connection with it, whatever becomes of the channel. */
	function upgraded(headers: IncomingHttpHeaders): void {
		const named = Object.entries(headers).map(([name, value]) => [name, String(value)]);
		if (places.length > 0) changes({ body: '', headers: Object.fromEntries(named) });
	}

	/** A service that answers an acknowledgement with a message of the same id is not told of that without end. */
	function mayAcknowledge(message: string): boolean {
		const { times, lastMs } = acknowledged.get(message) ?? { times: 0, lastMs: 0 };
		const nowMs = clock.monotonicMs();
		if (times >= MOST_ACKNOWLEDGED && nowMs - lastMs < 1000 * 2 ** (times - MOST_ACKNOWLEDGED)) return false;
		acknowledged.delete(message);
		acknowledged.set(message, { times: times + 1, lastMs: nowMs });
		if (acknowledged.size > MOST_COUNTED)
			for (const oldest of [...acknowledged.keys()].slice(0, 1)) acknowledged.delete(oldest);
		return true;
	}

	function acknowledge({ kind, writtenId }: Notification, text: string): void {
		const { ackBody } = parts.settings();
		if (ackBody === null || (writtenId === undefined && asksForId(ackBody))) return;
		if (!mayAcknowledge(writtenId === undefined ? text : `${kind} ${writtenId}`)) return;
		// A service that forgets what is acknowledged is told only when a power cut can no longer lose it.
		void parts.stored().then(
			() => isOver || send(fillTemplate(ackBody, fields({ id: writtenId ?? '' }))),
			() => {},
		);
	}

	/** A service that answers the answer as well is not answered without end. */
	function pong(text: string): void {
		const nowMs = clock.monotonicMs();
		if (pongsUntilMs - nowMs >= MOST_PONGS * 1000) return;
		pongsUntilMs = Math.max(pongsUntilMs, nowMs) + 1000;
		send(text);
	}

	function hear(message: Frame): void {
		const { pingKind, pongBody, kindPointer, notificationIdPointer, ignoreKinds } = parts.settings();
		const read = readNotification(message, { kindPointer, notificationIdPointer });
		const kinds = kindsOf(message, read);
		const isOf = (kind: string | null): kind is string => kind !== null && kinds.includes(kind);
		const text = message.type === 'text' ? message.text : '';
		const isNamed = places.some((place) => place.startsWith('/'));
		const isChange = message.type === 'text' && isNamed && changes({ body: message.text });
		if (isOf(pingKind)) {
			const id = read.writtenId ?? readNumber(parseJson(text), pingKind)?.[1] ?? '';
			pong(fillTemplate(pongBody, fields({ id })));
		} else if (isOf(confirmKind)) {
			cancel();
			confirm();
		} else if (!isChange && parts.keep(message) && !ignoreKinds.some(isOf)) acknowledge(read, text);
	}

	return {
		get isConfirmed() {
			return isConfirmed;
		},
		upgraded,
		/** The channel is open. */
		opened(headers: IncomingHttpHeaders = {}): void {
			upgraded(headers);
			for (const message of firstMessages) send(fillTemplate(message, fields({ token: parts.token })));
			if (confirmKind === null) return;
			cancel = clock.schedule(CONFIRM_WITHIN_MS, () => {
				const { host } = parts;
				const message = `${host} opened the channel and did not confirm it within ${CONFIRM_WITHIN_MS / 1000} s: no message "${confirmKind}" came (service.confirmKind).`;
				parts.onUnconfirmed(
					failure('handshake-timeout', message, { params: { host, seconds: CONFIRM_WITHIN_MS / 1000 } }),
				);
			});
		},
		/** The service has answered, or has kept the channel for a while: enough where no message is waited for. */
		answered(): void {
			if (confirmKind === null) confirm();
		},
		frame(frame: Frame): void {
			for (const message of messagesIn(frame, parts.settings())) if (!isOver) hear(message);
		},
		stop,
	};
}
