/** Looks at the machine for what tells it apart, placeholders too. Never lets the machine-id itself out. */
import { createHmac } from 'node:crypto';
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { errnoOf, inWords, readBytes } from '../base/files.edge.ts';
import type { Chosen, IdentityFacts, InterfaceFacts, Rejected } from './identity.ts';

export interface IdentityPlaces {
	/** Where the file tree begins; `/` unless told. Elsewhere, only that tree is looked at. */
	readonly root?: string;
	/** systemd's `CREDENTIALS_DIRECTORY`: its `dmi-serial` is the serial number that only root may read otherwise. */
	readonly credentialsDirectory?: string | undefined;
	/** Whether the kernel is asked for addresses when the tree has none. Default: only for `/`. */
	readonly askKernel?: boolean;
}

/** Every place read here holds one line. */
const MAX_BYTES = 1024;
/** Changing this gives every device that goes by its machine-id another deviceId. */
const MACHINE_ID_KEY = 'idv-agent machine-id v1';
/** What the unit puts in place of a serial number that the machine doesn't have (`SetCredential`). */
const NO_CREDENTIAL = 'none';

/** Reads all facts once. Whatever is missing or may not be read is listed in `unreadable` with the reason. */
export async function readIdentityFacts(places: IdentityPlaces = {}): Promise<IdentityFacts> {
	const { root = '/', credentialsDirectory, askKernel = root === '/' } = places;
	// Not joined: some forty paths, which V8 would begin to compile the normalizing of.
	const top = root.replace(/\/+$/, '');
	const [lines, listed, machineId, isContainer] = await Promise.all([
		Promise.all([
			...(credentialsDirectory === undefined ? [] : [readCredential(credentialsDirectory)]),
			...FIRMWARE.map(([source, path]) => readLine(source, `${top}/${path}`)),
		]),
		readInterfaces(top),
		readLine('machine-id', `${top}/etc/machine-id`).then(hashed),
		isInContainer(top),
	]);
	const serials = split(lines);
	const machine = split([machineId]);
	const hasAddress = listed.found.some(({ mac }) => /[1-9a-f]/i.test(mac));
	const asked = hasAddress || !askKernel ? { found: [], missed: [] } : await askForInterfaces();
	return {
		serials: serials.found,
		interfaces: [...listed.found, ...asked.found],
		machineIdHash: machine.found[0]?.value ?? null,
		isContainer,
		unreadable: [...serials.missed, ...machine.missed, ...listed.missed, ...asked.missed],
	};
}

const FIRMWARE: readonly (readonly [source: string, path: string])[] = [
	['dmi product_serial', 'sys/class/dmi/id/product_serial'],
	['dmi board_serial', 'sys/class/dmi/id/board_serial'],
	['dmi chassis_serial', 'sys/class/dmi/id/chassis_serial'],
	['devicetree serial-number', 'sys/firmware/devicetree/base/serial-number'],
];

/** Files that systemd, Docker, Podman and Kubernetes leave in a container. */
const CONTAINERS = [
	...['run/systemd/container', '.dockerenv', 'run/.containerenv'],
	...['run/secrets/kubernetes.io', 'var/run/secrets/kubernetes.io'],
];
/** What the runtimes of containers say elsewhere: containerd and CRI-O leave no file of their own. */
const CONTAINER_SIGNS: readonly (readonly [path: string, sign: RegExp])[] = [
	['proc/1/environ', /(?:^|\0)(?:container|KUBERNETES_SERVICE_HOST)=[^\0]/],
	['proc/self/environ', /(?:^|\0)KUBERNETES_SERVICE_HOST=[^\0]/],
	// Of the first process: on a machine that runs containers it is in none of theirs.
	['proc/1/cgroup', /[/:-](?:kubepods|docker|containerd|crio|libpod|lxc)\b/],
	// The root, in layers that a runtime has stored; a kiosk's own overlay has them elsewhere.
	['proc/self/mountinfo', /^\S+ \S+ \S+ \S+ \/ .* - overlay .*\/(?:containerd|containers|docker|crio)\//m],
];
/** The kernel permits more of a process's variables, but no start of one here has them. */
const MAX_PROC_BYTES = 256 * 1024;

async function isInContainer(top: string): Promise<boolean> {
	if (CONTAINERS.some((path) => existsSync(`${top}/${path}`))) return true;
	const shown = CONTAINER_SIGNS.map(async ([path, sign]) =>
		sign.test(String(await readBytes(`${top}/${path}`, MAX_PROC_BYTES))),
	);
	// Another user's first process shows its variables to root alone.
	return (await Promise.all(shown.map((one) => one.catch(() => false)))).includes(true);
}

/** The text of a place, or why there is none. */
type Line = Chosen<string> | Rejected;

interface Found<Value> {
	readonly found: readonly Value[];
	readonly missed: readonly Rejected[];
}

function split(lines: readonly Line[]): Found<Chosen<string>> {
	return { found: lines.filter((line) => 'value' in line), missed: lines.filter((line) => 'reason' in line) };
}

async function readCredential(directory: string): Promise<Line> {
	const line = await readLine('credential dmi-serial', `${directory}/dmi-serial`);
	return 'value' in line && line.value.toLowerCase() === NO_CREDENTIAL
		? { source: line.source, reason: 'says that this machine has none' }
		: line;
}

function hashed(line: Line): Line {
	if ('reason' in line) return line;
	const { source, value } = line;
	// Images are shipped with an empty one or `uninitialized`, which the first boot replaces.
	if (!/^[0-9a-f]{32}$/.test(value) || /^0+$/.test(value)) return { source, reason: 'is not set up yet' };
	return { source, value: createHmac('sha256', MACHINE_ID_KEY).update(value).digest('hex') };
}

async function readInterfaces(root: string): Promise<Found<InterfaceFacts>> {
	const directory = `${root}/sys/class/net`;
	try {
		const [top, names] = [realpathSync.native(root || '/'), readdirSync(directory)];
		const all = await Promise.all(names.sort().map((name) => readInterface(top, `${directory}/${name}`, name)));
		return { found: all.filter((nic) => nic !== null), missed: [] };
	} catch (error) {
		return { found: [], missed: [{ source: 'network interfaces', reason: reasonOf(error) }] };
	}
}

/** `null` for what is not an interface, such as the file `bonding_masters`. */
async function readInterface(top: string, directory: string, name: string): Promise<InterfaceFacts | null> {
	const [address, type, addrAssignType] = await Promise.all([
		readLine(name, `${directory}/address`),
		readNumber(`${directory}/type`),
		readNumber(`${directory}/addr_assign_type`),
	]);
	const device = follow(`${directory}/device`);
	if ('reason' in address) return null;
	return {
		name,
		mac: address.value.toLowerCase(),
		type,
		hasDevice: device !== null,
		addrAssignType,
		// A kernel without the old wireless extensions has only the second.
		wireless: existsSync(`${directory}/wireless`) || existsSync(`${directory}/phy80211`),
		// Every USB path goes through a root hub, which is named usb1, usb2 and so on.
		usb: device !== null && /\/usb\d+\//.test(device.startsWith(top) ? device.slice(top.length) : device),
	};
}

/** Where a link in the end leads; `null` if there is nothing. */
function follow(path: string): string | null {
	try {
		return realpathSync.native(path);
	} catch {
		return null;
	}
}

async function readNumber(path: string): Promise<number | null> {
	const line = await readLine(path, path);
	return 'value' in line && /^\d+$/.test(line.value) ? Number(line.value) : null;
}

/** The text of a small file, without white space and NUL around it. */
async function readLine(source: string, path: string): Promise<Line> {
	try {
		const text = String(await readBytes(path, MAX_BYTES));
		return { source, value: text.replace(/^[\s\0]+|[\s\0]+$/g, '') };
	} catch (error) {
		return { source, reason: reasonOf(error) };
	}
}

function reasonOf(error: unknown): string {
	const code = errnoOf(error);
	if (code === 'ENOENT' || code === 'ENOTDIR') return 'is not there';
	if (code === 'EACCES' || code === 'EPERM') return 'may not be read by this user';
	return `cannot be read: ${inWords(error)}`;
}

/** Those that have an address, by `getifaddrs`, where /sys is not mounted; which of them is real hardware, this way doesn't tell. */
async function askForInterfaces(): Promise<Found<InterfaceFacts>> {
	try {
		const { default: macaddress } = await import('macaddress');
		const all: Record<string, { mac?: unknown }> = await macaddress.all();
		const found = Object.entries(all).flatMap(([name, { mac }]) =>
			typeof mac === 'string'
				? [{ name, mac, type: null, hasDevice: null, addrAssignType: null, wireless: false, usb: false }]
				: [],
		);
		return { found, missed: [] };
	} catch (error) {
		return { found: [], missed: [{ source: 'network interfaces', reason: reasonOf(error) }] };
	}
}
