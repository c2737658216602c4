/**
 * The one rule by which a file may be trusted: it belongs to root or the agent's user, no one else may change it, and what is
 * secret no one else may read. Looks at metadata only; reads no file, and changes no permission.
 */
import fs from 'node:fs';
import path from 'node:path';
import { ownUser, permissionsOf } from './unix.edge.ts';

export interface TrustRule {
	/** Others must not read it either; its group may. */
	readonly secret: boolean;
	/** Users besides root that it may belong to. Default: the one of this process. */
	readonly owners?: readonly number[];
	/** A mode for it lets others enter. Default `false`; for a path, whatever is there. */
	readonly isDirectory?: boolean;
}

/** A reason against trusting a file, for the end of a sentence, and the command that mends it. */
export interface Exposure {
	readonly reason: string;
	readonly remedy: string;
}

const WRITABLE_BY_OTHERS = 0o022;
/** For a secret: only reading by its group is left. */
const OPEN_TO_OTHERS = 0o015;
/** In a directory with it, only the owner of a file may replace it. */
const STICKY = 0o1000;

/** The rule for a file that is known or open already; `null` when it may be trusted. */
export function exposureOf(
	file: string,
	{ uid, ...found }: { readonly mode: number; readonly uid: number },
	{ secret, owners = [ownUser()], isDirectory = false }: TrustRule,
): Exposure | null {
	const bits = permissionsOf(found);
	const octal = `0${(bits & 0o777).toString(8)}`;
	const chmod = `chmod ${isDirectory ? '0755' : secret ? '0640' : '0644'} ${file}`;
	if (uid !== 0 && !owners.includes(uid))
		return { reason: `it belongs to another user (${uid})`, remedy: `Give it to root: chown root ${file}.` };
	if (bits & WRITABLE_BY_OTHERS)
		return { reason: `its mode is ${octal}: others could change it`, remedy: `Keep it to its owner: ${chmod}.` };
	if (secret && bits & OPEN_TO_OTHERS)
		return {
			reason: `its mode is ${octal}: others could read it`,
			remedy: `Keep it to its owner: ${chmod}, or 0600; and replace the secret.`,
		};
	return null;
}

/** As {@link exposureOf}, for a path: the file, and every directory in which it could be replaced. A missing one is none. */
export async function findExposure(file: string, rule: TrustRule): Promise<Exposure | null> {
	const stat = statOf(file);
	if (!stat) return null;
	// In the place of a file it is not read: another mode for it would mend nothing, and open it to others.
	if (rule.isDirectory === false && stat.isDirectory()) return null;
	const own = exposureOf(file, stat, { ...rule, isDirectory: stat.isDirectory() });
	// Only a file loses rights: behind a link there may be a device that all programs use.
	if (own && !stat.isFile() && !stat.isDirectory())
		return { reason: 'it is not a regular file', remedy: `Put a regular file in the place of ${file}.` };
	if (own) return own;
	const real = realpathOf(file);
	for (const directory of new Set([...ancestorsOf(path.resolve(file)), ...ancestorsOf(real)])) {
		const found = statOf(directory);
		if (!found) continue;
		// Further up, a group of the system may administer a directory, such as staff in /usr/local.
		const isNear = directory === path.dirname(file) || directory === path.dirname(real);
		const permissions = permissionsOf(found);
		const mode = permissions & STICKY ? 0 : permissions & (isNear ? 0o777 : 0o757);
		const above = exposureOf(directory, { mode, uid: found.uid }, { ...rule, secret: false });
		if (above)
			return {
				reason: `others could replace it in ${directory} (mode 0${permissions.toString(8)}, user ${found.uid})`,
				remedy: `Keep the directory to root or the agent: chown root ${directory} and chmod 0755 ${directory}.`,
			};
	}
	return null;
}

function statOf(file: string): fs.Stats | null {
	try {
		return fs.statSync(file);
	} catch {
		return null;
	}
}

function realpathOf(file: string): string {
	try {
		return fs.realpathSync.native(file);
	} catch {
		return file;
	}
}

function* ancestorsOf(file: string): Generator<string> {
	for (let child = file; path.dirname(child) !== child; child = path.dirname(child)) yield path.dirname(child);
}
