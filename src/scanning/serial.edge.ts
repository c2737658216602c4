/** One scanner on a serial line: USB CDC, a USB serial adapter, or a port on the board. Opens once and reports. */
import type { SerialPortStream } from '@serialport/stream';
import { AgentError } from '../base/errors.ts';
import type { Settings } from '../settings/table.ts';
import { type OpenScanner, refusedOpen, type ScannerListener, scannerGone } from './scanner.ts';

/** Longest opening, in milliseconds: a broken adapter may keep the system call waiting. */
const OPEN_DEADLINE_MS = 5000;

/** Bits per second; without meaning for USB CDC. 8 data bits, no parity, one stop bit. */
export type SerialOptions = Pick<Settings['scanner'], 'baudRate'>;

/** @throws AgentError `scanner-failed` or `scanner-denied`. */
export async function openSerialScanner(
	path: string,
	{ baudRate }: SerialOptions,
	listener: ScannerListener,
): Promise<OpenScanner> {
	const [{ SerialPortStream: Stream }, { LinuxBinding }] = await Promise.all([
		import('@serialport/stream'),
		import('@serialport/bindings-cpp'),
	]).catch((cause: unknown) => {
		throw new AgentError('scanner-failed', 'The part of the agent that reads serial lines is missing or damaged.', {
			remedy: 'Install the package of the agent again, for the architecture of this device.',
			cause,
		});
	});
	const port = new Stream({ binding: inTurn(LinuxBinding), path, baudRate, autoOpen: false });
	// Without a listener an error would end the process. What it means shows in `close`.
	port.on('error', () => {});
	await openWithin(port, path);
	const decoder = new TextDecoder();
	let closing: Promise<void> | null = null;
	let over = false;
	port.on('data', (bytes: Uint8Array) => {
		if (!closing) listener.characters(decoder.decode(bytes, { stream: true }));
	});
	port.on('close', () => {
		over = true;
		if (!closing) listener.ended(scannerGone(path));
	});
	return {
		close() {
			closing ??= over
				? Promise.resolve()
				: new Promise<void>((resolve) => {
						// The device may have disappeared in between: then there is nothing left to close.
						port.close(() => resolve());
					});
			return closing;
		},
	};
}

/**
 * The same binding, whose poller calls in a turn of Node's own. Left to itself it calls from outside: whatever is promised
 * in its callback waits until something else happens.
 */
function inTurn<Binding extends { open(options: never): Promise<object> }>(binding: Binding): Binding {
	return {
		...binding,
		async open(options: never) {
			const port = await binding.open(options);
			const { poller } = port as { poller: { emit(...event: unknown[]): boolean } };
			const emit = poller.emit.bind(poller);
			poller.emit = (...event) => {
				setImmediate(emit, ...event);
				return true;
			};
			return port;
		},
	};
}

export async function openWithin(
	port: Pick<SerialPortStream, 'open' | 'close'>,
	path: string,
	deadlineMs = OPEN_DEADLINE_MS,
): Promise<void> {
	const { promise, resolve, reject } = Promise.withResolvers<void>();
	let isLate = false;
	const timer = setTimeout(() => {
		isLate = true;
		reject(new AgentError('scanner-failed', `${path} did not open in time.`));
	}, deadlineMs);
	port.open((error) => {
		if (isLate) {
			if (!error) port.close(() => {});
		} else if (error) reject(refusedOpen(path, error));
		else resolve();
	});
	try {
		await promise;
	} finally {
		clearTimeout(timer);
	}
}
