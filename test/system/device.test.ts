import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { makeReal } from '../update/packages.ts';
import { ROOT } from './built.ts';
import { createMachine, type Machine } from './machine.ts';
import { startTrialService, type TrialService } from './service.ts';

const BUILD = join(ROOT, 'build');
/** `SYSTEM=short`, for CI: fewer rounds of the same. */
const SHORT = process.env['SYSTEM'] === 'short';
const PORT = 8490;
/** Planted: none of them may turn up in the journal. */
const API_KEY = 'planted-api-key-4f1d9a3c7b';
const SERIAL = 'SN-SYSTEM-0042';

/** What would make the tests slow: delays and deadlines that a device wants long. */
const HASTE = `[Service]
RestartSec=100ms
RestartSteps=0
WatchdogSec=2
TimeoutAbortSec=1
LoadCredential=dmi-serial:/root/serial
`;

let device: Machine;
let service: TrialService;
let packages: string[];
let directory: string;

beforeAll(async () => {
	const { real, tree } = inject('built');
	mkdirSync(BUILD, { recursive: true });
	directory = mkdtempSync(join(BUILD, 'system-'));
	packages = [makeReal(real, '0.1.0', 'good', directory), real];
	device = createMachine(tree, join(BUILD, 'machines'));
	// A unit that keeps a limit of starts is at it after two, however slow this machine is.
	mkdirSync(join(device.disk, 'etc/systemd/system.conf.d'), { recursive: true });
	writeFileSync(
		join(device.disk, 'etc/systemd/system.conf.d/limit.conf'),
		'[Manager]\nDefaultStartLimitIntervalSec=1h\nDefaultStartLimitBurst=2\n',
	);
	service = await startTrialService(device.network, PORT, API_KEY);
	await device.boot();
});

afterAll(async () => {
	await service?.stop();
	await device?.destroy();
	rmSync(directory, { recursive: true, force: true });
});

/** Puts a file on the running machine, under /root unless told. */
async function put(path: string, content: string, mode = '644'): Promise<void> {
	await device.must(
		`mkdir -p $(dirname ${path}) && cat > ${path}.new && chmod ${mode} ${path}.new && mv ${path}.new ${path}`,
		content,
	);
}

async function install(file: string | undefined): Promise<string> {
	await device.must('cat > /root/package.deb', readFileSync(file ?? ''));
	return device.must('dpkg --force-confold --install /root/package.deb && rm /root/package.deb');
}

async function show(...properties: string[]): Promise<string[]> {
	const words = properties.map((name) => `--property=${name}`).join(' ');
	const text = await device.must(`systemctl show idv-agent.service ${words}`);
	const values = new Map(text.split('\n').map((line) => [line.split('=')[0], line.slice(line.indexOf('=') + 1)]));
	return properties.map((name) => values.get(name) ?? '');
}

interface Status {
	readonly state: string;
	readonly sentence: string;
	readonly serial: string | null;
	readonly workflow: { readonly live: string | null };
	readonly warnings: readonly { readonly message: string }[];
}
const status = async () => JSON.parse(await device.must('idv-agent status --json')) as Status;

interface DoctorReport {
	readonly exitStatus: number;
	readonly checks: readonly {
		readonly id: string;
		readonly status: string;
		readonly message: string;
		readonly remedy?: string;
	}[];
}

async function doctor(...flags: string[]): Promise<DoctorReport> {
	const { text } = await device.run(`idv-agent doctor --json ${flags.join(' ')}`);
	return JSON.parse(text) as DoctorReport;
}

/** Asks until the status says so: the agent cannot be asked while it is not there. */
async function untilOnline(): Promise<void> {
	await device.must(`until idv-agent status --json 2>/dev/null | grep --quiet '"state": *"online"'; do :; done`);
}

describe('a fresh device', () => {
	test('is ready and unpaired as soon as the package is installed, and says so to systemd', async () => {
		await put('/root/serial', `${SERIAL}\n`, '400');
		await put('/etc/systemd/system/idv-agent.service.d/50-haste.conf', HASTE);
		await install(packages[0]);
		expect(await show('ActiveState', 'SubState', 'StatusText', 'NRestarts', 'NotifyAccess')).toEqual([
			'active',
			'running',
			'Not paired: scan a pairing code, or run idv-agent pair.',
			'0',
			'main',
		]);
		expect(await device.must('systemctl is-enabled idv-agent.service idv-agent-settings.path')).toBe(
			'enabled\nenabled\n',
		);
		expect(await device.must('ls /usr/lib/idv-agent')).toMatch(/^program-[0-9a-f]{16}\.cache$/m);
	});

	test('has units of which none waits for itself: systemd would leave one of them out, another one at each boot [F432]', async () => {
		const { text } = await device.run('systemd-analyze verify --man=no multi-user.target');
		expect(text.split('\n').filter((line) => line.includes('ordering cycle'))).toEqual([]);
	});

	test('has the serial number that only root may read, and an exposure of at most 1.3', async () => {
		expect((await status()).serial).toBe(SERIAL);
		const security = await device.run('systemd-analyze security --no-pager --threshold=13 idv-agent.service');
		expect(security.text).toContain('Overall exposure level');
		expect(security.status).toBe(0);
	});

	test('lets the members of its groups in and nobody else', async () => {
		expect(await device.must('stat --format="%U:%G %a %n" /run/idv-agent/*.sock /var/lib/idv-agent')).toBe(
			'idv-agent:idv-agent-admin 660 /run/idv-agent/admin.sock\n' +
				'idv-agent:idv-agent 660 /run/idv-agent/agent.sock\n' +
				'idv-agent:idv-agent 700 /var/lib/idv-agent\n',
		);
		await device.must('useradd kiosk && usermod --append --groups idv-agent kiosk && useradd stranger');
		const as = (user: string, command: string) =>
			device.run(`setpriv --reuid=${user} --regid=${user} --init-groups ${command}`);
		expect((await as('kiosk', 'idv-agent status')).text).toContain('Not paired');
		expect((await as('kiosk', 'idv-agent unpair')).status).toBe(77);
		expect((await as('stranger', 'idv-agent status')).status).toBe(77);
	});

	test('tells of a socket that was opened to everybody, and does again what its doctor says', async () => {
		const look = async () => (await doctor('--check', 'local-socket')).checks.find(({ id }) => id === 'local-socket');
		await device.must('chmod 666 /run/idv-agent/agent.sock');
		const open = await look();
		expect(open).toMatchObject({ status: 'failed', code: 'socket-failed' });
		const [command = ''] = /systemctl restart [\w-]+\.socket/.exec(open?.remedy ?? '') ?? [];
		await device.must(command);
		expect(await look()).toMatchObject({ status: 'ok' });
	});

	test('sees a scanner when the drop-in for it is linked, as its doctor says [F126]', async () => {
		const name = '/dev/input/by-id/usb-Newland_NLS-HR22-event-kbd';
		// A FIFO in place of the device, in the hands of the agent's group as the udev rule beside the drop-in has it.
		await device.must(
			`mkdir -p /dev/input/by-id && mkfifo /dev/input/event3 && chgrp idv-agent /dev/input/event3 && chmod 640 /dev/input/event3 && ln -s ../event3 ${name}`,
		);
		await device.must(`systemd-run --quiet --unit=plugged sh -c 'exec sleep infinity 3<>/dev/input/event3'`);
		const denied = (await doctor('--check', 'scanner')).checks.find(({ id }) => id === 'scanner');
		expect(denied).toMatchObject({ status: 'warning', code: 'scanner-denied' });
		const [, file = ''] = /(keyboard-\S+) of/.exec(denied?.remedy ?? '') ?? [];
		await device.must(
			`ln -s /usr/lib/idv-agent/drop-ins/${file} /etc/systemd/system/idv-agent.service.d/ && systemctl daemon-reload && systemctl restart idv-agent`,
		);
		const seen = (await doctor('--check', 'scanner')).checks.find(({ id }) => id === 'scanner');
		expect(seen).toMatchObject({ status: 'ok', message: expect.stringContaining(name) });
		await device.must(
			`systemctl stop plugged && rm -r /dev/input/by-id /dev/input/event3 /etc/systemd/system/idv-agent.service.d/${file} && systemctl daemon-reload && systemctl restart idv-agent`,
		);
	});

	test('pairs by a code and is online', async () => {
		const code = await service.makeCode('document-check');
		const online = service.next('device-online');
		await device.must(`idv-agent pair - --trust http://127.0.0.1:${PORT}`, code);
		expect(await online).toMatchObject({ deviceId: SERIAL, workflowId: 'document-check' });
		expect((await status()).state).toBe('online');
		expect(await show('StatusText')).toEqual([`Online with 127.0.0.1:${PORT}, workflow document-check.`]);
	});

	test('flushes events with at most eight threads', async () => {
		service.notify({ type: 'session.started', id: 'flushed' });
		await device.must('timeout 10 sh -c "until idv-agent events --json | grep -q flushed; do sleep 0.1; done"');
		expect(
			Number(await device.must('ls /proc/$(systemctl show --property=MainPID --value idv-agent)/task | wc -l')),
		).toBeLessThanOrEqual(8);
	});

	test('is seen by its doctor as its own user sees it, with the settings and the hardening of its unit', async () => {
		const report = await doctor();
		expect(report).toMatchObject({ verdict: 'ok', exitStatus: 0, user: 'idv-agent', settingsOfUnit: true });
		const by = new Map(report.checks.map((check) => [check.id, check]));
		expect(by.get('unit')?.message).toMatch(/^Runs as idv-agent, enabled, hardened as shipped/);
		expect(by.get('local-socket')?.message).toMatch(/agent\.sock is for group idv-agent .*idv-agent-admin/);
		expect(by.get('channel')?.message).toContain('online');
		for (const id of ['state', 'identity', 'pairing', 'http', 'heartbeat']) expect(by.get(id)?.status).toBe('ok');
		// It has left nothing behind that the agent could not read.
		expect(await device.must('find /var/lib/idv-agent ! -user idv-agent')).toBe('');
		expect((await status()).state).toBe('online');
	});

	test('is told when a drop-in takes its protection away, when it is stopped, and when nothing is enabled [F134]', async () => {
		await put(
			'/etc/systemd/system/idv-agent.service.d/90-weak.conf',
			'[Service]\nLimitCORE=infinity\nProtectHome=no\n',
		);
		await device.must('systemctl daemon-reload');
		const weak = await doctor('--check', 'unit', '--warnings-as-errors');
		expect(weak.checks[0]).toMatchObject({ status: 'warning', code: 'unit-not-ready' });
		expect(weak.checks[0]?.message).toContain('ProtectHome=no, LimitCORE=infinity');
		expect(weak.exitStatus).toBe(69);
		await device.must('rm /etc/systemd/system/idv-agent.service.d/90-weak.conf && systemctl daemon-reload');

		await device.must('systemctl stop idv-agent.service');
		const stopped = await doctor();
		const by = new Map(stopped.checks.map((check) => [check.id, check]));
		expect(by.get('unit')).toMatchObject({ status: 'failed', code: 'unit-not-ready' });
		expect(by.get('local-socket')).toMatchObject({ status: 'failed', code: 'agent-not-running' });
		expect(by.get('state')?.message).toContain('can be saved');
		expect(by.get('channel')?.message).toContain('saved Connection');
		expect(await device.must('find /var/lib/idv-agent ! -user idv-agent')).toBe('');
		const online = service.next('device-online');
		// What the doctor says: see which drop-in says so, start it.
		expect(by.get('unit')).toMatchObject({ remedy: 'Start it: systemctl start idv-agent.service.' });
		await device.must('systemctl start idv-agent.service');
		await online;
		expect((await doctor('--check', 'unit')).checks[0]).toMatchObject({ id: 'unit', status: 'ok' });
	});

	test('gives a support bundle with its journal, for root only, without its serial number being a secret [F117]', async () => {
		await device.must('idv-agent support-bundle --out /root/bundle.tar.gz');
		expect(await device.must('stat --format="%U %a" /root/bundle.tar.gz')).toBe('root 600\n');
		const text = await device.must('tar -xOzf /root/bundle.tar.gz');
		expect(text).toMatch(/idv-agent\[\d+\]: .*"msg":"online"/);
		expect(text).toContain(SERIAL);
		expect(text).not.toMatch(/eyJ/);
	});
});

describe('a device that is paired', () => {
	test('takes changed settings at a reload', async () => {
		const online = service.next('device-online');
		await put('/etc/idv-agent/conf.d/10-workflow.json', '{"workflowId":"face-check"}');
		await device.must('systemctl reload idv-agent.service');
		expect((await online).workflowId).toBe('face-check');
		// Only newer systemd waits for the end of a reload.
		await device.must('until systemctl is-active --quiet idv-agent.service; do :; done');
		expect(await show('ActiveState', 'NRestarts')).toEqual(['active', '0']);
	});

	test('runs hooks in a unit of their own while one is set, without the rights of the agent, which its doctor names', async () => {
		const tries = {
			'its input': `grep --quiet '"state":"online"'`,
			'agent.sock': 'idv-agent status',
			'a temporary file': 'touch /tmp/by-hook',
			'the state': 'cat /var/lib/idv-agent/state.json',
			'the credentials': 'ls /run/credentials/idv-agent.service',
			'admin.sock': 'test -w /run/idv-agent/admin.sock',
			'settings of root': 'touch /etc/idv-agent/by-hook',
			'files of root': 'cat /root/serial',
			'other processes': 'test -e /proc/1/comm',
			units: 'systemctl stop idv-agent-settings.path',
			'files of kiosk': 'touch /var/lib/kiosk/by-hook',
		};
		const lines = Object.entries(tries).map(([what, command]) => `${command} >/dev/null 2>&1 && echo "${what}," >&2`);
		await put('/usr/local/bin/hook', `#!/bin/sh\n${lines.join('\n')}\necho end >&2\n`, '755');
		await device.must('install --directory --owner=root --group=kiosk --mode=2770 /var/lib/kiosk');
		const isActive = 'systemctl --quiet is-active idv-agent-hooks.service';
		expect((await device.run(isActive)).status).not.toBe(0);
		// Nobody starts anything by hand, and the settings need not be readable for everyone.
		const file = '/etc/idv-agent/conf.d/20-hook.json';
		await put(file, '{"hooks":{"onOnline":["/usr/local/bin/hook"]}}', '640');
		await device.must(`chgrp idv-agent ${file} && until ${isActive}; do :; done`);
		/** Everything that a hook said after a restart. */
		const said = async () => {
			const cursor = (await device.must('journalctl --no-pager --lines=0 --show-cursor')).split('cursor: ')[1]?.trim();
			await device.must('systemctl restart idv-agent.service');
			const look = `journalctl --no-pager --output=cat --unit=idv-agent-hooks.service --after-cursor='${cursor}'`;
			const line = await device.must(`until ${look} | grep onOnline; do :; done`);
			return (JSON.parse(line.split('\n')[0] ?? '') as { msg: string }).msg;
		};
		const allowed = 'onOnline ended: its input, agent.sock, a temporary file,';
		expect(await said()).toBe(`${allowed} end`);
		const checked = async () => (await doctor('--check', 'hooks')).checks.find(({ id }) => id === 'hooks');
		expect(await checked()).toMatchObject({ status: 'ok', message: expect.stringContaining('nor its credentials') });

		// A drop-in as 0.1.0 had it: what it gave to commands is named, and given to their unit.
		const rights = '[Service]\nReadWritePaths=/var/lib/kiosk\nSupplementaryGroups=kiosk\n';
		await put('/etc/systemd/system/idv-agent.service.d/60-hook.conf', rights);
		await device.must('systemctl daemon-reload');
		expect(await said()).toBe(`${allowed} end`);
		expect(await checked()).toMatchObject({
			status: 'warning',
			code: 'access-denied',
			message: expect.stringMatching(/ReadWritePaths=\/var\/lib\/kiosk .*SupplementaryGroups=kiosk/),
		});
		await put('/etc/systemd/system/idv-agent-hooks.service.d/60-hook.conf', rights);
		await device.must('systemctl daemon-reload');
		expect(await said()).toBe(`${allowed} files of kiosk, end`);
		expect(await checked()).toMatchObject({ status: 'ok' });

		// A version that runs hooks itself leaves nothing of this one running.
		await device.must(`sh /var/lib/dpkg/info/idv-agent.prerm upgrade 0.3.0 && ${isActive}`);
		await device.must(`sh /var/lib/dpkg/info/idv-agent.prerm upgrade 0.1.0 && ! ${isActive}`);

		// A variable in a drop-in of the agent counts as before.
		await put(
			'/etc/systemd/system/idv-agent.service.d/60-hook.conf',
			`[Service]\nEnvironment=IDV_AGENT_HOOKS_ON_ONLINE=/usr/local/bin/hook\n`,
		);
		await device.must(`rm ${file} && systemctl daemon-reload`);
		expect(await said()).toBe(`${allowed} files of kiosk, end`);

		const unit = '/usr/lib/systemd/system/idv-agent-hooks.service';
		await device.must(`systemd-analyze verify --man=no ${unit}`);
		const rated = await device.run(`systemd-analyze security --no-pager --offline=true --threshold=13 ${unit}`);
		expect(rated).toMatchObject({ status: 0, text: expect.stringContaining('Overall exposure level') });
		await device.must(
			'rm -r /etc/systemd/system/idv-agent.service.d/60-hook.conf /etc/systemd/system/idv-agent-hooks.service.d /usr/local/bin/hook ' +
				`/var/lib/kiosk && systemctl daemon-reload && systemctl restart idv-agent.service && while ${isActive}; do :; done`,
		);
		await untilOnline();
	});

	test('comes back after kill -9 at any moment', async () => {
		const rounds = SHORT ? 2 : 8;
		const kill = 'systemctl kill --kill-who=main --signal=KILL idv-agent.service';
		for (let round = 0; round < rounds; round += 1) {
			const [pid] = await show('MainPID');
			await device.must(kill);
			// Every other time the next one is killed as well, as soon as there is one: it has hardly begun to start.
			const another = `until now=$(systemctl show --property=MainPID --value idv-agent.service); [ $now != 0 ] && [ $now != ${pid} ]; do :; done`;
			if (round % 2 === 1) await device.must(`${another}; ${kill}`);
			await untilOnline();
			expect((await show('MainPID'))[0]).not.toBe(pid);
		}
		expect((await show('NRestarts')).map(Number)[0]).toBeGreaterThanOrEqual(1.5 * rounds);
	});

	test('is killed by the watchdog when its loop hangs, and comes back', async () => {
		const online = service.next('device-online');
		const [pid] = await show('MainPID');
		await device.must('systemctl kill --kill-who=main --signal=STOP idv-agent.service');
		await online;
		expect(await device.must('journalctl --no-pager --unit=idv-agent.service')).toContain('Watchdog timeout');
		expect((await show('MainPID'))[0]).not.toBe(pid);
	});

	test('is online without help after all its processes were killed at once, again and again', async () => {
		for (let round = 0; round < (SHORT ? 2 : 3); round += 1) {
			const online = service.next('device-online');
			// The first cut comes while it is online, the others while it boots.
			await device.cutPower();
			await device.boot();
			await online;
		}
		expect((await status()).workflow.live).toBe('face-check');
	});

	test('is started as often as it is asked to, with each unit that belongs to it [F1957]', async () => {
		const list = await device.must(
			"systemctl list-unit-files --no-legend 'idv-agent*' | cut --delimiter=' ' --fields=1",
		);
		const units = list.trim().replaceAll('\n', ' ');
		for (const name of ['-settings.path', '-hooks.service', '.service', '.socket'])
			expect(units).toContain(`idv-agent${name}`);
		for (let round = 0; round < 4; round += 1) {
			const online = service.next('device-online');
			await device.must(`systemctl stop ${units}; systemctl start ${units}`);
			await online;
		}
		expect(await device.must("systemctl list-units --no-legend --state=failed 'idv-agent*'")).toBe('');
	});

	test('goes on with the last valid settings when a push breaks them', async () => {
		await put('/etc/idv-agent/conf.d/20-broken.json', '{"heartbeatCadence": "often"');
		const online = service.next('device-online');
		await device.must('systemctl restart idv-agent.service');
		await online;
		const { warnings } = await status();
		expect(warnings.map(({ message }) => message).join()).toContain('/etc/idv-agent/conf.d/20-broken.json: line 1');
		await device.must('rm /etc/idv-agent/conf.d/20-broken.json');
	});

	test('keeps everything through an upgrade', async () => {
		const online = service.next('device-online');
		const said = await install(packages[1]);
		await online;
		expect(said).not.toMatch(/conffile|prompt/i);
		expect(await device.must('idv-agent --version; dpkg-query --show idv-agent')).toMatch(/idv-agent\t0\.2\.0\n$/);
		expect((await status()).workflow.live).toBe('face-check');
	});

	test('waits for a credential that is missing, and registers as soon as it is there, encrypted', async () => {
		await device.must('idv-agent unpair');
		const settings = {
			baseUrl: `http://127.0.0.1:${PORT}`,
			credential: { apiKeyFile: '/run/credentials/idv-agent.service/idv-agent.api-key' },
		};
		await put('/etc/idv-agent/conf.d/30-key.json', JSON.stringify(settings));
		await device.must('systemctl restart idv-agent.service');
		expect(await show('ActiveState', 'NRestarts')).toEqual(['active', '0']);
		expect((await show('StatusText'))[0]).toContain(
			'credential file /run/credentials/idv-agent.service/idv-agent.api-key',
		);
		const online = service.next('device-online');
		await device.must(
			'systemd-creds encrypt --with-key=host --name=idv-agent.api-key - /etc/credstore.encrypted/idv-agent.api-key',
			API_KEY,
		);
		expect((await online).deviceId).toBe(SERIAL);
		// Names instead of the status: a file that is replaced meanwhile is an error for grep.
		const holding = await device.run(`grep --recursive --text --no-messages -l ${API_KEY} /etc /var/lib/idv-agent`);
		expect(holding.text).toBe('');
	});

	test('starts with a credential that it can no longer decrypt, names it, and takes a new one without help', async () => {
		// As after a move of the disk, or with a cleared TPM.
		await device.must('rm /var/lib/systemd/credential.secret && systemd-creds setup');
		const back = service.next('device-online');
		await device.must('systemctl restart idv-agent.service');
		await back;
		expect(await show('ActiveState', 'NRestarts')).toEqual(['active', '0']);
		const said = 'the credential idv-agent.api-key cannot be decrypted on this machine';
		// With the Connection that it has; without one it waits for the key.
		expect((await status()).warnings.map(({ message }) => message)).toContainEqual(expect.stringContaining(said));
		await device.must('idv-agent unpair');
		expect((await status()).sentence).toContain(said);
		const found = (await doctor()).checks.find(({ id }) => id === 'settings');
		expect(found).toMatchObject({
			status: 'failed',
			message: expect.stringContaining(said),
			remedy: expect.stringContaining('systemd-creds encrypt --name=idv-agent.api-key'),
		});
		// Also while the agent is starting, which has been offered the old one then.
		const dropIn = '/run/systemd/system/idv-agent.service.d/slow.conf';
		await put(dropIn, '[Service]\nExecStartPre=/bin/sleep 2\n');
		await device.must('systemctl daemon-reload; systemctl restart --no-block idv-agent.service');
		await device.must('until [ "$(systemctl is-active idv-agent.service)" = activating ]; do :; done');
		const online = service.next('device-online');
		await device.must(
			'systemd-creds encrypt --with-key=host --name=idv-agent.api-key - /etc/credstore.encrypted/idv-agent.api-key',
			API_KEY,
		);
		expect((await online).deviceId).toBe(SERIAL);
		await device.must(`rm ${dropIn} && systemctl daemon-reload`);
	});

	test('writes two lines for an outage, and one for each further cause', async () => {
		// The line of the start before must not come late.
		await untilOnline();
		// Of this unit: journalctl skips one line behind a cursor that its filter does not match.
		const journal = 'journalctl --no-pager --unit=idv-agent.service';
		const cursor = (await device.must(`${journal} --lines=1 --show-cursor`)).split('cursor: ')[1]?.trim();
		await service.stop();
		await device.must('until idv-agent status --json | grep --quiet \'"state": *"offline"\'; do :; done');
		service = await startTrialService(device.network, PORT, API_KEY);
		const online = service.next('device-online', 0);
		await device.must('idv-agent reconnect --wait 0');
		await online;
		await untilOnline();
		const entries = (await device.must(`${journal} --output=json --after-cursor='${cursor}'`)).trimEnd().split('\n');
		const lines = entries.map((entry) => JSON.parse(entry)).filter(({ MESSAGE }) => /^\{.*"msg"/.test(MESSAGE));
		const said: string[] = lines.map(({ MESSAGE }) => JSON.parse(MESSAGE).msg);
		// Whether the device tried while nothing listened is a matter of chance.
		expect(said.filter((line) => !line.startsWith('still offline: 127.0.0.1'))).toEqual([
			expect.stringMatching(/^offline/),
			expect.stringMatching(/^online again/),
		]);
		// What a technician asks for holds all but the last of them.
		const WARNING = 4;
		expect(lines.map(({ PRIORITY }) => Number(PRIORITY) <= WARNING)).toEqual(
			said.map((line) => !line.startsWith('online')),
		);
	});

	test('has told no secret', async () => {
		const journal = await device.must('journalctl --no-pager --output=export');
		expect(journal).toContain('idv-agent');
		const state = await device.must('cat /var/lib/idv-agent/state.json');
		const tokens = [...state.matchAll(/"token":\s*"([^"]+)"/g)].map(([, token = '']) => token);
		expect(tokens.length).toBeGreaterThan(0);
		for (const secret of [API_KEY, ...tokens]) expect(journal).not.toContain(secret);
	});

	test('is left alone when it is removed, and gone when it is purged', async () => {
		await device.must('dpkg --remove idv-agent');
		await device.must('test -s /var/lib/idv-agent/state.json && test -e /etc/idv-agent/config.json');
		await device.must('rm -r /etc/systemd/system/idv-agent.service.d && dpkg --purge idv-agent');
		const left = await device.run(
			'find / -xdev -name "*idv-agent*" -not -path "/var/log/*" -not -path "/proc/*" -not -path "/var/lib/dpkg/*" -not -path "/var/cache/*" -not -path "/tmp/systemd-private-*" -not -path "/var/tmp/systemd-private-*"; grep idv-agent /etc/passwd /etc/group /etc/shadow',
		);
		expect(left.text).toBe('');
	});
});

describe('a device made from an image', () => {
	const KEY = 'planted-fleet-key-9c2b7e51d0';
	const file = (more: object = {}) =>
		JSON.stringify({ baseUrl: `http://127.0.0.1:${PORT}`, workflowId: 'document-check', apiKey: KEY, ...more });
	/** The whole disk as it is, seen from outside. */
	const onDisk = (text: string) => spawnSync('grep', ['-rla', text, device.disk], { encoding: 'utf8' }).stdout;

	test('is online after its first boot, and its key lies nowhere any more', async () => {
		await service.stop();
		service = await startTrialService(device.network, PORT, KEY);
		await install(packages[1]);
		await device.must('systemctl stop idv-agent.service');
		await put('/boot/firmware/provision.json', file(), '600');
		await device.must('sync');
		expect(onDisk(KEY)).toContain('/boot/firmware/provision.json');
		const online = service.next('device-online', 0);
		await device.cutPower();
		await device.boot();
		expect(await online).toMatchObject({ workflowId: 'document-check' });
		await device.must('journalctl --sync; sync');
		expect(onDisk(KEY)).toBe('');
		expect(await device.must('ls /boot/firmware')).toBe('provision.json.used\n');
	});

	test('boots again without it, and leaves alone what it has', async () => {
		const online = service.next('device-online');
		await device.cutPower();
		await device.boot();
		await online;
		expect(await device.must('systemctl show --property=ConditionResult,ActiveState idv-agent-provision.service')).toBe(
			'ActiveState=inactive\nConditionResult=no\n',
		);
	});

	test('takes a new file while it runs only if that says so', async () => {
		const ended = `until systemctl is-failed --quiet idv-agent-provision.service; do :; done`;
		await put('/etc/idv-agent/provision.json', file({ workflowId: 'face-check' }), '600');
		await device.must(ended);
		expect(await device.must('journalctl --no-pager --unit=idv-agent-provision.service')).toContain('already-paired');
		expect((await status()).workflow.live).toBe('document-check');
		await device.must('systemctl reset-failed idv-agent-provision.service');
		let seen = service.seen('device-online');
		await put('/etc/idv-agent/provision.json', file({ workflowId: 'face-check', replace: true }), '600');
		// The new credential restarts the agent, which may be before its new settings are written.
		for (let live: string | undefined; live !== 'face-check'; seen += 1)
			live = (await service.next('device-online', seen)).workflowId;
	});

	test('starts with a file that is malformed, and its journal says where', async () => {
		await put('/boot/firmware/provision.json', '{\n\t"baseUrl": 7\n}\n', '600');
		const online = service.next('device-online');
		await device.cutPower();
		await device.boot();
		await online;
		// journald may still be moving what it took before the disk was there.
		await device.must(
			"until journalctl --no-pager --unit=idv-agent-provision.service | grep --quiet '/boot/firmware/provision.json: line 2, column .*: baseUrl must be a text'; do :; done",
		);
	});

	test('is gone when it is purged, its key with it', async () => {
		await device.must('dpkg --purge idv-agent');
		expect(await device.must('ls /etc/credstore.encrypted')).toBe('');
		expect(await device.must('journalctl --no-pager --output=export')).not.toContain(KEY);
	});
});

describe('a fresh device with settings that cannot be used', () => {
	const broken: readonly (readonly [what: string, content: string, mode: string, says: string])[] = [
		[
			'of the wrong type',
			'{\n"heartbeatCadence": "often"\n}',
			'644',
			'/etc/idv-agent/config.json: line 2, column 21: heartbeatCadence',
		],
		['that are empty', '', '644', '/etc/idv-agent/config.json: line 1, column 1'],
		['that it may not read', '{}', '600', '/etc/idv-agent/config.json cannot be read'],
	];

	test.each(SHORT ? broken.slice(-1) : broken)(
		'%s says where, does not loop, and starts when they are right',
		async (_what, content, mode, says) => {
			await device.must(
				'dpkg --purge idv-agent; journalctl --rotate --quiet; journalctl --vacuum-time=1s --quiet; true',
			);
			await put('/etc/idv-agent/config.json', content, mode);
			await install(packages[0]);
			await device.run('systemctl start idv-agent.service');
			expect(await show('ActiveState', 'ExecMainStatus', 'NRestarts')).toEqual(['failed', '78', '0']);
			expect(await device.must('journalctl --no-pager --unit=idv-agent.service --priority=warning')).toContain(says);

			await put('/etc/idv-agent/config.json', '{}');
			// Waits as long as the path unit takes: until the job that it causes is there and done.
			await device.must(
				'for wait in $(seq 1 100); do systemctl is-active --quiet idv-agent.service && exit 0; sleep 0.1; done; exit 1',
			);
			expect((await status()).state).toBe('unpaired');
		},
	);
});
