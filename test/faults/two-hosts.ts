/**
 * Two hosts on one cable: this machine with the service, and a network namespace for the device, with a name server
 * between them. Owns the cable and what is cut on it; knows nothing of the agent.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import type { AtTheEnd } from './device-process.ts';

/** The name under which the device knows this machine; it stands in the certificate of the fixtures. */
export const SERVICE_NAME = 'service.test';

export interface TwoHosts {
	/** Address of this machine on the cable. */
	readonly address: string;
	/** What runs a command on the device's side. */
	readonly prefix: readonly string[];
	/** Frames vanish without a word in both directions. @param percent how many; default all. */
	blackHole(percent?: number): void;
	/** TCP of one family vanishes. */
	blackHoleFamily(family: 'ip' | 'ip6'): void;
	/** Connections from the device to this port vanish. */
	blackHolePort(port: number): void;
	/** Packets above this size vanish on their way to the device, without a word. */
	shrink(bytes: number): void;
	/** A NAT that forgets a connection to this port after so long without a packet: later ones vanish, in both directions. */
	forgetQuietLines(port: number, seconds: number): void;
	heal(): void;
	pullCable(): void;
	plugCable(): void;
	/** Answers for {@link SERVICE_NAME}; resolves when it does. @param dead how many addresses it has besides at which nothing answers. */
	startNames(dead?: number): Promise<void>;
	stopNames(): Promise<void>;
	/** What `device` is on the cable in IPv6, and this machine. */
	readonly address6: string;
}

let count = 0;

export async function givenTwoHosts({ atTheEnd }: { readonly atTheEnd: AtTheEnd }): Promise<TwoHosts> {
	count += 1;
	const name = `idvf-${process.pid}-${count}`;
	const [near, far] = [`vn${process.pid % 100_000}x${count}`, 'eth0'];
	const net = `10.${180 + (process.pid % 60)}.${(Math.floor(process.pid / 60) + count) % 250}`;
	const net6 = `fd00:${(process.pid % 65_536).toString(16)}:${count.toString(16)}:`;
	const [address, deviceAddress] = [`${net}.1`, `${net}.2`];
	const etc = `/etc/netns/${name}`;
	const run = (command: string, ...args: string[]) => execFileSync(command, args, { stdio: 'pipe' });
	const inside = (command: string, ...args: string[]) => run('ip', 'netns', 'exec', name, command, ...args);

	run('ip', 'netns', 'add', name);
	atTheEnd(() => {
		run('ip', 'netns', 'del', name);
		rmSync(etc, { recursive: true, force: true });
	});
	run('ip', 'link', 'add', near, 'type', 'veth', 'peer', 'name', far, 'netns', name);
	for (const [where, device, ...addresses] of [
		[[], near, `${address}/24`, `${net6}:1/64`],
		[['-n', name], far, `${deviceAddress}/24`, `${net6}:2/64`],
	] as const) {
		for (const one of addresses)
			run('ip', ...where, 'addr', 'add', one, 'dev', device, ...(one.includes(':') ? ['nodad'] : []));
		run('ip', ...where, 'link', 'set', device, 'up');
	}
	run('ip', '-n', name, 'link', 'set', 'lo', 'up');
	mkdirSync(etc, { recursive: true });
	writeFileSync(`${etc}/resolv.conf`, `nameserver ${address}\noptions timeout:1 attempts:1\n`);

	let names: ChildProcess | null = null;
	const hosts: TwoHosts = {
		address,
		address6: `${net6}:1`,
		prefix: ['ip', 'netns', 'exec', name],
		blackHole: (percent = 100) => drop(percent === 100 ? [''] : [`numgen random mod 100 < ${percent}`]),
		blackHoleFamily: (family) => drop([`meta nfproto ${family === 'ip' ? 'ipv4' : 'ipv6'} meta l4proto tcp`]),
		blackHolePort: (port) => drop([`tcp dport ${port}`, `tcp sport ${port}`]),
		shrink: (bytes) => drop([`meta length > ${bytes}`]),
		forgetQuietLines(port, seconds) {
			hosts.heal();
			const known = (side: string) => `update @lines { tcp ${side} timeout ${seconds}s } accept`;
			const chain = (hook: string, match: string, side: string, first: string) =>
				`chain ${hook} { type filter hook ${hook} priority 0; ${first} ${match} tcp ${side} @lines ${known(side)}; ${match} drop; }`;
			const out = `oifname "${far}" tcp dport ${port}`;
			inside(
				'nft',
				[
					'table inet nat {',
					`set lines { type inet_service; flags dynamic,timeout; timeout ${seconds}s; }`,
					chain('output', out, 'sport', `${out} tcp flags & (syn | ack) == syn ${known('sport')};`),
					chain('input', `iifname "${far}" tcp sport ${port}`, 'dport', ''),
					'}',
				].join('\n'),
			);
		},
		heal() {
			inside('nft', 'flush', 'ruleset');
		},
		pullCable() {
			run('ip', '-n', name, 'link', 'set', far, 'down');
		},
		plugCable() {
			run('ip', '-n', name, 'link', 'set', far, 'up');
		},
		async startNames(dead = 0) {
			const started = spawn(
				'dnsmasq',
				[
					'--no-daemon',
					'--conf-file=/dev/null',
					'--user=root',
					'--pid-file=',
					'--no-resolv',
					'--no-hosts',
					'--bind-interfaces',
					`--listen-address=${address}`,
					...Array.from({ length: dead }, (_, one) => `--host-record=${SERVICE_NAME},${net}.${one + 3}`),
					...(dead === 0 ? [`--address=/${SERVICE_NAME}/${address}`] : [`--host-record=${SERVICE_NAME},${address}`]),
					...(dead === 0 ? [`--address=/${SERVICE_NAME}/${net6}:1`] : []),
				],
				{ stdio: ['ignore', 'ignore', 'pipe'] },
			);
			names = started;
			for await (const line of createInterface({ input: started.stderr })) if (/started, version/.test(line)) break;
			started.stderr.resume();
		},
		async stopNames() {
			if (!names) return;
			const ended = once(names, 'close');
			names.kill('SIGKILL');
			names = null;
			await ended;
		},
	};

	/** The queues of both directions; a rule for each of what is to vanish. */
	function drop(matches: readonly string[]): void {
		hosts.heal();
		const chain = (hook: string, side: string) =>
			`chain ${hook} { type filter hook ${hook} priority 0; ${matches.map((match) => `${side} "${far}" ${match} drop;`).join(' ')} }`;
		inside('nft', `table inet cut { ${chain('input', 'iifname')}; ${chain('output', 'oifname')}; }`);
	}

	atTheEnd(() => hosts.stopNames());
	return hosts;
}
