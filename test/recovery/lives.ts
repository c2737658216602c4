/**
 * One device that meets a cause, on virtual time: the product's own decisions (`supervisor.ts`, `link.ts`, `backoff.ts` and what a failure
 * means), against a service that is a function. Opens no socket.
 */
import { type Failure, failure } from '../../src/base/errors.ts';
import { TLS_STALLED } from '../../src/connection/ask.edge.ts';
import { COUNTS_AFTER_MS } from '../../src/connection/backoff.ts';
import { classifyClose } from '../../src/connection/classify-close.ts';
import { classifyHttpAnswer } from '../../src/connection/classify-failure.ts';
import {
	classifyHandshakeError,
	classifyNetworkError,
	lateHandshake,
} from '../../src/connection/classify-network-error.ts';
import type { LinkEffect, LinkEvent } from '../../src/connection/link.ts';
import {
	NOTHING_SUPERVISED,
	type SupervisorEvent,
	servesRegistration,
	supervise,
} from '../../src/connection/supervisor.ts';
import { randomFrom } from '../connection/virtual-fleet.ts';
import type { Cause, Meeting } from './causes.ts';

export const CREDENTIALS = ['API key', 'paired by code', 'self-registration'] as const;
export const PHASES = ['online', 'renewing', 'moving', 'starting'] as const;
export interface Life {
	readonly cause: Cause;
	readonly credential: (typeof CREDENTIALS)[number];
	readonly phase: (typeof PHASES)[number];
	readonly seconds: number;
	readonly seed: number;
}
/** Seconds from the cause's end, or from the verdict of a silence: until it is online, and until it is where it should be. */
export interface Back {
	readonly online: number;
	readonly settled: number;
	readonly attempts: number;
}

const HOUR = 3_600_000;
const ANSWER_MS = 100;
const SILENCE_MS = 60_000;
const CONNECT_MS = 10_000;
const REQUEST_MS = 15_000;
const HOST = 'id.example';

export function live({ cause, credential, phase, seconds, seed }: Life): Back {
	const random = randomFrom(seed);
	const timers: { atMs: number; run: () => void }[] = [];
	const endMs = seconds * 1000;
	const fromMs = cause.cut === 'silence' && phase !== 'starting' ? Math.max(endMs, SILENCE_MS) : endMs;
	let nowMs = -HOUR;
	let attempts = 0;
	let supervision = NOTHING_SUPERVISED;
	let onlineAtMs: number | null = null;

	const later = (afterMs: number, run: () => void) => {
		const atMs = nowMs + afterMs;
		const index = timers.findIndex((timer) => timer.atMs > atMs);
		timers.splice(index < 0 ? timers.length : index, 0, { atMs, run });
	};
	const desired = (workflowId: string) => ({
		baseUrl: `https://${HOST}`,
		request: { deviceId: 'd', workflowId },
		credentialId: credential === 'API key' ? 'key' : '',
		hasReusableCredential: credential === 'API key',
		selfRegistration: credential === 'self-registration',
	});
	const known = () => {
		const { baseUrl, request, credentialId } = desired('w1');
		const connection = { token: 'saved', obtainedAtMs: nowMs, lifeMs: null, ...(!cause.isFirst && { worked: true }) };
		// A code is redeemed before; whatever else registers has nothing yet.
		if (cause.isFirst && credential !== 'paired by code') return [];
		return [{ registration: { baseUrl, request, credentialId }, connection }];
	};

	const dispatch = (event: SupervisorEvent) => {
		const step = supervise(supervision, event, random);
		supervision = step.supervision;
		const isOnline = supervision.current?.state.name === 'online';
		onlineAtMs = isOnline ? (onlineAtMs ?? nowMs) : null;
		for (const effect of step.effects) if (effect.type === 'link') perform(effect.generation, effect.effect);
	};
	const tell = (generation: number, event: LinkEvent) => dispatch({ type: 'link', generation, event });
	const meet = (purpose: 'register' | 'channel'): Meeting =>
		nowMs >= 0 && nowMs < endMs ? cause.meet(nowMs / 1000, purpose) : { kind: 'fine' };

	function perform(generation: number, effect: LinkEffect): void {
		if (effect.type === 'keepConnection' || effect.type === 'closeChannel') return;
		const { attempt } = effect;
		if (effect.type === 'wait') {
			later(effect.delayMs, () => tell(generation, { type: 'timerFired', attempt, atMs: nowMs }));
			return;
		}
		attempts += nowMs >= 0 ? 1 : 0;
		if (effect.type === 'register') register(generation, attempt, meet('register'));
		else open(generation, effect, meet('channel'));
	}

	function register(generation: number, attempt: number, met: Meeting): void {
		const failed = registrationFailure(met);
		later(failed?.afterMs ?? ANSWER_MS, () => {
			const connection = { token: `fresh-${nowMs}`, obtainedAtMs: nowMs, lifeMs: null };
			if (!failed) return tell(generation, { type: 'registered', attempt, atMs: nowMs, connection });
			const { failure: cause, timedOut } = failed;
			tell(generation, { type: 'registerFailed', attempt, atMs: nowMs, failure: cause, timedOut });
		});
	}

	function open(generation: number, effect: Extract<LinkEffect, { type: 'openChannel' }>, met: Meeting): void {
		const { attempt, handshakeMs, provesByAge } = effect;
		const ended = (
			afterMs: number,
			cause: Failure,
			more: { timedOut?: boolean; closeCode?: number | null; lifeMs?: number },
		) =>
			later(afterMs, () => {
				const { timedOut = false, closeCode = null } = more;
				const event = { type: 'channelEnded', attempt, atMs: nowMs, failure: cause, timedOut, closeCode } as const;
				tell(generation, event);
			});
		const failed = channelFailure(met, handshakeMs);
		if (failed) {
			ended(failed.afterMs, failed.failure, failed);
			return;
		}
		const provedMs = provesByAge ? COUNTS_AFTER_MS : ANSWER_MS;
		later(provedMs, () => tell(generation, { type: 'channelConfirmed', attempt, atMs: nowMs }));
		if (met.kind !== 'closes') return;
		const code = met.code ?? 1006;
		ended(ANSWER_MS + met.afterMs, classifyClose({ code, reason: '', host: HOST }), { closeCode: met.code });
	}

	if (phase !== 'starting') {
		dispatch({ type: 'desiredChanged', desired: desired('w1'), known: known(), atMs: nowMs });
		run(-1000);
		const { generation = 0, state } = supervision.current ?? {};
		const attempt = state?.attempt ?? 0;
		nowMs = 0;
		if (phase === 'moving') dispatch({ type: 'desiredChanged', desired: desired('w2'), known: known(), atMs: 0 });
		if (phase === 'renewing') dispatch({ type: 'renewalDue', generation, atMs: 0 });
		const isSilent = cause.cut === 'silence';
		const end = isSilent
			? failure('channel-silent', 'Nothing was heard.')
			: classifyClose({ code: 1006, reason: '', host: HOST });
		later(isSilent ? SILENCE_MS : 200 * random(), () =>
			tell(generation, { type: 'channelEnded', attempt, atMs: nowMs, failure: end, timedOut: false, closeCode: null }),
		);
	} else {
		nowMs = 1000 * random();
		dispatch({ type: 'desiredChanged', desired: desired('w1'), known: known(), atMs: nowMs });
	}

	for (let atSeconds = 10; cause.cutsEachMinute && atSeconds < seconds; atSeconds += 60)
		timers.push({ atMs: atSeconds * 1000, run: cutAll });
	timers.sort((one, other) => one.atMs - other.atMs);

	const isSettled = () => {
		const { current, next, desired: wanted } = supervision;
		return onlineAtMs !== null && !next && current && wanted && servesRegistration(current.registration, wanted);
	};
	run(fromMs);
	nowMs = Math.max(nowMs, fromMs);
	run(fromMs + 2 * HOUR, () => onlineAtMs !== null);
	const online = onlineAtMs === null ? Number.POSITIVE_INFINITY : Math.max(0, onlineAtMs - fromMs) / 1000;
	run(fromMs + 2 * HOUR, () => isSettled() === true);
	return { online, settled: isSettled() ? (nowMs - fromMs) / 1000 : Number.POSITIVE_INFINITY, attempts };

	function cutAll(): void {
		for (const link of [supervision.current, supervision.next])
			if (link?.state.name === 'online') {
				const { generation, state } = link;
				const lost = classifyClose({ code: 1006, reason: '', host: HOST });
				const ended = { type: 'channelEnded', failure: lost, timedOut: false, closeCode: null } as const;
				tell(generation, { ...ended, attempt: state.attempt, atMs: nowMs });
			}
	}

	function run(untilMs: number, isOver: () => boolean = () => false): void {
		while (!isOver()) {
			const next = timers[0];
			if (!next || next.atMs > untilMs) break;
			timers.shift();
			nowMs = Math.max(nowMs, next.atMs);
			next.run();
		}
	}
}

interface Failed {
	readonly failure: Failure;
	readonly timedOut: boolean;
	readonly afterMs: number;
}

function registrationFailure(met: Meeting): Failed | null {
	if (met.kind === 'hangs') {
		const isAnswer = met.on === 'answer';
		const code = met.on === 'TLS' ? TLS_STALLED : 'ETIMEDOUT';
		const error = isAnswer ? new DOMException('', 'TimeoutError') : Object.assign(new Error(), { code });
		const afterMs = isAnswer ? REQUEST_MS : CONNECT_MS;
		return { failure: classifyNetworkError(error, { host: HOST }), timedOut: true, afterMs };
	}
	if (met.kind === 'http') return { failure: answered(met, 'register'), timedOut: false, afterMs: ANSWER_MS };
	if (met.kind === 'error')
		return { failure: networkFailure(met.code), timedOut: false, afterMs: met.afterMs ?? ANSWER_MS };
	return null;
}

function channelFailure(met: Meeting, handshakeMs: number): Failed | null {
	const fast = { timedOut: false, afterMs: ANSWER_MS };
	switch (met.kind) {
		case 'hangs': {
			const late = lateHandshake({
				host: HOST,
				seconds: handshakeMs / 1000,
				stands: met.on === 'answer',
				isInTls: met.on === 'TLS',
			});
			return { ...late, afterMs: handshakeMs };
		}
		case 'http':
			return { ...fast, failure: answered(met, 'channel') };
		case 'error':
			return { ...fast, failure: networkFailure(met.code), afterMs: met.afterMs ?? ANSWER_MS };
		case 'upgrade':
			return { ...fast, failure: classifyHandshakeError(new Error(met.words), { host: HOST }) };
		default:
			return null;
	}
}

function answered(met: Extract<Meeting, { kind: 'http' }>, purpose: 'register' | 'channel'): Failure {
	const { status, headers = {}, body = '', plain = false } = met;
	return classifyHttpAnswer({ status, headers, body, purpose, host: HOST, secure: !plain });
}

const networkFailure = (code: string) => classifyNetworkError(Object.assign(new Error(code), { code }), { host: HOST });
