/**
 * Whatever happens to lines, moves, renewals and the process: every notification that the service has sent is delivered, or
 * lies in a gap. The product's supervision, link runner and connectivity on a stepped clock, over lines that die unnoticed.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../../src/connection/channel.edge.ts';
import { keepLine, UNSAVED_LINE } from '../../src/connection/line.runner.ts';
import type { LineEnd } from '../../src/connection/line-rhythm.ts';
import { createLinkRunner } from '../../src/connection/link.runner.ts';
import type { Runtime } from '../../src/connection/runtime.runner.ts';
import {
	type DesiredRegistration,
	NOTHING_SUPERVISED,
	type SupervisorEffect,
	type SupervisorEvent,
	supervise,
} from '../../src/connection/supervisor.ts';
import type { Incoming } from '../../src/events/event.ts';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { EMPTY_STATE } from '../../src/state/device-state.ts';
import { trackConnectivity } from '../../src/status/connectivity.runner.ts';
import { createSteppedClock, type SteppedClock } from '../harness/stepped-clock.ts';

const SECOND = 1000;
const SILENCE_LIMIT_SECONDS = 60;

type Action =
	| { do: 'pass'; ms: number }
	| { do: 'stall' | 'sleep'; ms: number }
	| { do: 'killLine' | 'killOnceOpen' | 'cutLine' | 'move' | 'renew' | 'retry' | 'crash' | 'stop' };

/** A line between device and service. Dead ones carry nothing, and neither side is told. */
interface Line {
	isDead: boolean;
	/** Whether nothing comes through it after the answer to its upgrade. */
	diesOnceOpen: boolean;
	/** Whether the service has accepted it, and whether it is over. */
	isOpen: boolean;
	isOver: boolean;
	deliver: (id: number) => void;
	cut: () => void;
}

/** The channel edge over such a line: same promises as `openChannel`, time by the stepped clock. */
function openOn(
	clock: SteppedClock,
	line: Line,
	options: ChannelOptions,
	tell: (event: ChannelEvent) => void,
): Channel {
	let heardAtMs = 0;
	let openedAtMs: number | null = null;
	let confirmAtMs = 0;
	let hasEnded = false;
	let isConfirmed = false;
	let said: 'nothing' | 'goodbye' = 'nothing';
	let cancel = () => {};
	let sleptBeforeMs = 0;
	const sleptMs = () => clock.sleptMs() - sleptBeforeMs;
	const end = (code: Parameters<typeof failure>[0], saidGoodbye: boolean) => {
		if (hasEnded) return;
		hasEnded = true;
		line.isOver = true;
		cancel();
		const nowMs = clock.monotonicMs();
		const silence = { silenceMs: nowMs - heardAtMs, longestSilenceMs: 0, longestInboundMs: 0 };
		const found: LineEnd = {
			...silence,
			inboundSilenceMs: silence.silenceMs,
			sinceFrameMs: silence.silenceMs,
			lifeMs: nowMs - (openedAtMs ?? nowMs),
			withoutCloseFrame: !saidGoodbye,
			saidGoodbye,
			sleptMs: sleptMs(),
		};
		const lineEnd = openedAtMs === null ? null : found;
		tell({ type: 'ended', failure: failure(code, 'Over.'), closeCode: null, timedOut: false, line: lineEnd });
	};
	const heard = () => {
		heardAtMs = clock.monotonicMs();
		confirm();
	};
	const confirm = () => {
		if (isConfirmed || said === 'goodbye') return;
		isConfirmed = true;
		tell({ type: 'confirmed' });
	};
	const check = () => {
		if (hasEnded) return;
		if (sleptMs() > 5 * SECOND) return end('connection-lost', false);
		if (clock.monotonicMs() - heardAtMs >= options.silenceLimitMs) return end('channel-silent', false);
		if (!line.isDead) heard();
		// Of a line that is open and silent nothing shows yet that it has died.
		const untilConfirmMs = confirmAtMs - clock.monotonicMs();
		if (untilConfirmMs <= 0) confirm();
		const untilSilentMs = heardAtMs + options.silenceLimitMs - clock.monotonicMs();
		cancel = clock.schedule(Math.min(isConfirmed ? options.pingIntervalMs : untilConfirmMs, untilSilentMs), check);
	};
	line.deliver = (id) => {
		if (hasEnded || openedAtMs === null || line.isDead) return;
		heard();
		tell({ type: 'frame', frame: { type: 'text', text: String(id) } });
	};
	line.cut = () => end('connection-lost', false);
	cancel = clock.schedule(20, () => {
		if (line.isDead) return end('connection-lost', false);
		line.isOpen = true;
		line.isDead = line.diesOnceOpen;
		openedAtMs = clock.monotonicMs();
		sleptBeforeMs = clock.sleptMs();
		confirmAtMs = openedAtMs + (options.proveAfterMs ?? 3000);
		heardAtMs = openedAtMs;
		tell({ type: 'opened', clockSkewMs: null, localAddress: '192.0.2.7' });
		cancel = clock.schedule(20, check);
	});
	return {
		sendText: () => true,
		bufferedAmount: 0,
		terminate: () => end('connection-lost', false),
		close() {
			if (openedAtMs === null) return end('connection-lost', false);
			said = 'goodbye';
			cancel();
			if (line.isDead) cancel = clock.schedule(options.closeMs ?? 2000, () => end('connection-lost', false));
			else cancel = clock.schedule(20, () => (line.isDead ? check() : end('connection-lost', true)));
		},
	};
}

async function run(
	actions: readonly Action[],
	sendsTo: 'newest' | 'all',
	everyMs: number,
	isHeardAfterSleep = true,
): Promise<void> {
	const clock = createSteppedClock(Date.UTC(2026, 0, 1));
	const lines: Line[] = [];
	const delivered = new Set<number>();
	const sent: { id: number; atMs: number }[] = [];
	const kept: { at: string; gap: { from: string | null; to: string } | null }[] = [];
	const events = {
		append(incoming: Incoming) {
			kept.push({ at: incoming.at, gap: incoming.type === 'gap' ? JSON.parse(incoming.content) : null });
			return true;
		},
		appendedId: null,
		newest: () => 'e-1',
		newestAt: () => kept.at(-1)?.at ?? null,
	};
	let stopProcess = () => {};
	let workflow = 1;
	let actOnDevice: (event: SupervisorEvent) => void = () => {};
	let current = () => 0;

	function startProcess(): void {
		let isRunning = true;
		let supervision = NOTHING_SUPERVISED;
		const log = { debug() {}, info() {}, warn() {}, error() {} };
		const connectivity = trackConnectivity({
			dates: { begin: () => new Date(clock.wallMs()).toISOString(), end() {} },
			clock,
			log: log as never,
			events,
			stateWriter: { state: EMPTY_STATE, keep() {} },
			silenceLimitMs: () => SILENCE_LIMIT_SECONDS * SECOND,
		});
		const runtime = {
			client: {
				registerDevice: async () => ({ ok: true, token: `t${clock.monotonicMs()}`, life: null, clockSkewMs: null }),
			},
			resolved: {
				settings: {
					service: {
						...resolveSettings([]).settings.service,
						heartbeatMode: 'off',
						silenceLimitSeconds: SILENCE_LIMIT_SECONDS,
					},
				},
			},
			credentials: { reusable: null },
			network: { channelAgent: () => undefined, doubt() {}, proxyName: () => null },
			headersFor: () => ({}),
		} as unknown as Runtime;
		const runner = createLinkRunner({
			clock,
			log,
			random: () => 0.5,
			nextPlaces: () => [],
			earlier: () => null,
			startedAtMs: 0,
			userAgent: 'test',
			line: keepLine(UNSAVED_LINE, log),
			plan: () => ({}),
			runtime: () => runtime,
			openChannel(options, listener) {
				const line: Line = {
					isDead: false,
					diesOnceOpen: false,
					isOpen: false,
					isOver: false,
					deliver: () => {},
					cut: () => {},
				};
				lines.push(line);
				return openOn(clock, line, options, (event) => isRunning && listener(event));
			},
			report: {
				event: (generation, event) => dispatch({ type: 'link', generation, event }),
				frame({ generation }, frame) {
					connectivity.heard(generation);
					const id = Number(frame.type === 'text' ? frame.text : Number.NaN);
					if (delivered.has(id)) return true;
					delivered.add(id);
					kept.push({ at: new Date(clock.wallMs()).toISOString(), gap: null });
					return true;
				},
				stored: async () => {},
				heartbeat() {},
				answered() {},
				lateConnection() {},
				lineEnded: (...end) => connectivity.lineEnded(...end),
				serviceTime() {},
			},
		});
		const perform = (effect: SupervisorEffect) => {
			if (effect.type === 'linkEnded') runner.end(effect.generation);
			if (effect.type !== 'link' || effect.effect.type === 'keepConnection') return;
			runner.perform(effect.generation, effect.registration, effect.effect);
		};
		const dispatch = (event: SupervisorEvent) => {
			if (!isRunning) return;
			const before = supervision;
			const step = supervise(before, event, () => 0.5);
			supervision = step.supervision;
			for (const effect of step.effects) perform(effect);
			connectivity.follow(before, supervision);
		};
		actOnDevice = dispatch;
		current = () => supervision.current?.generation ?? 0;
		stopProcess = () => {
			isRunning = false;
			for (const line of lines) line.cut();
		};
		dispatch({ type: 'desiredChanged', desired: desired(), known: [], atMs: clock.monotonicMs() });
	}
	const desired = (): DesiredRegistration => ({
		baseUrl: 'https://id.example',
		request: { deviceId: 'd', workflowId: `w${workflow}` },
		credentialId: 'key',
		hasReusableCredential: true,
		selfRegistration: false,
	});
	/** The service sends while time passes. */
	const pass = async (ms: number) => {
		for (let left = ms; left > 0; left -= everyMs) {
			clock.advance(Math.min(everyMs, left));
			for (let turn = 0; turn < 6; turn += 1) await Promise.resolve();
			send();
		}
	};
	const record = () => sent.push({ id: sent.length, atMs: clock.wallMs() }) - 1;
	const send = () => {
		const id = record();
		const known = lines.filter((line) => line.isOpen && !line.isOver);
		for (const line of sendsTo === 'all' ? known : known.slice(-1)) line.deliver(id);
	};

	startProcess();
	await pass(2 * SECOND);
	for (const action of actions) {
		const atMs = clock.monotonicMs();
		const alive = lines.findLast((line) => !line.isOver);
		if (action.do === 'pass') await pass(action.ms);
		else if (action.do === 'stall') clock.stall(action.ms);
		else if (action.do === 'sleep') {
			// One waits in the socket and is handled after the sleep, when the line is gone; one is sent meanwhile, to nobody.
			const waiting = record();
			clock.sleep(action.ms / 2);
			record();
			clock.sleep(action.ms / 2);
			if (isHeardAfterSleep) alive?.deliver(waiting);
			for (const line of lines) line.isDead = true;
		} else if (action.do === 'killLine' && alive) alive.isDead = true;
		else if (action.do === 'killOnceOpen' && alive) alive.diesOnceOpen = true;
		else if (action.do === 'cutLine') alive?.cut();
		else if (action.do === 'move') {
			workflow += 1;
			actOnDevice({ type: 'desiredChanged', desired: desired(), known: [], atMs });
		} else if (action.do === 'renew') actOnDevice({ type: 'renewalDue', generation: current(), atMs });
		else if (action.do === 'retry') actOnDevice({ type: 'retryRequested', atMs });
		else if (action.do === 'crash') {
			stopProcess();
			startProcess();
		}
		send();
	}
	// Whatever is dead is noticed, and the device comes back.
	await pass(200 * SECOND);

	const gaps = kept.flatMap(({ gap }) => (gap ? [gap] : []));
	const isCovered = (atMs: number) =>
		gaps.some(({ from, to }) => (from === null || Date.parse(from) <= atMs) && atMs <= Date.parse(to));
	const lost = sent.filter(({ id, atMs }) => !delivered.has(id) && !isCovered(atMs));
	expect(lost).toEqual([]);
}

const DIES = ['killLine', 'killLine', 'killOnceOpen', 'cutLine', 'crash'] as const;

const action: fc.Arbitrary<Action> = fc.oneof(
	{ weight: 6, arbitrary: fc.record({ do: fc.constant('pass' as const), ms: fc.integer({ min: 10, max: 90_000 }) }) },
	{
		weight: 1,
		arbitrary: fc.record({ do: fc.constant('stall' as const), ms: fc.integer({ min: 1000, max: 300_000 }) }),
	},
	{
		weight: 1,
		arbitrary: fc.record({ do: fc.constant('sleep' as const), ms: fc.integer({ min: 1000, max: 300_000 }) }),
	},
	{
		weight: 6,
		arbitrary: fc.record({ do: fc.constantFrom(...DIES, ...(['move', 'move', 'renew', 'retry'] as const)) }),
	},
);

test('every notification is delivered or lies in a gap, over random schedules', async () => {
	await fc.assert(
		fc.asyncProperty(
			fc.array(action, { maxLength: 14 }),
			fc.constantFrom('newest' as const, 'all' as const),
			fc.integer({ min: 500, max: 7000 }),
			fc.boolean(),
			run,
		),
		{ numRuns: 1000 },
	);
});

test.each(['move', 'renew'] as const)(
	'a %s to a line that dies before its first byte leaves a gap from then on, though its silence counts as online',
	async (how) => {
		await run([{ do: how }, { do: 'pass', ms: 10 }, { do: 'killOnceOpen' }, { do: 'pass', ms: 10_000 }], 'newest', 500);
	},
);

describe('a crash leaves in a gap what a line has lost unnoticed', () => {
	const [crash, second] = [{ do: 'crash' }, { do: 'pass', ms: 1000 }] as const;

	test.each(['move', 'renew'] as const)('before a %s of a second ago', async (how) => {
		await run([{ do: 'killLine' }, { do: 'pass', ms: 25_000 }, { do: how }, second, crash], 'newest', 500);
	});

	test('before a move that comes as the silence was due', async () => {
		await run(
			[{ do: 'killLine' }, { do: 'pass', ms: 66_325 }, { do: 'move' }, { do: 'pass', ms: 676 }, crash],
			'newest',
			500,
			false,
		);
	});

	test('before a move of a second ago, between two sleeps', async () => {
		const sleep = { do: 'sleep', ms: 1000 } as const;
		await run([{ do: 'move' }, sleep, { do: 'pass', ms: 520 }, sleep, crash], 'newest', 500);
	});

	test('in a sleep, whatever waited in the socket meanwhile', async () => {
		await run([{ do: 'sleep', ms: 300_000 }, { do: 'pass', ms: 100 }, crash], 'newest', 500);
	});

	test.each([true, false])(
		'before a sleep and the move that follows it [something waited in the socket: %s]',
		async (waited) => {
			const actions = [{ do: 'sleep', ms: 300_000 }, { do: 'move' }, second, crash] as const;
			await run([{ do: 'killLine' }, { do: 'pass', ms: 25_000 }, ...actions], 'newest', 500, waited);
		},
	);
});

test.each(['move', 'renew'] as const)('a %s to a line that is cut before it counts leaves a gap', async (how) => {
	await run(
		[{ do: how }, { do: 'pass', ms: 10 }, { do: 'killOnceOpen' }, { do: 'stall', ms: 1000 }, { do: 'cutLine' }],
		'newest',
		500,
	);
});

test.each(['move', 'renew'] as const)(
	'a %s over a line that has died unnoticed leaves a gap from its last byte on [F144]',
	async (how) => {
		await run([{ do: 'killLine' }, { do: 'pass', ms: 25_000 }, { do: how }, { do: 'pass', ms: 10_000 }], 'all', 1000);
	},
);

test('a move whose line dies before the first one was ever online leaves no time before it out of the first gap', async () => {
	const stalls = [
		{ do: 'stall', ms: 1000 },
		{ do: 'stall', ms: 65_982 },
	] as const;
	await run([{ do: 'move' }, { do: 'pass', ms: 10 }, { do: 'killOnceOpen' }, ...stalls], 'newest', 1991, false);
});
