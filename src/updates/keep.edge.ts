/** Root's own directory of updates: the trial, the way back, the versions taken back; and the unit that goes on after a reboot. */
import { access, chmod, chown, constants, copyFile, link, mkdir, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, findGroup, readText, remove, syncDirectory, syncFile, writeDurably } from '../base/files.edge.ts';
import { parseJson } from '../protocol/json.ts';
import { NO_OUTCOMES, type Outcomes, outcomesSchema, pinning, type Trial, trialSchema } from './record.ts';

/** `/var/lib/idv-agent-update` and what stands beside it; elsewhere in tests. */
export interface UpdatePlaces {
	readonly directory: string;
	/** `/etc/systemd/system` */
	readonly units: string;
	/** `/etc/apt/preferences.d` */
	readonly preferences: string;
}

export const UPDATE_PLACES: UpdatePlaces = {
	directory: '/var/lib/idv-agent-update',
	units: '/etc/systemd/system',
	preferences: '/etc/apt/preferences.d',
};
export const JUDGE_UNIT = 'idv-agent-judge.service';
const MAX_BYTES = 1024 * 1024;
const PIN_FILE = 'idv-agent-taken-back.pref';

export type UpdateKeep = ReturnType<typeof openUpdateKeep>;

export function openUpdateKeep({ directory, units, preferences }: UpdatePlaces = UPDATE_PLACES) {
	const trialFile = join(directory, 'trial.json');
	const outcomesFile = join(directory, 'outcomes.json');
	const program = join(directory, 'idv-agent');
	const oldPackage = join(directory, 'before.deb');
	const unitFile = join(units, JUDGE_UNIT);
	const wanted = join(units, 'multi-user.target.wants', JUDGE_UNIT);

	/** `undefined` for what is not there or cannot be read as such. */
	const read = async (file: string) => parseJson(await readText(file, MAX_BYTES).catch(() => ''));

	return {
		/** The version before, as a package. */
		oldPackage,
		directory,
		/** Whether this user may see what is kept: to one who may not, it would look as if nothing had happened. */
		isReadable: (): Promise<boolean> =>
			access(directory, constants.X_OK).then(
				() => true,
				(error) => errnoOf(error) !== 'EACCES',
			),
		/** Makes the directory: the agent's group may read what happened. */
		async open(): Promise<void> {
			await mkdir(directory, { recursive: true, mode: 0o750 });
			await chmod(directory, 0o750);
			const group = await findGroup('idv-agent');
			if (group) await chown(directory, 0, group.gid);
		},
		async trial(): Promise<Trial | null> {
			return trialSchema.safeParse(await read(trialFile)).data ?? null;
		},
		saveTrial: (trial: Trial): Promise<void> =>
			writeDurably(trialFile, `${JSON.stringify(trial, null, '\t')}\n`, { mode: 0o644 }),
		/** Damaged or missing, it is as if nothing had happened yet. */
		async outcomes(): Promise<Outcomes> {
			return outcomesSchema.safeParse(await read(outcomesFile)).data ?? NO_OUTCOMES;
		},
		/** Keeps apt from what was taken back, too. */
		async saveOutcomes(outcomes: Outcomes): Promise<void> {
			await writeDurably(outcomesFile, `${JSON.stringify(outcomes, null, '\t')}\n`, { mode: 0o644 });
			const pins = pinning(outcomes);
			const file = join(preferences, PIN_FILE);
			await mkdir(preferences, { recursive: true });
			if (pins === null) await remove(file);
			else await writeDurably(file, pins, { mode: 0o644 });
		},
		/** Keeps the running program where no installation reaches it. By a link it takes no space and is on the disk already. */
		async keepProgram(running: string): Promise<void> {
			await remove(program);
			await link(running, program).catch(async () => {
				await copyFile(running, program);
				await syncFile(program);
			});
			await chmod(program, 0o755);
			await syncDirectory(directory);
		},
		/** From now on the judge runs at every boot, until `end`. */
		async installUnit(): Promise<void> {
			await mkdir(join(units, 'multi-user.target.wants'), { recursive: true });
			await writeDurably(unitFile, judgeUnit(program), { mode: 0o644 });
			await remove(wanted);
			await symlink(unitFile, wanted);
			await syncDirectory(join(units, 'multi-user.target.wants'));
		},
		/** Nothing is left of a trial but what is known of it. */
		async end(): Promise<void> {
			await remove(wanted);
			await remove(unitFile);
			for (const file of [trialFile, oldPackage, program]) await remove(file);
			await rm(`${oldPackage}.tree`, { recursive: true, force: true });
			await syncDirectory(directory);
		},
	};
}

/** Root's, since dpkg is: but with nothing that dpkg and its scripts do not need. */
function judgeUnit(program: string): string {
	return `# Made by idv-agent for the time of an update, and removed by it afterwards.
[Unit]
Description=Judge of the new version of the identity verification agent
Documentation=man:idv-agent(1)
After=idv-agent.service

[Service]
Type=exec
ExecStart=${program} update judge
Restart=on-failure
RestartSec=10
UnsetEnvironment=NODE_OPTIONS NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED NODE_V8_COVERAGE NODE_DEBUG NODE_PATH OPENSSL_CONF
SyslogIdentifier=idv-agent-judge
UMask=0022
MemoryMax=512M
OOMScoreAdjust=-500
LimitCORE=0
NoNewPrivileges=yes
PrivateTmp=yes
ProtectHome=read-only
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
`;
}
