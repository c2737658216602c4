import { readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
	assessAnswer,
	assessCertificate,
	assessClock,
	assessDisk,
	assessMemory,
	assessUnit,
	UNIT_PROPERTIES,
} from '../../src/diagnosis/check-results.ts';
import { assessHooks } from '../../src/diagnosis/hook-rights.ts';
import { isOpenToGroup } from '../../src/diagnosis/machine-probes.edge.ts';

const MIB = 1024 * 1024;
const BOUNDS = {
	...{ events: { durable: true, maxBytes: 4 * MIB }, update: { enabled: false } },
	service: { maxMessageBytes: 65_536 },
};
const NOW = Date.UTC(2026, 10, 21);
const DAY = 86_400_000;

describe('disk space', () => {
	const at = (
		freeMib: number,
		freeInodes: number | null = 1000,
		capacityBytes: number | null = null,
		usedBytes: number | null = 0,
	) =>
		assessDisk(
			{ directory: '/var/lib/idv-agent', freeBytes: freeMib * MIB, freeInodes, capacityBytes, usedBytes },
			BOUNDS,
		);
	test.each([
		[
			'plenty',
			at(5000),
			{ status: 'ok', message: '5000 MiB free in /var/lib/idv-agent; the agent may need 6 MiB in all.' },
		],
		['far more', at(10 * 1024), { status: 'ok', message: expect.stringMatching(/^10 GiB free/) }],
		['exactly the need', at(6), { status: 'ok' }],
		['the rest of the need', at(1, 1000, 6 * MIB, 5 * MIB), { status: 'ok' }],
		[
			'less than the rest of the need',
			at(1, 1000, 64 * MIB, 4 * MIB),
			{ status: 'warning', code: 'disk-low', message: expect.stringContaining('may need 2 MiB more') },
		],
		['little, used by files that this user may not see', at(1, 1000, 64 * MIB, null), { status: 'ok' }],
		['no room at all', at(0.05, 1000, 6 * MIB, 6 * MIB), { status: 'failed', code: 'disk-low' }],
		['no inode left', at(5000, 0), { status: 'failed', code: 'disk-low', message: expect.stringContaining('inode') }],
		['a file system without inodes', at(5000, null), { status: 'ok' }],
		[
			'a small one, in all',
			at(100, 1000, 5 * MIB),
			{ status: 'warning', message: expect.stringContaining('5 MiB; the agent may need 6 MiB') },
		],
	])('%s', (_name, finding, expected) => {
		expect(finding).toMatchObject(expected);
		expect(finding.message).toContain('/var/lib/idv-agent');
	});
});

describe('memory', () => {
	const having = (availableMib: number, agentMib: number | null = null) =>
		assessMemory({
			availableBytes: availableMib * MIB,
			totalBytes: 1024 * MIB,
			agentBytes: agentMib === null ? null : agentMib * MIB,
		});
	test('is worth a word when little is left, and shows what the agent uses', () => {
		expect(having(48)).toMatchObject({ status: 'ok' });
		expect(having(47)).toMatchObject({
			status: 'warning',
			code: 'memory-low',
			message: expect.stringContaining('47 MiB'),
		});
		const unit = readFileSync(new URL('../../systemd/idv-agent.service', import.meta.url), 'utf8');
		const budget = `${/^MemoryMax=(\d+)M$/m.exec(unit)?.[1]} MiB`;
		expect(having(500, 33).message).toBe(
			`500 MiB of 1024 MiB are available; the agent uses 33 MiB of at most ${budget}, of which its applications take at most 64 MiB.`,
		);
		// Those of an applications file have requests of their own.
		expect(
			assessMemory({ availableBytes: 500 * MIB, totalBytes: 1024 * MIB, agentBytes: null }, true).message,
		).toContain('take at most 96 MiB');
		expect(having(500).message).toBe(
			`500 MiB of 1024 MiB are available; the agent may use at most ${budget}, of which its applications take at most 64 MiB.`,
		);
	});
});

describe('the clock', () => {
	test.each([
		['right', assessClock(NOW, 900, 'the clock of id.example.com'), { status: 'ok' }],
		[
			'a little off',
			assessClock(NOW, -298_600, 'the clock of id.example.com'),
			{ status: 'ok', message: 'Within 299 s of the clock of id.example.com.' },
		],
		[
			'fast',
			assessClock(NOW, 3 * DAY, 'the clock of id.example.com'),
			{ status: 'failed', code: 'clock-wrong', message: expect.stringContaining('3 days fast') },
		],
		[
			'slow',
			assessClock(NOW, -300_000, 'the clock of id.example.com'),
			{ status: 'failed', code: 'clock-wrong', message: expect.stringContaining('5 min slow') },
		],
		[
			'in 1970 and not compared',
			assessClock(0, null, 'the service could not be asked'),
			{ status: 'failed', code: 'clock-wrong' },
		],
		['unknown', assessClock(NOW, null, 'the service could not be asked'), { status: 'skipped', blockedBy: null }],
	])('%s', (_name, finding, expected) => {
		expect(finding).toMatchObject(expected);
	});
});

describe('a certificate', () => {
	const ending = (days: number) =>
		assessCertificate(
			{ host: 'id.example.com', issuer: 'Some Authority', validToMs: NOW + days * DAY, protocol: 'TLSv1.3' },
			NOW,
		);
	test('shows the days that are left, and warns in time', () => {
		expect(ending(14)).toMatchObject({ status: 'ok', message: expect.stringContaining('14 days left') });
		expect(ending(13.9)).toMatchObject({ status: 'warning', code: 'certificate-expired' });
		expect(ending(1.5).message).toContain('in 1 day;');
		expect(ending(2.5)).toMatchObject({
			message: expect.stringContaining('in 2 days;'),
			remedy: expect.stringContaining('renew'),
		});
		expect(ending(40).message).toMatch(/Some Authority.*TLSv1\.3/);
	});
});

describe('an answer to a request without a credential', () => {
	const saying = (status: number, body = '', headers: Record<string, string> = {}) =>
		assessAnswer({ status, headers, body, host: 'id.example.com' });
	test.each([401, 403, 404, 405])('%i shows that the service is there', (status) => {
		expect(saying(status)).toMatchObject({ status: 'ok', message: expect.stringContaining(String(status)) });
	});

	test('a JSON answer does, too', () => {
		expect(saying(200, '{}', { 'content-type': 'application/json' })).toMatchObject({ status: 'ok' });
	});

	test.each([
		[200, '<html>Welcome to our Wi-Fi</html>', {}, 'captive-portal'],
		[302, '', { location: 'https://portal.example/login' }, 'captive-portal'],
		[301, '', { location: 'https://id.example.com/v2' }, 'redirect-refused'],
		[407, '', {}, 'proxy-refused'],
		[429, '', {}, 'service-overloaded'],
		[500, '', {}, 'service-failed'],
		[503, '', {}, 'service-overloaded'],
		[504, '', {}, 'service-failed'],
		[511, '', {}, 'captive-portal'],
	])('%i %s is in the way', (status, body, headers, code) => {
		expect(saying(status, body, headers)).toMatchObject({ status: 'failed', code });
	});
});

describe('the systemd unit', () => {
	const shipped = {
		LoadState: 'loaded',
		ActiveState: 'active',
		SubState: 'running',
		UnitFileState: 'enabled',
		NeedDaemonReload: 'no',
		NRestarts: '2',
		MainPID: '4711',
		User: 'idv-agent',
		Environment: '',
		NoNewPrivileges: 'yes',
		ProtectSystem: 'strict',
		ProtectHome: 'yes',
		PrivateTmp: 'yes',
		CapabilityBoundingSet: '',
		LockPersonality: 'yes',
		ProtectControlGroups: 'yes',
		ProtectKernelModules: 'yes',
		ProtectKernelTunables: 'yes',
		RestrictRealtime: 'yes',
		RestrictSUIDSGID: 'yes',
		LimitCORE: '0',
	};
	const shown = (changes: Partial<typeof shipped> = {}) => assessUnit('idv-agent.service', { ...shipped, ...changes });

	test.each([
		{ ActiveState: 'reloading' },
		{ ActiveState: 'activating', SubState: 'start' },
		{ UnitFileState: 'static' },
		{ UnitFileState: 'enabled-runtime' },
	])('as shipped is well, also with %j', (changes) => {
		expect(shown(changes)).toMatchObject({ status: 'ok' });
	});

	test('what this systemd does not know is not missed', () => {
		const { LimitCORE: _, ...older } = shipped;
		expect(assessUnit('idv-agent.service', older)).toMatchObject({ status: 'ok' });
	});

	test('as shipped is well, and is asked for everything that is looked at', () => {
		expect(shown()).toMatchObject({ status: 'ok', message: expect.stringContaining('2 restarts') });
		expect(UNIT_PROPERTIES.toSorted()).toEqual(Object.keys(shipped).toSorted());
	});

	test.each<[string, Partial<typeof shipped>, string, RegExp, RegExp]>([
		['that is not there', { LoadState: 'not-found' }, 'warning', /not-found/, /Install/],
		[
			'that crashes again and again',
			{ ActiveState: 'activating', SubState: 'auto-restart' },
			'failed',
			/restarts/,
			/journalctl -u idv-agent/,
		],
		['that has failed', { ActiveState: 'failed', SubState: 'failed' }, 'failed', /stay up/, /journalctl/],
		[
			'that was stopped',
			{ ActiveState: 'inactive', SubState: 'dead' },
			'failed',
			/does not run/,
			/systemctl start idv-agent/,
		],
		[
			'that does not start at boot',
			{ UnitFileState: 'disabled' },
			'warning',
			/not enabled/,
			/systemctl enable idv-agent/,
		],
		['that was changed on the disk', { NeedDaemonReload: 'yes' }, 'warning', /changed on the disk/, /daemon-reload/],
		['that leaves core files', { LimitCORE: 'infinity' }, 'warning', /LimitCORE=infinity/, /systemctl cat/],
		['that may write everywhere', { ProtectSystem: 'no' }, 'warning', /ProtectSystem=no/, /systemctl cat/],
		[
			'that may write everywhere and dump',
			{ ProtectSystem: 'no', LimitCORE: '1' },
			'warning',
			/no, Lim/,
			/systemctl cat/,
		],
		['that runs as root', { User: '' }, 'warning', /User=root/, /systemctl cat/],
		['that runs as root by name', { User: 'root' }, 'warning', /User=root/, /systemctl cat/],
	])('%s is named', (_name, changes, status, words, remedy) => {
		expect(shown(changes)).toMatchObject({
			status,
			code: 'unit-not-ready',
			message: expect.stringMatching(words),
			remedy: expect.stringMatching(remedy),
		});
	});
});

describe('hooks', () => {
	const set = [{ name: 'onOnline', source: 'file', where: '/etc/idv-agent/config.json' }];
	const agentUnit = { ReadWritePaths: '/run/idv-agent', SupplementaryGroups: '' };
	const unit = {
		LoadState: 'loaded',
		ActiveState: 'active',
		Environment: 'A=b',
		ReadWritePaths: '',
		SupplementaryGroups: 'idv-agent',
	};
	const assessed = (changes: Partial<Parameters<typeof assessHooks>[0]> = {}) =>
		assessHooks({ set, agentUnit, unit, closed: [], ...changes });

	test.each([
		['none is set', { set: [] }, { status: 'skipped' }],
		['systemd does not run this machine', { unit: null }, { status: 'ok', message: /as its user/ }],
		['all is as shipped', {}, { status: 'ok', message: /neither its state nor its credentials/ }],
		[
			'their unit does not run',
			{ unit: { ...unit, ActiveState: 'failed' } },
			{ code: 'unit-not-ready', message: /failed/ },
		],
		['their unit is masked', { unit: { ...unit, LoadState: 'masked' } }, { code: 'unit-not-ready', message: /masked/ }],
		[
			'a drop-in of the agent has rights that they lack',
			{
				agentUnit: { ReadWritePaths: '/run/idv-agent /srv/a /srv/b', SupplementaryGroups: 'dialout kiosk' },
				unit: { ...unit, ReadWritePaths: '/srv/b' },
			},
			{
				code: 'access-denied',
				message: /lack: ReadWritePaths=\/srv\/a of idv-agent.service; SupplementaryGroups=kiosk of/,
			},
		],
		[
			'a variable of the agent sets one',
			{ set: [{ name: 'onOnline', source: 'environment', where: 'IDV_AGENT_HOOKS_ON_ONLINE' }] },
			{ code: 'access-denied', message: /IDV_AGENT_HOOKS_ON_ONLINE of idv-agent.service/ },
		],
		[
			'both have the variable',
			{
				set: [{ name: 'onOnline', source: 'environment', where: 'IDV_AGENT_HOOKS_ON_ONLINE' }],
				unit: { ...unit, Environment: 'IDV_AGENT_HOOKS_ON_ONLINE=["/x"]' },
			},
			{ status: 'ok' },
		],
		['they may not read a file', { closed: ['/var/lib/idv-agent/x'] }, { status: 'warning', message: /idv-agent\/x/ }],
	] as const)(
		'where %s',
		(_, changes, { message, ...expected }: { status?: string; code?: string; message?: RegExp }) => {
			const found = assessed(changes as never);
			expect(found).toMatchObject(expected);
			expect(found.message).toMatch(message ?? /./);
		},
	);

	test('a file is closed to them by its own mode or by that of a directory above it', async () => {
		const directory = await mkdtemp(join(tmpdir(), 'rights-'));
		onTestFinished(() => rm(directory, { recursive: true }));
		await chmod(directory, 0o755);
		const make = async (name: string, mode: number) => {
			await mkdir(join(directory, name, '..'), { recursive: true });
			await writeFile(join(directory, name), '', { mode });
			await chmod(join(directory, name), mode);
			return join(directory, name);
		};
		const isOpen = (path: string, runs = false) => isOpenToGroup(path, directory, runs);
		expect(await isOpen(await make('for-all', 0o644))).toBe(true);
		expect(await isOpen(await make('for-the-group', 0o640))).toBe(true);
		expect(await isOpen(await make('for-its-owner', 0o600))).toBe(false);
		expect(await isOpen(await make('program', 0o710), true)).toBe(true);
		expect(await isOpen(await make('no-program', 0o644), true)).toBe(false);
		const below = await make('closed/file', 0o644);
		await chmod(join(directory, 'closed'), 0o700);
		expect(await isOpen(below)).toBe(false);
		expect(await isOpen(join(directory, 'closed/not-there'))).toBe(false);
		expect(await isOpen(join(directory, 'not-there'))).toBe(true);
	});
});
