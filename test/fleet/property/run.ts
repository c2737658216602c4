/**
 * Drawn fleets: `npm run test:fleet -- --seed S [--fleets N] [--devices N]`. Each device runs the product's own follower of plans and its
 * hand-over of versions, on its own clock; it is absent for a while, refuses workflows and takes versions back. A manager draws plans,
 * takes steps by `nextPlan`, and looks by `standingOf`. The truth is what a device itself runs and says, never what `planFor` says of it.
 */
import { createHash } from 'node:crypto';
import { parseArgs } from 'node:util';
import { keepWarnings } from '../../../src/base/warnings.ts';
import { followFleet } from '../../../src/fleet/follow-plan.runner.ts';
import { nextPlan, RINGS } from '../../../src/fleet/next-plan.ts';
import { planSchemaOf } from '../../../src/fleet/plan-format.ts';
import { type DeviceReport, standingOf, sumUp } from '../../../src/fleet/progress.ts';
import { applyDue, confirmed, planTarget } from '../../../src/fleet/record.ts';
import { compilePlan, planFor, rolloutPercentile } from '../../../src/fleet/targeting.ts';
import { EMPTY_STATE } from '../../../src/state/device-state.ts';
import { keepPersistedState } from '../../../src/state/persisted-state.runner.ts';
import { createHandOver } from '../../../src/updates/hand-over.runner.ts';
import { NO_RECORDS } from '../../../src/updates/record.ts';
import { randomFrom } from '../../connection/virtual-fleet.ts';
import { createSteppedClock } from '../../harness/stepped-clock.ts';

const bytesOf = (plan: unknown) => Buffer.from(JSON.stringify(plan));
const etagOf = (bytes: Uint8Array) => `"${createHash('sha256').update(bytes).digest('hex')}"`;

const { values } = parseArgs({
	options: { seed: { type: 'string' }, fleets: { type: 'string' }, devices: { type: 'string' } },
	allowPositionals: true,
});
const SEED = Number(values.seed ?? Date.now() % 1e9);
const FLEETS = Number(values.fleets ?? 40);
const DEVICES = Number(values.devices ?? 60);
const HOUR = 3_600_000;
const START = Date.UTC(2026, 10, 1);
const WORKFLOWS = ['a', 'b', 'c'];
const VERSIONS = ['0.3.0', '0.4.0', '0.5.0'];

type Document = Record<string, unknown>;
type Random = () => number;
const pick = <One>(random: Random, from: readonly One[]): One => from[Math.floor(random() * from.length)] as One;

function drawnPlan(random: Random, revision: number, atMs: number): Document {
	const ring = () => ({
		percent: pick(random, [1, 10, 30, 50, 100]),
		...(random() < 0.5 && { startAt: new Date(atMs + Math.round((random() - 0.5) * 20) * HOUR).toISOString() }),
		...(random() < 0.6 && { agent: { version: pick(random, VERSIONS) } }),
	});
	const rollout = () => ({
		to: random() < 0.3 ? { settings: { heartbeatCadence: 20 } } : { workflowId: pick(random, WORKFLOWS) },
		rings: [ring(), ring()],
	});
	const words = () => ({ workflowId: pick(random, WORKFLOWS), ...(random() < 0.7 && { rollout: rollout() }) });
	const rule = (label: string) => ({ name: label, match: { labels: [label] }, ...(random() < 0.7 ? words() : {}) });
	return {
		format: 'idv-fleet-plan/2',
		revision,
		spreadSeconds: pick(random, [0, 600]),
		defaults: words(),
		rules: [rule('lobby'), rule('yard')],
	};
}

function createDevice(index: number, random: Random, published: () => Document) {
	const deviceId = `K-${index}`;
	const clock = createSteppedClock(START);
	// A wrong clock shows in rings that have a time; half an hour is less than the manager's grace.
	clock.setWall(START + Math.round((random() - 0.5) * HOUR));
	const fleetSettings = {
		planUrl: 'https://plans.example/p',
		name: null,
		publicKeys: [],
		labels: [pick(random, ['lobby', 'yard', 'roof'])],
		intervalSeconds: 300,
	};
	const own = {
		live: 'old',
		version: '0.2.0',
		isAway: false,
		isThere: random() < 0.95,
		refused: null as number | null,
		refuses: random() < 0.1 ? pick(random, WORKFLOWS) : null,
		breaks: random() < 0.1 ? pick(random, VERSIONS) : null,
		takenBack: [] as { version: string; fault: string }[],
		heardMs: null as number | null,
		/** The order that root was handed last: its time has come. */
		handedOver: null as string | null,
	};
	const stateWriter = keepPersistedState(EMPTY_STATE, { save: async () => {} }, clock, () => {});
	const identity = { now: { deviceId: { value: deviceId }, serial: { value: null }, macAddress: { value: null } } };
	let looked = 0;
	const fleet = followFleet({
		clock,
		log: { info() {} },
		audit: { record() {} },
		random,
		userAgent: 'test',
		stateWriter,
		warnings: keepWarnings({ warn() {} }, () => {}),
		async fetchPlan(_network, { etag }) {
			if (own.isAway) throw new Error('away');
			const bytes = bytesOf(published());
			return etag === etagOf(bytes)
				? { kind: 'unchanged' as const }
				: { kind: 'changed' as const, etag: etagOf(bytes), bytes };
		},
		runtime: () => ({ resolved: { settings: { fleet: fleetSettings, deviceType: 'kiosk' } }, network: {} }) as never,
		identity: identity as never,
		fallback: () => ({ workflowId: own.live, heartbeatCadence: 30 }),
		isOffline: () => false,
		needsBytes: () => false,
		onPlan(plan, envelope) {
			own.handedOver = null;
			handOver.received(plan, envelope);
		},
		onLook: () => {
			looked += 1;
		},
		requestReconcile() {},
	});
	const handOver = createHandOver({
		clock,
		settings: () => ({
			update: { enabled: true, judgeSeconds: 300, source: null, window: null },
			workflow: { maxDeferSeconds: 900 },
		}),
		device: fleet.device,
		get version() {
			return own.version;
		},
		isHeld: () => false,
		isInstalled: () => true,
		records: () => NO_RECORDS,
		packageVersion: () => null,
		// Root, apt and the judge, in short.
		write() {
			const { ordered } = handOver;
			own.handedOver = ordered;
			if (!ordered || own.takenBack.some(({ version }) => version === ordered) || ordered < own.version) return;
			if (ordered === own.breaks) own.takenBack.push({ version: ordered, fault: 'crashes' });
			else own.version = ordered;
		},
	});
	function act(): void {
		const known = fleet.record();
		if (own.isAway || !own.isThere || !known) return;
		const record = applyDue(known, clock.wallMs());
		if (record !== known) fleet.keep(record);
		const target = planTarget(record, clock.wallMs());
		const isBad = target?.workflowId === own.refuses && target?.workflowId !== own.live;
		own.refused = isBad && target ? target.revision : null;
		if (target?.workflowId && !isBad) own.live = target.workflowId;
		if (target && !isBad) fleet.keep(confirmed(record, clock.wallMs()));
		handOver.reevaluate();
		own.heardMs = clock.trueMs();
	}
	return {
		deviceId,
		own,
		fleet,
		handOver,
		act,
		get labels() {
			return fleetSettings.labels;
		},
		async pass(ms: number) {
			if (!own.isThere) return;
			for (let passed = 0; passed < ms; passed += 300_000) {
				const before = looked;
				clock.advance(300_000);
				for (let turn = 0; turn < 12 && looked === before; turn += 1) await Promise.resolve();
				act();
			}
		},
		start() {
			if (own.isThere) fleet.reevaluate();
		},
		relabel(label: string) {
			fleetSettings.labels = [label];
			fleet.reevaluate();
		},
		stop() {
			fleet.stop();
			handOver.stop();
		},
		/** As metrics tell it. */
		report(nowMs: number): DeviceReport | null {
			const known = fleet.record();
			if (own.heardMs === null) return null;
			return {
				deviceId,
				serial: null,
				macAddress: null,
				deviceType: null,
				labels: fleetSettings.labels,
				online: !own.isAway,
				workflowId: own.live,
				heardAtMs: own.isAway ? own.heardMs : nowMs,
				offlineSinceMs: own.isAway ? own.heardMs : null,
				planRevision: known?.followed ?? null,
				planRefused: own.refused,
				refusal: null,
				hindrance: null,
				next: null,
				agentVersion: own.version,
				takenBack: own.takenBack,
				problem: null,
			};
		},
		/** What it is by its own word, without a look at the plan by the manager. */
		truth(): string {
			if (own.heardMs === null) return 'neverSeen';
			if (own.isAway) return 'offline';
			if (own.refused !== null) return 'refused';
			const { ordered } = handOver;
			const isDue = ordered !== null && ordered === own.handedOver;
			if (isDue && own.takenBack.some(({ version }) => version === ordered)) return 'refused';
			return 'there';
		},
	};
}

let checked = 0;
const counts: Record<string, number> = {};
const failures: string[] = [];
for (let number = 0; number < FLEETS && failures.length < 10; number += 1) {
	const random = randomFrom(SEED + number * 7919);
	let document = drawnPlan(random, 1, START);
	let nowMs = START;
	const devices = Array.from({ length: DEVICES }, (_, index) => createDevice(index, random, () => document));
	for (const device of devices) device.start();
	for (let round = 0; round < 4; round += 1) {
		const plan = planSchemaOf(document).parse(document);
		await Promise.all(devices.map((device) => device.pass(3 * HOUR)));
		nowMs += 3 * HOUR;
		const compiled = compilePlan(plan);
		const standings = devices.map((device) => {
			const known = {
				deviceId: device.deviceId,
				serial: null,
				macAddress: null,
				deviceType: null,
				labels: device.labels,
			};
			const context = { nowMs, staleMs: HOUR, graceMs: HOUR, publishedMs: nowMs - 3 * HOUR };
			const said = standingOf(compiled, known, device.report(nowMs), context);
			const truth = device.truth();
			// A ring that begins within the grace has reached a device whose clock is fast, and not yet one whose clock is slow.
			const { words } = planFor(compiled, known, nowMs);
			if (words.some(({ atMs }) => atMs !== null && Math.abs(atMs - nowMs) <= HOUR)) return said;
			checked += 1;
			counts[said.standing] = (counts[said.standing] ?? 0) + 1;
			const isThere = said.standing === 'atTarget' || said.standing === 'dueLater';
			const hasOlder =
				said.standing === 'overdue' && said.targetVersion !== null && device.own.version > said.targetVersion;
			if (truth === 'there' ? !isThere && !hasOlder : said.standing !== truth)
				failures.push(
					`fleet ${number}, round ${round}, ${device.deviceId}: said ${said.standing} (${said.reason}), is ${truth}; ${JSON.stringify({ record: device.fleet.record(), plan: number === 6 ? document : 0, ...device.own, target: said.target, targetVersion: said.targetVersion })}`,
				);
			return said;
		});
		const { steps, devices: all } = sumUp(standings);
		if (all !== DEVICES) failures.push(`fleet ${number}: ${all} of ${DEVICES} devices are counted`);
		if (steps.some(({ failed, reported, silent }) => failed > reported + silent))
			failures.push(`fleet ${number}: more have failed than are judged`);
		// The next step: what a device was told it is told again, unless the step itself says otherwise.
		const before = devices.map(({ own }) => own.version);
		const { document: next, changes } = nextPlan(document, plan, { kind: 'next-ring', percents: RINGS }, { nowMs });
		if (changes.length > 0 && random() < 0.6) {
			const after = compilePlan(planSchemaOf(next).parse(next));
			for (const [index, device] of devices.entries()) {
				const said = standingOf(
					after,
					{ deviceId: device.deviceId, serial: null, macAddress: null, deviceType: null, labels: device.labels },
					null,
					{ nowMs, staleMs: HOUR, graceMs: HOUR, publishedMs: null },
				);
				const change = changes.find(({ rule }) => rule === said.rule);
				const isReached = change?.version && rolloutPercentile(device.deviceId) < change.after;
				if (isReached && !said.targetVersion)
					failures.push(`fleet ${number}: next-ring reaches ${device.deviceId} without version ${change.version}`);
				const was = standings[index];
				if (was?.targetVersion && !said.targetVersion)
					failures.push(
						`fleet ${number}: next-ring takes version ${was.targetVersion} from ${device.deviceId} at ${rolloutPercentile(device.deviceId)} %, which has ${before[index]}`,
					);
			}
			document = next;
		} else document = drawnPlan(random, Number(document['revision']) + 1, nowMs);
		for (const device of devices) {
			device.own.isAway = device.own.isThere && random() < 0.1;
			if (random() < 0.1) device.relabel(pick(random, ['lobby', 'yard', 'roof']));
		}
	}
	for (const device of devices) device.stop();
}
console.log(`seed ${SEED}: ${FLEETS} fleets of ${DEVICES} devices, ${checked} looks, ${JSON.stringify(counts)}`);
for (const failure of failures) console.error(failure);
process.exitCode = failures.length > 0 ? 1 : 0;
