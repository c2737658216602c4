import { expect, test } from 'vitest';
import { addressFor } from '../../src/pairing/rescue.ts';
import type { Status } from '../../src/protocol/local-api.ts';
import { givenAgent, givenHome, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const DEAD = 'http://127.0.0.1:1';
const LIMIT = { fleet: { changeLimitSeconds: 20 } };

async function given() {
	const service = await givenService({ workflows: ['check-in', 'boarding'] });
	const home = await givenHome();
	const device = await givenPairedAgent(service, { home, settings: LIMIT });
	await home.writeSettings({ ...LIMIT, baseUrl: DEAD, workflowId: 'boarding' });
	await device.daemon.reload();
	await device.untilStatus(({ problem }) => problem !== null);
	return { service, home, device };
}

const isRefused = ({ refusedWay }: { readonly refusedWay: unknown }) => refusedWay !== null;

const isLost = ({ state, problem }: Status) => state !== 'online' && problem?.code === 'credential-refused';

/** That the pairing stays, also when the settings are looked at once more. */
async function expectPaired(device: RunningAgent, baseUrl: string) {
	await device.daemon.reload();
	const { connections } = await device.home.untilSaved(
		({ connections: [online, newer] }) => online?.worked === true && newer === undefined,
	);
	expect(connections).toMatchObject([{ baseUrl }]);
	expect(device.agent.status()).toMatchObject({ state: 'online', baseUrl, workflow: { live: 'check-in' } });
}

test.each([
	{ what: 'is refused', waits: true, restarts: false },
	{ what: 'is refused over a restart', waits: true, restarts: true },
	{ what: 'is tried', waits: false, restarts: false },
])(
	'while an address that leads nowhere $what, a code of the service from before brings a new Connection when the old one has ended [F980]',
	async ({ waits, restarts }) => {
		const { service, home, device: before } = await given();
		let device = before;
		if (waits) {
			device.clock.advance(20_000);
			await home.untilSaved(isRefused);
		}
		const lost = device.untilStatus(isLost);
		service.revoke('KIOSK-0001');
		await lost;
		if (restarts) {
			await device.stop();
			device = await givenAgent({ home });
			await device.untilStatus(isLost);
		}
		const paired = await device.pair(service.createPairingCode('check-in').url);
		expect(paired).toMatchObject({ online: true, baseUrl: service.url, workflowId: 'check-in' });
		await expectPaired(device, service.url);
		device.clock.advance(20_000);
		await home.untilSaved(isRefused);
		await expectPaired(device, service.url);
		// Its address is still what the settings want, as soon as it works.
		await home.writeSettings({ ...LIMIT, baseUrl: service.url, workflowId: 'boarding' });
		await device.daemon.reload();
		await device.untilLive('boarding');
	},
);

test('an online device takes such a code with --replace, and its channel goes over to the new Connection', async () => {
	const { service, home, device } = await given();
	device.clock.advance(20_000);
	await home.untilSaved(isRefused);
	const [before] = (await home.untilSaved()).connections;
	await expect(device.pair(service.createPairingCode('check-in').url)).rejects.toMatchObject({
		code: 'already-paired',
	});
	const paired = await device.pair(service.createPairingCode('check-in').url, { replace: true });
	expect(paired).toMatchObject({ online: true, baseUrl: service.url });
	await expectPaired(device, service.url);
	expect((await home.untilSaved()).connections[0]?.token).not.toBe(before?.token);
});

test('codes of the address of the settings and of the one in force are both good, and a bare one is for where the device is or goes', () => {
	const [now, then, other] = ['https://a.example/x', 'https://b.example', 'https://c.example'];
	const of = (baseUrl: string | null, replace = false) => addressFor({ baseUrl, replace }, then, now);
	expect([of('https://a.example'), of(now), of('https://a.example', true)]).toEqual([now, now, now]);
	expect([of(then), of(then, true), of(other), of(other, true)]).toEqual([then, then, then, then]);
	expect([of(null), of(null, true)]).toEqual([now, then]);
	expect(addressFor({ baseUrl: null, replace: false }, null, now)).toBeNull();
	expect(addressFor({ baseUrl: null, replace: false }, then, null)).toBe(then);
});
