import { describe, expect, test } from 'vitest';
import {
	assessAnswer,
	assessCertificate,
	assessClock,
	assessDisk,
	assessMemory,
	assessUnit,
	UNIT_PROPERTIES,
} from '../../src/diagnosis/check-results.ts';

const MIB = 1024 * 1024;
const NOW = Date.UTC(2026, 10, 21);
const DAY = 86_400_000;

describe('disk space', () => {
	const at = (freeMib: number, freeInodes: number | null = 1000) =>
		assessDisk({ directory: '/var/lib/idv-agent', freeBytes: freeMib * MIB, freeInodes });
	test.each([
		['plenty', at(5000), { status: 'ok', message: '5000 MiB free in /var/lib/idv-agent.' }],
		['far more', at(10 * 1024), { status: 'ok', message: '10 GiB free in /var/lib/idv-agent.' }],
		['the last sufficient figure', at(64), { status: 'ok' }],
		['little', at(63), { status: 'warning', code: 'disk-low' }],
		['enough for one more state', at(8), { status: 'warning', code: 'disk-low' }],
		['too little', at(7), { status: 'failed', code: 'disk-low' }],
		['no inode left', at(5000, 0), { status: 'failed', code: 'disk-low', message: expect.stringContaining('inode') }],
		['a file system without inodes', at(5000, null), { status: 'ok' }],
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
		expect(having(500, 33).message).toBe('500 MiB of 1024 MiB are available; the agent uses 33 MiB.');
		expect(having(500).message).toBe('500 MiB of 1024 MiB are available.');
	});
});

describe('the clock', () => {
	test.each([
		['right', assessClock(NOW, 900, 'the clock of id.example.com'), { status: 'ok' }],
		['a little off', assessClock(NOW, 299_000, 'the clock of id.example.com'), { status: 'ok' }],
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
		[504, '', {}, 'request-timeout'],
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
