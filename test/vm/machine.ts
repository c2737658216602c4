/**
 * A machine with Debian's own kernel in qemu, without KVM: its devices are plugged and unplugged while it runs, its keys are
 * typed, its power is cut. Knows nothing of the agent.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';

/** Two emulated cores on two real ones that have other work as well. */
const BOOT_MS = 240_000;

export interface Answer {
	readonly status: number;
	readonly text: string;
}

export interface Machine {
	/** Of the guest's commands, from power on to the first that is answered, in milliseconds. */
	readonly bootMs: number;
	run(command: string): Promise<Answer>;
	/** @throws Error with what it printed unless it succeeds. */
	must(command: string): Promise<string>;
	/** Runs it until it succeeds. @throws Error with the last answer after the deadline. */
	until(command: string, deadlineMs?: number): Promise<string>;
	/** Plugs the USB serial adapter in. */
	plug(): Promise<void>;
	unplug(): Promise<void>;
	/** Sends characters from the far end of the serial adapter. */
	send(text: string): void;
	/** Types on the USB keyboard. */
	type(text: string): Promise<void>;
	/** Ends at this moment; what the guest has not flushed is lost. */
	cutPower(): Promise<void>;
}

export interface MachineOptions {
	/** Image of an ext4 file system. */
	readonly disk: string;
	/** Has `vmlinuz` and `initrd.gz`. */
	readonly kernel: string;
	/** The host's port that the guest reaches at 10.0.2.100:8090. */
	readonly port: number;
	/** Socket of swtpm. */
	readonly tpm?: string | null;
}

export async function bootMachine({ disk, kernel, port, tpm = null }: MachineOptions): Promise<Machine> {
	const began = performance.now();
	const directory = mkdtempSync(join(tmpdir(), 'idv-vm-'));
	const at = (name: string) => join(directory, name);
	const socketAt = (name: string) => `socket,id=${name},path=${at(name)},server=on,wait=off`;
	const forward = `user,id=net0,restrict=on,guestfwd=tcp:10.0.2.100:8090-cmd:socat - TCP:127.0.0.1:${port}`;
	const args = [
		...['-M', 'q35', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-m', '1024', '-smp', '2', '-nodefaults'],
		...['-no-user-config', '-display', 'none', '-no-reboot', '-kernel', join(kernel, 'vmlinuz')],
		...['-initrd', join(kernel, 'initrd.gz'), '-append', 'console=ttyS0 panic=-1 quiet systemd.show_status=0'],
		...['-drive', `file=${disk},format=raw,if=virtio,cache=writeback`, '-serial', `file:${at('console')}`],
		...['-device', 'virtio-serial-pci', '-chardev', socketAt('commands')],
		...['-device', 'virtserialport,chardev=commands,name=commands', '-qmp', `unix:${at('qmp')},server=on,wait=off`],
		...['-netdev', forward, '-device', 'virtio-net-pci,netdev=net0', '-device', 'virtio-rng-pci'],
		...['-device', 'qemu-xhci', '-chardev', socketAt('serial'), '-device', 'usb-serial,chardev=serial'],
		...['-device', 'usb-kbd'],
		...(tpm === null ? [] : ['-chardev', `socket,id=tpm,path=${tpm}`, '-tpmdev', 'emulator,id=tpm0,chardev=tpm']),
		...(tpm === null ? [] : ['-device', 'tpm-tis,tpmdev=tpm0']),
	];
	const child = spawn('qemu-system-x86_64', args, { stdio: ['ignore', 'inherit', 'inherit'] });
	const gone = once(child, 'exit');
	const commands = await connect(at('commands'), child);
	const monitor = await connect(at('qmp'), child);
	const waiting = new Map<string, (answer: Answer) => void>();
	const asked: ((answer: unknown) => void)[] = [];
	let cable: net.Socket | null = null;
	let last = 0;

	const booted = new Promise<void>((resolve) => {
		createInterface({ input: commands }).on('line', (line) => {
			const [id = '', status, text = ''] = line.split(' ');
			if (id === 'BOOT') return resolve();
			waiting.get(id)?.({ status: Number(status), text: Buffer.from(text, 'base64').toString() });
			waiting.delete(id);
		});
	});
	createInterface({ input: monitor }).on('line', (line) => {
		const answer = JSON.parse(line);
		if ('return' in answer || 'error' in answer) asked.shift()?.(answer);
	});
	const monitorCommand = (execute: string, parameters?: object) =>
		new Promise((resolve) => {
			asked.push(resolve);
			monitor.write(`${JSON.stringify({ execute, arguments: parameters })}\n`);
		});
	await monitorCommand('qmp_capabilities');
	const ended = gone.then(() => {
		throw new Error('The machine ended by itself.');
	});
	ended.catch(() => {});
	const late = pause(BOOT_MS, null, { ref: false }).then(() => {
		throw new Error(`The machine did not boot within ${BOOT_MS / 1000} s.`);
	});
	await Promise.race([booted, ended, late]);

	const machine: Machine = {
		bootMs: performance.now() - began,
		run(command) {
			last += 1;
			const id = `c${last}`;
			const answer = new Promise<Answer>((resolve) => waiting.set(id, resolve));
			commands.write(`${id} ${Buffer.from(command).toString('base64')}\n`);
			return Promise.race([answer, ended]);
		},
		async must(command) {
			const { status, text } = await machine.run(command);
			if (status !== 0) throw new Error(`${command}: status ${status}\n${text}`);
			return text.trim();
		},
		async until(command, deadlineMs = 60_000) {
			const until = performance.now() + deadlineMs;
			for (;;) {
				const { status, text } = await machine.run(command);
				if (status === 0) return text.trim();
				if (performance.now() > until) throw new Error(`Not within ${deadlineMs / 1000} s: ${command}\n${text}`);
				await pause(300);
			}
		},
		async plug() {
			cable = await connect(at('serial'), child);
			cable.on('error', () => {});
		},
		async unplug() {
			cable?.destroy();
			cable = null;
		},
		send: (text) => void cable?.write(text),
		async type(text) {
			for (const character of text) {
				await monitorCommand('human-monitor-command', { 'command-line': `sendkey ${keyOf(character)} 15` });
				// A key is held for 15 ms, and the emulated keyboard has room for few.
				await pause(40);
			}
		},
		async cutPower() {
			child.kill('SIGKILL');
			await gone;
			rmSync(directory, { recursive: true, force: true });
		},
	};
	return machine;
}

const KEYS: Readonly<Record<string, string>> = {
	...{
		' ': 'spc',
		'-': 'minus',
		'=': 'equal',
		'/': 'slash',
		'.': 'dot',
		',': 'comma',
		'\n': 'ret',
		':': 'shift-semicolon',
	},
	...{ '?': 'shift-slash', '&': 'shift-7', '%': 'shift-5', _: 'shift-minus', '+': 'shift-equal', '#': 'shift-3' },
};

/** On a keyboard of the United States. */
function keyOf(character: string): string {
	if (/[a-z0-9]/.test(character)) return character;
	if (/[A-Z]/.test(character)) return `shift-${character.toLowerCase()}`;
	const key = KEYS[character];
	if (key === undefined) throw new Error(`There is no key for ${character}.`);
	return key;
}

async function connect(path: string, child: ChildProcess): Promise<net.Socket> {
	for (let tries = 0; tries < 200 && child.exitCode === null; tries += 1) {
		const socket = net.connect(path);
		try {
			await once(socket, 'connect');
			return socket;
		} catch {
			await pause(50);
		}
	}
	throw new Error(`qemu has no ${path}.`);
}
