/**
 * Bugs that are planted to see whether a life finds them: for each invariant one that it catches, those that were once found
 * in the field, and mutations of the link, the supervisor, the plan and the events. A plant changes a source on its way into
 * the process; the text that it replaces is in its file exactly once.
 */

export interface Plant {
	readonly name: string;
	/** File below `src/`, the text there, and what takes its place. */
	readonly edits: readonly (readonly [file: string, from: string, to: string])[];
	/** The invariant that has to catch it; any, where none is named. */
	readonly catches?: string;
	/** The first seed that is lived with it; default 17: a Connection of an hour, a plan, many faults. */
	readonly seed?: number;
	/** How long each life is; default 0.06. */
	readonly years?: string;
}

const CHANNEL = 'connection/channel.edge.ts';
const LINK = 'connection/link.ts';
const LINKS = 'agent/links.runner.ts';
const SUPERVISOR = 'connection/supervisor.ts';
const BEATS = 'connection/heartbeats.runner.ts';
const STORE = 'events/store.edge.ts';
const LOG = 'base/record-log.edge.ts';
const CONNECTIVITY = 'status/connectivity.runner.ts';
const RECORD = 'fleet/record.ts';
const FOLLOW = 'fleet/follow-plan.runner.ts';
const FILES = 'base/files.edge.ts';

const one = (
	name: string,
	catches: string,
	file: string,
	from: string,
	to: string,
	more: Partial<Plant> = {},
): Plant => ({
	name,
	catches,
	edits: [[file, from, to]],
	...more,
});
const any = (name: string, file: string, from: string, to: string, more: Partial<Plant> = {}): Plant => ({
	name,
	edits: [[file, from, to]],
	...more,
});

/** For each invariant. */
const OF_INVARIANTS: readonly Plant[] = [
	one(
		'wait-without-end',
		'online-again',
		LINK,
		'timerFired: (state, event) => openWith(state, state.connection, event.atMs),',
		'timerFired: (state) => ({ state, effects: [] }),',
	),
	one(
		'break-before-make',
		'stays-online',
		SUPERVISOR,
		"const started = start({ ...supervision, next: null }, registration, 'renewal', null, atMs, random);",
		"const gone = drop(current, atMs, random);\n\tconst started = start({ ...supervision, current: null, next: null }, registration, 'renewal', null, atMs, random);\n\tdropped.push(...gone);",
	),
	one(
		'wish-forgotten',
		'wanted-is-live',
		'agent/reconcile.runner.ts',
		'\t\tlinks.desire(desired);',
		'\t\tif (links.supervision.current === null || parts.random() < 0.01) links.desire(desired);',
	),
	one(
		'lease-counts-for-nothing',
		'leases-are-honoured',
		'workflow/leases.ts',
		'return untilMs > nowMs ? untilMs : null;',
		'return untilMs < nowMs ? untilMs : null;',
		{ seed: 9 },
	),
	one(
		'lease-without-a-limit',
		'leases-have-a-limit',
		'workflow/leases.ts',
		'const untilMs = Math.min(held, wantedSinceMs + maxDeferSeconds * 1000);',
		'const untilMs = Math.max(held, wantedSinceMs + maxDeferSeconds);',
		{ seed: 9 },
	),
	one(
		'first-plan-for-ever',
		'plan-is-followed',
		RECORD,
		'return { ...record, taken: next, waiting: null, followed };',
		'return { ...record, taken: record.taken ?? next, waiting: null, followed };',
	),
	one('a-wait-of-no-time', 'no-errors', RECORD, 'if (atMs <= wallMs || is', 'if (atMs <= wallMs - 1e12 || is'),
	one(
		'gap-at-return',
		'delivered-or-gap',
		CONNECTIVITY,
		'keepGap(events, from, { workflowId, at: isoNow(clock) });',
		"if (from === 'never') keepGap(events, from, { workflowId, at: isoNow(clock) });",
	),
	one(
		'no-checksum',
		'as-it-was-sent',
		'base/record-format.ts',
		'return isWhole ? payload : null;',
		'return isWhole || payload.length === length ? payload : null;',
		{ seed: 74 },
	),
	one(
		'lost-in-silence',
		'missing-lies-in-a-gap',
		'base/log-segments.edge.ts',
		'else {\n\t\t\t\t\tif (lost) yield lost;',
		'else {',
		{ seed: 74 },
	),
	one(
		'a-gap-leads-back',
		'a-reader-ends',
		STORE,
		'yield { ...gap, number: each.number, id: idOf(each.number, epochs)',
		'yield { ...gap, number: each.number, id: idOf(each.lostFrom - 1, epochs)',
		{ seed: 74 },
	),
	one(
		'one-copy-of-the-state',
		'connection-kept',
		'state/copies.edge.ts',
		'readCopy(at(BACKUP), checked, isLocked)',
		'readCopy(at(STATE), checked, isLocked)',
		{ seed: 44 },
	),
	one(
		'events-of-before-forgotten',
		'older-events-arrive',
		'events/takeover.edge.ts',
		'	append(log, before, old, parts);\n',
		'',
		{ seed: 15 },
	),
	one(
		'copies-are-welcome',
		'a-copy-stays-away',
		'identity/identity.ts',
		'const cloned = then !== null && seemsCloned(then, seen, changes);',
		'const cloned = then !== null && seen === null;',
		{ seed: 26 },
	),
	{
		name: 'half-a-save-counts',
		catches: 'saves-last',
		edits: [
			[FILES, 'fs.writeFileSync(descriptor, bytes);', 'try { fs.writeFileSync(descriptor, bytes); } catch {}'],
			[FILES, 'if (size !== bytes.length) throw', 'if (size > bytes.length) throw'],
		],
		seed: 56,
	},
	one(
		'duplicates-pass',
		'delivered-once',
		STORE,
		'if (!duplicates.isNew(key, overlaps)) {',
		'if (duplicates.isNew(key, overlaps) === null) {',
		{ seed: 3 },
	),
	one(
		'frames-overtake',
		'in-order',
		CHANNEL,
		"if (isOpen()) listener({ type: 'frame', frame });",
		"clock.schedule(Math.random() < 0.2 ? 3000 : 0, () => listener({ type: 'frame', frame }));",
	),
	{
		name: 'numbers-again',
		catches: 'numbers-rise',
		edits: [[LOG, 'given += 1;', 'given = Math.max(1, given + (wallMs() % 2 === 0 ? 1 : -1));']],
	},
	one(
		'one-epoch-for-all',
		'ids-once',
		'events/feed.runner.ts',
		"return `${Math.floor(wallMs / 1000).toString(36)}${suffix.toString(36).padStart(6, '0')}`;",
		"return suffix < 0 || wallMs < 0 ? '' : 'same';",
		{ seed: 18 },
	),
	one(
		'listeners-forgotten',
		'newest-arrives',
		STORE,
		'if (entries.length > 0) for (const listener of listeners) listener(entries);',
		'if (entries.length > 5) for (const listener of listeners) listener(entries);',
	),
	one(
		'nothing-goes',
		'events-go',
		'events/consumers.ts',
		'positions.size === (positions.has(HOOKS_CONSUMER) ? 1 : 0)',
		'positions.size >= 0',
	),
	one(
		'connection-not-kept',
		'connection-kept',
		LINKS,
		'connections.keep(effect.registration, effect.effect.connection);',
		';',
		{ seed: 2 },
	),
	one(
		'no-lock',
		'saves-work',
		'state/lock.edge.ts',
		"if (found && !found.isFile()) throw unusable(file, new Error('it is not a regular file'));",
		"if (found) throw unusable(file, new Error('it is not a regular file'));",
	),
	one(
		'saved-away',
		'no-credential-lost',
		LINKS,
		'parts.stateWriter.keep((state) => withOnlyConnection(state, by.token));',
		'parts.stateWriter.keep((state) => ({ ...withOnlyConnection(state, by.token), connections: [] }));',
	),
	one(
		'file-not-flushed',
		'saves-last',
		FILES,
		'\t\tawait flush(descriptor);\n\t\tconst { size }',
		'\t\tconst { size }',
	),
	one(
		'name-not-flushed',
		'saves-last',
		FILES,
		'fs.renameSync(temporary, file);\n\t\tawait syncDirectory(path.dirname(file));',
		'fs.renameSync(temporary, file);',
	),
	one(
		'code-twice',
		'code-sent-once',
		'pairing/redeem-code.runner.ts',
		'const answer = await client().registerDevice({',
		"await client().registerDevice({ baseUrl: plan.baseUrl, authorization: { scheme: 'Token', credential: plan.token }, request: { ...options.request, workflowId: plan.workflowId ?? undefined } });\n\tconst answer = await client().registerDevice({",
		{ seed: 20 },
	),
	one(
		'answer-late',
		'pairing-ends',
		'pairing/redeem-code.runner.ts',
		'const [, reached] = await Promise.all([',
		'await new Promise<void>((resolve) => clock.schedule(200_000, resolve));\n\tconst [, reached] = await Promise.all([',
		{ seed: 20 },
	),
	one('old-channel-stays', 'one-current-channel', 'connection/link.runner.ts', "channel.close(code, '');", ''),
	one('channels-pile-up', 'at-most-two-channels', 'connection/link.runner.ts', "channel.close(code, '');", '', {
		seed: 1,
		years: '0.05',
	}),
	one(
		'late-beats',
		'heartbeat-in-time',
		BEATS,
		'cancel = clock.schedule(dueMs - nowMs, beat);',
		'cancel = clock.schedule(dueMs - nowMs + 5000, beat);',
	),
	one(
		'early-beats',
		'heartbeat-not-early',
		BEATS,
		'cancel = clock.schedule(dueMs - nowMs, beat);',
		'cancel = clock.schedule((dueMs - nowMs) * 0.8, beat);',
	),
	one('beats-counted-wrong', 'heartbeats-counted', BEATS, 'sequence += 1;', 'sequence += sequence === 3 ? 2 : 1;'),
	one(
		'beats-for-another',
		'heartbeat-says-workflow',
		'connection/link.runner.ts',
		'\t\t\tworkflowId: registration.request.workflowId,\n\t\t\tstartedAtMs',
		"\t\t\tworkflowId: 'wf-a',\n\t\t\tstartedAtMs",
	),
	one(
		'no-budget',
		'registers-seldom',
		'connection/registration-budget.ts',
		'const waitMs = Math.max(oldest + MINUTE, newest + THEN_EVERY_MS) - atMs;',
		'const waitMs = 0 * (oldest + newest);',
		{ seed: 56, years: '0.01' },
	),
	one(
		'lost-answers-cost-nothing',
		'registers-seldom',
		'connection/link.runner.ts',
		"unsent: result.sent === 'no',",
		"unsent: result.sent !== 'answered',",
		{ seed: 161 },
	),
	one(
		'renewed-all-the-time',
		'renews-seldom',
		'connection/supervision.ts',
		'export const RENEW_AFTER = 0.8;',
		'export const RENEW_AFTER = 0.0001;',
	),
	one(
		'no-backoff',
		'dials-seldom',
		'connection/backoff.ts',
		'const delayMs = Math.ceil(Math.max(askedMs, ownDelay(failed, paced, blocked, surprisedMs, between)));',
		'const delayMs = 50;',
	),
	one(
		'plans-in-a-hurry',
		'asks-for-plans-seldom',
		FOLLOW,
		'intervalSeconds * 1000 * (0.75',
		'intervalSeconds * 20 * (0.75',
	),
	one(
		'every-beat-is-remembered',
		'little-memory',
		BEATS,
		'if (options.send(frame)) options.onSent(sentAt);',
		"if (options.send(frame)) options.onSent(sentAt);\n\t\tconst kept = ((globalThis as { kept?: string[] }).kept ??= []);\n\t\tkept.push(`${frame}${'.'.repeat(400)}`.replace('x', 'y'));",
		{ seed: 30 },
	),
	one('timers-left', 'few-timers', BEATS, 'return () => cancel();', 'return () => {};', { years: '0.06' }),
	one(
		'files-left',
		'few-files',
		FILES,
		'fs.renameSync(temporary, file);',
		'fs.linkSync(temporary, `${file}.${Math.random()}`);\n\t\tfs.renameSync(temporary, file);',
	),
	one(
		'writes-at-every-beat',
		'writes-nothing-at-rest',
		LINKS,
		'if (supervision.current?.generation === generation) parts.report.heartbeat(generation, sentAt);',
		'parts.stateWriter.keep((state) => ({ ...state, confirmedOrigins: [sentAt] }));\n\t\t\t\tif (supervision.current?.generation === generation) parts.report.heartbeat(generation, sentAt);',
		{ seed: 30 },
	),
	one(
		'state-grows',
		'state-is-small',
		LINKS,
		'parts.stateWriter.keep((state) => withOnlyConnection(state, by.token));',
		"parts.stateWriter.keep((state) => ({ ...withOnlyConnection(state, by.token), generatedId: `${state.generatedId ?? ''}${'x'.repeat(20_000)}` }));",
	),
	one(
		'sentence-of-yesterday',
		'sentence-fits-state',
		'status/sentence.ts',
		'offline: (params, problem) => `Offline for',
		'offline: (params, problem) => `Online for',
	),
	one(
		'online-for-ever',
		'online-is-true',
		LINK,
		'channelEnded: (state, event, random) =>\n\t\t\tafterChannelEnded(settled(state, event.atMs, event.outlived), event, random),',
		"channelEnded: (state, event, random) =>\n\t\t\tevent.failure.code === 'connection-lost' ? { state, effects: [] } : afterChannelEnded(settled(state, event.atMs, event.outlived), event, random),",
	),
	one(
		'warned-for-ever',
		'clock-warning-is-true',
		'agent/base.runner.ts',
		"warnings.set('clock', warning);",
		"if (warning) warnings.set('clock', warning);",
		{ years: '0.05' },
	),
	{
		name: 'token-in-the-log',
		catches: 'no-secret-shown',
		edits: [
			[
				LINKS,
				'startAfresh();\n\t\t\t\tisPromoted = true;',
				"parts.log.info('promoted', { host: by.token });\n\t\t\t\tstartAfresh();\n\t\t\t\tisPromoted = true;",
			],
			['base/log.edge.ts', 'shaper.document({ ...picked, ...told })', '({ ...picked, ...told })'],
		],
	},
	{
		name: 'renewed-too-late',
		catches: 'renewed-in-time',
		edits: [
			[SUPERVISOR, 'lasts(lifeMs === null ? 1 : RENEW_AFTER', 'lasts(lifeMs === null ? 1 : 1 + RENEW_AFTER'],
			[LINKS, 'obtainedAtMs + lifeMs * (RENEW_AFTER', 'obtainedAtMs + lifeMs * (1 + RENEW_AFTER'],
		],
	},
	one('online-twice', 'hooks-alternate', 'local-api/hook-calls.runner.ts', 'if (lastState === before) return;', ''),
	one(
		'stop-leaves-timer',
		'stops-in-time',
		'agent/agent.runner.ts',
		'\t\t\tcancel();\n\t\t\tif (wasSettled)',
		'\t\t\tif (wasSettled)',
		{ years: '0.06' },
	),
	one(
		'thrown-away',
		'no-errors',
		'agent/messages.runner.ts',
		'connectivity.heard(generation);',
		"connectivity.heard(generation);\n\t\tif (parts.clock.wallMs() % 50 === 0) throw new Error('planted');",
	),
];

/** Found in the field once. */
const OF_THE_FIELD: readonly Plant[] = [
	{
		name: 'three-refusals-block-a-good-key',
		catches: 'short-trouble-is-short',
		edits: [
			[
				LINK,
				'const blocked = next.blocked && (!registers || state.backoff.registerRefused);',
				"const blocked = failed.retryClass === 'refused' && next.backoff.failures >= 3;",
			],
			[LINK, 'cause, delayMs, blocked, then, atMs);', 'cause, blocked ? 2_400_000 : delayMs, blocked, then, atMs);'],
			[
				LINK,
				'const isStable = outlived || lifeMs >= STABLE_AFTER_MS;',
				'const isStable = outlived || lifeMs >= 10 * STABLE_AFTER_MS;',
			],
		],
		seed: 43,
		years: '0.2',
	},
	{
		name: 'a-minute-of-401-costs-an-hour',
		catches: 'short-trouble-is-short',
		edits: [
			[
				'connection/backoff.ts',
				'(isRefused && backoff.refusedForMs >= patienceMs);',
				'(isRefused && backoff.failures >= 3);',
			],
			[
				'connection/backoff.ts',
				'if (!blocked) return Math.min(120',
				'if (blocked) return 45 * MINUTE;\n\treturn Math.min(120',
			],
		],
		seed: 43,
		years: '0.2',
	},
	{
		name: 'moves-undone-by-a-slow-clock',
		catches: 'moves-hold',
		edits: [
			[
				'fleet/targeting.ts',
				'atMs <= wallMs || (moved !== null && atMs <= moved.atMs && isSameAssignment(to, moved.to))',
				'atMs <= wallMs',
			],
			['connection/device-time.runner.ts', ': believedMs(clock.wallMs(), serviceMs(), true),', ': clock.wallMs(),'],
		],
		seed: 23,
		years: '0.06',
	},
	one(
		'no-gap-at-a-dead-move',
		'delivered-or-gap',
		CONNECTIVITY,
		'else if (!line.saidGoodbye) {',
		'else if (line.sinceFrameMs < 0) {',
		{ seed: 52 },
	),
	one(
		'gap-after-the-sleep',
		'delivered-or-gap',
		CONNECTIVITY,
		'if (hasJustSlept()) keepGapOfSleep(online);\n\t\t\telse isWhole',
		'isWhole',
		{ seed: 23 },
	),
	{
		name: 'renewal-sleeps-too',
		catches: 'renewed-in-time',
		edits: [[LINKS, 'if (isPromoted) clockChanged();', '']],
		seed: 721,
	},
	{
		name: 'young-in-1970',
		catches: 'renewed-in-time',
		edits: [
			[LINKS, 'if (isPromoted) clockChanged();', ''],
			[LINKS, 'parts.onClockJump(clockChanged);', ''],
		],
		seed: 2_000_011,
		years: '0.08',
	},
];

/** Mutations, each of which some invariant has to notice. */
const MUTATIONS: readonly Plant[] = [
	any(
		'link-1-failure-unheard',
		LINK,
		'registerFailed: (state, event, random) => afterRegisterFailed(state, event, random),',
		'registerFailed: (state) => ({ state, effects: [] }),',
	),
	any(
		'link-2-never-registers-again',
		LINK,
		"const then = registers && !shown.again ? 'register' : 'connect';",
		"const then = 'connect';",
	),
	any(
		'link-3-blocked-for-good',
		LINK,
		'blocked: {\n\t\ttimerFired: resume,',
		'blocked: {\n\t\ttimerFired: (state) => ({ state, effects: [] }),',
	),
	any(
		'link-4-register-waits-for-good',
		LINK,
		'registerWait: {\n\t\ttimerFired: register,',
		'registerWait: {\n\t\ttimerFired: (state) => ({ state, effects: [] }),',
	),
	any(
		'link-5-connection-not-kept',
		LINK,
		'event.connection, event.atMs, [keep(event.connection)]),',
		'event.connection, event.atMs),',
	),
	any(
		'link-6-waits-a-hundred-times',
		LINK,
		"const effects: LinkEffect[] = [{ type: 'wait', attempt, delayMs }];",
		"const effects: LinkEffect[] = [{ type: 'wait', attempt, delayMs: delayMs * 100 }];",
	),
	any(
		'supervisor-1-old-link-stays',
		SUPERVISOR,
		'\teffects.push(...drop(supervision.current, event.atMs, random));\n\tconst alone',
		'\tconst alone',
	),
	any(
		'supervisor-2-never-renews',
		SUPERVISOR,
		"effects.push({ type: 'renewAt', generation, atMs: Math.max(event.atMs, dueMs) });",
		'void dueMs;',
	),
	any(
		'supervisor-4-any-connection-serves',
		'connection/supervision.ts',
		'keys.every((key) => made.request[key] === desired.request[key]) &&',
		'',
	),
	any(
		'supervisor-5-connection-is-no-credential',
		SUPERVISOR,
		"credentials.push({ kind: 'connection', token: connection.token });",
		'void connection;',
	),
	any(
		'supervisor-6-next-not-promoted',
		SUPERVISOR,
		'budget, current: promoted(moved, supervision.current, event.atMs), next: null };',
		'budget, next: promoted(moved, supervision.current, event.atMs) };',
	),
	any('plan-1-older-plans-pass', RECORD, 'if (floor && order < 0) {', 'if (floor && order < -1e9) {'),
	any(
		'plan-2-one-look-only',
		FOLLOW,
		'pollIn(Math.max(intervalSeconds',
		'if (checkedAt === null) pollIn(Math.max(intervalSeconds',
	),
	any(
		'plan-3-starts-early',
		'fleet/targeting.ts',
		'const atMs = fromMs === null ? null : fromMs + offsetMs;',
		'const atMs = fromMs === null ? null : fromMs + offsetMs - 7_200_000_000;',
	),
	any('plan-4-not-saved', FOLLOW, 'stateWriter.keep((state) => ({ ...state, plan }));', 'void plan;'),
	any(
		'events-1-last-lost',
		LOG,
		'await disk.writeAll(descriptor, chunk, end);',
		'await disk.writeAll(descriptor, chunk.subarray(0, group.length > 1 ? -1 : chunk.length), end);',
	),
	any(
		'events-2-listeners-forgotten',
		STORE,
		'if (entries.length > 0) for (const listener of listeners) listener(entries);',
		'if (entries.length > 1) for (const listener of listeners) listener(entries);',
	),
	any('events-3-gap-too-late', CONNECTIVITY, 'Math.max(lastMs, nowMs - Math.max(limitMs, heardAgoMs))', 'nowMs'),
	any('events-4-too-much-goes', STORE, 'upTo = Math.max(upTo, number);\n', 'upTo = Math.max(upTo, number + 1);\n'),
	one(
		'events-5-positions-forgotten',
		'positions-kept',
		STORE,
		'if (Object.keys(changes).length > 0) log.note(',
		'if (Object.keys(changes).length > 5) log.note(',
	),
	any(
		'events-6-gap-without-run-before',
		CONNECTIVITY,
		'wholeUntilMs === null ? readBefore() : wholeUntil(wholeUntilMs)',
		'isoNow(clock)',
	),
];

export const PLANTS: readonly Plant[] = [...OF_INVARIANTS, ...OF_THE_FIELD, ...MUTATIONS];
