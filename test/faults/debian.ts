/** What the fault suite needs of Debian, looked for before any test. Installs nothing unless `CI=true`. */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const NEEDED: Readonly<Record<string, string>> = {
	ip: 'iproute2',
	nft: 'nftables',
	dnsmasq: 'dnsmasq-base',
	gcc: 'gcc',
	tinyproxy: 'tinyproxy-bin',
	squid: 'squid',
	nginx: 'nginx-light',
	haproxy: 'haproxy',
	mitmdump: 'mitmproxy',
	unshare: 'util-linux',
	'/usr/include/stdio.h': 'libc6-dev',
	'/usr/lib/*/faketime/libfaketimeMT.so.1': 'libfaketime',
	'/usr/lib/python3/dist-packages/websockets': 'python3-websockets',
	'/usr/lib/python3/dist-packages/aiohttp': 'python3-aiohttp',
};

/** vitest calls it once before all files. @throws Error one sentence with what is missing. */
export function setup(): void {
	if (process.getuid?.() !== 0)
		throw new Error('The fault suite cuts network namespaces and fills disks: run it as root, npm run test:faults.');
	const missing = [
		...new Set(
			Object.keys(NEEDED)
				.filter((part) => !isThere(part))
				.map((part) => NEEDED[part] ?? ''),
		),
	];
	if (missing.length === 0) return;
	const line = `apt-get install --no-install-recommends ${missing.join(' ')}`;
	if (process.env['CI'] !== 'true') throw new Error(`The fault suite needs parts of Debian that are missing: ${line}`);
	execFileSync('apt-get', ['update', '--quiet=2'], { stdio: 'inherit' });
	execFileSync('apt-get', ['install', '--yes', '--quiet=2', '--no-install-recommends', ...missing], {
		stdio: 'inherit',
		env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
	});
}

/** Must work for the suite to be of any use; a container may refuse each of them, whoever asks. */
const RIGHTS: Readonly<Record<string, string>> = {
	'network namespaces': `ip netns add "$0" && trap 'ip netns del "$0"' EXIT && ip -n "$0" link add eth1 type veth peer name eth2 && ip netns exec "$0" nft add table inet probe`,
	mounts: 'unshare --mount sh -c "mount -t tmpfs tmpfs /tmp && mount --bind /proc/uptime /proc/uptime"',
};

/** What this machine does not let the suite do, in a few words; `null` when it lets it do everything. */
export function refusedHere(): string | null {
	if (process.getuid?.() !== 0) return 'root';
	const name = `idvf-probe-${process.pid}`;
	const works = (line: string) => spawnSync('sh', ['-c', line, name], { stdio: 'ignore' }).status === 0;
	const refused = Object.entries(RIGHTS).filter(([, line]) => !works(line));
	return refused.length === 0 ? null : refused.map(([what]) => what).join(' and ');
}

/** libfaketime, which the dynamic linker loads before the program. */
export function faketimeLibrary(): string {
	const places = ['x86_64-linux-gnu', 'aarch64-linux-gnu'].map(
		(arch) => `/usr/lib/${arch}/faketime/libfaketimeMT.so.1`,
	);
	return places.find((place) => existsSync(place)) ?? '';
}

function isThere(part: string): boolean {
	if (part.includes('faketime')) return faketimeLibrary() !== '';
	if (part.startsWith('/')) return existsSync(part);
	const places = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin'];
	return places.some((directory) => existsSync(join(directory, part)));
}
