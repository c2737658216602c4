import { mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Failure, failure } from '../../src/base/errors.ts';
import { readPlan } from '../../src/fleet/verify-plan.runner.ts';
import { type ApplyParts, applyOrder } from '../../src/updates/apply.runner.ts';
import { openUpdateKeep } from '../../src/updates/keep.edge.ts';
import type { Trial } from '../../src/updates/record.ts';
import { createSigner } from '../fixtures/plans.ts';
import { createSteppedClock } from '../harness/stepped-clock.ts';

const signer = createSigner();

function order(version: string | null, revision = 1, more: object = {}) {
	const rings = [{ percent: 100, ...(version !== null && { agent: { version } }) }];
	const to = version === null ? { workflowId: 'w' } : {};
	return { format: 'idv-fleet-plan/2', revision, spreadSeconds: 0, defaults: { rollout: { to, rings } }, ...more };
}

/** A device with 0.2.0, root's settings, and an apt that installs whatever it is asked for. */
function given({
	publicKeys = [signer.publicKey],
	enabled = true,
	name = null as string | null,
	maxDeferSeconds = 900,
	source = null as string | null,
} = {}) {
	const directory = mkdtempSync(join(tmpdir(), 'apply-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	const planFile = join(directory, 'update-plan.json');
	const keep = openUpdateKeep({
		directory: join(directory, 'keep'),
		units: join(directory, 'units'),
		runtimeUnits: join(directory, 'runtime'),
		preferences: join(directory, 'preferences'),
	});
	const clock = createSteppedClock(Date.parse('2026-11-22T03:00:00Z'));
	const device = {
		version: '0.2.0',
		asked: [] as string[],
		sources: [] as (string | null)[],
		said: [] as string[],
		exposed: null as Failure | null,
		busy: 0,
		held: 0,
		isReadOnly: false,
		apt: (version: string) => {
			device.version = version;
			return { status: 0, text: '' };
		},
	};
	const parts: { -readonly [Part in keyof ApplyParts]: ApplyParts[Part] } = {
		keep,
		clock,
		planFile,
		readPlan,
		findExposed: async () => device.exposed,
		isHeld: async () => device.held-- > 0,
		say: (line) => device.said.push(line),
		settings: {
			fleet: { publicKeys, name } as unknown as ApplyParts['settings']['fleet'],
			update: { enabled, judgeSeconds: 300, source, window: null },
			workflow: { maxDeferSeconds },
		},
		device: { deviceId: 'kiosk-1', serial: null, macAddress: null, deviceType: 'kiosk', labels: [] },
		system: {
			isPackagingBusy: async () => device.busy-- > 0,
			isReadOnly: async () => device.isReadOnly,
			readInstalled: async () => ({
				version: device.version,
				build: null,
				bytes: 1,
				state: 'whole',
			}),
			async installVersion(version, _lockSeconds, how) {
				device.asked.push(version);
				device.sources.push(how.source);
				return device.apt(version);
			},
		},
	};
	return {
		device,
		keep,
		parts,
		publish: (document: object) => writeFileSync(planFile, JSON.stringify(document)),
		/** Applies while time passes whenever it waits. */
		async apply(whileWaiting: () => void = () => {}) {
			const done = applyOrder(parts).catch((error) => error.failure);
			let isOver = false;
			void done.then(() => {
				isOver = true;
			});
			while (!isOver) {
				await new Promise((resolve) => setImmediate(resolve));
				if (clock.pending > 0) {
					whileWaiting();
					clock.advance(5000);
				}
			}
			return done;
		},
	};
}

test('the version of a signed plan is installed, and the plan is remembered', async () => {
	const { device, keep, publish, apply } = given();
	publish(signer.sign(order('0.3.0', 7)));
	expect(await apply()).toBe('0.3.0');
	expect(device.asked).toEqual(['0.3.0']);
	expect(await keep.outcomes()).toMatchObject({ plan: { epoch: 0, revision: 7 }, failed: null });
	expect(await apply()).toBeNull();
});

test.each<[string, Parameters<typeof given>[0], object, string]>([
	['nobody has signed', {}, order('0.3.0'), 'plan-untrusted'],
	['another has signed', {}, createSigner().sign(order('0.3.0')), 'plan-untrusted'],
	['is signed where no key is known', { publicKeys: [] }, signer.sign(order('0.3.0')), 'update-refused'],
	[
		'is for another fleet',
		{ name: 'kiosks' },
		signer.sign(order('0.3.0', 1, { fleet: 'lab' })),
		'plan-for-other-fleet',
	],
	['orders an older version', {}, signer.sign(order('0.1.0')), 'update-refused'],
	['is over', {}, signer.sign(order('0.3.0', 1, { validUntil: '2026-11-01T00:00:00Z' })), 'update-refused'],
	['is no plan', {}, {}, 'plan-untrusted'],
])('nothing is installed by a plan that %s, and why is remembered [F421]', async (_what, setup, document, code) => {
	const { device, keep, publish, apply } = given(setup);
	publish(document);
	expect(await apply()).toMatchObject({ code });
	expect(device.asked).toEqual([]);
	expect((await keep.outcomes()).failed).toMatchObject({ code });
});

test('nothing is done, and nothing is said, where the site has not switched it on', async () => {
	const { device, keep, publish, apply } = given({ enabled: false });
	publish(signer.sign(order('0.3.0')));
	expect(await apply()).toBeNull();
	expect(device.asked).toEqual([]);
	expect((await keep.outcomes()).failed).toBeNull();
});

test('a version that the repository does not have leaves the old one, with the words of apt [F420]', async () => {
	const { device, keep, publish, apply } = given();
	device.apt = () => ({
		status: 100,
		text: "Reading package lists...\nE: Version '0.3.0' for 'idv-agent' was not found\n",
	});
	publish(signer.sign(order('0.3.0')));
	expect(await apply()).toMatchObject({ code: 'update-failed', message: expect.stringContaining('was not found') });
	expect((await keep.outcomes()).failed?.message).toContain("E: Version '0.3.0' for 'idv-agent' was not found");
	device.apt = (version) => {
		device.version = version;
		return { status: 0, text: '' };
	};
	expect(await apply()).toBe('0.3.0');
	expect((await keep.outcomes()).failed).toBeNull();
});

test('a plan that is withdrawn while another holds apt installs nothing [F424]', async () => {
	const { device, publish, apply } = given();
	publish(signer.sign(order('0.3.0', 1)));
	device.busy = 100;
	expect(await apply(() => publish(signer.sign(order(null, 2))))).toBeNull();
	expect(device.asked).toEqual([]);
});

test('an apt that holds its lock for ever is waited for an hour; then apt is asked, and its words are remembered [F431]', async () => {
	const { device, keep, publish, apply } = given();
	publish(signer.sign(order('0.3.0')));
	device.busy = Number.POSITIVE_INFINITY;
	device.apt = () => ({
		status: 100,
		text: 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (unattended-upgr)',
	});
	let looks = 0;
	expect(
		await apply(() => {
			looks += 1;
		}),
	).toMatchObject({ code: 'update-failed' });
	expect(looks).toBe(720);
	expect(device.asked).toEqual(['0.3.0']);
	expect((await keep.outcomes()).failed?.message).toContain('held by process 4711');
});

test('a lease that began since the plan was handed over is waited for; one that lasts holds the update as long as it would hold a move [F717]', async () => {
	const { device, publish, apply } = given();
	publish(signer.sign(order('0.3.0')));
	device.held = Number.POSITIVE_INFINITY;
	let looks = 0;
	expect(
		await apply(() => {
			looks += 1;
			expect(device.asked).toEqual([]);
		}),
	).toBe('0.3.0');
	expect(looks).toBe(180);
	expect(device.said).toEqual(['Waits for the lease of an application.']);
	const other = given();
	other.publish(signer.sign(order('0.3.0')));
	other.device.held = 10;
	looks = 0;
	expect(
		await other.apply(() => {
			looks += 1;
		}),
	).toBe('0.3.0');
	expect(looks).toBe(10);
	const silent = given();
	silent.publish(signer.sign(order('0.3.0')));
	silent.parts.isHeld = () => Promise.reject(new Error('The agent does not answer.'));
	expect(await silent.apply(() => expect.unreachable())).toBe('0.3.0');
});

test('no lease holds root for more than half an hour, and apt reads the source that root has named [F1838]', async () => {
	const { device, publish, apply } = given({ maxDeferSeconds: 86_400, source: '/etc/apt/kiosks.list' });
	publish(signer.sign(order('0.3.0')));
	device.held = Number.POSITIVE_INFINITY;
	let looks = 0;
	expect(
		await apply(() => {
			looks += 1;
		}),
	).toBe('0.3.0');
	expect({ looks, sources: device.sources }).toEqual({ looks: 360, sources: ['/etc/apt/kiosks.list'] });
});

test('of two plans that come one after the other the newer one counts, also if it comes while apt is at work [F425]', async () => {
	const { device, publish, apply } = given();
	publish(signer.sign(order('0.3.0', 1)));
	device.apt = (version) => {
		device.version = version;
		if (version === '0.3.0') publish(signer.sign(order('0.3.1', 2)));
		return { status: 0, text: '' };
	};
	expect(await apply()).toBe('0.3.1');
	expect(device.asked).toEqual(['0.3.0', '0.3.1']);
});

test('a read-only root is refused by name [F426]', async () => {
	const { device, publish, apply } = given();
	device.isReadOnly = true;
	publish(signer.sign(order('0.3.0')));
	expect(await apply()).toMatchObject({ code: 'update-refused', message: expect.stringContaining('read-only') });
	expect(device.asked).toEqual([]);
});

test('the pin of a version that was taken back keeps no plan from a newer one', async () => {
	const { device, keep, publish, apply } = given();
	await keep.open();
	const one = { version: '0.3.0', by: '0.2.0', at: '2026-11-22T02:00:00Z', fault: 'crashes', log: [] };
	await keep.saveOutcomes({ ...(await keep.outcomes()), takenBack: [one] });
	publish(signer.sign(order('0.3.0', 1)));
	expect(await apply()).toMatchObject({ code: 'update-refused' });
	publish(signer.sign(order('0.3.1', 2)));
	expect(await apply()).toBe('0.3.1');
	expect(device.asked).toEqual(['0.3.1']);
	expect(readFileSync(join(keep.directory, 'outcomes.json'), 'utf8')).toContain('"version": "0.3.0"');
});

test('no order begins while the version before takes its place again, until it was online', async () => {
	const { device, keep, publish, apply } = given();
	await keep.open();
	const trial: Trial = {
		phase: 'goingBack',
		schemaVersion: 1,
		before: 'online',
		...{ from: '0.2.0', fromBuild: null, to: '0.3.0', toBuild: null, boots: 1 },
		...{ wasEnabled: true, wasReady: true, bootId: null, oldRun: null, restarts: 0, unitRestarts: 0 },
		...{ waitedMs: 0, wasFinished: false },
		...{ startedAt: '2026-11-22T02:00:00Z', fault: 'service-away' },
	};
	const failed = { code: 'service-unreachable', message: 'The service was away.', at: '2026-11-22T02:00:00Z' };
	await keep.saveOutcomes({ ...(await keep.outcomes()), failed });
	publish(signer.sign(order('0.3.0')));
	for (const phase of ['goingBack', 'goneBack'] as const) {
		await keep.saveTrial({ ...trial, phase });
		expect(await apply()).toBeNull();
	}
	expect(device.asked).toEqual([]);
	expect((await keep.outcomes()).failed).toMatchObject({ code: 'service-unreachable' });
	await keep.end();
	expect(await apply()).toBe('0.3.0');
});

test('settings that others than root could change order nothing', async () => {
	const { device, keep, publish, apply } = given();
	publish(signer.sign(order('0.3.0')));
	device.exposed = failure('file-exposed', 'No plan updates this device.');
	expect(await apply()).toMatchObject({ code: 'file-exposed' });
	expect(device.asked).toEqual([]);
	expect((await keep.outcomes()).failed).toMatchObject({ code: 'file-exposed' });
});

test('a plan that changes whenever it was read keeps root at work for a bounded number of times [F1916]', async () => {
	const { device, publish, apply, parts } = given();
	let reads = 0;
	parts.readPlan = (...words) => {
		reads += 1;
		publish(signer.sign(order(null, 1, { fleet: `kiosks-${reads}` })));
		return readPlan(...words);
	};
	publish(signer.sign(order(null)));
	expect(await apply()).toBeNull();
	expect(reads).toBeLessThan(100);
	expect(device.asked).toEqual([]);
});

test('what is no file in the place of the plan is refused by name, and nothing is asked of apt [F1917]', async () => {
	const { device, keep, parts, apply } = given();
	mkdirSync(parts.planFile);
	expect(await apply()).toMatchObject({ code: 'plan-invalid', message: expect.stringContaining('but a directory') });
	rmdirSync(parts.planFile);
	symlinkSync('/etc/passwd', parts.planFile);
	expect(await apply()).toMatchObject({ code: 'plan-invalid', message: expect.stringContaining('it is a link') });
	expect((await keep.outcomes()).failed).toMatchObject({ code: 'plan-invalid' });
	expect(device.asked).toEqual([]);
});
