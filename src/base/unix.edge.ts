/**
 * Users, groups and the permissions of files, which only a Unix has. Programs for laptops (`idv`, the trial service,
 * the client) ask for these and for the links of interfaces here, where a system without them answers as if each file were its user's own.
 */
import { existsSync, fstatSync, readFileSync, statSync } from 'node:fs';
import { readText } from './files.edge.ts';

/** Of /etc/passwd and /etc/group: a site with tens of thousands of users. */
const MAX_DIRECTORY_BYTES = 16 * 1024 * 1024;
/** Without users, every process is as good as root. */
export function ownUser(): number {
	return process.getuid?.() ?? 0;
}

/** The permissions of group and others, and the sticky bit; Windows invents them, and protects its users' files by other means. */
export function permissionsOf({ mode }: { readonly mode: number }): number {
	return process.platform === 'win32' ? 0o600 : mode & 0o1777;
}

/** Whether what is written there is lost. Node puts the null device in the place of a standard output that is closed. @param descriptor a process's; tests have none. */
export function leadsNowhere(descriptor: number | undefined): boolean {
	const nowhere = statSync('/dev/null', { throwIfNoEntry: false });
	return descriptor !== undefined && fstatSync(descriptor).rdev === nowhere?.rdev;
}

export interface User {
	readonly name: string;
	readonly uid: number;
	readonly gid: number;
}

export async function findUser(asked: string | number): Promise<User | null> {
	const [name, , uid, gid] = (await findEntry('/etc/passwd', asked)) ?? [];
	return name === undefined ? null : { name, uid: Number(uid), gid: Number(gid) };
}

export interface Group {
	readonly name: string;
	readonly gid: number;
	/** Named members; a user whose first group it is is not among them. */
	readonly members: readonly string[];
}

export async function findGroup(asked: string | number): Promise<Group | null> {
	const [name, , gid, members = ''] = (await findEntry('/etc/group', asked)) ?? [];
	return name === undefined ? null : { name, gid: Number(gid), members: members.split(',').filter(Boolean) };
}

/** The fields of a line whose first is the name, or whose third is the number. */
async function findEntry(file: string, asked: string | number): Promise<string[] | undefined> {
	const text = await readText(file, MAX_DIRECTORY_BYTES).catch(() => '');
	const lines = text.split('\n').map((line) => line.split(':'));
	return lines.find(([name, , id]) => name !== '' && (typeof asked === 'string' ? name === asked : id === `${asked}`));
}

/** How often an interface has lost or got its link since the machine started, as Linux writes it; empty where that is not known. */
export function countCarrierChanges(name: string): string {
	try {
		return readFileSync(`/sys/class/net/${name}/carrier_changes`, 'utf8');
	} catch {
		return '';
	}
}

/**
 * The routes of Linux and what has a link; `null` where they are not known. Node's own list of interfaces needs a socket of a family that the
 * agent's unit may not open, and throws there.
 */
export function readRoutes(): { ipv4: string; ipv6: string; hasLink: (name: string) => boolean } | null {
	try {
		const ipv6 = existsSync(IPV6_ROUTES) ? readFileSync(IPV6_ROUTES, 'utf8') : '';
		return { ipv4: readFileSync('/proc/self/net/route', 'utf8'), ipv6, hasLink };
	} catch {
		return null;
	}
}

const IPV6_ROUTES = '/proc/self/net/ipv6_route';

/** One that is down has no carrier that could be read. */
function hasLink(name: string): boolean {
	const file = `/sys/class/net/${name}/carrier`;
	try {
		return !existsSync(file) || readFileSync(file, 'utf8').trim() === '1';
	} catch {
		return false;
	}
}
