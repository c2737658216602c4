/** What the methods of the client take. Everything else is refused with `usage` before anything is sent: the agent could not take it, or would read it as less than was meant. */
import { CONSUMER_NAME, MAX_LEASE_SECONDS } from '../protocol/names.ts';
import { AgentProblem } from './agent-problem.ts';

/** The longest time of a timer, in milliseconds. */
const LONGEST_MS = 2 ** 31 - 1;

function expect(isTaken: boolean, what: string, remedy: string): void {
	if (!isTaken) throw new AgentProblem(0, 'usage', `${what}; nothing was sent.`, remedy);
}

/** @param of whose name, such as `the consumer`. */
export const checkName = (of: string, name: unknown): void =>
	expect(
		typeof name === 'string' && CONSUMER_NAME.test(name),
		`The name of ${of} is not valid`,
		'Give 1 to 64 letters, digits, dots, hyphens or underscores.',
	);

export const checkId = (id: unknown): void =>
	expect(typeof id === 'string' && id !== '', 'The id of the event is not valid', 'Give the id that the event has.');

export const checkSeconds = (seconds: unknown): void =>
	expect(
		typeof seconds === 'number' && seconds >= 1 && seconds <= MAX_LEASE_SECONDS,
		'The time of the lease is not valid',
		`Give 1 to ${MAX_LEASE_SECONDS} seconds, and renew it.`,
	);

export const checkFunction = (name: string, given: unknown): void =>
	expect(typeof given === 'function', `${name} is not a function`, 'Give a function.');

/** As one of another realm or library has it, too. */
function checkSignal(signal: unknown): void {
	const isSignal = typeof signal === 'object' && signal !== null && 'aborted' in signal && 'addEventListener' in signal;
	expect(isSignal, 'The signal is not an AbortSignal', 'Give the signal of an AbortController.');
}

const isGiven = (value: unknown): boolean => value !== undefined && value !== null;

/** A text in place of the options would be read as none. */
export function checkOptions(options: unknown): void {
	expect(typeof options === 'object' && options !== null, 'The options are not an object', 'Give { name: value }.');
	const { signal } = options as { readonly signal?: unknown };
	if (isGiven(signal)) checkSignal(signal);
}

/** Of a loop or a page of events. An empty name would be read as no consumer. */
export function checkReading(options: unknown): void {
	checkOptions(options);
	const { consumer, since, onRetry } = options as Readonly<Record<string, unknown>>;
	if (consumer !== undefined) checkName('the consumer', consumer);
	// Nothing is known yet: what a storage answers that has no id.
	if (isGiven(since) && since !== '') checkId(since);
	if (isGiven(onRetry)) checkFunction('onRetry', onRetry);
}

/** An empty path would be read as none: the request would go to another program, over TCP. */
export function checkClient(options: unknown): void {
	checkOptions(options);
	const { socketPath = '-', deadlineMs = 1 } = options as Readonly<Record<string, unknown>>;
	expect(
		typeof socketPath === 'string' && /^[^\0]+$/.test(socketPath),
		'socketPath is not a path',
		'Give the path of the socket of the agent, or leave it out.',
	);
	expect(
		typeof deadlineMs === 'number' && deadlineMs >= 1 && deadlineMs <= LONGEST_MS,
		'deadlineMs is not valid',
		`Give 1 to ${LONGEST_MS} milliseconds.`,
	);
}
