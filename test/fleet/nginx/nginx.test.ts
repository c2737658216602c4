import { expect, test } from 'vitest';
import { createSigner } from '../../fixtures/plans.ts';
import { givenHome, givenPairedAgent, type RunningAgent } from '../../harness/harness.ts';
import { givenService } from '../../service/fixture.ts';
import { startNginx } from './nginx.ts';

const FIRST_LOOK_MS = 5000;
const INTERVAL_MS = 300_000;
const DEVICES = 5;

/** A plan as large as real ones are, so that packing it pays. */
const plan = (revision: number, workflowId: string) => ({
	format: 'idv-fleet-plan/1',
	revision,
	spreadSeconds: 0,
	defaults: { workflowId },
	rules: [
		{
			name: 'others',
			match: { deviceIds: Array.from({ length: 2000 }, (_, index) => `OTHER-${index}`) },
			workflowId: 'x',
		},
	],
});

test('a fleet follows signed plans of a real nginx, which answers 304 and packs what it sends', async () => {
	const service = await givenService();
	const nginx = await startNginx();
	const signer = createSigner();
	const first = signer.sign(plan(1, 'check-in'));
	await nginx.publish(first);
	const settings = {
		fleet: { planUrl: nginx.url, publicKeys: [signer.publicKey] },
		network: { caFile: nginx.caFile },
	};
	const devices: RunningAgent[] = [];
	for (let number = 0; number < DEVICES; number += 1)
		devices.push(
			await givenPairedAgent(service, {
				home: await givenHome(),
				settings,
				machine: { 'sys/class/dmi/id/product_serial': `FLEET-${number}\n` },
			}),
		);
	const all = (fits: Parameters<(typeof devices)[number]['untilStatus']>[0]) =>
		Promise.all(devices.map((device) => device.untilStatus(fits)));
	const pass = (ms: number) => {
		for (const { clock } of devices) clock.advance(ms);
	};
	/** The next look is set; a clock that has run ahead of the service's sets one timer more. */
	const scheduled = () =>
		expect
			.poll(() => Math.min(...devices.map(({ clock }) => clock.pending)), { timeout: 20_000 })
			.toBeGreaterThanOrEqual(3);

	pass(FIRST_LOOK_MS);
	await all(({ plan: known }) => known?.followed === 1);
	for (const round of [1, 2, 3]) {
		await scheduled();
		pass(INTERVAL_MS);
		await nginx.untilLogged(DEVICES * (round + 1));
	}
	const log = await nginx.untilLogged(DEVICES * 4);
	expect(log.map(({ status }) => status)).toEqual([...Array(DEVICES).fill(200), ...Array(3 * DEVICES).fill(304)]);
	const size = JSON.stringify(first).length;
	for (const { bytes, packed, agent } of log.slice(0, DEVICES)) {
		expect(bytes).toBeLessThan(size / 2);
		expect(Number(packed)).toBeGreaterThan(2);
		expect(agent).toBe('idv-agent/0.0.0-test');
	}
	expect(log.slice(DEVICES).map(({ bytes }) => bytes)).toEqual(Array(3 * DEVICES).fill(0));

	const moved = new Set<string>();
	service.on('heartbeat', ({ deviceId, heartbeat }) => {
		if (heartbeat.planRevision === 2) moved.add(deviceId);
	});
	await nginx.publish(signer.sign(plan(2, 'boarding')));
	await scheduled();
	pass(INTERVAL_MS);
	await all(({ workflow, plan: known }) => workflow.live === 'boarding' && known?.followed === 2);
	const told = () => {
		pass(5_000);
		return moved.size;
	};
	await expect.poll(told, { timeout: 20_000 }).toBe(DEVICES);
	for (const device of service.devices()) expect(device).toMatchObject({ workflowId: 'boarding', planRevision: 2 });

	// A revision from before, such as a cache may serve, and one that somebody else has signed.
	await nginx.publish(first);
	await scheduled();
	pass(INTERVAL_MS);
	await all(({ warnings }) => warnings.some(({ code }) => code === 'plan-outdated'));
	await nginx.publish(createSigner().sign(plan(3, 'check-in')));
	await scheduled();
	pass(INTERVAL_MS);
	await all(({ warnings }) => warnings.some(({ code }) => code === 'plan-untrusted'));
	await scheduled();
	await nginx.stop();
	pass(INTERVAL_MS);
	await all(({ warnings }) => warnings.some(({ code }) => code === 'plan-unreachable'));
	await scheduled();
	await nginx.publish(signer.sign(plan(3, 'check-in')));
	nginx.start();
	pass(INTERVAL_MS);
	await all(
		({ workflow, plan: known, warnings }) =>
			workflow.live === 'check-in' && known?.followed === 3 && warnings.every(({ code }) => code === 'clock-wrong'),
	);
	for (const device of devices) expect(device.agent.status().channel.reconnects).toBe(0);
});
