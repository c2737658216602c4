/** Root's own directory of updates: the trial, the way back, the versions taken back; and the unit that goes on after a reboot. */
import { chmod, chown, copyFile, link, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readText, remove, syncDirectory, syncFile, writeDurably } from '../base/files.edge.ts';
import { findGroup } from '../base/unix.edge.ts';
import { OUTCOMES_FILE, TRIAL_FILE, UPDATES_DIRECTORY } from './package.ts';
import { type Outcomes, pinning, type Trial } from './record.ts';
import { openUpdateRecords } from './records.edge.ts';

/** `/var/lib/idv-agent-update` and what stands beside it; elsewhere in tests. */
export interface UpdatePlaces {
	readonly directory: string;
	/** `/etc/systemd/system` */
	readonly units: string;
	/** `/run/systemd/system`: until the next boot. */
	readonly runtimeUnits: string;
	/** `/etc/apt/preferences.d` */
	readonly preferences: string;
}

export const UPDATE_PLACES: UpdatePlaces = {
	directory: UPDATES_DIRECTORY,
	units: '/etc/systemd/system',
	runtimeUnits: '/run/systemd/system',
	preferences: '/etc/apt/preferences.d',
};
/** The two files of this process: the executable with Node and the agent in it, and root's program, which it loads from beside its own name
 * (`scripts/launcher.ts`); and the unit of the agent. */
export interface Running {
	readonly executable: string;
	readonly program: string;
	readonly unit: string;
}

export const JUDGE_UNIT = 'idv-agent-judge.service';
/** The agent's. */
export const AGENT_UNIT = 'idv-agent.service';
const PIN_FILE = 'idv-agent-taken-back.pref';
const MAX_UNIT_BYTES = 64 * 1024;

export type UpdateKeep = ReturnType<typeof openUpdateKeep>;

export function openUpdateKeep({ directory, units, runtimeUnits, preferences }: UpdatePlaces = UPDATE_PLACES) {
	const trialFile = join(directory, TRIAL_FILE);
	const outcomesFile = join(directory, OUTCOMES_FILE);
	const executable = join(directory, 'idv-agent-updates');
	const program = `${executable}.cjs`;
	const oldPackage = join(directory, 'before.deb');
	const keptUnit = join(directory, AGENT_UNIT);
	const standIn = join(runtimeUnits, AGENT_UNIT);
	const unitFile = join(units, JUDGE_UNIT);
	const wanted = join(units, 'multi-user.target.wants', JUDGE_UNIT);

	return {
		...openUpdateRecords(directory),
		/** The version before, as a package. */
		oldPackage,
		directory,
		/** Makes the directory: the agent's group may read what happened. */
		async open(): Promise<void> {
			await mkdir(directory, { recursive: true, mode: 0o750 });
			await chmod(directory, 0o750);
			const group = await findGroup('idv-agent');
			if (group) await chown(directory, 0, group.gid);
		},
		saveTrial: (trial: Trial): Promise<void> =>
			writeDurably(trialFile, `${JSON.stringify(trial, null, '\t')}\n`, { mode: 0o644 }),
		/** Keeps apt from what was taken back, too, and first: what is written down is complete. */
		async saveOutcomes(outcomes: Outcomes): Promise<void> {
			const pins = pinning(outcomes);
			const file = join(preferences, PIN_FILE);
			await mkdir(preferences, { recursive: true });
			if (pins === null) await remove(file);
			else await writeDurably(file, pins, { mode: 0o644 });
			await writeDurably(outcomesFile, `${JSON.stringify(outcomes, null, '\t')}\n`, { mode: 0o644 });
		},
		/** Keeps them where no installation reaches them. By a link it takes no space and is on the disk already. */
		async keepRunning(running: Running): Promise<void> {
			for (const [file, kept] of [
				[running.executable, executable],
				[running.program, program],
				[running.unit, keptUnit],
			] as const) {
				await remove(kept);
				const copied = link(file, kept).catch(async () => {
					await copyFile(file, kept);
					await syncFile(kept);
				});
				// A version before that has lost its unit is judged all the same.
				await copied.catch((error) => {
					if (kept !== keptUnit) throw error;
				});
			}
			await chmod(executable, 0o755);
			await syncDirectory(directory);
		},
		/** From now on the judge runs at every boot, until `end`. */
		async installUnit(): Promise<void> {
			await mkdir(join(units, 'multi-user.target.wants'), { recursive: true });
			await writeDurably(unitFile, judgeUnit(executable), { mode: 0o644 });
			await remove(wanted);
			await symlink(unitFile, wanted);
			await syncDirectory(join(units, 'multi-user.target.wants'));
		},
		/** For this boot, the agent's unit is the one from before, with the kept executable as its program. systemd is still to be told. */
		async standIn(): Promise<void> {
			const unit = await readText(keptUnit, MAX_UNIT_BYTES);
			// Under another name it is the agent.
			const text = unit.replace(/^ExecStart=.*$/m, `ExecStart=@${executable} idv-agent run`);
			await mkdir(runtimeUnits, { recursive: true });
			await writeFile(standIn, text, { mode: 0o644 });
		},
		/** @returns whether it stood in: then systemd is still to be told. */
		async endStandIn(): Promise<boolean> {
			const had = (await readText(standIn, MAX_UNIT_BYTES).catch(() => '')).includes(executable);
			if (had) await remove(standIn);
			return had;
		},
		/** Nothing is left of a trial but what is known of it. */
		async end(): Promise<void> {
			await this.endStandIn();
			await remove(wanted);
			await remove(unitFile);
			for (const file of [trialFile, oldPackage, executable, program, keptUnit]) await remove(file);
			await rm(`${oldPackage}.tree`, { recursive: true, force: true });
			await syncDirectory(directory);
		},
	};
}

/** Root's, since dpkg is: but with nothing that dpkg and its scripts do not need. */
function judgeUnit(executable: string): string {
	return `# Made by idv-agent-updates for the time of an update, and removed by it afterwards.
[Unit]
Description=Judge of the new version of the identity verification agent
Documentation=man:idv-agent(1)

[Service]
Type=exec
ExecStart=${executable} judge
Restart=on-failure
RestartSec=10
UnsetEnvironment=NODE_OPTIONS NODE_UNIQUE_ID NODE_CHANNEL_FD NODE_REPL_EXTERNAL_MODULE NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA NODE_USE_ENV_PROXY NODE_TLS_REJECT_UNAUTHORIZED NODE_V8_COVERAGE NODE_DEBUG NODE_DEBUG_NATIVE NODE_PATH NODE_ICU_DATA NODE_COMPILE_CACHE NODE_REDIRECT_WARNINGS SSL_CERT_FILE SSL_CERT_DIR SSLKEYLOGFILE OPENSSL_CONF OPENSSL_CONF_INCLUDE OPENSSL_MODULES OPENSSL_ENGINES CTLOG_FILE RANDFILE
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
PrivateMounts=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# What scripts of packages need stays: owners, modes, devices, mounts, signals.
CapabilityBoundingSet=~CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_AUDIT_WRITE CAP_BLOCK_SUSPEND CAP_BPF CAP_IPC_LOCK CAP_LEASE CAP_LINUX_IMMUTABLE CAP_MAC_ADMIN CAP_MAC_OVERRIDE CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_RAW CAP_PERFMON CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_PACCT CAP_SYS_RAWIO CAP_SYS_RESOURCE CAP_SYS_TTY_CONFIG
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
`;
}
