/** Which of the devices that were found the agent listens to for pairing codes, and why. Pure. */
import type { Settings } from '../settings/table.ts';

/** A device by which codes may come, as it was found. */
export interface ScannerFacts {
	readonly kind: 'serial' | 'keyboard';
	/** The path to open: the name below `by-id` where there is one, since it stays the same in every socket. */
	readonly path: string;
	/** The device behind the name, `/dev/ttyACM0`; equal to `path` where that is not a symbolic link. */
	readonly node: string;
	/** Whether the user who looked may read it. */
	readonly readable: boolean;
	/** Whether the udev rule of this package marks it as a scanner. */
	readonly marked: boolean;
	/** Whether desktops ignore it (udev's LIBINPUT_IGNORE_DEVICE); `null` where udev says nothing, and for serial lines. */
	readonly hidden: boolean | null;
	/** USB ids, for the udev rule; `null` where udev says nothing. */
	readonly usb: { readonly vendorId: string; readonly modelId: string } | null;
}

export interface ScannerChoice {
	readonly device: ScannerFacts;
	readonly chosen: boolean;
	/** Why, or why not, as the end of a sentence. */
	readonly why: string;
}

type ScannerSettings = Pick<Settings['scanner'], 'kind' | 'device'>;

/** Devices listened to at once, at most. */
export const MAX_SCANNERS = 8;
/** After opening a device failed it is tried again so much later, while it is there; milliseconds. */
export const SCANNER_RETRY_MS = 15_000;

/** Makers and words by which a keyboard shows that it is a scanner. */
const LIKE_A_SCANNER =
	/scan|bar_?code|2d_?imager|imager|honeywell|metrologic|hand_held_products|datalogic|symbol|zebra|newland|opticon|cipherlab|unitech|denso|cognex|mindeo|zebex|sycreader|newtologic|netum|inateck|tera_/i;
/** Serial devices that send without being asked, or do something when they are opened. */
const NO_SCANNER = /modem|gps|gnss|u-blox|printer|arduino|zigbee|z-?wave|bluetooth|lte|\b[345]g\b/i;

/** Decides for each device, in the order given. Nothing is chosen when `scanner.kind` is `off`. */
export function chooseScanners(devices: readonly ScannerFacts[], settings: ScannerSettings): ScannerChoice[] {
	const seen = new Set<string>();
	return devices.map((device) => {
		const reason = assess(device, settings);
		if (reason.chosen && seen.has(device.node))
			return { device, chosen: false, why: 'is listened to under another name' };
		if (reason.chosen && seen.size === MAX_SCANNERS) return { device, chosen: false, why: 'is one too many' };
		if (reason.chosen) seen.add(device.node);
		return { device, ...reason };
	});
}

function assess({ kind, path, node, marked }: ScannerFacts, settings: ScannerSettings): Omit<ScannerChoice, 'device'> {
	const no = (why: string) => ({ chosen: false, why });
	const yes = (why: string) => ({ chosen: true, why });
	if (settings.kind === 'off') return no('scanner.kind is off');
	if (settings.device !== null)
		return settings.device === path || settings.device === node
			? yes('is named by scanner.device')
			: no('scanner.device names another');
	if (settings.kind !== 'auto' && settings.kind !== kind) return no(`scanner.kind is ${settings.kind}`);
	const name = path.slice(path.lastIndexOf('/') + 1);
	if (kind === 'serial')
		return settings.kind === 'auto' && NO_SCANNER.test(name)
			? no('looks like something else; scanner.device would name it')
			: yes('is a serial device');
	if (marked) return yes('is marked as a scanner by the udev rule');
	if (LIKE_A_SCANNER.test(name)) return yes('looks like a scanner');
	return no('looks like an ordinary keyboard; scanner.device would name it');
}
