/** The user, the files and the settings with which `idv-agent doctor` looks: the unit's, if root starts it. */
import { parseArgs } from 'node:util';
import { findUser, type User } from '../base/unix.edge.ts';
import type { SettingsSources } from '../settings/load.runner.ts';
import { choosePaths, type PathFlags } from '../settings/paths.runner.ts';
import { UNIT_PROPERTIES, type UnitProperties } from './check-results.ts';
import { ownerOf, readPairs, readProcess, readUnit } from './machine-probes.edge.ts';

export const UNIT = 'idv-agent.service';

export interface InspectionTarget extends SettingsSources {
	/** `null` where systemd does not run this machine. */
	readonly unit: UnitProperties | null;
	/** Process id of the daemon that systemd runs. */
	readonly mainPid: number | null;
	/** The user of the service, if this process is root and could become that user; else `null`. */
	readonly serviceUser: User | null;
	/** Whether the settings are those the unit runs with, rather than those of this command line. */
	readonly isOfUnit: boolean;
}

/** Finds out, and changes nothing. */
export async function findInspectionTarget(
	flags: PathFlags & { readonly set?: readonly string[] | undefined },
	own: Readonly<Record<string, string | undefined>>,
): Promise<InspectionTarget> {
	const unit = await readUnit(UNIT, UNIT_PROPERTIES);
	const mainPid = Number(unit?.['MainPID']) || null;
	const named = ['IDV_AGENT_CONFIG', 'IDV_AGENT_STATE_DIR', 'IDV_AGENT_RUN_DIR'].some((name) => own[name]);
	const isNamed = named || [flags.config, flags.stateDir, flags.runDir].some((flag) => flag !== undefined);
	const isOfUnit = unit?.['LoadState'] === 'loaded' && process.getuid?.() === 0 && !isNamed;
	if (!isOfUnit) {
		const paths = choosePaths(flags, own);
		const serviceUser = await ownerOfState(paths.stateDir);
		return { paths, env: own, sets: flags.set ?? [], unit, mainPid, serviceUser, isOfUnit };
	}
	const running = mainPid === null ? null : await readProcess(mainPid);
	const env = running?.env ?? readAssignments(unit['Environment'] ?? '');
	const given = readRunFlags(running?.argv ?? []);
	const paths = choosePaths(given, { CREDENTIALS_DIRECTORY: `/run/credentials/${UNIT}`, ...env });
	const serviceUser = (await findUser(unit['User'] ?? '')) ?? (await ownerOfState(paths.stateDir));
	const sets = [...given.set, ...(flags.set ?? [])];
	return { paths, env, sets, unit, mainPid, serviceUser, isOfUnit };
}

/** Gives up the rights of root for those of the service: what root can do says nothing about what the service can. */
export function becomeServiceUser({ serviceUser }: Pick<InspectionTarget, 'serviceUser'>): void {
	if (!serviceUser || process.getuid?.() !== 0) return;
	// Its types do not know it.
	const { initgroups } = process as { initgroups?: (user: string, group: number) => void };
	initgroups?.(serviceUser.name, serviceUser.gid);
	process.setgid?.(serviceUser.gid);
	process.setuid?.(serviceUser.uid);
}

export async function nameOfUser(): Promise<string> {
	const uid = process.geteuid?.();
	if (uid === undefined) return 'this user';
	return (await findUser(uid))?.name ?? String(uid);
}

async function ownerOfState(stateDir: string): Promise<User | null> {
	if (process.getuid?.() !== 0) return null;
	const uid = await ownerOf(stateDir);
	return uid === null || uid === 0 ? null : findUser(uid);
}

const FLAG = { type: 'string' } as const;
const RUN_FLAGS = { config: FLAG, 'state-dir': FLAG, 'run-dir': FLAG, set: { ...FLAG, multiple: true } } as const;
/** A flag without its value is `true`. */
const asText = (value: string | boolean | undefined) => (typeof value === 'string' ? value : undefined);

/** The flags of `idv-agent run` as systemd passed them; others are ignored. */
export function readRunFlags(argv: readonly string[]) {
	const { values } = parseArgs({ args: [...argv], options: RUN_FLAGS, strict: false });
	const [config, stateDir, runDir] = [values.config, values['state-dir'], values['run-dir']].map(asText);
	return { config, stateDir, runDir, set: (values.set ?? []).map(asText).filter((text) => text !== undefined) };
}

/** `A=1 "B=two words"`, as `systemctl show` writes it. */
export function readAssignments(text: string): Record<string, string> {
	const words = text.match(/"(?:\\.|[^"\\])*"|\S+/g) ?? [];
	return readPairs(words.map((word) => (word.startsWith('"') ? word.slice(1, -1).replace(/\\(.)/g, '$1') : word)));
}
