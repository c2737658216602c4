import { describe, expect, test } from 'vitest';
import { chooseScanners, MAX_SCANNERS, type ScannerFacts } from '../../src/scanning/choose-scanner.ts';

const AUTO = { kind: 'auto', device: null } as const;

function serial(name: string, node = '/dev/ttyACM0'): ScannerFacts {
	const path = `/dev/serial/by-id/${name}`;
	return { kind: 'serial', path, node, readable: true, marked: false, hidden: null, usb: null };
}

function keyboard(name: string, more: Partial<ScannerFacts> = {}): ScannerFacts {
	const path = `/dev/input/by-id/${name}`;
	const node = `/dev/input/${name}`;
	return { kind: 'keyboard', path, node, readable: true, marked: false, hidden: null, usb: null, ...more };
}

const chosen = (devices: ScannerFacts[], settings: Parameters<typeof chooseScanners>[1] = AUTO) =>
	chooseScanners(devices, settings).map((choice) => choice.chosen);

describe('by itself the agent listens to', () => {
	test('serial devices, unless they look like something else', () => {
		const devices = [
			serial('usb-Honeywell_HF680_1-if00', '/dev/ttyACM0'),
			serial('usb-FTDI_FT232R_A1-if00-port0', '/dev/ttyUSB0'),
			serial('usb-u-blox_AG_GNSS_receiver-if00', '/dev/ttyACM1'),
			serial('usb-Quectel_LTE_Modem_1-if02', '/dev/ttyUSB1'),
		];
		expect(chosen(devices)).toEqual([true, true, false, false]);
	});

	test('keyboards that look like a scanner or are marked as one, never to what people type on', () => {
		const devices = [
			keyboard('usb-Newland_Auto-ID_NLS-HR22-event-kbd'),
			keyboard('usb-Logitech_USB_Keyboard-event-kbd'),
			keyboard('usb-0c2e_0b61-event-kbd', { marked: true }),
		];
		expect(chosen(devices)).toEqual([true, false, true]);
		expect(chooseScanners(devices, AUTO)[1]?.why).toContain('ordinary keyboard');
		expect(chosen(devices, { kind: 'keyboard', device: null })).toEqual([true, false, true]);
	});

	test('at most so many devices, and each once', () => {
		const many = Array.from({ length: MAX_SCANNERS + 2 }, (_, index) => serial(`usb-${index}`, `/dev/ttyACM${index}`));
		expect(chosen(many).filter(Boolean)).toHaveLength(MAX_SCANNERS);
		expect(chosen([serial('usb-a'), serial('usb-b')])).toEqual([true, false]);
	});
});

describe('the settings', () => {
	const scanner = serial('usb-Honeywell_HF680_1-if00');
	const board = keyboard('usb-Logitech_USB_Keyboard-event-kbd');

	test('scanner.kind leaves one kind, or none', () => {
		const reader = keyboard('usb-Newland_scanner-event-kbd');
		expect(chosen([scanner, reader], { kind: 'serial', device: null })).toEqual([true, false]);
		expect(chosen([scanner, reader], { kind: 'keyboard', device: null })).toEqual([false, true]);
		expect(chosen([scanner, reader], { kind: 'off', device: null })).toEqual([false, false]);
	});

	test('scanner.device names one, whatever it looks like, by its link or by its node', () => {
		expect(chosen([scanner, board], { kind: 'auto', device: board.path })).toEqual([false, true]);
		expect(chosen([scanner, board], { kind: 'serial', device: board.node })).toEqual([false, true]);
		expect(chosen([scanner, board], { kind: 'off', device: board.path })).toEqual([false, false]);
	});
});
