/** Tells systemd how the service is (sd_notify) and feeds its watchdog. Never throws, never tries twice. */
import { writeSync } from 'node:fs';
import { idleClock } from '../base/clock.edge.ts';
import { loadForeignFunctions } from '../base/foreign-functions.edge.ts';

/** Name of the open socket that the unit hands over: `OpenFile=/run/systemd/notify:notify`. */
const NOTIFY_NAME = 'notify';
/** Constants of Linux for `socket` and `sendto`, the same on each of our architectures. */
const AF_UNIX = 1;
const SOCK_DGRAM_CLOEXEC = 0o2000002;
const SOL_SOCKET = 1;
const SO_SNDTIMEO = 21;
/** A manager that is busy, as while it boots, has room for ten messages; what it has no room for in this time is lost, as if it were not there. */
const SEND_WITHIN_S = 2n;
/** The first descriptor that systemd hands over. Source: sd_listen_fds(3). */
const FIRST_DESCRIPTOR = 3;
/** systemd accepts 4,096 bytes in one message. Source: its NOTIFY_BUFFER_MAX. */
const MAX_STATUS_BYTES = 1024;

export type Environment = Readonly<Record<string, string | undefined>>;

/** Each message is out or lost when its call returns; `null` without `NOTIFY_SOCKET`. It goes to the descriptor named `notify` if the unit
 * handed one over (systemd 253 and newer), else by libc. The watchdog is fed twice in each `WATCHDOG_USEC`. Source: sd_watchdog_enabled(3). */
export function connectSystemd(env: Environment = process.env) {
	if (!env['NOTIFY_SOCKET']) return null;
	const descriptor = findHandedOver(NOTIFY_NAME, env);
	const write = descriptor === null ? datagramsTo(env['NOTIFY_SOCKET']) : (text: string) => writeSync(descriptor, text);
	const send = (...lines: string[]): void => {
		try {
			// One write is one message: systemd splits none and joins none.
			write?.(lines.join('\n'));
		} catch {
			// A manager that is being replaced has no socket for a moment.
		}
	};

	let sentence: string | null = null;
	const withSentence = (next: string, ...lines: string[]) => {
		const isNew = next !== sentence;
		sentence = next;
		const all = isNew ? [...lines, `STATUS=${oneLine(next)}`] : lines;
		if (all.length > 0) send(...all);
	};

	const everyMs = watchdogMs(env);
	let cancelFeeding = () => {};
	const feed = (dueMs: number) => {
		cancelFeeding = idleClock.schedule(dueMs - idleClock.monotonicMs(), () => {
			send('WATCHDOG=1');
			feed(nextFeedMs(dueMs, idleClock.monotonicMs(), everyMs ?? 0));
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
		close: () => cancelFeeding(),
	};
}

/** Twice in each interval; what was missed while the process stood still is made up for a second at most. */
export const nextFeedMs = (dueMs: number, nowMs: number, everyMs: number): number =>
	Math.max(dueMs, nowMs - 1000) + everyMs / 2;

/** The descriptor that systemd handed to this very process under a name; `null` for none. Source: sd_listen_fds_with_names(3). */
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

/** Through libc: Node has no datagrams of this family. @param name a path, or `@` and an abstract name. @returns `null` without `node:ffi`. */
function datagramsTo(name: string): ((text: string) => void) | null {
	const ffi = loadForeignFunctions();
	if (!ffi) {
		process.emitWarning(
			`systemd gets no notice: this requires Node 26.1 or newer, or a unit with OpenFile=${name}:${NOTIFY_NAME}`,
		);
		return null;
	}
	const { socket, setsockopt, sendto } = ffi.dlopen(null, {
		socket: { arguments: ['i32', 'i32', 'i32'], return: 'i32' },
		setsockopt: { arguments: ['i32', 'i32', 'i32', 'buffer', 'u32'], return: 'i32' },
		sendto: { arguments: ['i32', 'buffer', 'u64', 'i32', 'buffer', 'u32'], return: 'i64' },
	}).functions;
	const address = Buffer.from(`\0\0${name.replace(/^@/, '\0')}`);
	address.writeUInt16LE(AF_UNIX);
	const open = socket(AF_UNIX, SOCK_DGRAM_CLOEXEC, 0);
	const within = Buffer.alloc(16);
	within.writeBigInt64LE(SEND_WITHIN_S);
	setsockopt(open, SOL_SOCKET, SO_SNDTIMEO, within, within.length);
	return (text) => {
		const bytes = Buffer.from(text);
		sendto(open, bytes, BigInt(bytes.length), 0, address, address.length);
	};
}

/** A line feed would begin the next assignment. */
function oneLine(text: string): string {
	const line = text.replaceAll(/\p{Cc}+/gu, ' ');
	return Buffer.byteLength(line) <= MAX_STATUS_BYTES
		? line
		: `${new TextDecoder().decode(Buffer.from(line).subarray(0, MAX_STATUS_BYTES), { stream: true })}…`;
}
