/**
 * `npm run suite -- vm [-- --cuts N] [--suite trixie]`: what only a kernel can show, on Debian's own in qemu: USB scanners that
 * come and go, a credential that is bound to a TPM, power cuts. Needs root; 8 minutes at most with 3 cuts, and 3 minutes
 * more the first time, for Debian itself, which stays in build/vm. Prints a line for each thing shown.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { type Architecture, buildExecutable } from '../../scripts/executable.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { bootMachine, type Machine } from './machine.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const BUILD = join(ROOT, 'build/vm');
/** Where the service is for the guest: plain http is for loopback only. */
const URL_IN_GUEST = 'http://127.0.0.1:8090';
const WORKFLOWS = ['check-in', 'boarding', 'lounge'];
const TOOLS: Readonly<Record<string, string>> = {
	...{ 'qemu-system-x86_64': 'qemu-system-x86', swtpm: 'swtpm', socat: 'socat', mmdebstrap: 'mmdebstrap' },
	...{ busybox: 'busybox-static', depmod: 'kmod', cpio: 'cpio', 'mkfs.ext4': 'e2fsprogs', zstd: 'zstd' },
};

const { values } = parseArgs({
	options: {
		cuts: { type: 'string', default: '3' },
		suite: { type: 'string', default: 'bookworm' },
		seed: { type: 'string' },
	},
});
const seed = Number(values.seed ?? Math.floor(Math.random() * 1e6));
const random = randomNumbers(seed);
const atTheEnd: (() => unknown)[] = [];
const began = performance.now();
let failed = 0;

const say = (line: string) =>
	process.stdout.write(`${((performance.now() - began) / 1000).toFixed(0).padStart(4)} s  ${line}\n`);

/** One thing to be shown; the next are tried whatever becomes of it. */
async function show(what: string, act: () => Promise<unknown>): Promise<void> {
	try {
		const found = await act();
		say(`ok      ${what}${typeof found === 'string' ? `: ${found}` : ''}`);
	} catch (error) {
		failed += 1;
		say(`FAILED  ${what}: ${error instanceof Error ? error.message : error}`);
	}
}

function refusedHere(): string | null {
	if (process.getuid?.() !== 0) return 'root';
	const path = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin'];
	const missing = Object.keys(TOOLS).filter((tool) => !path.some((place) => existsSync(join(place, tool))));
	return missing.length === 0 ? null : missing.map((tool) => TOOLS[tool]).join(' ');
}

async function buildPackage(directory: string): Promise<string> {
	const architecture = process.arch as Architecture;
	const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
	const executable = await buildExecutable({ root: ROOT, architecture, outDir: directory });
	const parts = { root: ROOT, executable, architecture, version, epoch: 1_700_000_000, outDir: directory };
	return buildDebianPackage({ ...parts, compression: 'gzip' });
}

/** Debian with the package, both scanner drop-ins, the udev rule for the keyboard of qemu, and a way to the service. */
function makeDisk(base: string, deb: string, directory: string): string {
	const tree = join(directory, 'tree');
	execFileSync('cp', ['--archive', join(base, 'tree'), tree]);
	const put = (path: string, text: string) => {
		mkdirSync(join(tree, path, '..'), { recursive: true });
		writeFileSync(join(tree, path), text);
	};
	cpSync(deb, join(tree, 'tmp/agent.deb'));
	execFileSync('chroot', [tree, 'dpkg', '-i', '/tmp/agent.deb'], { stdio: 'pipe' });
	rmSync(join(tree, 'tmp/agent.deb'));
	const units = 'etc/systemd/system';
	mkdirSync(join(tree, units, 'idv-agent.service.d'), { recursive: true });
	for (const kind of ['serial', 'keyboard'])
		symlinkSync(
			`/usr/lib/idv-agent/drop-ins/${kind}-scanner.conf`,
			join(tree, units, `idv-agent.service.d/${kind}-scanner.conf`),
		);
	const rule = readFileSync(join(ROOT, 'systemd/drop-ins/70-idv-agent-scanner.rules'), 'utf8');
	put('etc/udev/rules.d/70-idv-agent-scanner.rules', rule.replace('"0c2e"', '"0627"').replace('"0b61"', '"0001"'));
	const settings = { deviceId: 'KIOSK-7', pairing: { trustedOrigins: [URL_IN_GUEST], loopbackByScanner: true } };
	put('etc/idv-agent/config.json', JSON.stringify(settings));
	put(
		'etc/systemd/network/80-wired.network',
		'[Match]\nName=en* eth*\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\n',
	);
	put(`${units}/to-service.socket`, '[Socket]\nListenStream=127.0.0.1:8090\n[Install]\nWantedBy=sockets.target\n');
	put(`${units}/to-service.service`, '[Service]\nExecStart=/lib/systemd/systemd-socket-proxyd 10.0.2.100:8090\n');
	execFileSync('chroot', [tree, 'systemctl', 'enable', 'systemd-networkd.service', 'to-service.socket'], {
		stdio: 'pipe',
	});
	const disk = join(directory, 'disk');
	execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', tree, disk, '1400M'], { stdio: 'pipe' });
	rmSync(tree, { recursive: true });
	return disk;
}

async function startTpm(directory: string): Promise<{ socket: string; child: ChildProcess }> {
	mkdirSync(directory, { recursive: true });
	const socket = join(directory, 'socket');
	const how = [
		'socket',
		'--tpm2',
		'--terminate',
		'--tpmstate',
		`dir=${directory}`,
		'--ctrl',
		`type=unixio,path=${socket}`,
	];
	const child = spawn('swtpm', how, { stdio: 'inherit' });
	atTheEnd.push(() => child.kill('SIGKILL'));
	while (!existsSync(socket) && child.exitCode === null) await pause(50);
	return { socket, child };
}

const STATUS = 'idv-agent status --json';
const API_KEY = '/etc/credstore.encrypted/idv-agent.api-key';
const isState = (state: string) => `${STATUS} | grep -q '"state": *"${state}"'`;
const sentence = async (machine: Machine) => (await machine.must('idv-agent status | head -1')).slice(0, 160);

async function main(): Promise<void> {
	const base = join(BUILD, values.suite);
	if (!existsSync(join(base, 'vmlinuz')) || existsSync(`${base}.new`)) {
		mkdirSync(BUILD, { recursive: true });
		execFileSync(join(import.meta.dirname, 'base.sh'), [values.suite, base], { stdio: 'inherit' });
		say('Debian is made, once');
	}
	const directory = mkdtempSync(join(tmpdir(), 'idv-vm-run-'));
	atTheEnd.push(() => rmSync(directory, { recursive: true, force: true }));
	const disk = makeDisk(base, await buildPackage(directory), directory);
	const service = await startService({ workflows: WORKFLOWS, publicUrl: URL_IN_GUEST });
	atTheEnd.push(() => service.close());
	const code = () => service.createPairingCode('check-in').url;
	const boot = async (tpm: string) => {
		const machine = await bootMachine({ disk, kernel: base, port: service.port, tpm });
		atTheEnd.push(() => machine.cutPower());
		return machine;
	};
	let tpm = await startTpm(join(directory, 'tpm'));
	let machine = await boot(tpm.socket);
	say(
		`booted in ${(machine.bootMs / 1000).toFixed(0)} s: ${await machine.must('uname -r; systemctl --version | head -1')}`.replaceAll(
			'\n',
			', ',
		),
	);
	await machine.until(isState('unpaired'), 120_000);
	// The keyboard is there from the start; without a serial scanner it is the one.
	const listens = (path: string) => `idv-agent scanner list | grep -q '^> *${path}'`;

	await show('no serial scanner was ever there', () => machine.must('! ls /dev/ttyUSB* 2>/dev/null'));
	await machine.plug();
	await show('a USB serial scanner, plugged in for the first time ever, is listened to', () =>
		machine.until(listens('serial')),
	);
	await machine.unplug();
	await show('unplugged, it is not', () => machine.until(`! ${listens('serial')}`));
	await machine.plug();
	await show('plugged in again, it is', () => machine.until(listens('serial')));
	machine.send(`${code()}\r\n`);
	await show('its scan pairs the device', async () => {
		await machine.until(isState('online'), 120_000);
		return sentence(machine);
	});
	await machine.must('idv-agent unpair');
	await machine.unplug();
	await show('a USB keyboard scanner with the udev rule is listened to', () => machine.until(listens('keyboard')));
	await show('no desktop sees what it types', () =>
		machine.must('udevadm info --query=property /dev/input/by-id/*-event-kbd | grep LIBINPUT_IGNORE_DEVICE=1'),
	);
	await machine.type(`${code()}\n`);
	await show('what it types pairs the device', async () => {
		await machine.until(isState('online'), 120_000);
		return sentence(machine);
	});

	for (let cut = 1; cut <= Number(values.cuts); cut += 1) {
		const to = WORKFLOWS[cut % WORKFLOWS.length] ?? '';
		const moved = machine.run(`idv-agent workflow set ${to} && echo said`).then(
			({ text }) => text.includes('said'),
			() => false,
		);
		// Sometimes while it moves, sometimes right after.
		await Promise.race([moved, pause(200 + random() * 8000)]);
		const said = await Promise.race([moved, false]);
		await machine.cutPower();
		tpm.child.kill('SIGKILL');
		tpm = await startTpm(join(directory, 'tpm'));
		machine = await boot(tpm.socket);
		await show(`power cut ${cut} during a move (${said ? 'said' : 'not said'} to be done): online again`, async () => {
			await machine.until(isState('online'), 120_000);
			const told = await sentence(machine);
			if (said) await machine.until(`${STATUS} | grep -q '"live": *"${to}"'`);
			const damage = await machine.run(
				`${STATUS} | grep -E 'state-corrupt|events-damaged'; ls /var/lib/idv-agent | grep corrupt`,
			);
			if (damage.text.trim() !== '') throw new Error(damage.text);
			return told;
		});
	}

	await machine.must('idv-agent unpair');
	const provision = { baseUrl: URL_IN_GUEST, workflowId: 'boarding', apiKey: service.credentials.apiKey };
	await show('an API key is encrypted when it is provisioned, and used', async () => {
		await machine.must('test -c /dev/tpm0');
		await machine.must(
			`cat > /etc/idv-agent/provision.json <<'END'\n${JSON.stringify(provision)}\nEND\nsystemctl restart idv-agent-provision.service`,
		);
		await machine.must('systemctl restart idv-agent.service');
		await machine.until(isState('online'), 120_000);
		await machine.must(`! grep -rq '${service.credentials.apiKey}' /etc /var/lib/idv-agent`);
	});
	await show('one that is bound to the TPM alone is used as well', async () => {
		// systemd chooses the TPM by itself only where the firmware has one, too: this machine boots without firmware.
		await machine.must('idv-agent unpair');
		await machine.must(
			`printf %s '${service.credentials.apiKey}' | systemd-creds encrypt --with-key=tpm2 --name=idv-agent.api-key - ${API_KEY}.new && mv ${API_KEY}.new ${API_KEY}`,
		);
		await machine.must('systemctl restart idv-agent.service');
		await machine.until(isState('online'), 120_000);
		return (await machine.must('systemd-creds --version | head -1')).trim();
	});
	await machine.must('idv-agent unpair; sync');
	await machine.cutPower();
	tpm.child.kill('SIGKILL');
	rmSync(join(directory, 'tpm'), { recursive: true });
	tpm = await startTpm(join(directory, 'tpm'));
	machine = await boot(tpm.socket);
	await show('with a cleared TPM the agent runs and says what is wrong', async () => {
		const told = "idv-agent status | grep -m 1 'cannot be decrypted on this machine'";
		await machine.until(told, 180_000).catch(async () => {
			throw new Error(await machine.must('idv-agent status; journalctl -u idv-agent* -b --no-pager | tail -25; true'));
		});
		return (await machine.must(told)).trim().slice(0, 160);
	});
}

const refused = refusedHere();
if (refused !== null) {
	process.stdout.write(`The suite vm is not permitted here: this machine has no ${refused}.\n`);
} else {
	say(`suite ${values.suite}, ${values.cuts} power cuts, seed ${seed}`);
	try {
		await main();
	} catch (error) {
		failed += 1;
		say(`FAILED  ${error instanceof Error ? error.message : error}`);
	} finally {
		for (const act of atTheEnd.toReversed()) await act();
	}
	say(failed === 0 ? 'everything was shown' : `${failed} not shown`);
	process.exitCode = failed === 0 ? 0 : 1;
}
