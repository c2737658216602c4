import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
	type CompleteIdentity,
	chooseIdentity,
	type IdentityChoice,
	type IdentityFacts,
	type InterfaceFacts,
	keptId,
	pinIdentity,
	toReport,
	whyInterfaceRejected,
	withAccepted,
	withSerialSince,
} from '../../src/identity/identity.ts';
import { whySerialRejected } from '../../src/identity/serial-numbers.ts';
import { deviceIdSchema, macAddressSchema, serialSchema } from '../../src/protocol/device-connection.ts';
import { identityReportSchema } from '../../src/protocol/local-answers.ts';
import { type DeviceState, EMPTY_STATE, type Fingerprint, type PinnedIdentity } from '../../src/state/device-state.ts';

const HASH = 'ab'.repeat(32);
const ONBOARD: InterfaceFacts = {
	name: 'enp3s0',
	mac: '00:1b:21:0a:0b:0c',
	type: 1,
	hasDevice: true,
	addrAssignType: 0,
	wireless: false,
	usb: false,
};
const USB: InterfaceFacts = { ...ONBOARD, name: 'enp0s20u1', mac: '00:e0:4c:6a:2b:01', usb: true };
const WIFI: InterfaceFacts = { ...ONBOARD, name: 'wlp2s0', mac: '3c:a9:f4:01:02:03', wireless: true };
const KIOSK: IdentityFacts = {
	serials: [{ source: 'dmi product_serial', value: 'PF3K9QXZ' }],
	interfaces: [ONBOARD],
	machineIdHash: HASH,
	unreadable: [],
};
const BARE: IdentityFacts = { serials: [], interfaces: [], machineIdHash: null, unreadable: [] };
const GENERATED = { value: 'generated-1', source: 'generated', on: null };
const PAIRED: PinnedIdentity = pinIdentity(complete(chooseIdentity(KIOSK, {}, null, null)), '2026-01-02T03:04:05Z');

function complete(choice: IdentityChoice): CompleteIdentity {
	if (choice.needsGeneratedId) throw new Error('expected an identity with a deviceId');
	return choice;
}

function pinnedWith(fingerprint: Partial<Fingerprint>): PinnedIdentity {
	return { ...PAIRED, fingerprint: { serial: null, macAddress: null, machine: null, ...fingerprint } };
}

/** The same machine with other parts in it; `null` takes a part away. */
function machineWith(parts: { serial?: string | null; mac?: string | null; machine?: string | null }): IdentityFacts {
	const { serial = 'PF3K9QXZ', mac = ONBOARD.mac, machine = HASH } = parts;
	return {
		serials: serial === null ? [] : [{ source: 'dmi product_serial', value: serial }],
		interfaces: mac === null ? [] : [{ ...ONBOARD, mac }],
		machineIdHash: machine,
		unreadable: [],
	};
}

describe('serial numbers that do not tell devices apart', () => {
	test.each([
		'To be filled by O.E.M.',
		'TO BE FILLED BY O.E.M.',
		'To Be Filled By O.E.M',
		'Default string',
		'System Serial Number',
		'Not Specified',
		'not applicable',
		'None',
		'N/A',
		'Unknown',
		'INVALID',
		'0123456789',
		'123456789',
		'00000000',
		'0000-0000-0000',
		'XXXXXXXX',
		'....',
		'-',
		'abc',
		'  a  ',
		'',
		' \n',
		'x\u0007y-1234',
		'1'.repeat(64).concat('2'.repeat(65)),
	])('%j is refused with a reason', (value) => {
		expect(whySerialRejected(value)).toMatch(/^(is|has) /);
	});

	test.each([
		...['12345678', '0123456789ABCDEF', '123456789ABC', '1234-5678-9012', '987654321', 'ABCDEFGH', '12345'],
		...['SYS-1234567890', 'MB-1234567890', 'BSS-0123456789', 'Chassis-0123456789', 'Asset-1234567890'],
		...['System Product Name', 'System manufacturer', 'Type2 - Board Serial Number', 'Chassis Serial Number'],
		...['No Asset Information', 'No Asset Tag', 'TBD by OEM', 'Fill By OEM', 'Not Defined', 'Undefined', 'Not Set'],
		...['Standard', 'EVAL', '<BAD INDEX>', 'Not Present', 'SKU Number', 'System Version', 'Dummy'],
		...['Unspecified System Serial Number', 'Unavailable', 'Unknow', 'Please Fill', 'CHANGE_ME', 'SerNum0', 'GENERIC'],
		...['0x00000000', '00000000000000000000000000000001', '00000001', 'ffffffff-ffff-ffff-ffff-ffffffffffff'],
		...['SN-0000000000', 'S/N: 00000000', 'SYS-0000000000', 'PC00000000', 'SN-XXXXXXXXXX', 'To be filled by O.E.M. 1'],
		...['test', 'Test1234', 'TestSN', 'TESTSERIAL', 'Engineering Sample'],
	])('%j, which a maker leaves on board after board, is refused as a placeholder [F740]', (value) => {
		expect(whySerialRejected(value)).toMatch(/^is (a placeholder|one character)/);
	});

	test.each([
		...['Filled by customer', 'To be filled by customer', 'Enter Serial', 'placeholder', 'sn_placeholder', 'BLANK'],
		...['No Enclosure', 'TBF by OEM', 'MB Serial Number', 'MB SN', 'Demo', 'Demo Serial'],
		...['QEMU', 'KVM', 'Virtual Machine', 'Not specified yet', 'Not yet assigned', 'Not programmed', 'todo', 'qwerty'],
		...['03000200-0400-0500-0006-000700080009', '121212121212', 'ABABABAB', '123123123', 'abc-abc-abc', '1122334455'],
		...['ABC123', 'ABC-123', 'abc12345', 'ABC123456', 'ABCD1234', 'ABC0123', 'AABBCCDD'],
	])('%j, which tells no device apart, is refused [F1457]', (value) => {
		expect(whySerialRejected(value)).toMatch(/^is (a placeholder|one character|the same few characters)/);
	});

	test.each([
		...[
			'Kiosk',
			'Terminal',
			'Notebook',
			'NOT PROVISIONED',
			'Not initialized',
			'Missing',
			'false',
			'Nicht verf\u00fcgbar',
		],
		...[
			'\u672a\u8bbe\u7f6e\u5e8f\u5217\u53f7',
			'PC Serial',
			'MfgSerial',
			'SystemSerialNumb',
			'VirtualBox-0',
			'ASUS',
			'GoogleCloud',
		],
		...['deadbeef', 'QWERTYUIOP', 'SERIAL1', 'Serial Number 1', 'Type1 - Serial Number0', 'Sys-00000001', 'BOARD-1234'],
		...[
			'0001',
			'CN0123456789ABCD',
			'N0CV12345678',
			'1234567890abcdef',
			'1A2B3C4D',
			'01020304',
			'0102030405060708',
			'123490EN400015',
			'Amazon EC2',
		],
		`VMware-56 4d${' 00'.repeat(14)}`,
	])('%j, a word, a word with a first number or counted digits beside others, is refused [F1467]', (value) => {
		expect(whySerialRejected(value)).toMatch(/^is a placeholder/);
		const facts = machineWith({ serial: value });
		const withBoard = { ...facts, serials: [...facts.serials, { source: 'dmi board_serial', value: 'RB77Q123' }] };
		expect(chooseIdentity(withBoard, {}, null, null).deviceId?.value).toBe('RB77Q123');
		// What has registered by it stays what it is.
		const on = { serial: value, macAddress: ONBOARD.mac, machine: HASH };
		const kept = { value, source: 'registered before', on };
		for (const pinned of [null, { ...PAIRED, deviceId: value, serial: value, fingerprint: on }])
			expect(chooseIdentity(withBoard, {}, pinned, kept)).toMatchObject({
				deviceId: { value },
				cloned: false,
				warnings: [],
			});
	});

	test.each([
		['Dell', '7XK2PM3', '1BCD2Z2', 'HG4QWN2', 'BCDFGHJ', 'BCDFGH0', '2MB0TB1'],
		['HP', 'CZC8327HLM', '5CG9301QK7', 'MXL1234ABC', '2UA4210VX9', 'SGH547X0CD'],
		['Lenovo', 'PF3K9QXZ', 'MJ0A1B2C', 'R90NQ3ZT', 'LR0ABC12', '1S20Q0S0KX00PC1ABC2D'],
		['Raspberry Pi', '10000000a1b2c3d4', '00000000f3c1b2a9', '100000009e8d7c6b', '0000000012345679'],
		['Apple', 'C02X1234JG5H', 'FVFXC2ABHV2H', 'H2WH20ABCDEF'],
		['Zebra', '18J191400012', 'XXZHN213100456', '20329522510437', 'S20154010506123'],
		['Advantech', 'KSA8812567', 'TPAB123457', 'IKA0412893', 'AKB2057194'],
		['ASUS and ASRock', 'M80-CB001800456', 'J7NXCV05U123295', 'M80-0C004102731'],
		['Intel NUC', 'GEBB8420001X', 'G6BN93400AVE', 'BTWY92100H1G'],
		['Supermicro', 'VM15AS003284', 'S261352X9A12345', 'OM166S012340', 'ZM20BS600123'],
		['Fujitsu, Toshiba TEC', 'YLNP020417', 'YLAS004711', '2305F10293', 'DSEL012846'],
		['Elo', 'E22C001234', 'A13C006473', 'K172001985'],
		['Ingenico, Verifone', '82345671', '20122PP80012345', '321-456-789', '804-112-377'],
		[
			'dates and counts of digits',
			'S123456789012X',
			'0000000000000123',
			'20230417000123',
			'2104120045',
			'230911',
			'1900042',
			'000417',
			'121213',
			'121212',
		],
		[
			'virtual machines',
			'VMware-56 4d 1c 2a 00 01 02 03-a4 b5 c6 d7 e8 f9 00 11',
			'VirtualBox-0b1c2d3e',
			'3f1b-88c2-4e1d',
		],
		[
			'with words in them',
			'DEMO-4711',
			'MB-20771',
			'QEMU-8f31c2',
			'TBF0417',
			'ABC-7741',
			'ABC124',
			'ABD123',
			'BLANK-17',
			'BOARD-12',
			'SN12399',
			'A1B2C3D4',
			'AAAAAAB',
		],
	])('serial numbers as those of %s are taken', (...[, ...values]) => {
		expect(values.filter((value) => whySerialRejected(value) !== null)).toEqual([]);
	});

	test('bytes that are not UTF-8 are refused, and words that can be read in many ways are looked at at once [F1350]', () => {
		expect(whySerialRejected('K\ufffd-1047')).toMatch(/not UTF-8/);
		expect(whySerialRejected('name'.repeat(31))).toMatch(/placeholder/);
		expect(whySerialRejected('NAME'.repeat(30).concat('Q7'))).toBeNull();
	});

	test.each([
		...['PF3K9QXZ', '10000000a1b2c3d4', 'VMware-56 4d 00 01', '0123456788', ' C02X1234JG5H\n', '1112'],
		...[
			'MB-1234567809',
			'S-12345',
			'KIOSK-100001',
			'SN00000017',
			'BOARD-7',
			'NAMEN-4711',
			'KIOSK-000001',
			'A-100000',
			'TESTA-4711',
			'2345671',
			'Q4EVAL77',
		],
	])('%j is taken', (value) => {
		expect(whySerialRejected(value)).toBeNull();
	});

	test('a paired device of which nothing of the hardware is left says so, and with another machine-id it is a copy [F1356]', () => {
		const choose = (facts: Partial<IdentityFacts>) => chooseIdentity({ ...BARE, ...facts }, {}, PAIRED, null);
		const left = choose({ machineIdHash: HASH });
		expect([left.cloned, left.warnings.map(({ message }) => message)]).toEqual([
			false,
			[expect.stringMatching(/^The hardware by which this device was known at the pairing is gone/)],
		]);
		expect(choose({ machineIdHash: 'c'.repeat(64) }).cloned).toBe(true);
		expect(choose({ machineIdHash: HASH, isContainer: true }).warnings).toEqual([]);
		expect(choose({ machineIdHash: HASH, interfaces: [ONBOARD] }).warnings).toEqual([]);
	});

	test('a device that registered with a placeholder before keeps that id, and a paired one its serial number, too', () => {
		const placeholder = machineWith({ serial: 'SYS-1234567890' });
		const kept = { value: 'SYS-1234567890', source: 'registered before', on: null };
		expect(chooseIdentity(placeholder, {}, null, kept).deviceId?.value).toBe('SYS-1234567890');
		const fingerprint = { serial: 'SYS-1234567890', macAddress: ONBOARD.mac, machine: HASH };
		const pinned = { ...PAIRED, deviceId: 'SYS-1234567890', serial: 'SYS-1234567890', fingerprint };
		expect(chooseIdentity(placeholder, {}, pinned, null)).toMatchObject({
			deviceId: { value: 'SYS-1234567890' },
			serial: { value: 'SYS-1234567890' },
			warnings: [],
			cloned: false,
		});
	});
});

describe('interfaces that do not stand for the device', () => {
	test.each<[string, Partial<InterfaceFacts>, string]>([
		['loopback', { type: 772, mac: '00:00:00:00:00:00' }, 'not an Ethernet'],
		['tunnel without an address', { mac: '' }, 'no MAC address'],
		['card with an empty address', { mac: '00:00:00:00:00:00' }, 'no MAC address'],
		['bridge with the address of its port', { hasDevice: false }, 'virtual'],
		['address made up by a hypervisor', { mac: '52:54:00:12:34:56' }, 'locally administered'],
		['group address', { mac: '01:00:5e:00:00:01' }, 'group'],
		['address set for privacy', { addrAssignType: 3 }, 'software set'],
		['address drawn at random', { addrAssignType: 1 }, 'software set'],
	])('%s', (_name, difference, reason) => {
		expect(whyInterfaceRejected({ ...ONBOARD, ...difference })).toContain(reason);
	});

	test.each(['00:e0:4c:68:00:01', '00:E0:4C:36:00:02', '88:88:88:88:87:88', '00:11:22:33:44:55'])(
		'the address %s, with which cards come from many makers, makes no id, and stays what a device is known by already [F1469]',
		(mac) => {
			expect(whyInterfaceRejected({ ...ONBOARD, mac })).toMatch(/cards of its kind/);
			const machine = machineWith({ serial: null, mac });
			expect(chooseIdentity(machine, {}, null, null)).toMatchObject({
				needsGeneratedId: true,
				macAddress: { value: null },
			});
			const on = { serial: null, macAddress: mac.toLowerCase(), machine: HASH };
			const kept = { value: 'machine-aaaa', source: 'registered before', on };
			expect(chooseIdentity(machine, {}, null, kept)).toMatchObject({
				deviceId: { value: 'machine-aaaa' },
				cloned: false,
				warnings: [],
			});
		},
	);

	test('what a system does not tell is no reason against', () => {
		expect(whyInterfaceRejected({ ...ONBOARD, type: null, hasDevice: null, addrAssignType: null })).toBeNull();
	});
});

describe('a device that is not paired', () => {
	test('goes by the first real serial number and the onboard card, and says why not by the others', () => {
		const facts: IdentityFacts = {
			...KIOSK,
			serials: [
				{ source: 'dmi product_serial', value: 'Default string' },
				{ source: 'dmi board_serial', value: ' MB-77 ' },
				{ source: 'dmi chassis_serial', value: 'CH-77' },
			],
			interfaces: [USB, WIFI, ONBOARD],
			unreadable: [{ source: 'devicetree serial-number', reason: 'is not there' }],
		};
		expect(chooseIdentity(facts, {}, null, null)).toEqual({
			needsGeneratedId: false,
			deviceId: { value: 'MB-77', source: 'serial number (dmi board_serial)' },
			serial: { value: 'MB-77', source: 'dmi board_serial' },
			macAddress: { value: '00:1b:21:0a:0b:0c', source: 'interface enp3s0' },
			pinned: false,
			rejected: [
				{ source: 'devicetree serial-number', reason: 'is not there' },
				{ source: 'dmi product_serial', reason: 'is a placeholder of the maker: Default string' },
				{ source: 'dmi chassis_serial', reason: 'comes after dmi board_serial' },
				{ source: 'interface wlp2s0', reason: 'comes after interface enp3s0' },
				{ source: 'interface enp0s20u1', reason: 'comes after interface enp3s0' },
			],
			fingerprint: { serial: 'MB-77', macAddress: '00:1b:21:0a:0b:0c', machine: HASH },
			warnings: [],
			cloned: false,
		});
	});

	test('takes Wi-Fi before USB, and a USB card when there is nothing else', () => {
		const macOf = (...interfaces: InterfaceFacts[]) =>
			chooseIdentity({ ...KIOSK, interfaces }, {}, null, null).macAddress.value;
		expect(macOf(USB, WIFI)).toBe(WIFI.mac);
		expect(macOf({ ...WIFI, usb: true }, { ...USB, name: 'a' })).toBe(USB.mac);
		expect(macOf(USB)).toBe(USB.mac);
		expect(macOf()).toBeNull();
	});

	test('takes settings over everything, without letting them into the fingerprint', () => {
		const configured = { deviceId: 'lobby-1', serial: 'S-1', macAddress: '02:00:00:00:00:01' };
		const choice = complete(chooseIdentity(KIOSK, configured, null, null));
		expect(choice.deviceId).toEqual({ value: 'lobby-1', source: 'configured' });
		expect(choice.serial).toEqual({ value: 'S-1', source: 'configured' });
		expect(choice.macAddress).toEqual({ value: '02:00:00:00:00:01', source: 'configured' });
		expect(choice.fingerprint).toEqual({ serial: 'PF3K9QXZ', macAddress: ONBOARD.mac, machine: HASH });
		expect(choice.rejected).toContainEqual({
			source: 'dmi product_serial',
			reason: 'comes after the configured value',
		});
	});

	test('goes by a configured serial number when no deviceId is configured', () => {
		expect(chooseIdentity(BARE, { serial: 'S-1' }, null, null).deviceId).toEqual({
			value: 'S-1',
			source: 'serial number (configured)',
		});
	});

	test('without a serial number goes by machine-id and MAC address together, and does not call that a serial number', () => {
		const choice = complete(chooseIdentity(machineWith({ serial: null }), {}, null, null));
		const value = `machine-${HASH.slice(0, 20)}001b210a0b0c`;
		expect(choice.deviceId).toEqual({ value, source: 'machine-id and interface enp3s0' });
		expect(choice.serial).toEqual({ value: null, source: 'none' });
	});

	test.each([
		['two cards from one image', machineWith({ serial: null, mac: '00:1b:21:0a:0b:0d' }), 'another'],
		[
			'boards with the same placeholder',
			machineWith({ serial: 'Default string', mac: '00:1b:21:0a:0b:0d' }),
			'another',
		],
		['a virtual machine, whose card is not its own', machineWith({ serial: null, mac: null }), 'generated'],
		[
			'boards with the same counted digits',
			machineWith({ serial: 'SYS-1234567890', mac: '00:1b:21:0a:0b:0d' }),
			'another',
		],
		['a container, which shows the serial number of its machine', { ...KIOSK, isContainer: true }, 'generated'],
		['a container of the same image', { ...machineWith({ serial: null }), isContainer: true }, 'generated'],
		['an image without a machine-id', machineWith({ serial: null, machine: null }), 'generated'],
	])('%s: an id that others can have is not used alone [F563]', (_, facts, expected) => {
		const first = complete(chooseIdentity(machineWith({ serial: null }), {}, null, null)).deviceId.value;
		const { needsGeneratedId, deviceId } = chooseIdentity(facts, {}, null, null);
		expect(needsGeneratedId ? 'generated' : deviceId.value === first ? 'the same' : 'another').toBe(expected);
	});

	test('stays what it registered as, with a replaced network card, too, unless it has a serial number or a setting [F564]', () => {
		const request = { deviceId: 'machine-abab', deviceType: 'kiosk', workflowId: 'check-in' };
		const connections = [{ baseUrl: 'https://a.example', request, credentialId: 'key', token: 't', obtainedAt: '' }];
		const kept = keptId({ connections, generatedId: 'generated-1', registeredOn: null });
		const idOf = (facts: IdentityFacts, deviceId?: string) =>
			chooseIdentity(facts, { deviceId }, null, kept).deviceId?.value;
		expect(idOf(machineWith({ serial: null, mac: USB.mac }))).toBe('machine-abab');
		expect(idOf({ ...KIOSK, isContainer: true })).toBe('machine-abab');
		expect([idOf(KIOSK), idOf(BARE, 'lobby-1')]).toEqual(['PF3K9QXZ', 'lobby-1']);
		const registeredOn = PAIRED.fingerprint;
		const about = { ...GENERATED, on: registeredOn };
		expect(keptId({ connections: [], generatedId: 'generated-1', registeredOn })).toEqual(about);
	});

	test('with nothing of its own asks for an id once, and keeps to it', () => {
		const first = chooseIdentity(BARE, {}, null, null);
		expect(first.needsGeneratedId).toBe(true);
		expect(first.deviceId).toBeNull();
		const second = chooseIdentity(BARE, {}, null, GENERATED);
		expect(second.needsGeneratedId).toBe(false);
		expect(second.deviceId).toEqual({ value: 'generated-1', source: 'generated' });
	});
});

describe('a paired device', () => {
	test('stays who it was when a part shows something else', () => {
		const choice = complete(chooseIdentity(machineWith({ serial: 'OTHER-99' }), {}, PAIRED, GENERATED));
		expect(choice.deviceId).toEqual({ value: 'PF3K9QXZ', source: 'pinned' });
		expect(choice.serial).toEqual({ value: 'PF3K9QXZ', source: 'pinned' });
		expect(choice.macAddress).toEqual({ value: ONBOARD.mac, source: 'pinned' });
	});

	test('that had no MAC address at the pairing does not get one from a card plugged in later', () => {
		const choice = chooseIdentity(KIOSK, {}, { ...PAIRED, macAddress: null }, null);
		expect(choice.macAddress).toEqual({ value: null, source: 'pinned' });
		expect(choice.rejected).toContainEqual({
			source: 'interface enp3s0',
			reason: 'comes after the pinned value',
		});
	});

	test('follows a setting that was changed later', () => {
		expect(chooseIdentity(KIOSK, { deviceId: 'lobby-2' }, PAIRED, null).deviceId?.value).toBe('lobby-2');
	});

	test('is silent when nothing has changed', () => {
		const choice = chooseIdentity(KIOSK, {}, PAIRED, null);
		expect(choice).toMatchObject({ warnings: [], cloned: false, rejected: [], fingerprint: PAIRED.fingerprint });
	});

	test('is silent when a better card or a better serial number appears beside the pinned one', () => {
		const facts: IdentityFacts = {
			...KIOSK,
			serials: [{ source: 'credential dmi-serial', value: 'BETTER-1' }, ...KIOSK.serials],
			interfaces: [{ ...ONBOARD, name: 'a0', mac: '00:aa:00:aa:00:aa' }, ONBOARD],
		};
		expect(chooseIdentity(facts, {}, PAIRED, null)).toMatchObject({
			warnings: [],
			cloned: false,
			fingerprint: PAIRED.fingerprint,
		});
	});

	test('is silent when a part can no longer be read', () => {
		expect(chooseIdentity(BARE, {}, PAIRED, null)).toMatchObject({ warnings: [], cloned: false });
	});

	test.each([
		['serial number', { serial: 'OTHER-99' }, 'its serial number is OTHER-99, at the pairing it was PF3K9QXZ'],
		['network card', { mac: '00:aa:00:aa:00:aa' }, 'its MAC address is 00:aa:00:aa:00:aa'],
		['machine-id', { machine: 'cd'.repeat(32) }, 'its machine-id is another one than at the pairing'],
	])('warns of another %s, and is not taken for a copy', (_part, difference, message) => {
		const choice = chooseIdentity(machineWith(difference), {}, PAIRED, null);
		expect(choice.cloned).toBe(false);
		expect(choice.warnings).toEqual([
			expect.objectContaining({ code: 'identity-changed', message: expect.stringContaining(message) }),
		]);
	});

	test('never shows the hash of the machine-id in a warning', () => {
		const choice = chooseIdentity(machineWith({ machine: 'cd'.repeat(32) }), {}, PAIRED, null);
		expect(JSON.stringify(choice.warnings)).not.toMatch(/abab|cdcd/);
	});
});

describe('a state that was copied to another device', () => {
	const other = { serial: 'OTHER-99', mac: '00:aa:00:aa:00:aa', machine: 'cd'.repeat(32) };
	const all = { serial: 'PF3K9QXZ', macAddress: ONBOARD.mac, machine: HASH };

	test.each<[string, Partial<Fingerprint>, Parameters<typeof machineWith>[0], boolean]>([
		['everything differs', all, other, true],
		['a whole disk was copied, its machine-id with it', all, { ...other, machine: HASH }, true],
		['the serial number is still the same', all, { ...other, serial: 'PF3K9QXZ' }, false],
		['the card is still the same', all, { ...other, mac: ONBOARD.mac }, false],
		['serial number unknown, card and machine-id differ', all, { ...other, serial: null }, true],
		['only the card can be compared, and it differs', all, { serial: null, mac: other.mac, machine: null }, false],
		[
			'another serial number, the card of then gone, the machine-id of the disk',
			all,
			{ ...other, mac: null, machine: HASH },
			true,
		],
		['only a serial number was ever known', { serial: 'PF3K9QXZ' }, other, true],
		['only a card was ever known', { macAddress: ONBOARD.mac }, { ...other, serial: null }, false],
		['only a machine-id was ever known', { machine: HASH }, other, true],
		['nothing was ever known', {}, other, false],
	])('%s: it is one where nothing of the hardware is the same [F1418]', (_name, then, now, cloned) => {
		const choice = chooseIdentity(machineWith(now), {}, pinnedWith(then), null);
		expect(choice.cloned).toBe(cloned);
	});

	test.each<[string, Partial<Fingerprint>, Parameters<typeof machineWith>[0], boolean]>([
		['a virtual machine, on hardware', { machine: HASH }, { ...other, machine: HASH }, true],
		['a board without one, on another', { macAddress: ONBOARD.mac, machine: HASH }, { ...other, machine: HASH }, true],
		['the same board, which shows one now', { macAddress: ONBOARD.mac, machine: HASH }, { serial: 'OTHER-99' }, false],
		['a virtual machine that has one now', { machine: HASH }, { ...other, mac: null, machine: HASH }, false],
		['a virtual machine with a card plugged in', { machine: HASH }, { ...other, serial: null, machine: HASH }, false],
		[
			'the same, its card gone',
			{ macAddress: ONBOARD.mac, machine: HASH },
			{ ...other, mac: null, machine: HASH },
			false,
		],
		['the volume of a container', {}, other, false],
	])(
		'%s: a serial number and another card where there was no serial number are those of another machine [F1468]',
		(_name, then, now, cloned) => {
			const choice = chooseIdentity(machineWith(now), {}, pinnedWith(then), null);
			const told = [
				'This seems to be a copy of another device: its serial number is OTHER-99, at the pairing it had none; ',
			];
			expect(choice).toMatchObject({
				cloned,
				warnings: cloned ? told.map((text) => ({ message: expect.stringContaining(text) })) : [],
			});
		},
	);

	test.each([
		['paired', { ...EMPTY_STATE, identity: PAIRED }],
		['registered with a key', { ...EMPTY_STATE, registeredOn: PAIRED.fingerprint }],
	])(
		'is none that was %s, and whose hardware can be read again after a person has accepted that it could not; a copy stays one [F1591]',
		(_what, state) => {
			const kept = { value: PAIRED.deviceId, source: 'registered before' };
			const choose = (facts: IdentityFacts, { identity, registeredOn }: DeviceState) =>
				complete(chooseIdentity(facts, {}, identity, identity ? null : { ...kept, on: registeredOn }));
			const unread = machineWith({ serial: null, mac: null });
			const accepted = withAccepted(state, choose(unread, state), 'now');
			expect([choose(unread, state).warnings.length, choose(unread, accepted).warnings.length]).toEqual([1, 0]);
			const back = choose(machineWith({}), accepted);
			expect(back).toMatchObject({ deviceId: { value: PAIRED.deviceId }, cloned: false, warnings: [] });
			expect(back.macAddress.value).toBe(ONBOARD.mac);
			const copy = { ...other, serial: 'Default string', machine: HASH };
			expect(choose(machineWith(copy), accepted)).toMatchObject({ cloned: true });
		},
	);

	test('whose serial number is a placeholder on the other board counts as well, and is named so [F1315]', () => {
		const placeholder = { ...other, serial: 'Default string', machine: HASH };
		const copy = chooseIdentity(machineWith(placeholder), {}, pinnedWith(all), null);
		expect(copy.cloned).toBe(true);
		expect(copy.warnings[0]?.message).toContain(
			'its serial number is a placeholder of the maker, at the pairing it was',
		);
		const repaired = chooseIdentity(machineWith({ ...placeholder, mac: ONBOARD.mac }), {}, pinnedWith(all), null);
		expect(repaired).toMatchObject({ cloned: false, warnings: [{ code: 'identity-changed' }] });
	});

	test('is told in one warning that names every part', () => {
		const { warnings } = chooseIdentity(machineWith(other), {}, PAIRED, null);
		expect(warnings).toHaveLength(1);
		expect(warnings[0]?.message).toMatch(/copy of another device.*serial number.*MAC address.*machine-id/);
	});
});

describe('a device that registered and was never paired', () => {
	const on = { serial: null, macAddress: ONBOARD.mac, machine: HASH };
	const kept = { value: 'machine-aaaa', source: 'registered before', on };
	const other = { serial: null, mac: USB.mac, machine: HASH };

	test('warns of another network card, with which a copied card would look the same, and keeps its id [F742]', () => {
		const choice = chooseIdentity(machineWith(other), {}, null, kept);
		expect(choice).toMatchObject({ deviceId: { value: 'machine-aaaa' }, cloned: false });
		expect(choice.warnings.map(({ message }) => message)).toEqual([
			`A part of this device has changed: its MAC address is ${USB.mac}, when it registered it was ${ONBOARD.mac}.`,
		]);
	});

	test.each<[string, Fingerprint, Parameters<typeof machineWith>[0]]>([
		['card and machine-id', on, { ...other, machine: 'cd'.repeat(32) }],
		['all that a virtual machine has', { ...on, macAddress: null }, { ...other, mac: null, machine: 'cd'.repeat(32) }],
	])('is taken for a copy where %s differ', (_, then, now) => {
		const choice = chooseIdentity(machineWith(now), {}, null, { ...kept, on: then });
		expect(choice).toMatchObject({ cloned: true, warnings: [{ code: 'identity-changed' }] });
	});

	test('is silent on the machine that it registered on, and on any machine with an id of its own', () => {
		const silent = { warnings: [], cloned: false };
		expect(chooseIdentity(machineWith({ serial: null }), {}, null, kept)).toMatchObject(silent);
		const elsewhere = machineWith({ serial: 'OTHER-99', mac: USB.mac, machine: 'cd'.repeat(32) });
		expect(chooseIdentity(elsewhere, {}, null, kept)).toMatchObject({ ...silent, deviceId: { value: 'OTHER-99' } });
		const configured = { deviceId: 'lobby-1' };
		expect(chooseIdentity(machineWith(other), configured, null, kept)).toMatchObject(silent);
	});

	test('keeps its id where its serial number can be read only since, also when its card is replaced afterwards [F1596]', () => {
		const since = complete(chooseIdentity(KIOSK, {}, null, kept));
		expect(since).toMatchObject({ deviceId: { value: 'machine-aaaa' }, warnings: [], cloned: false });
		const { registeredOn } = withSerialSince({ ...EMPTY_STATE, registeredOn: on }, since);
		const repaired = chooseIdentity(machineWith({ mac: USB.mac }), {}, null, { ...kept, on: registeredOn });
		expect(repaired).toMatchObject({ cloned: false, warnings: [{ code: 'identity-changed' }] });
		// Settings go before it, and so does another machine's own serial number.
		const idOf = (facts: IdentityFacts, serial?: string) =>
			chooseIdentity(facts, { serial }, null, { ...kept, on: registeredOn }).deviceId?.value;
		expect([idOf(KIOSK, 'lobby-1'), idOf(machineWith({ serial: 'OTHER-99', mac: USB.mac }))]).toEqual([
			'lobby-1',
			'OTHER-99',
		]);
	});

	test('that is known by its card alone says so where no card of a maker is left, paired or not, as a copy of its disk would [F1609]', () => {
		const bare = machineWith({ serial: null, mac: null });
		const random = machineWith({ serial: null, mac: '02:11:22:33:44:55' });
		for (const [pinned, before] of [
			[null, kept],
			[pinnedWith(on), null],
		] as const)
			for (const facts of [bare, random])
				expect(chooseIdentity(facts, {}, pinned, before)).toMatchObject({
					cloned: false,
					warnings: [
						{
							code: 'identity-changed',
							message: expect.stringMatching(/^The hardware by which this device was known/),
						},
					],
				});
	});

	test('in a container moves with its volume to another host and another image, paired or not [F744]', () => {
		const host = (parts: Parameters<typeof machineWith>[0]) => ({ ...machineWith(parts), isContainer: true });
		const first = complete(chooseIdentity(host({}), {}, null, GENERATED));
		expect(first.fingerprint).toEqual({ serial: null, macAddress: null, machine: null });
		const moved = host({ serial: 'OTHER-99', mac: USB.mac, machine: 'cd'.repeat(32) });
		for (const pinned of [null, pinIdentity(first, ''), PAIRED])
			expect(chooseIdentity(moved, {}, pinned, { ...GENERATED, on: first.fingerprint })).toMatchObject({
				warnings: [],
				cloned: false,
			});
	});
});

test('the report is what the local interface promises', () => {
	const choice = complete(
		chooseIdentity(machineWith({ serial: 'OTHER-99' }), { macAddress: '00:00:5e:00:53:01' }, PAIRED, null),
	);
	const report = toReport(choice);
	expect(identityReportSchema.parse(report)).toEqual(report);
	expect(report).toMatchObject({
		deviceId: { value: 'PF3K9QXZ', source: 'pinned' },
		macAddress: { value: '00:00:5e:00:53:01', source: 'configured' },
		pinned: true,
		warnings: [{ code: 'identity-changed' }],
	});
});

describe('whatever a machine shows', () => {
	const mac = fc
		.uint8Array({ minLength: 6, maxLength: 6 })
		.map((bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(':'));
	const maybe = <Value>(arbitrary: fc.Arbitrary<Value>) => fc.option(arbitrary, { nil: null });
	const facts: fc.Arbitrary<IdentityFacts> = fc.record({
		serials: fc.array(fc.record({ source: fc.string(), value: fc.string({ unit: 'binary' }) }), { maxLength: 4 }),
		interfaces: fc.uniqueArray(
			fc.record({
				name: fc.string({ minLength: 1, maxLength: 15 }),
				mac: fc.oneof(mac, fc.string()),
				type: maybe(fc.constantFrom(1, 772)),
				hasDevice: maybe(fc.boolean()),
				addrAssignType: maybe(fc.nat({ max: 3 })),
				wireless: fc.boolean(),
				usb: fc.boolean(),
			}),
			{ selector: ({ name }) => name, maxLength: 5 },
		),
		machineIdHash: maybe(fc.constant(HASH)),
		unreadable: fc.constant([]),
	});

	test('what is chosen can be sent to the service', () => {
		fc.assert(
			fc.property(facts, (found) => {
				const choice = chooseIdentity(found, {}, null, GENERATED);
				if (choice.serial.value !== null) expect(serialSchema.parse(choice.serial.value)).toBe(choice.serial.value);
				if (choice.macAddress.value !== null)
					expect(macAddressSchema.parse(choice.macAddress.value)).toBe(choice.macAddress.value);
				expect(deviceIdSchema.safeParse(choice.deviceId?.value).success).toBe(true);
			}),
		);
	});

	test('the choice does not depend on the order in which interfaces are listed', () => {
		fc.assert(
			fc.property(facts, (found) => {
				const reversed = { ...found, interfaces: [...found.interfaces].reverse() };
				expect(chooseIdentity(reversed, {}, null, null)).toEqual(chooseIdentity(found, {}, null, null));
			}),
		);
	});

	test('a pairing is kept to, and the machine that was paired is neither changed nor a copy', () => {
		fc.assert(
			fc.property(facts, facts, (then, now) => {
				const pinned = pinIdentity(complete(chooseIdentity(then, {}, null, GENERATED)), '2026-01-02T03:04:05Z');
				const later = complete(chooseIdentity(now, {}, pinned, null));
				expect(later.deviceId.value).toBe(pinned.deviceId);
				expect(later.serial.value).toBe(pinned.serial);
				expect(later.macAddress.value).toBe(pinned.macAddress);
				expect(chooseIdentity(then, {}, pinned, null)).toMatchObject({ warnings: [], cloned: false });
			}),
		);
	});
});
