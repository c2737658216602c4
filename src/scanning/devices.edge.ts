/** Which devices could be scanners, and that this has changed: from /dev and what udev knows. Opens none of them. */
import fs, { constants, type FSWatcher, watch } from 'node:fs';
import { dirname, join } from 'node:path';
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

/** From the first sign of a change to the look, in milliseconds. */
const SETTLE_MS = 100;

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
	const desired = [SERIAL_BY_ID, INPUT_BY_ID].map((place) => join(root, place));
	if (device !== null) desired.push(dirname(device));
	let watchers = new Map<string, FSWatcher>();
	let closed = false;
	let timer: NodeJS.Timeout | null = null;

	/** A plug makes a device, its rights and its names one after the other. */
	const changed = () => {
		if (!closed) timer ??= setTimeout(report, SETTLE_MS).unref();
	};
	const report = () => {
		timer = null;
		// Again before the report: directories come and go with the devices, and nothing must be missed.
		watchAll();
		onChange();
	};
	const watchAll = () => {
		const before = watchers;
		watchers = new Map();
		for (const directory of desired) watchNearest(directory, before);
		for (const watcher of before.values()) watcher.close();
	};
	/** A directory whose watch has reported its own end is watched again under the same name. */
	const watchNearest = (wish: string, before: Map<string, FSWatcher>) => {
		for (let directory = wish; ; directory = dirname(directory)) {
			if (watchers.has(directory)) return;
			const kept = before.get(directory);
			before.delete(directory);
			kept?.close();
			try {
				const watcher = watch(directory, { persistent: false }, (_event, name) => {
					if (isOurs(name)) changed();
				});
				watcher.on('error', changed);
				watchers.set(directory, watcher);
				return;
			} catch {
				if (directory === dirname(directory)) return;
			}
		}
	};
	/** Every line on a console and every write to /dev/null is an event in /dev: those are ignored. */
	const isOurs = (name: string | null) =>
		name === null || !/^(null|zero|u?random|full|ptmx|console|tty\d*|kmsg|rfkill)$/.test(name);
	watchAll();
	return {
		close(): void {
			closed = true;
			if (timer) clearTimeout(timer);
			for (const watcher of watchers.values()) watcher.close();
			watchers.clear();
		},
	};
}

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
