/**
 * Devices with channels on virtual time: the product's own supervision and what it knows of the line, against a service that is a pair of
 * functions. Opens no socket.
 */
import type { Failure } from '../../src/base/errors.ts';
import { classifyClose } from '../../src/connection/classify-close.ts';
import { keepLine, UNSAVED_LINE } from '../../src/connection/line.runner.ts';
import { connectionOf, type LinkEffect, type LinkEvent } from '../../src/connection/link.ts';
import { replacedBy } from '../../src/connection/recent-cuts.ts';
import {
	NOTHING_SUPERVISED,
	type Supervision,
	type SupervisorEvent,
	supervise,
} from '../../src/connection/supervisor.ts';
import { randomFrom } from './virtual-fleet.ts';

const BASE_URL = 'https://id.example';
const ANSWER_MS = 100;
const COUNTS_MS = 3000;
const PING_MS = 30_000;
/** The Connection that a device begins with. */
export const SAVED = 'saved';

export interface VirtualChannel {
	readonly device: VirtualDevice;
	/** Whether the Connection was obtained since the device began. */
	readonly isFresh: boolean;
	/** The service ends it with this code; 1006 for none. */
	end(code: number): void;
	/** The service answers no ping on it: it does not count for online. */
	mute(): void;
}

export interface ChannelService {
	/** A handshake arrives: `null` opens the channel. */
	readonly handshake: (channel: VirtualChannel) => Failure | null;
	/** The device has a new Connection. */
	readonly registered?: (device: VirtualDevice) => void;
	/** The channel was closed by the device. */
	readonly closed?: (channel: VirtualChannel) => void;
}

export interface VirtualDevice {
	/** It starts, with a Connection that has worked. */
	begin(afterMs: number): void;
	move(workflowId: string): void;
	renew(): void;
	/** Its warning about the way to the service. */
	says(): string | null;
	readonly supervision: Supervision;
	/** How long it was not online, in all, since it was online first. */
	offlineMs(): number;
}

export type VirtualWorld = ReturnType<typeof createWorld>;

export function createWorld(seed: number) {
	const random = randomFrom(seed);
	const timers: { atMs: number; run: () => void }[] = [];
	let nowMs = 0;
	const later = (afterMs: number, run: () => void) => {
		const atMs = nowMs + afterMs;
		const index = timers.findIndex((timer) => timer.atMs > atMs);
		timers.splice(index < 0 ? timers.length : index, 0, { atMs, run });
	};

	return {
		random,
		later,
		now: () => nowMs,
		device: (hasKey: boolean, service: ChannelService) =>
			createDevice({ random, later, now: () => nowMs }, hasKey, service),
		/** Lets time pass. @returns when this became true, in milliseconds; `null` where it did not. */
		run(untilMs: number, isTrue: () => boolean = () => false): number | null {
			for (let next = timers[0]; next && next.atMs <= untilMs; next = timers[0]) {
				timers.shift();
				nowMs = next.atMs;
				next.run();
				if (isTrue()) return nowMs;
			}
			nowMs = untilMs;
			return null;
		},
	};
}

interface Time {
	readonly random: () => number;
	readonly later: (afterMs: number, run: () => void) => void;
	readonly now: () => number;
}

interface OpenChannel extends VirtualChannel {
	readonly attempt: number;
	readonly openedAtMs: number;
	readonly pingMs: number;
}

function createDevice({ random, later, now }: Time, hasKey: boolean, service: ChannelService): VirtualDevice {
	const line = keepLine(UNSAVED_LINE, { info() {}, warn() {} });
	const open = new Map<number, OpenChannel>();
	let supervision = NOTHING_SUPERVISED;
	let offlineSinceMs: number | null = null;
	let offlineMs = 0;

	const desired = (workflowId: string) => ({
		baseUrl: BASE_URL,
		request: { deviceId: 'd', workflowId },
		credentialId: hasKey ? 'key' : '',
		hasReusableCredential: hasKey,
		selfRegistration: false,
	});

	function dispatch(event: SupervisorEvent): void {
		const wasOnline = supervision.current?.state.name === 'online';
		const step = supervise(supervision, event, random);
		supervision = step.supervision;
		const isOnline = supervision.current?.state.name === 'online';
		if (wasOnline && !isOnline) offlineSinceMs = now();
		if (isOnline && offlineSinceMs !== null) {
			offlineMs += now() - offlineSinceMs;
			offlineSinceMs = null;
		}
		for (const effect of step.effects) {
			if (effect.type === 'link') perform(effect.generation, effect.effect);
			else if (effect.type === 'linkEnded') close(effect.generation);
		}
	}
	const tell = (generation: number, event: LinkEvent) => dispatch({ type: 'link', generation, event });

	function perform(generation: number, effect: LinkEffect): void {
		switch (effect.type) {
			case 'keepConnection':
				return;
			case 'closeChannel':
				close(generation);
				return;
			case 'wait':
				later(effect.delayMs, () => tell(generation, { type: 'timerFired', attempt: effect.attempt, atMs: now() }));
				return;
			case 'register':
				later(ANSWER_MS, () => {
					service.registered?.(me);
					const connection = { token: `fresh ${now()}`, obtainedAtMs: now(), lifeMs: null };
					tell(generation, { type: 'registered', attempt: effect.attempt, atMs: now(), connection });
				});
				return;
			case 'openChannel':
				later(ANSWER_MS, () => handshake(generation, effect.attempt, effect.provesByAge ? COUNTS_MS : ANSWER_MS));
		}
	}

	function close(generation: number): void {
		const channel = open.get(generation);
		if (open.delete(generation) && channel) service.closed?.(channel);
	}

	function isWaiting(generation: number, attempt: number): boolean {
		return [supervision.current, supervision.next].some(
			(link) => link?.generation === generation && link.state.name === 'connecting' && link.state.attempt === attempt,
		);
	}

	function handshake(generation: number, attempt: number, provedMs: number): void {
		if (!isWaiting(generation, attempt)) return;
		const pingMs = line.pingIntervalMs(BASE_URL, PING_MS, PING_MS);
		let isMute = false;
		const link = [supervision.current, supervision.next].find((one) => one?.generation === generation);
		const isFresh = link !== undefined && link !== null && connectionOf(link.state)?.token !== SAVED;
		const channel: OpenChannel = {
			...{ device: me, isFresh, attempt, openedAtMs: now(), pingMs },
			end: (code) => open.get(generation) === channel && end(generation, channel, code),
			mute: () => {
				isMute = true;
			},
		};
		const failure = service.handshake(channel);
		if (failure) {
			line.ended({ type: 'ended', failure, closeCode: null, timedOut: false, line: null }, now());
			tell(generation, { type: 'channelEnded', attempt, atMs: now(), failure, closeCode: null, timedOut: false });
			return;
		}
		open.set(generation, channel);
		line.opened(BASE_URL, '10.0.0.2', now());
		later(provedMs, () => {
			if (!isMute && open.get(generation) === channel)
				tell(generation, { type: 'channelConfirmed', attempt, atMs: now() });
		});
	}

	function end(generation: number, { attempt, openedAtMs, pingMs }: OpenChannel, code: number): void {
		open.delete(generation);
		const lifeMs = now() - openedAtMs;
		// A goodbye is heard as well.
		const silenceMs = code === 1006 ? lifeMs % pingMs : 0;
		const longestSilenceMs = lifeMs < pingMs ? lifeMs - silenceMs : pingMs;
		const silences = {
			silenceMs,
			longestSilenceMs,
			inboundSilenceMs: silenceMs,
			sinceFrameMs: silenceMs,
			longestInboundMs: longestSilenceMs,
		};
		const withoutCloseFrame = code === 1006;
		const failure = classifyClose({ code, reason: '', host: 'id.example' });
		const closeCode = code === 1005 || code === 1006 ? null : code;
		const lived = { lifeMs, ...silences, withoutCloseFrame, saidGoodbye: !withoutCloseFrame, sleptMs: 0 };
		const ended = { type: 'ended', failure, closeCode, timedOut: false, line: lived } as const;
		const isAlone = supervision.current === null || supervision.next === null;
		const outlived = line.ended(ended, now(), isAlone ? replacedBy(ended) : null);
		const told = { attempt, atMs: now(), failure, closeCode, timedOut: false, wasOpen: true, outlived };
		tell(generation, { type: 'channelEnded', ...told });
	}

	const me: VirtualDevice = {
		begin(afterMs) {
			later(afterMs, () => {
				const { baseUrl, request, credentialId } = desired('w1');
				const connection = { token: SAVED, obtainedAtMs: now(), lifeMs: null, worked: true };
				const known = [{ registration: { baseUrl, request, credentialId }, connection }];
				dispatch({ type: 'desiredChanged', desired: desired('w1'), known, atMs: now() });
			});
		},
		move: (workflowId) => dispatch({ type: 'desiredChanged', desired: desired(workflowId), known: [], atMs: now() }),
		renew() {
			const generation = supervision.current?.generation ?? 0;
			dispatch({ type: 'renewalDue', generation, atMs: now() });
		},
		says: () => line.facts(now()).warning?.code ?? null,
		get supervision() {
			return supervision;
		},
		offlineMs: () => offlineMs + (offlineSinceMs === null ? 0 : now() - offlineSinceMs),
	};
	return me;
}
