/** Which devices could be scanners, and that this has changed: from /dev and what udev knows. Opens none of them. */
import fs, { constants } from 'node:fs';
import { dirname, join } from 'node:path';
import { watchDirectories } from '../base/watch.edge.ts';
import type { ScannerFacts } from './choose-scanner.ts';

export interface ScannerPlaces {
	/** Root of the file system that is looked at; default `/`. */
	readonly root?: string | undefined;
	/** A device that the settings name, found wherever it is. */
	readonly device: string | null;
}

const SERIAL_BY_ID = 'dev/serial/by-id';
const INPUT_BY_ID = 'dev/input/by-id';
/** The mark of a scanner in this package's udev rule. */
const MARK = /^idv-scanner/;
const MAX_ENTRIES = 64;

/** From the first sign of a change to the look: a plug makes a device, its rights and its names one after the other. */
const TIMES = { quietMs: 100, maxWaitMs: 100 };

/** All of them: what the settings name, serial devices, keyboards, in the order of their names. */
export async function findScanners({ root = '/', device }: ScannerPlaces): Promise<ScannerFacts[]> {
	const named = device === null ? [] : [{ path: device, kind: kindOf(await resolved(device)) }];
	const serial = await list(join(root, SERIAL_BY_ID), /./);
	const ports = await list(join(root, 'dev'), /^tty(ACM|USB)\d+$/);
	const marked = await list(join(root, 'dev/input'), MARK);
	const keyboards = await list(join(root, INPUT_BY_ID), /-event-kbd$/);
	const candidates: { path: string; kind: ScannerFacts['kind'] }[] = [
		...named,
		...[...serial, ...ports].map((path) => ({ path, kind: 'serial' as const })),
		...[...keyboards, ...marked].map((path) => ({ path, kind: 'keyboard' as const })),
	];
	const markedNodes = new Set(await Promise.all(marked.map(resolved)));
	const found = new Map<string, ScannerFacts>();
	for (const { path, kind } of candidates) {
		const node = await resolved(path);
		// One device has several names; the first, by id, is the one to show. A link that leads nowhere is none.
		if (found.has(node) || !(await mayAccess(node, constants.F_OK))) continue;
		const known = await askUdev(root, node);
		found.set(node, {
			kind,
			path,
			node,
			readable: await mayAccess(node, kind === 'serial' ? constants.R_OK | constants.W_OK : constants.R_OK),
			marked: markedNodes.has(node),
			hidden: kind === 'serial' || !known ? null : known.get('LIBINPUT_IGNORE_DEVICE') === '1',
			usb: usbIds(known),
		});
	}
	return [...found.values()];
}

/** Calls back when a device may have come or gone. A missing path is waited for in the nearest directory that is. */
export function watchScanners({ root = '/', device }: ScannerPlaces, onChange: () => void) {
	const places = [SERIAL_BY_ID, INPUT_BY_ID].map((place) => join(root, place));
	if (device !== null) places.push(dirname(device));
	const nearest = (directory: string): string =>
		fs.existsSync(directory) || directory === dirname(directory) ? directory : nearest(dirname(directory));
	const { close } = watchDirectories(() => places.map((place) => [nearest(place), isOurs]), TIMES, onChange);
	return { close };
}

/** Every line on a console and every write to /dev/null is an event in /dev: those are ignored. */
const isOurs = (name: string) => !/^(null|zero|u?random|full|ptmx|console|tty\d*|kmsg|rfkill)$/.test(name);

async function list(directory: string, wanted: RegExp): Promise<string[]> {
	const names = (await fs.promises.readdir(directory).catch(() => [])).filter((name) => wanted.test(name)).toSorted();
	return names.slice(0, MAX_ENTRIES).map((name) => join(directory, name));
}

/** A name that leads nowhere stands for itself. */
function resolved(path: string): Promise<string> {
	return fs.promises.realpath(path).catch(() => path);
}

function kindOf(node: string): ScannerFacts['kind'] {
	return /\/input\/|\/event\d+$/.test(node) ? 'keyboard' : 'serial';
}

function mayAccess(path: string, how: number): Promise<boolean> {
	return fs.promises.access(path, how).then(
		() => true,
		() => false,
	);
}

/** udev's properties of a device, `null` without udev. Source: the files that `udevadm info` reads. */
async function askUdev(root: string, node: string): Promise<ReadonlyMap<string, string> | null> {
	try {
		const { rdev } = await fs.promises.stat(node);
		const major = (rdev >> 8) & 0xfff;
		const minor = (rdev & 0xff) | ((rdev >> 12) & 0xfff00);
		const text = await fs.promises.readFile(join(root, `run/udev/data/c${major}:${minor}`), 'utf8');
		return new Map([...text.matchAll(/^E:([^=\n]+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]));
	} catch {
		return null;
	}
}

function usbIds(known: ReadonlyMap<string, string> | null): ScannerFacts['usb'] {
	const vendorId = known?.get('ID_VENDOR_ID') ?? '';
	const modelId = known?.get('ID_MODEL_ID') ?? '';
	return /^[0-9a-f]{4}$/.test(vendorId) && /^[0-9a-f]{4}$/.test(modelId) ? { vendorId, modelId } : null;
}
