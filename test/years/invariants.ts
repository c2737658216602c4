/**
 * What must hold in every life, each with its name. A row looks at what is seen as it happens and says what is wrong, or
 * nothing. `planted.ts` has for each row a bug that it catches.
 */

import { RECOVERY_MS, STILL_MS } from './faults.ts';
import type { Observed, Quiet } from './observed.ts';
import { createRecord, epochOf, type LifeRecord } from './record.ts';
import type { Traits } from './traits.ts';

export interface Violation {
	readonly name: string;
	readonly detail: string;
	/** True milliseconds since the life began. */
	readonly atMs: number;
}

type Wrong = string | null | false | undefined;
type Check<Type extends Observed['type']> = (
	seen: Extract<Observed, { type: Type }>,
	life: LifeRecord,
	traits: Traits,
) => Wrong;

interface Invariant {
	readonly name: string;
	readonly promise: string;
	readonly on: { readonly [Type in Observed['type']]?: Check<Type> };
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** How long two channels may be open at once: a handshake and a goodbye. */
const OVERLAP_MS = 50 * SECOND;

const atRest =
	(check: (quiet: Quiet, life: LifeRecord, traits: Traits) => Wrong): Check<'judged'> =>
	({ quiet }, life, traits) =>
		check(quiet, life, traits);
const says = (is: boolean, text: () => string): Wrong => is && text();

export const INVARIANTS: readonly Invariant[] = [
	{
		name: 'online-again',
		promise:
			'Within 75 minutes after the last fault the device is online; one that holds nothing but an ended Connection, once a person has brought a code, and one whose disk has lost the workflow, once a person has set it.',
		on: { judged: atRest(({ backAfterMs, status }) => backAfterMs === null && status.sentence) },
	},
	{
		name: 'stays-online',
		promise:
			'A device that nothing disturbs stays online, also while its Connection is renewed: a channel ends only because another has taken its place.',
		on: {
			judged: atRest(
				({ stillOutages, stillOfflines, stillRegistrations, status, backAfterMs, holdsNothing }, _, traits) =>
					backAfterMs !== null &&
					!holdsNothing &&
					says(
						status.state !== 'online' ||
							// The first may be the old channel of a registration of just before.
							stillOutages > stillRegistrations + 1 ||
							(stillOfflines > 0 && mayRenew(traits) && !traits.isOpaque && traits.endsOldWith === 0),
						() => `${status.sentence} ${stillOutages} channels ended, ${stillRegistrations} registrations`,
					),
			),
		},
	},
	{
		name: 'short-trouble-is-short',
		promise:
			'Within 12 minutes after a few bad minutes of the service, revocations or a crash, a device with a good credential is online.',
		on: { shortTrouble: ({ kind, status }) => says(status.state !== 'online', () => `${kind}: ${status.sentence}`) },
	},
	{
		name: 'wanted-is-live',
		promise: 'At rest the workflow that is live is the one that is wanted.',
		on: {
			judged: atRest(
				({ status: { state, workflow, plan, sentence }, holdsNothing }, _, traits) =>
					mayRegister(traits, holdsNothing) &&
					says(
						state === 'online' && workflow.live !== workflow.wanted && !plan?.refused,
						() => `live ${workflow.live}, wanted ${workflow.wanted}: ${sentence}`,
					),
			),
		},
	},
	{
		name: 'plan-is-followed',
		promise: 'Three hours after a plan was published the device runs what it says by right time.',
		on: {
			judged: atRest(
				({ demanded, status: { state, workflow, plan }, holdsNothing }, _, traits) =>
					mayRegister(traits, holdsNothing) &&
					says(
						demanded !== null && state === 'online' && workflow.live !== demanded && !plan?.refused,
						() => `live ${workflow.live}, the plan says ${demanded}`,
					),
			),
		},
	},
	{
		name: 'leases-are-honoured',
		promise: 'While an application holds a lease and the limit has not come, the device stays with its workflow.',
		on: {
			leased: ({ phase, workflowId, status: { workflow, sentence } }) =>
				says(
					phase === 'held' && workflow.live === workflowId,
					() => `moved to ${workflowId} during a verification: ${sentence}`,
				),
		},
	},
	{
		name: 'leases-have-a-limit',
		promise: 'A lease that is renewed again and again holds a move up no longer than workflow.maxDeferSeconds.',
		on: {
			leased: ({ phase, workflowId, status: { workflow, sentence } }) =>
				says(
					phase === 'over' && workflow.live !== null && workflow.live !== workflowId,
					() => `live ${workflow.live}, asked for ${workflowId}: ${sentence}`,
				),
		},
	},
	{
		name: 'moves-hold',
		promise: 'A move that was made and confirmed is not undone because the clock is wrong or a plan is served again.',
		on: { opened: ({ workflowId }, life) => life.undoneMove(workflowId) },
	},
	{
		name: 'delivered-or-gap',
		promise: 'Every notification that was sent is delivered or lies in a gap event.',
		// A gap is written when the device is online again.
		on: { judged: ({ atMs, quiet }, life) => quiet.status.state === 'online' && life.unaccounted(atMs) },
	},
	{
		name: 'as-it-was-sent',
		promise: 'What an application gets is what the service sent, whatever the disk does.',
		on: {
			entry: ({ kind, text }, life) => kind === 'notification' && life.isAltered(text) && text.slice(0, 200),
			readLate: ({ kind, text }, life) => kind === 'notification' && life.isAltered(text) && text.slice(0, 200),
		},
	},
	{
		name: 'missing-lies-in-a-gap',
		promise: 'An application that was away reads every number, or a gap in its place.',
		on: {
			readLate: ({ kind, number, before }) =>
				says(before !== null && kind !== 'gap' && number !== before + 1, () => `${number} after ${before}`),
		},
	},
	{
		name: 'a-reader-ends',
		promise: 'An application that asks on comes to an end.',
		on: { readerDone: ({ pages }) => pages >= 500 && `${pages} pages` },
	},
	{
		name: 'older-events-arrive',
		promise: 'What 0.1.0 has received is delivered once it has given way to this version again.',
		on: { judged: ({ quiet }, life) => quiet.status.state === 'online' && life.leftByOlder() },
	},
	{
		name: 'a-copy-stays-away',
		promise:
			'A copy of the disk of a paired device in another machine neither registers nor connects in the name of the first.',
		on: {
			registration: ({ deviceId }, life) => life.isOfAnother(deviceId) && deviceId,
			opened: ({ deviceId }, life) => life.isOfAnother(deviceId) && deviceId,
		},
	},
	{
		name: 'delivered-once',
		promise: 'A notification becomes one event.',
		on: {
			entry: ({ kind, again, text }, life) =>
				!life.hasLostEvents() && kind === 'notification' && !again && life.isSecondEvent(text) && text.slice(0, 80),
		},
	},
	{
		name: 'in-order',
		promise: 'Notifications of one channel are delivered in the order in which they were sent.',
		on: { entry: ({ kind, again, text }, life) => kind === 'notification' && !again && life.isOutOfOrder(text) },
	},
	{
		name: 'numbers-rise',
		promise: 'A consumer that reads on gets rising numbers from each run of the agent.',
		on: {
			entry: ({ number, again, id }, { newest, hasLostEvents }) =>
				!again &&
				!hasLostEvents() &&
				says(epochOf(id) === newest.epoch && number <= newest.number, () => `${id} after ${newest.number}`),
		},
	},
	{
		name: 'ids-once',
		promise: 'No event id is used for two events.',
		on: { entry: ({ kind, id, isGap }, life) => kind === 'changed' && !(isGap && life.hasLostEvents()) && id },
	},
	{
		name: 'positions-kept',
		promise: 'What a consumer has acknowledged need not be read again after a stop or a crash.',
		on: {
			resumed: ({ from, acknowledged }, life) =>
				says(from < acknowledged && !life.hasLostDisk(), () => `from ${from}, acknowledged ${acknowledged}`),
		},
	},
	{
		name: 'newest-arrives',
		promise: 'At rest a notification reaches the consumer.',
		on: {
			judged: atRest(({ status, lastSent, lastConsumed }) =>
				says(status.state === 'online' && lastConsumed !== lastSent, () => `got ${lastConsumed} of ${lastSent}`),
			),
		},
	},
	{
		name: 'events-go',
		promise: 'Events that were acknowledged are not kept.',
		on: { judged: atRest(({ eventsLeft }) => says(eventsLeft > 5, () => `${eventsLeft} are left`)) },
	},
	{
		name: 'connection-kept',
		promise: 'A Connection with which the device was online for a while is there after any cut.',
		on: { boot: ({ state }, life) => life.lostConnection(state.connections.map(({ token }) => token)) },
	},
	{
		name: 'no-credential-lost',
		promise: 'No save takes the last Connection away, but for the one that a copied disk has of another device.',
		on: {
			saved: ({ state }, life) =>
				says(
					!life.isCopy() && state.connections.length === 0 && life.connectionsSaved > 0,
					() => `${life.connectionsSaved} to 0`,
				),
		},
	},
	{
		name: 'saves-last',
		promise: 'A state that was reported as saved is there after a power cut, unless a newer one was being written.',
		on: {
			boot: ({ state, lastSaved, wasCutInSave }, life) =>
				!life.hasFailedDisk() &&
				says(
					lastSaved !== null && !wasCutInSave && JSON.stringify(state) !== lastSaved,
					() => 'another state than the one that was saved',
				),
		},
	},
	{
		name: 'code-sent-once',
		promise: 'No one-time code is sent twice.',
		on: { codeSent: ({ times }) => times > 1 && `${times} times` },
	},
	{
		name: 'pairing-ends',
		promise: 'Whoever brings a code has an answer within two minutes.',
		on: {
			paired: ({ withinMs }, life) =>
				says(withinMs > 2 * MINUTE && !life.wasFrozen(withinMs), () => `after ${withinMs} ms`),
		},
	},
	{
		name: 'at-most-two-channels',
		promise: 'Never more than two channels are open.',
		on: { opened: ({ open }) => open > 3 && `${open}` },
	},
	{
		name: 'one-current-channel',
		promise: 'Two channels are open at once only as long as a move takes.',
		on: {
			heartbeat: (_, life) => life.overlapsTooLong(OVERLAP_MS),
			judged: (_, life) => life.overlapsTooLong(OVERLAP_MS),
		},
	},
	{
		name: 'heartbeat-in-time',
		promise: 'No heartbeat is later than the cadence by more than 2 s.',
		on: { heartbeat: (seen, life) => life.lateHeartbeat(seen, 2 * SECOND) },
	},
	{
		name: 'heartbeat-not-early',
		promise: 'Two heartbeats on one channel are the cadence apart.',
		on: { heartbeat: (seen, life) => life.earlyHeartbeat(seen, 2 * SECOND) },
	},
	{
		name: 'heartbeats-counted',
		promise: 'Heartbeats on a channel are counted from 1 without a hole.',
		on: { heartbeat: (seen, life) => life.miscounted(seen) },
	},
	{
		name: 'heartbeat-says-workflow',
		promise: 'A heartbeat names the workflow of its own Connection.',
		on: {
			heartbeat: ({ text, workflowId }) => !text.includes(`"workflowId":"${workflowId}"`) && `${workflowId}: ${text}`,
		},
	},
	{
		name: 'registers-seldom',
		promise:
			'No more than 10 registrations a minute and 120 an hour reach the service, whether it answers or not; codes that a person brings come on top.',
		on: {
			registration: ({ atMs, scheme }, life) =>
				scheme !== 'Token' &&
				life.tooMany('registration', atMs, [
					[10, MINUTE - 2 * SECOND],
					[120, HOUR - 2 * SECOND],
				]),
		},
	},
	{
		name: 'renews-seldom',
		promise:
			'At rest a device registers no more often than its Connection has to be renewed; one that may not, 20 times.',
		// A service that refuses Connections takes two for each, and the move of a plan may fall into the rest.
		on: {
			judged: atRest(({ stillRegistrations, holdsNothing, backAfterMs }, _, traits) =>
				says(
					backAfterMs !== null &&
						!holdsNothing &&
						stillRegistrations > (mayRenew(traits) ? 6 + STILL_MS / (0.75 * traits.connectionLifeMs) : 20),
					() => `${stillRegistrations} registrations`,
				),
			),
		},
	},
	{
		name: 'dials-seldom',
		promise: 'No more than 30 channels a minute and 700 an hour are begun.',
		on: {
			socket: ({ atMs }, life) =>
				life.tooMany('socket', atMs, [
					[30, MINUTE],
					[700, HOUR],
				]),
		},
	},
	{
		name: 'asks-for-plans-seldom',
		promise: 'The plan is looked at no more than 60 times an hour.',
		on: { planAsked: ({ atMs }, life) => life.tooMany('planAsked', atMs, [[60, HOUR]]) },
	},
	{
		name: 'few-timers',
		promise: 'At rest the device has no more than 16 timers.',
		on: { judged: atRest(({ timers }) => timers > 16 && `${timers}`) },
	},
	{
		name: 'little-memory',
		promise: 'At the end of a life its device holds no more than 24 MiB in memory.',
		on: { memory: ({ bytes }) => bytes > 24 * 2 ** 20 && `${(bytes / 2 ** 20).toFixed(0)} MiB` },
	},
	{
		name: 'few-files',
		promise: 'The state directory holds no more than 12 files and 1 MiB, beside up to 5 damaged ones.',
		on: {
			judged: atRest(({ files, bytes }, _, { hasBadDisk }) =>
				says(files > (hasBadDisk ? 17 : 12) || bytes > 2 ** 20, () => `${files} files, ${bytes} bytes`),
			),
		},
	},
	{
		name: 'writes-nothing-at-rest',
		promise: 'A device that stays online writes for events, about four times for each, and for nothing else.',
		on: {
			judged: atRest(({ stillWrites, stillEvents, stillRegistrations, backAfterMs }) =>
				says(
					backAfterMs !== null && stillRegistrations === 0 && stillWrites > 5 * stillEvents + 10,
					() => `${stillWrites} writes for ${stillEvents} events`,
				),
			),
		},
	},
	{
		name: 'state-is-small',
		promise: 'A saved state has at most two Connections and 64 KiB.',
		on: {
			saved: ({ state, bytes }) =>
				says(
					state.connections.length > 2 || bytes > 65_536,
					() => `${state.connections.length} Connections, ${bytes} bytes`,
				),
		},
	},
	{
		name: 'sentence-fits-state',
		promise: 'The sentence of the status says what its fields say.',
		on: { status: ({ status }) => contradiction(status) },
	},
	{
		name: 'online-is-true',
		promise: 'At rest the device says that it is online exactly if the service has a channel of it.',
		on: {
			judged: atRest(({ status, hasSession }) =>
				says((status.state === 'online') !== hasSession, () => `${status.state}, channel ${hasSession}`),
			),
		},
	},
	{
		name: 'clock-warning-is-true',
		promise: 'At rest, with a right clock, no warning says that the clock is wrong.',
		on: { judged: atRest(({ status: { warnings } }) => warnings.find(({ code }) => code === 'clock-wrong')?.message) },
	},
	{
		name: 'saves-work',
		promise: 'A disk with room takes every save.',
		on: {
			line: ({ text }) =>
				says(
					text.includes('"state-unwritable"') &&
						!/the disk is full|the disk reports an error|cannot keep up/.test(text),
					() => text,
				),
		},
	},
	{
		name: 'no-secret-shown',
		promise: 'No line of the log, no status and no input of a hook holds a secret.',
		on: {
			line: ({ text }, life) => life.secretIn(text),
			hook: ({ input }, life) => life.secretIn(input),
			status: ({ status }, life) => life.secretIn(JSON.stringify(status)),
		},
	},
	{
		name: 'renewed-in-time',
		promise: 'Without faults no Connection ends while it is in use, where the device may register again.',
		on: {
			sessionExpired: ({ session, atMs }, life, traits) =>
				mayRenew(traits) && !traits.isOpaque && life.expiredAtRest(session, atMs),
		},
	},
	{
		name: 'hooks-alternate',
		promise: 'onOnline and onOffline take turns.',
		on: { hook: ({ hook }, life) => says(hook.startsWith('onO') && hook === life.lastTurn, () => `${hook} twice`) },
	},
	{
		name: 'stops-in-time',
		promise: 'The agent stops within 5 s and leaves no timer and no socket.',
		on: {
			stopped: ({ withinMs, timersLeft, socketsLeft }, life) =>
				!life.hasFailedDisk() &&
				says(
					(withinMs > 5 * SECOND && !life.isPairing && !life.wasFrozen(withinMs)) || socketsLeft > 0 || timersLeft > 0,
					() => `${withinMs} ms, ${timersLeft} timers, ${socketsLeft} sockets`,
				),
		},
	},
	{
		name: 'no-errors',
		promise: 'Nothing is thrown that nobody catches, and nothing runs without rest.',
		on: { error: ({ text }) => text },
	},
];

/** Whether it can make the Connection that a move needs. */
const mayRegister = ({ credential, mayRegisterAgain }: Traits, holdsNothing: boolean): boolean =>
	credential !== 'code' || (mayRegisterAgain && !holdsNothing);

/** Whether a device has something to register with when its Connection ends. */
export const mayRenew = ({ credential, mayRegisterAgain, isOpaque }: Traits): boolean =>
	credential !== 'code' || (mayRegisterAgain && !isOpaque);

function contradiction({
	state,
	sentence,
	workflow,
	channel,
	problem,
}: Extract<Observed, { type: 'status' }>['status']): Wrong {
	const begins = {
		online: /^Online with /,
		offline: /^(Offline for |Not online)/,
		connecting: /^(Connecting to |Not online yet)/,
		blocked: /^(Not online|Offline for )/,
		unpaired: /^Not paired/,
	}[state];
	if (!begins.test(sentence)) return `${state}: ${sentence}`;
	if ((state === 'online') !== (workflow.live !== null)) return `${state}, live ${workflow.live}`;
	if ((state === 'online') !== (channel.state === 'online')) return `${state}, channel ${channel.state}`;
	if (state === 'online' && !sentence.includes(`workflow ${workflow.live}`))
		return `live ${workflow.live}: ${sentence}`;
	if (state === 'blocked' && problem === null) return `blocked without a problem: ${sentence}`;
	return /undefined|NaN|\[object|null/.test(sentence) && sentence;
}

export const RECOVERS_WITHIN_MS = RECOVERY_MS;
/** Of each invariant, so many violations are kept. */
const KEPT_OF_EACH = 5;

export function createInvariants(traits: Traits) {
	const life = createRecord(traits);
	const violations: Violation[] = [];
	const counts = new Map<string, number>();
	const rows = new Map<Observed['type'], [string, Check<never>][]>();
	for (const { name, on } of INVARIANTS)
		for (const [type, check] of Object.entries(on)) {
			const list = rows.get(type as Observed['type']) ?? [];
			list.push([name, check as unknown as Check<never>]);
			rows.set(type as Observed['type'], list);
		}
	return {
		violations,
		see(seen: Observed, { nowMs: atMs }: { readonly nowMs: number }) {
			life.before(seen, atMs);
			for (const [name, check] of rows.get(seen.type) ?? []) {
				const wrong = check(seen as never, life, traits);
				if (!wrong) continue;
				const before = counts.get(name) ?? 0;
				counts.set(name, before + 1);
				if (before < KEPT_OF_EACH) violations.push({ name, detail: wrong, atMs });
			}
			life.after(seen);
		},
		lastNotifications: (nowMs: number) => life.lastNotifications(nowMs),
	};
}
