/**
 * Updates on a real Debian: systemd, apt, dpkg and a signed repository. Small packages around the real program are good or bad in
 * one way each; after every round the device is online on the old or the new version, with its pairing, events and settings.
 */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { buildDebianPackage } from '../../scripts/debian-package.ts';
import { buildExecutable } from '../../scripts/executable.ts';
import { createSigner } from '../fixtures/plans.ts';
import { createMachine, ensureTools, type Machine, prepareTree } from '../system/machine.ts';
import { startTrialService, type TrialService } from '../system/service.ts';
import { type Behaviour, makeReal, makeRepository, makeStub, type Repository } from './packages.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const BUILD = join(ROOT, 'build');
const SUITE = process.env['IDV_TEST_SUITE'] ?? 'bookworm';
/** Rounds at a random step; `npm run test:update -- --rounds N`. */
const ROUNDS = Number(process.env['UPDATE_ROUNDS'] ?? 4);
const SEED = Number(process.env['UPDATE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** For CI: what takes long is left out. */
const IS_SHORT = process.env['UPDATE'] === 'short';
/** Of them, the last so many with the real package. */
const REAL = Number(process.env['UPDATE_REAL'] ?? 0);
const PORT = 8490;
const API_KEY = 'update-suite-api-key-5b1f';
const JUDGE_SECONDS = 30;
/** For a machine that has other work. */
const PATIENCE_SECONDS = 150;
const HASTE = '[Service]\nRestartSec=100ms\nTimeoutStartSec=20\nTimeoutAbortSec=1\n';

let directory: string;
let device: Machine;
let service: TrialService;
let repository: Repository;
let real: string;
let number = 0;
let pairedAt: string | null = null;

beforeAll(async () => {
	ensureTools();
	const architecture = process.arch === 'arm64' ? 'arm64' : 'x64';
	mkdirSync(BUILD, { recursive: true });
	directory = mkdtempSync(join(BUILD, 'update-'));
	const executable = await buildExecutable({ root: ROOT, architecture, outDir: join(BUILD, 'system') });
	const made = { root: ROOT, executable, architecture, epoch: 1_780_000_000, compression: 'gzip' } as const;
	real = await buildDebianPackage({ ...made, version: '0.2.0', outDir: directory });
	repository = makeRepository(directory);
	device = createMachine(
		prepareTree(join(BUILD, 'trees'), SUITE, ['apt', 'gpgv', 'bash', 'iproute2']),
		join(BUILD, 'machines'),
		true,
	);
	mkdirSync(join(device.disk, 'opt/idv-agent'), { recursive: true });
	cpSync(executable, join(device.disk, 'opt/idv-agent/idv-agent'));
	service = await startTrialService(device.network, PORT, API_KEY);
	await device.boot();
	await put('/etc/systemd/system/idv-agent.service.d/50-haste.conf', HASTE);
	await put('/etc/idv-agent/conf.d/10-update.json', JSON.stringify({ update: { judgeSeconds: JUDGE_SECONDS } }));
	await device.must('rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*');
	await put('/etc/apt/sources.list.d/site.list', 'deb [signed-by=/etc/apt/keyrings/site.gpg] file:/srv/site ./\n');
	await publish(await stub('1.0.0', 'good'));
	await device.must('mkdir -p /etc/apt/keyrings && cat > /etc/apt/keyrings/site.gpg', readFileSync(repository.key));
	await device.must('apt-get update && apt-get install --yes idv-agent');
	const code = await service.makeCode('document-check');
	await device.must(`idv-agent pair --trust http://127.0.0.1:${PORT} -`, `${code}\n`);
	await untilOnline();
	service.notify({ type: 'kept', id: 'kept' });
	await device.must('until idv-agent events --json | grep -q kept; do sleep 0.2; done');
	pairedAt = (await status()).pairedAt;
});

afterAll(async () => {
	await service?.stop();
	await device?.destroy();
	if (directory) rmSync(directory, { recursive: true, force: true });
});

async function put(path: string, content: string): Promise<void> {
	await device.must(`mkdir -p $(dirname ${path}) && cat > ${path}`, content);
}

/** The packages of the round are in the repository, and in nothing else. */
async function publish(...files: string[]): Promise<void> {
	repository.publish(files);
	await copyRepository();
}

async function copyRepository(): Promise<void> {
	await device.must('rm -rf /srv/site && mkdir -p /srv/site');
	for (const file of readdirSync(repository.directory))
		await device.must(`cat > /srv/site/${file}`, readFileSync(join(repository.directory, file)));
}

const stub = async (version: string, behaviour: Behaviour) => makeStub(real, version, behaviour, directory);

/** A version newer than all before. */
function next(): string {
	number += 1;
	return `1.0.${number}`;
}

async function untilOnline(): Promise<void> {
	const { status } = await device.run(
		`timeout ${PATIENCE_SECONDS} sh -c 'until idv-agent status --json 2>/dev/null | grep -q "\\"state\\": *\\"online\\""; do sleep 0.2; done'`,
	);
	if (status !== 0) throw new Error(`The device is not online:\n${await story()}`);
}

/** Waits until nothing is left to judge. */
async function untilJudged(): Promise<void> {
	const { status } = await device.run(
		`timeout ${2 * PATIENCE_SECONDS} sh -c 'while [ -e /etc/systemd/system/idv-agent-judge.service ]; do sleep 0.2; done'`,
	);
	if (status !== 0) throw new Error(`Nothing was decided:\n${await story()}`);
}

/** What a person would look at. */
const story = async () =>
	(
		await device.run(
			'tail -n 25 /var/log/apt/term.log; dpkg -l idv-agent; ls -l /var/lib/idv-agent-update; cat /var/lib/idv-agent-update/trial.json; journalctl --no-pager --lines=40 --unit=idv-agent-judge; systemctl status --no-pager idv-agent; df /',
		)
	).text;

const installed = async () =>
	(await device.must(`dpkg-query --show --showformat='\${Version} \${db:Status-Status}' idv-agent`)).trim();

const upgrade = () =>
	device.run('apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --only-upgrade idv-agent');

interface Updates {
	readonly failed: { readonly code: string } | null;
	readonly takenBack: readonly {
		readonly version: string;
		readonly by: string;
		readonly fault: string;
		readonly log: readonly string[];
	}[];
}
const updates = async () => JSON.parse(await device.must('idv-agent update show --json')) as Updates;

const status = async () =>
	JSON.parse(await device.must('idv-agent status --json')) as { pairedAt: string | null; workflow: { live: string } };

/** Whatever happened, the device is where it was: online, paired, with its settings. */
async function expectWhole(): Promise<void> {
	await untilOnline();
	expect(await status()).toMatchObject({ pairedAt, workflow: { live: 'document-check' } });
	expect(await device.must('idv-agent events --json')).toContain('"kept"');
	expect(await device.must('cat /etc/idv-agent/conf.d/10-update.json')).toContain(`${JUDGE_SECONDS}`);
	expect((await device.run('dpkg --audit')).text).toBe('');
}

let before = '';
beforeEach(async () => {
	before = (await installed()).split(' ')[0] ?? '';
});

describe('an update by apt', () => {
	test('that works is kept, and nothing of the trial is left', async () => {
		const version = next();
		await publish(await stub(before, 'good'), await stub(version, 'good'));
		expect(await upgrade()).toMatchObject({ status: 0 });
		await untilJudged();
		expect(await installed()).toBe(`${version} installed`);
		expect((await device.must('ls /var/lib/idv-agent-update')).trim()).toBe('outcomes.json');
		expect((await updates()).takenBack).toEqual([]);
		await expectWhole();
	});

	const bad: [Behaviour, string][] = [
		['crashing', 'crashes'],
		['silent', 'not-ready'],
		['eats-memory', 'crashes'],
		['never-online', 'not-online'],
		['failing-script', 'unfinished'],
		['without-unit', 'not-ready'],
	];
	const quick: Behaviour[] = ['crashing', 'failing-script'];
	test.each(bad.filter(([behaviour]) => !IS_SHORT || quick.includes(behaviour)))(
		'that is %s is taken back, remembered, and not installed again',
		async (behaviour, fault) => {
			const version = next();
			await publish(await stub(before, 'good'), await stub(version, behaviour));
			await upgrade();
			await untilJudged();
			expect(await installed()).toBe(`${before} installed`);
			expect((await updates()).takenBack.at(-1)).toMatchObject({ version, by: before, fault });
			await upgrade();
			expect(await installed()).toBe(`${before} installed`);
			await expectWhole();
		},
	);

	test('from an unsigned repository, or of a version that it does not have, changes nothing', async () => {
		const version = next();
		repository.publish([await stub(version, 'good')], false);
		await copyRepository();
		expect((await upgrade()).status).not.toBe(0);
		expect(await installed()).toBe(`${before} installed`);
		await publish(await stub(before, 'good'));
		expect((await device.run('apt-get update && apt-get install --yes idv-agent=9.9.9')).status).not.toBe(0);
		await expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'that crashes is replaced, and the device online, within a minute of its third crash',
		async () => {
			const version = next();
			await publish(await stub(before, 'good'), await stub(version, 'crashing'));
			const since = (await device.must('date +%s')).trim();
			await upgrade();
			await untilJudged();
			await untilOnline();
			const log = await device.must(`journalctl --unit=idv-agent --since=@${since} --output=short-unix --no-pager`);
			const at = (line: string | undefined) => Number.parseFloat(line ?? '');
			const third = at(log.split('\n').filter((line) => line.includes('Main process exited'))[2]);
			const online = at(log.split('\n').find((line) => line.includes('"msg":"online"') && at(line) > third));
			console.log(`online ${(online - third).toFixed(1)} s after the third crash`);
			expect(online - third).toBeLessThan(60);
		},
	);

	test('for which the disk has no room does not begin', async () => {
		const version = next();
		const file = await stub(version, 'good');
		await publish(file);
		await device.must('fallocate --length $(($(stat --file-system --format="%f * %S" /) - 20000000)) /filling');
		const { status: code, text } = await device.run(`dpkg --install /srv/site/${file.split('/').at(-1)}`);
		await device.must('rm /filling');
		expect(text).toContain('[disk-low]');
		expect(code).not.toBe(0);
		expect(await installed()).toBe(`${before} installed`);
		await untilJudged();
		await expectWhole();
	});

	test.skipIf(IS_SHORT)(
		'while the service is away is judged when it is back, and is not taken back for it',
		async () => {
			const version = next();
			await publish(await stub(before, 'good'), await stub(version, 'good'));
			await service.stop();
			await device.must(`until idv-agent status --json | grep --quiet '"state": *"offline"'; do sleep 0.2; done`);
			expect(await upgrade()).toMatchObject({ status: 0 });
			await device.must(`sleep ${JUDGE_SECONDS + 5}`);
			expect(await installed()).toBe(`${version} installed`);
			service = await startTrialService(device.network, PORT, API_KEY);
			await untilJudged();
			expect((await updates()).takenBack.map(({ version: one }) => one)).not.toContain(version);
		},
	);
});

describe('an update by a signed plan', () => {
	const signer = createSigner();
	let revision = 0;
	/** As the agent hands it over. */
	async function handOver(version: string | null, isSigned = true): Promise<void> {
		revision += 1;
		const rings = [{ percent: 100, ...(version !== null && { agent: { version } }) }];
		const defaults = { rollout: { to: version === null ? { workflowId: 'document-check' } : {}, rings } };
		const plan = { format: 'idv-fleet-plan/2', revision, spreadSeconds: 0, defaults };
		await put('/var/lib/idv-agent/update-plan.new', JSON.stringify(isSigned ? signer.sign(plan) : plan));
		await device.must('mv /var/lib/idv-agent/update-plan.new /var/lib/idv-agent/update-plan.json');
	}

	const untilApplied = () =>
		device.must(
			'until systemctl show idv-agent-update --property=ActiveState | grep -q activating; do sleep 0.1; done; while systemctl is-active idv-agent-update | grep -q activating; do sleep 0.2; done',
		);

	test('is none while the site has not switched it on; then it is installed and judged', async () => {
		const version = next();
		await publish(await stub(before, 'good'), await stub(version, 'good'));
		await handOver(version);
		await untilApplied();
		expect(await installed()).toBe(`${before} installed`);
		const settings = { update: { enabled: true }, fleet: { publicKeys: [signer.publicKey] } };
		await put('/etc/idv-agent/conf.d/20-plan.json', JSON.stringify(settings));
		await handOver(version);
		await untilApplied();
		await untilJudged();
		expect(await installed()).toBe(`${version} installed`);
		await expectWhole();
	});

	test('installs nothing that is unsigned, that the repository does not have, or that was withdrawn in time', async () => {
		const version = next();
		await publish(await stub(before, 'good'), await stub(version, 'good'));
		await handOver(version, false);
		await untilApplied();
		expect((await updates()).failed).toMatchObject({ code: 'plan-untrusted' });
		await handOver('9.9.9');
		await untilApplied();
		expect((await updates()).failed).toMatchObject({ code: 'update-failed' });
		const lock = device.run('sleep 8 3>>/var/lib/dpkg/lock-frontend');
		await handOver(version);
		await device.must('sleep 3');
		await handOver(null);
		await lock;
		await device.must('while systemctl is-active idv-agent-update | grep -q activating; do sleep 0.2; done');
		expect(await installed()).toBe(`${before} installed`);
		expect((await updates()).failed).toBeNull();
		await expectWhole();
	});
});

const DISORDERS = ['power', 'power', 'power', 'kill', 'kill', 'full', 'line'] as const;
/** What befalls a device while it is updated. */
const DISORDER: Readonly<Record<(typeof DISORDERS)[number], (upgrading: Promise<unknown>) => Promise<void>>> = {
	async power(upgrading) {
		await device.cutPower();
		await upgrading;
		await device.boot();
	},
	async kill(upgrading) {
		await device.run('pkill --signal KILL "dpkg|apt-get"; pkill --signal KILL --full "update judge"');
		await upgrading;
	},
	async full(upgrading) {
		await device.run('fallocate --length $(($(stat --file-system --format="%f * %S" /))) /filling; sleep 10');
		await upgrading;
		await device.must('rm -f /filling');
	},
	async line(upgrading) {
		await device.must('ip link set lo down && sleep 10 && ip link set lo up');
		await upgrading;
	},
};

describe(`at a random step (UPDATE_SEED=${SEED})`, () => {
	let state = SEED;
	/** Mulberry32: the same seed, the same rounds. */
	const random = () => {
		state = (state + 0x6d2b79f5) | 0;
		let value = Math.imul(state ^ (state >>> 15), 1 | state);
		value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
		return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
	};
	const rounds = Array.from({ length: ROUNDS }, (_, index) => {
		const all: Behaviour[] = ['good', 'good', 'crashing', 'never-online', 'failing-script'];
		const behaviour = all[Math.floor(random() * all.length)] ?? 'good';
		const disorder = DISORDERS[Math.floor(random() * DISORDERS.length)] ?? 'power';
		const isReal = index >= ROUNDS - REAL;
		const isRealBad = behaviour === 'never-online' ? 'crashing' : behaviour;
		const afterMs = Math.floor(random() * (isReal ? 20_000 : 6_000));
		return [index + 1, isReal ? 'real' : 'stub', isReal ? isRealBad : behaviour, disorder, afterMs] as const;
	});

	test.each(rounds)(
		'round %i: %s %s, %s after %i ms strands nothing',
		async (_round, kind, behaviour, disorder, afterMs) => {
			const version = next();
			const make = kind === 'real' ? makeReal : makeStub;
			await publish(make(real, version, behaviour, directory));
			await device.must('sync');
			const upgrading = upgrade();
			await device.must(`sleep ${afterMs / 1000}`);
			await DISORDER[disorder](upgrading);
			await device.must(
				'timeout 20 sh -c "while fuser -s /var/lib/dpkg/lock-frontend 2>/dev/null; do sleep 0.2; done" || true',
			);
			await untilJudged();
			// Where dpkg was cut off before the package had its turn, a person or the next apt goes on.
			const { text } = await device.run('dpkg --configure --pending');
			if (!(await installed()).endsWith(' installed')) throw new Error(`${text}\n${await story()}`);
			expect([`${before} installed`, `${version} installed`]).toContain(await installed());
			await expectWhole();
		},
	);
});
