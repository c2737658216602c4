/** A device of the update suite: a machine with a signed repository and a service of its own, paired and online. */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, inject } from 'vitest';
import { createMachine } from '../system/machine.ts';
import { startTrialService } from '../system/service.ts';
import { type Behaviour, type Index, makeNeighbour, makeReal, makeRepository, makeStub } from './packages.ts';
import type { Site } from './site.ts';

const PORT = 8490;
const API_KEY = 'update-suite-api-key-5b1f';
/** The least that the setting takes. */
export const JUDGE_SECONDS = 30;
/** For a machine that has other work. */
const PATIENCE_SECONDS = 150;
const HASTE = '[Service]\nRestartSec=100ms\nTimeoutStartSec=20\nTimeoutAbortSec=1\n';

interface Updates {
	readonly failed: { readonly code: string; readonly message: string } | null;
	readonly takenBack: readonly {
		readonly version: string;
		readonly by: string;
		readonly fault: string;
		readonly log: readonly string[];
	}[];
}

export type Device = Awaited<ReturnType<typeof createDevice>>;

/** For CI: what takes long is left out. */
export const IS_SHORT = process.env['UPDATE'] === 'short';

/** One device for all tests of a file. @param begin is told of it, and of its version, before each of them. */
export function useDevice(begin: (device: Device, before: string) => void): void {
	let device: Device;
	beforeAll(async () => {
		device = await createDevice(inject('site'));
	});
	beforeEach(async () => begin(device, (await device.installed()).split(' ')[0] ?? ''));
	afterAll(async () => device?.destroy());
}

/** @param first the package that it begins with, alone; default a good small one of version 1.0.0, and idv-agent-updates. */
export async function createDevice(site: Site, first?: string) {
	const directory = mkdtempSync(join(site.directory, 'device-'));
	const repository = makeRepository(directory);
	const machine = createMachine(site.tree, site.machines, true);
	mkdirSync(join(machine.disk, 'opt/idv-agent'), { recursive: true });
	cpSync(site.executable, join(machine.disk, 'opt/idv-agent/idv-agent'));
	let service = await startTrialService(machine.network, PORT, API_KEY);
	let number = 0;
	let pairedAt: string | null = null;
	await machine.boot();

	const device = {
		machine,
		repository,
		stub: async (version: string, behaviour: Behaviour) => makeStub(site.real, version, behaviour, directory),
		real: async (version: string, behaviour: Behaviour) => makeReal(site.real, version, behaviour, directory),
		neighbour: (script: string) => makeNeighbour(script, directory),
		/** A version newer than all before. */
		next(): string {
			number += 1;
			return `1.0.${number}`;
		},
		async put(path: string, content: string | Uint8Array): Promise<void> {
			await machine.must(`mkdir -p $(dirname ${path}) && cat > ${path}`, content);
		},
		/** These packages are in the repository, and nothing else. */
		async publish(files: readonly string[], index: Index = 'valid'): Promise<void> {
			repository.publish(files, index);
			await machine.must('rm -rf /srv/site && mkdir -p /srv/site');
			for (const file of readdirSync(repository.directory))
				await device.put(`/srv/site/${file}`, readFileSync(join(repository.directory, file)));
		},
		upgrade: () =>
			machine.run('apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --only-upgrade idv-agent'),
		async untilOnline(): Promise<void> {
			const { status } = await machine.run(
				`timeout ${PATIENCE_SECONDS} sh -c 'until idv-agent status --json 2>/dev/null | grep -q "\\"state\\": *\\"online\\""; do sleep 0.3; done'`,
			);
			if (status !== 0) throw new Error(`The device is not online:\n${await device.story()}`);
		},
		/** Waits until nothing is left to judge. */
		async untilJudged(): Promise<void> {
			const { status } = await machine.run(
				`timeout ${2 * PATIENCE_SECONDS} sh -c 'while [ -e /etc/systemd/system/idv-agent-judge.service ]; do sleep 0.2; done'`,
			);
			if (status !== 0) throw new Error(`Nothing was decided:\n${await device.story()}`);
		},
		/** What a person would look at. */
		story: async () =>
			(
				await machine.run(
					'tail -n 25 /var/log/apt/term.log; dpkg -l idv-agent; ls -l /var/lib/idv-agent-update; cat /var/lib/idv-agent-update/trial.json; journalctl --no-pager --lines=40 --unit=idv-agent-judge --unit=idv-agent-finish; systemctl status --no-pager idv-agent; df /; ps axf; ls -l /proc/*/fd 2>/dev/null | grep lock',
				)
			).text,
		installed: async () =>
			(await machine.must(`dpkg-query --show --showformat='\${Version} \${db:Status-Status}' idv-agent`)).trim(),
		updates: async () => JSON.parse(await machine.must('idv-agent update show --json')) as Updates,
		status: async () =>
			JSON.parse(await machine.must('idv-agent status --json')) as {
				pairedAt: string | null;
				workflow: { live: string };
			},
		stopService: () => service.stop(),
		async startService(): Promise<void> {
			service = await startTrialService(machine.network, PORT, API_KEY);
		},
		/** Whatever happened, the device is where it was: online, paired, with its settings. */
		async expectWhole(): Promise<void> {
			await device.untilOnline();
			expect(await device.status()).toMatchObject({ pairedAt, workflow: { live: 'document-check' } });
			// An agent that started on a full disk keeps its events in memory, and has those of the disk again within 30 s.
			await machine.must(
				`timeout ${PATIENCE_SECONDS} sh -c 'until idv-agent events --json | grep -q ""kept""; do sleep 0.3; done'`,
			);
			expect(await machine.must('idv-agent config show --json')).toContain('front-desk');
			expect((await machine.run('dpkg --audit')).text).toBe('');
			expect((await machine.must('systemctl is-enabled idv-agent')).trim()).toBe('enabled');
		},
		async destroy(): Promise<void> {
			await service.stop();
			await machine.destroy();
		},
	};

	/** What comes while a channel is made again is lost to a device, which knows it as a gap: it is sent again. */
	async function untilKept(): Promise<void> {
		for (let tries = 0; tries < 8; tries += 1) {
			service.notify({ type: 'kept', id: 'kept' });
			const { status } = await machine.run(
				`timeout 20 sh -c 'until idv-agent events --json | grep -q kept; do sleep 0.2; done'`,
			);
			if (status === 0) return;
		}
		throw new Error(`The device keeps no event:\n${await device.story()}`);
	}

	const { must } = machine;
	await device.put('/etc/systemd/system/idv-agent.service.d/50-haste.conf', HASTE);
	await device.put('/etc/idv-agent/conf.d/10-site.json', JSON.stringify({ deviceType: 'front-desk' }));
	// A version without a judge knows no setting of it.
	if (first === undefined)
		await device.put(
			'/etc/idv-agent/conf.d/20-judge.json',
			JSON.stringify({ update: { judgeSeconds: JUDGE_SECONDS } }),
		);
	await must('rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*');
	await device.put('/etc/apt/keyrings/site.gpg', readFileSync(repository.key));
	await device.put(
		'/etc/apt/sources.list.d/site.list',
		'deb [signed-by=/etc/apt/keyrings/site.gpg] file:/srv/site ./\n',
	);
	const good = async () => [await device.stub('1.0.0', 'good'), site.updates];
	await device.publish(first === undefined ? await good() : [first]);
	await must(`apt-get update && apt-get install --yes idv-agent ${first === undefined ? 'idv-agent-updates' : ''}`);
	const code = await service.makeCode('document-check');
	await must(`idv-agent pair --trust http://127.0.0.1:${PORT} -`, `${code}\n`);
	await device.untilOnline();
	await untilKept();
	pairedAt = (await device.status()).pairedAt;
	// What this suite has written is not what a power cut is to be tried on.
	await must('sync --file-system /');
	return device;
}
