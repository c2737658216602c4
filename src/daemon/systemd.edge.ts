/**
 * Tells systemd how the service is (sd_notify) and feeds its watchdog. Says nothing where no systemd listens, never
 * throws, never tries twice: a word that is lost is made up for by the next one.
 */
import { closeSync, writeSync } from 'node:fs';
import { idleClock } from '../base/clock.edge.ts';

/** Name of the open socket that the unit hands over: `OpenFile=/run/systemd/notify:notify`. */
const NOTIFY_NAME = 'notify';
/** The first descriptor that systemd hands over. Source: sd_listen_fds(3). */
const FIRST_DESCRIPTOR = 3;
/** systemd accepts 4,096 bytes in one message. Source: its NOTIFY_BUFFER_MAX. */
const MAX_STATUS_BYTES = 1024;
/** For `systemd-notify`, which takes 4 ms; it blocks without a reader. */
const DEADLINE_MS = 5_000;

export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The service's side of a systemd that listens. Each call resolves when the word is out or lost; they keep their order.
 * Finds systemd by what it puts into the environment; `null` without `NOTIFY_SOCKET`.
 *
 * Node has no datagram sockets of this family: a descriptor named `notify` is written to if the unit handed one over
 * (systemd 253 and newer), else `systemd-notify` is run, which needs `NotifyAccess=all`.
 * From then on the watchdog is fed from the event loop, twice in each `WATCHDOG_USEC`, as sd_watchdog_enabled(3) asks for: a loop that hangs is
 * killed. With the usual 60 s that is at each heartbeat of 30 s, in the same wakeup.
 */
export function connectSystemd(env: Environment = process.env) {
	if (!env['NOTIFY_SOCKET']) return null;
	const descriptor = findHandedOver(NOTIFY_NAME, env);
	let last: Promise<void> = Promise.resolve();
	const send = (...lines: string[]): Promise<void> => {
		if (descriptor === null) last = last.then(() => runNotifier(lines, env));
		else writeMessage(descriptor, lines);
		return last;
	};

	let sentence: string | null = null;
	const withSentence = (next: string, ...lines: string[]) => {
		const isNew = next !== sentence;
		sentence = next;
		const all = isNew ? [...lines, `STATUS=${oneLine(next)}`] : lines;
		return all.length > 0 ? send(...all) : last;
	};

	const everyMs = watchdogMs(env);
	let cancelFeeding = () => {};
	const feed = (dueMs: number) => {
		cancelFeeding = idleClock.schedule(dueMs - idleClock.monotonicMs(), () => {
			void send('WATCHDOG=1');
			feed(Math.max(dueMs, idleClock.monotonicMs() - 1000) + (everyMs ?? 0) / 2);
		});
	};
	if (everyMs !== null) feed(idleClock.monotonicMs() + everyMs / 2);
	return {
		/** The service does its work: settings are valid, the local socket answers. */
		ready: (next: string) => withSentence(next, 'READY=1'),
		/** One sentence for `systemctl status`. The same one again is not sent. */
		status: (next: string) => withSentence(next),
		/** Settings are being read again; systemd waits for `ready`. */
		reloading: () => send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`),
		stopping: () => send('STOPPING=1'),
		/** Ends the watchdog's food and gives the descriptor back. */
		close(): void {
			cancelFeeding();
			if (descriptor !== null) closeSync(descriptor);
		},
	};
}

/**
 * The descriptor that systemd handed to this very process under a name (`FileDescriptorName=`, `OpenFile=`); `null` if
 * there is none. Source: sd_listen_fds_with_names(3).
 */
export function findHandedOver(name: string, env: Environment = process.env): number | null {
	if (env['LISTEN_PID'] !== String(process.pid)) return null;
	const names = (env['LISTEN_FDNAMES'] ?? '').split(':');
	const index = names.slice(0, Number(env['LISTEN_FDS'])).indexOf(name);
	return index < 0 ? null : FIRST_DESCRIPTOR + index;
}

/** The interval in which systemd expects a sign of life; `null` if it does not. Source: sd_watchdog_enabled(3). */
function watchdogMs(env: Environment): number | null {
	const ms = Number(env['WATCHDOG_USEC']) / 1000;
	const isOurs = !env['WATCHDOG_PID'] || env['WATCHDOG_PID'] === String(process.pid);
	return isOurs && ms >= 1 && ms < 2 ** 31 ? ms : null;
}

function writeMessage(descriptor: number, lines: readonly string[]): void {
	try {
		// One write is one message: systemd splits none and joins none.
		writeSync(descriptor, lines.join('\n'));
	} catch {
		// A manager that is being replaced has no socket for a moment.
	}
}

function runNotifier(lines: readonly string[], { NOTIFY_SOCKET, PATH }: Environment): Promise<void> {
	return new Promise((resolve) => {
		const options = { timeout: DEADLINE_MS, env: { NOTIFY_SOCKET, PATH } };
		// Loaded now: a newer systemd never needs it, and a start without it is 2 ms shorter.
		const { execFile } = process.getBuiltinModule('node:child_process');
		// Whether it was there and whether it went well makes no difference to what happens next.
		execFile('systemd-notify', [...lines], options, () => resolve());
	});
}

/** A line feed would begin the next assignment. */
function oneLine(text: string): string {
	const line = text.replaceAll(/\p{Cc}+/gu, ' ');
	return Buffer.byteLength(line) <= MAX_STATUS_BYTES
		? line
		: `${new TextDecoder().decode(Buffer.from(line).subarray(0, MAX_STATUS_BYTES), { stream: true })}…`;
}
