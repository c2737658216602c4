/**
 * One scanner that types like a USB keyboard, read as events of the kernel, whatever window has the focus. It can't be
 * taken away from the desktop here (that requires an ioctl): the udev rule beside the units does. Opens once and reports.
 */
import { close, constants, open, readSync } from 'node:fs';
import { promisify } from 'node:util';
import type { LinuxPortBinding } from '@serialport/bindings-cpp';
import { AgentError } from '../base/errors.ts';
import { EVENT_BYTES, NO_KEYS, takeEvents } from './keyboard-events.ts';
import { type OpenScanner, refusedOpen, type ScannerListener, scannerGone } from './scanner.ts';

/** Events taken at once; the kernel keeps at least 64 for a reader. */
const AT_ONCE = 256;

/**
 * A plain stream would keep one of Node's four threads waiting in `read()` while no code is scanned, and could not be
 * ended: the descriptor is non-blocking and polled for, by the poller that the serial library brings.
 * @throws AgentError `scanner-failed` or `scanner-denied`.
 */
export async function openKeyboardScanner(path: string, listener: ScannerListener): Promise<OpenScanner> {
	const descriptor = await promisify(open)(path, constants.O_RDONLY | constants.O_NONBLOCK).catch((error: unknown) => {
		throw refusedOpen(path, error);
	});
	let poller: LinuxPortBinding['poller'];
	try {
		const { LinuxPortBinding: Binding } = await import('@serialport/bindings-cpp');
		({ poller } = new Binding(descriptor, { path, baudRate: 9600 } as never));
	} catch (cause) {
		close(descriptor);
		throw new AgentError('scanner-failed', `${path} is not a readable device.`, { cause });
	}
	const buffer = new Uint8Array(AT_ONCE * EVENT_BYTES);
	let keyboard = NO_KEYS;
	const { promise: closed, resolve } = Promise.withResolvers<void>();
	let over = false;

	const end = () => {
		if (!over) {
			// First: stopping the poller calls back once more.
			over = true;
			poller.stop();
			poller.destroy();
			close(descriptor, () => resolve());
		}
		return closed;
	};
	const gone = () => {
		if (over) return;
		void end();
		listener.ended(scannerGone(path));
	};
	const awaitMore = () => {
		try {
			poller.once('readable', (error) => {
				// The poller calls from outside of Node: whatever is promised in its callback would wait for the next event.
				if (!over) setImmediate(error ? gone : read);
			});
		} catch {
			gone();
		}
	};
	const read = () => {
		if (over) return;
		let bytes: number;
		try {
			bytes = readSync(descriptor, buffer);
		} catch (error) {
			const { code } = error as NodeJS.ErrnoException;
			if (code === 'EAGAIN' || code === 'EINTR') return awaitMore();
			return gone();
		}
		if (bytes === 0) return gone();
		const taken = takeEvents(keyboard, buffer.subarray(0, bytes));
		keyboard = taken.keyboard;
		awaitMore();
		if (taken.characters !== '') listener.characters(taken.characters);
	};
	awaitMore();
	return { close: end };
}
