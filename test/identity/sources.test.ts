import { execFileSync } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { chooseIdentity, type IdentityFacts } from '../../src/identity/identity.ts';
import { readIdentityFacts } from '../../src/identity/sources.edge.ts';
import { MACHINES, nic, plantTree, type Tree } from '../fixtures/machines.ts';

const OVERLAY = '36 1 0:32 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/l,';

async function plant(tree: Tree): Promise<string> {
	const root = await mkdtemp(join(tmpdir(), 'idv-machine-'));
	onTestFinished(() => rm(root, { recursive: true }));
	await plantTree(root, tree);
	return root;
}

async function factsOf(tree: Tree): Promise<IdentityFacts> {
	return readIdentityFacts({ root: await plant(tree) });
}

describe('what a machine goes by', () => {
	const fromMachineId = expect.stringMatching(/^machine-[0-9a-f]{32}$/);

	test.each<[keyof typeof MACHINES, { serial: string | null; mac: string | null; deviceId: unknown }]>([
		['PC with serial numbers of the maker', { serial: 'PF3K9QXZ', mac: '00:1b:21:0a:0b:0c', deviceId: 'PF3K9QXZ' }],
		['PC with placeholders of the maker', { serial: null, mac: '70:85:c2:aa:bb:cc', deviceId: fromMachineId }],
		[
			'PC with a serial number on its board only',
			{ serial: 'MB-1907240053', mac: '70:85:c2:aa:bb:cd', deviceId: 'MB-1907240053' },
		],
		['Raspberry Pi', { serial: '10000000a1b2c3d4', mac: 'dc:a6:32:01:02:03', deviceId: '10000000a1b2c3d4' }],
		['virtual machine', { serial: null, mac: null, deviceId: undefined }],
		['container', { serial: null, mac: null, deviceId: undefined }],
		['PC with a USB network card plugged in', { serial: 'PF3K9QXZ', mac: '00:1b:21:0a:0b:0c', deviceId: 'PF3K9QXZ' }],
		['tablet with a USB network card and Wi-Fi', { serial: null, mac: '84:16:f9:01:02:03', deviceId: undefined }],
		['PC with bridges and containers', { serial: 'PF3K9QXZ', mac: '00:1b:21:0a:0b:0c', deviceId: 'PF3K9QXZ' }],
		['PC with a randomised Wi-Fi address only', { serial: 'PF3K9QXZ', mac: null, deviceId: 'PF3K9QXZ' }],
		['PC without a network', { serial: 'PF3K9QXZ', mac: null, deviceId: 'PF3K9QXZ' }],
		['nothing at all', { serial: null, mac: null, deviceId: undefined }],
	])('%s', async (machine, { serial, mac, deviceId }) => {
		const choice = chooseIdentity(await factsOf(MACHINES[machine]), {}, null, null);
		expect(choice.serial.value).toBe(serial);
		expect(choice.macAddress.value).toBe(mac);
		expect(choice.deviceId?.value).toEqual(deviceId);
		expect(choice.needsGeneratedId).toBe(deviceId === undefined);
	});

	test('a paired PC is known again with a USB card more, and a state copied to another machine is not', async () => {
		const pc = await factsOf(MACHINES['PC with serial numbers of the maker']);
		const choice = chooseIdentity(pc, {}, null, null);
		if (choice.needsGeneratedId) throw new Error('the PC has a serial number');
		const pinned = {
			deviceId: choice.deviceId.value,
			serial: choice.serial.value,
			macAddress: choice.macAddress.value,
			fingerprint: choice.fingerprint,
			pinnedAt: '2026-01-02T03:04:05Z',
		};
		const sameWithUsbCard = await factsOf(MACHINES['PC with a USB network card plugged in']);
		expect(chooseIdentity(sameWithUsbCard, {}, pinned, null)).toMatchObject({ warnings: [], cloned: false });
		const pi = await factsOf(MACHINES['Raspberry Pi']);
		expect(chooseIdentity(pi, {}, pinned, null).cloned).toBe(true);
	});
});

describe('interfaces', () => {
	test('are told apart by what stands behind them', async () => {
		const { interfaces } = await factsOf(MACHINES['tablet with a USB network card and Wi-Fi']);
		expect(interfaces).toEqual([
			{
				name: 'eth0',
				mac: '00:e0:4c:6a:2b:02',
				type: 1,
				hasDevice: true,
				addrAssignType: 0,
				wireless: false,
				usb: true,
			},
			{
				name: 'wlan0',
				mac: '84:16:f9:01:02:03',
				type: 1,
				hasDevice: true,
				addrAssignType: 0,
				wireless: true,
				usb: false,
			},
		]);
	});

	test('a kernel without the old wireless extensions still shows Wi-Fi', async () => {
		const { interfaces } = await factsOf(MACHINES['Raspberry Pi']);
		expect(interfaces.find(({ name }) => name === 'wlan0')).toMatchObject({ wireless: true });
	});

	test('files between them are no interfaces', async () => {
		const { interfaces } = await factsOf(MACHINES['PC with bridges and containers']);
		expect(interfaces.map(({ name }) => name)).toEqual(['br0', 'docker0', 'enp3s0', 'lo', 'tun0', 'veth12ab34c']);
	});

	test('a directory above that is named like a USB hub does not make them USB cards', async () => {
		const top = await plant({
			'usb1/kiosk/etc/hostname': 'kiosk',
		});
		const root = join(top, 'usb1/kiosk');
		await plantTree(root, nic('eth0', { device: 'pci0000:00/0000:00:1f.6', address: '00:1b:21:0a:0b:0c' }));
		const { interfaces } = await readIdentityFacts({ root });
		expect(interfaces).toMatchObject([{ name: 'eth0', usb: false, hasDevice: true }]);
	});
});

describe('the machine-id', () => {
	const ID = '0d1e2f3a4b5c6d7e8f90a1b2c3d4e5f6';

	test('never appears itself; the same one always gives the same hash, another one another', async () => {
		const one = await factsOf({ 'etc/machine-id': `${ID}\n` });
		const again = await factsOf({ 'etc/machine-id': ID });
		const other = await factsOf({ 'etc/machine-id': ID.replace('0', '1') });
		// Devices go by it: a value that differs from release to release would give them other deviceIds.
		expect(one.machineIdHash).toBe('09690135470dae43267f970671b261bd5748b43430efeb61df6ef04bf519dc2e');
		expect(again.machineIdHash).toBe(one.machineIdHash);
		expect(other.machineIdHash).not.toBe(one.machineIdHash);
		expect(JSON.stringify(one)).not.toContain(ID);
	});

	test.each(['', 'uninitialized\n', '0'.repeat(32), 'not a machine-id'])('%j is none', async (text) => {
		const facts = await factsOf({ 'etc/machine-id': text });
		expect(facts.machineIdHash).toBeNull();
		expect(facts.unreadable).toContainEqual({ source: 'machine-id', reason: 'is not set up yet' });
	});
});

describe('the serial number handed over by systemd', () => {
	const root = MACHINES['PC with a serial number on its board only'];

	test('comes before what the agent can read itself', async () => {
		const credentialsDirectory = await plant({ 'dmi-serial': 'PF3K9QXZ\n' });
		const facts = await readIdentityFacts({ root: await plant(root), credentialsDirectory });
		expect(facts.serials[0]).toEqual({ source: 'credential dmi-serial', value: 'PF3K9QXZ' });
		expect(facts.serials.map(({ source }) => source)).toEqual([
			'credential dmi-serial',
			'dmi product_serial',
			'dmi board_serial',
			'dmi chassis_serial',
		]);
	});

	test('may say that there is none', async () => {
		const credentialsDirectory = await plant({ 'dmi-serial': 'none' });
		const facts = await readIdentityFacts({ root: await plant({}), credentialsDirectory });
		expect(facts.serials).toEqual([]);
		expect(facts.unreadable).toContainEqual({
			source: 'credential dmi-serial',
			reason: 'says that this machine has none',
		});
	});

	test('may be missing although a directory is there', async () => {
		const credentialsDirectory = await plant({});
		const facts = await readIdentityFacts({ root: await plant({}), credentialsDirectory });
		expect(facts.unreadable).toContainEqual({ source: 'credential dmi-serial', reason: 'is not there' });
	});
});

describe('what can not be read', () => {
	test('is listed with the reason, in the order of preference', async () => {
		const facts = await readIdentityFacts({ root: '/nonexistent' });
		expect(facts).toEqual({
			serials: [],
			interfaces: [],
			machineIdHash: null,
			isContainer: false,
			unreadable: [
				'dmi product_serial',
				'dmi board_serial',
				'dmi chassis_serial',
				'devicetree serial-number',
				'machine-id',
				'network interfaces',
			].map((source) => ({ source, reason: 'is not there' })),
		});
	});

	test.each(['run/systemd/container', '.dockerenv', 'run/.containerenv'])('%s shows a container', async (file) => {
		expect((await factsOf({ [file]: 'podman\n' })).isContainer).toBe(true);
	});

	test.each<[string, Tree]>([
		['the account that Kubernetes mounts', { 'var/run/secrets/kubernetes.io/serviceaccount/namespace': 'kiosks' }],
		['the same below /run', { 'run/secrets/kubernetes.io/serviceaccount/namespace': 'kiosks' }],
		["the cluster's address", { 'proc/self/environ': `${'A=a\0'.repeat(2000)}KUBERNETES_SERVICE_HOST=10.96.0.1\0` }],
		['what LXC and systemd-nspawn tell the first process', { 'proc/1/environ': 'HOME=/\0container=lxc\0' }],
		['its cgroup, of containerd', { 'proc/1/cgroup': '0::/kubepods.slice/cri-containerd-4f2a.scope\n' }],
		['its cgroup, of Docker', { 'proc/1/cgroup': '12:pids:/docker/4f2a\n1:name=systemd:/docker/4f2a\n' }],
		[
			'its root, of containerd alone',
			{ 'proc/self/mountinfo': `${OVERLAY}upperdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/4/fs\n` },
		],
		[
			'its root, of Podman without its file',
			{ 'proc/self/mountinfo': `${OVERLAY}upperdir=/home/a/.local/share/containers/storage/overlay/4f/diff\n` },
		],
		['its cgroup, of CRI-O', { 'proc/1/cgroup': '0::/crio-4f2a.scope\n' }],
	])('%s shows a container, which does not go by the serial number of its machine [F741]', async (_, tree) => {
		const facts = await factsOf({ ...MACHINES['PC with serial numbers of the maker'], ...tree });
		expect(facts.isContainer).toBe(true);
		expect(chooseIdentity(facts, {}, null, null).needsGeneratedId).toBe(true);
	});

	test("a machine that runs containers is none: only its first process's place and its own account count", async () => {
		const facts = await factsOf({
			...MACHINES['PC with bridges and containers'],
			'proc/1/cgroup': '0::/init.scope\n',
			'proc/1/environ': 'HOME=/\0TERM=linux\0',
			'proc/self/environ': 'container_name=x\0NOT_KUBERNETES_SERVICE_HOST=1\0',
			'proc/self/cgroup': '0::/system.slice/docker.service\n',
			'run/containerd/containerd.sock': '',
			'proc/self/mountinfo':
				`${OVERLAY}upperdir=/run/overlay/upper,workdir=/run/overlay/work\n` +
				'40 29 0:40 / /var/lib/docker/overlay2/4f/merged rw - overlay overlay rw,upperdir=/var/lib/docker/overlay2/4f\n',
		});
		expect(facts.isContainer).toBe(false);
	});

	test('a file that is far too large is left alone', async () => {
		const facts = await factsOf({ 'sys/class/dmi/id/product_serial': 'A1b2'.repeat(1_000_000) });
		expect(facts.serials).toEqual([]);
		expect(facts.unreadable).toContainEqual({
			source: 'dmi product_serial',
			reason: 'cannot be read: it is larger than 1024 bytes',
		});
	});

	test('a directory, a link in a circle and a pipe without a writer stop nothing', async () => {
		const root = await plant({
			'sys/class/dmi/id/product_serial/x': '',
			'sys/class/dmi/id/board_serial': { link: 'board_serial' },
			'sys/class/dmi/id/chassis_serial': 'CH-77',
			'etc/hostname': 'kiosk',
		});
		execFileSync('mkfifo', [join(root, 'etc/machine-id')]);
		const facts = await readIdentityFacts({ root });
		expect(facts.serials).toEqual([{ source: 'dmi chassis_serial', value: 'CH-77' }]);
		expect(facts.machineIdHash).toBeNull();
		expect(facts.unreadable).toContainEqual({
			source: 'dmi product_serial',
			reason: 'cannot be read: it is not a regular file, but a directory',
		});
		expect(facts.unreadable).toContainEqual({
			source: 'dmi board_serial',
			reason: expect.stringMatching(/^cannot be read: .*\(ELOOP\)$/),
		});
	});

	test('a serial number that only root may read is named as such', async () => {
		const root = await plant(MACHINES['PC with serial numbers of the maker']);
		await chmod(root, 0o755);
		await chmod(join(root, 'sys/class/dmi/id/product_serial'), 0o400);
		const isRoot = process.getuid?.() === 0;
		// The kernel's own file belongs to root; as an ordinary user the owner has to lock it for himself.
		if (isRoot) process.seteuid?.(65_534);
		else await chmod(join(root, 'sys/class/dmi/id/product_serial'), 0o000);
		try {
			const facts = await readIdentityFacts({ root });
			expect(facts.unreadable).toContainEqual({
				source: 'dmi product_serial',
				reason: 'may not be read by this user',
			});
			expect(facts.serials.map(({ source }) => source)).toEqual(['dmi board_serial', 'dmi chassis_serial']);
		} finally {
			if (isRoot) process.seteuid?.(0);
		}
	});
});

describe('this machine', () => {
	test('is read without an error, and its machine-id stays inside', async () => {
		const facts = await readIdentityFacts();
		const id = await readFile('/etc/machine-id', 'utf8').catch(() => '');
		if (id.trim() !== '') expect(JSON.stringify(facts)).not.toContain(id.trim());
		expect(facts.interfaces.map(({ name }) => name)).toContain('lo');
	});

	test('without /sys goes by the addresses that the kernel tells', async () => {
		const root = await plant({});
		expect((await readIdentityFacts({ root })).interfaces).toEqual([]);
		const { interfaces } = await readIdentityFacts({ root, askKernel: true });
		const known = Object.entries(networkInterfaces()).flatMap(([name, addresses = []]) =>
			addresses.filter(({ internal }) => !internal).map(({ mac }) => ({ name, mac })),
		);
		expect(new Set(interfaces.map(({ name, mac }) => `${name} ${mac}`))).toEqual(
			new Set(known.map(({ name, mac }) => `${name} ${mac}`)),
		);
		for (const nic of interfaces) expect(nic).toMatchObject({ type: null, hasDevice: null });
	});

	test('is not asked when the tree has an address', async () => {
		const root = await plant(MACHINES['PC with serial numbers of the maker']);
		const { interfaces } = await readIdentityFacts({ root, askKernel: true });
		expect(interfaces).toEqual((await readIdentityFacts({ root })).interfaces);
	});
});
