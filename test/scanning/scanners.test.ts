import { mkdir, mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Failure } from '../../src/base/errors.ts';
import { findScanners, watchScanners } from '../../src/scanning/devices.edge.ts';
import { openScanner, openStandardInput } from '../../src/scanning/open.edge.ts';
import type { ScannerListener } from '../../src/scanning/scanner.ts';
import { openWithin } from '../../src/scanning/serial.edge.ts';
import { plantTree } from '../fixtures/machines.ts';
import { inputEvent, join as joinBytes, typed } from '../fixtures/scanners/keyboard.ts';
import { plugScanner } from '../fixtures/scanners/plug.ts';

async function givenMachine(): Promise<string> {
	const root = await realpath(await mkdtemp(join(tmpdir(), 'scanners-')));
	onTestFinished(() => rm(root, { recursive: true, force: true }));
	return root;
}

/** Keeps what a scanner sends. */
function listen() {
	let text = '';
	let look = () => {};
	const { promise: ended, resolve } = Promise.withResolvers<Failure>();
	const listener: ScannerListener = {
		characters(more) {
			text += more;
			look();
		},
		ended: resolve,
	};
	return {
		listener,
		ended,
		until: (desired: string) =>
			new Promise<string>((done) => {
				look = () => {
					if (text.includes(desired)) done(text);
				};
				look();
			}),
	};
}

const OPTIONS = { baudRate: 9600 };

describe('a keyboard scanner', () => {
	test('is read as it types, a burst of scans at once too', async () => {
		const scanner = await plugScanner(await givenMachine());
		const heard = listen();
		const opened = await openScanner({ kind: 'keyboard', path: scanner.path }, OPTIONS, heard.listener);
		scanner.scan('First-1');
		expect(await heard.until('\n')).toBe('First-1\n');
		for (let index = 0; index < 20; index += 1) scanner.scan(`burst-${index}`);
		expect((await heard.until('burst-19\n')).split('\n')).toHaveLength(22);
		await opened.close();
		await opened.close();
	});

	test('events cut in the middle and garbage between them lose no more than themselves', async () => {
		const scanner = await plugScanner(await givenMachine());
		const heard = listen();
		const opened = await openScanner({ kind: 'keyboard', path: scanner.path }, OPTIONS, heard.listener);
		const bytes = joinBytes([inputEvent(0x1234, 0xffff, -1), typed('one'), inputEvent(1, 0x2ff, 1), typed('two\n')]);
		scanner.type(bytes.subarray(0, 31));
		scanner.type(bytes.subarray(31));
		expect(await heard.until('\n')).toBe('onetwo\n');
		await opened.close();
	});

	test('says when it is pulled out', async () => {
		const scanner = await plugScanner(await givenMachine());
		const heard = listen();
		await openScanner({ kind: 'keyboard', path: scanner.path }, OPTIONS, heard.listener);
		scanner.unplug();
		expect(await heard.ended).toMatchObject({ code: 'scanner-failed', message: expect.stringContaining('unplugged') });
	});

	test('that is not there is refused with what to do', async () => {
		const path = join(await givenMachine(), 'event9');
		for (const kind of ['keyboard', 'serial'] as const)
			await expect(openScanner({ kind, path }, OPTIONS, listen().listener)).rejects.toMatchObject({
				failure: { code: 'scanner-failed', message: `${path} is not there any more.` },
			});
	});

	test('a file that is no device is refused', async () => {
		const path = join(await givenMachine(), 'event1');
		await writeFile(path, 'no device');
		for (const kind of ['keyboard', 'serial'] as const)
			await expect(openScanner({ kind, path }, OPTIONS, listen().listener)).rejects.toMatchObject({
				failure: { code: 'scanner-failed' },
			});
	});
});

test('a port that opens too late is closed, so that a later try finds it free [F1994]', async () => {
	let opened = (_error: Error | null) => {};
	let closed = 0;
	const port = {
		open(done: typeof opened) {
			opened = done;
		},
		close() {
			closed += 1;
		},
	};
	await expect(openWithin(port, '/dev/ttyS0', 0)).rejects.toMatchObject({
		failure: { code: 'scanner-failed', message: '/dev/ttyS0 did not open in time.' },
	});
	opened(new Error('gone'));
	expect(closed).toBe(0);
	opened(null);
	expect(closed).toBe(1);
});

test('standard input is read to its end', async () => {
	const input = new PassThrough();
	const heard = listen();
	const opened = openStandardInput(heard.listener, input);
	input.end(Buffer.from('tr-\u00e4bc\n'));
	expect(await heard.until('\n')).toBe('tr-\u00e4bc\n');
	expect(await heard.ended).toMatchObject({ code: 'scanner-failed' });
	await opened.close();
});

describe('the devices of a machine', () => {
	test('are found by their lasting names, each once, with what the settings name first', async () => {
		const root = await givenMachine();
		await plantTree(root, {
			'dev/ttyACM0': '',
			'dev/ttyUSB3': '',
			'dev/ttyS0': '',
			'dev/serial/by-id/usb-Honeywell_HF680_1-if00': { link: '../../ttyACM0' },
			'dev/serial/by-id/usb-Gone-if00': { link: '../../ttyACM7' },
			'dev/input/event3': '',
			'dev/input/event4': '',
			'dev/input/by-id/usb-Newland_NLS-event-kbd': { link: '../event3' },
			'dev/input/by-id/usb-Newland_NLS-event-mouse': { link: '../event4' },
			'dev/input/idv-scanner': { link: 'event3' },
		});
		const found = await findScanners({ root, device: join(root, 'dev/ttyS0') });
		expect(found.map(({ kind, path }) => [kind, path.slice(root.length)])).toEqual([
			['serial', '/dev/ttyS0'],
			['serial', '/dev/serial/by-id/usb-Honeywell_HF680_1-if00'],
			['serial', '/dev/ttyUSB3'],
			['keyboard', '/dev/input/by-id/usb-Newland_NLS-event-kbd'],
		]);
		expect(found.at(-1)).toMatchObject({ marked: true, hidden: null, node: join(root, 'dev/input/event3') });
		expect(found[0]).toMatchObject({ readable: true, marked: false });
	});

	test('what udev knows tells whether the desktop sees a scanner, and its USB ids', async () => {
		const root = await givenMachine();
		// A file is no device: its number is 0:0.
		await plantTree(root, {
			'dev/input/event3': '',
			'dev/input/by-id/usb-Newland_NLS-event-kbd': { link: '../event3' },
			'run/udev/data/c0:0': 'E:ID_VENDOR_ID=1eab\nE:ID_MODEL_ID=0c06\nE:LIBINPUT_IGNORE_DEVICE=1\n',
		});
		expect(await findScanners({ root, device: null })).toMatchObject([
			{ hidden: true, usb: { vendorId: '1eab', modelId: '0c06' } },
		]);
		await plantTree(root, { 'run/udev/data/c0:0': 'E:ID_VENDOR_ID=1eab\n' });
		expect(await findScanners({ root, device: null })).toMatchObject([{ hidden: false, usb: null }]);
	});

	test('a plug is noticed, also where there was no directory yet, and a pull as well', async () => {
		const root = await givenMachine();
		await mkdir(join(root, 'dev'));
		let changes = 0;
		let onChange = () => {};
		const watch = watchScanners({ root, device: null }, () => {
			changes += 1;
			onChange();
		});
		onTestFinished(() => watch.close());
		const untilFound = (count: number) =>
			new Promise<void>((resolve) => {
				onChange = async () => {
					if ((await findScanners({ root, device: null })).length === count) resolve();
				};
			});
		const came = untilFound(1);
		const scanner = await plugScanner(root);
		await came;
		const went = untilFound(0);
		scanner.unplug();
		await went;
		const cameAgain = untilFound(1);
		await plugScanner(root, 'Honeywell_HF680', 4);
		await cameAgain;
		const before = changes;
		watch.close();
		await plugScanner(root, 'Zebra_DS9308', 5);
		expect(changes).toBe(before);
	});
});
