import { expect, test } from 'vitest';
import { fixture, identity } from '../connection/network-peers.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

test('a device whose Connection is revoked while a client certificate is refused registers again by the one from before [F1579]', async () => {
	const tls = { ...identity('server'), requestCert: true, rejectUnauthorized: true };
	const service = await givenService({ tls });
	const home = await givenHome();
	const apiKeyFile = await home.secretFile('key', service.credentials.apiKey);
	const baseUrl = service.url.replace('127.0.0.1', 'localhost');
	const network = {
		caFile: fixture('ca.pem'),
		clientCertificateFile: fixture('client.pem'),
		clientKeyFile: fixture('client.key'),
	};
	const good = {
		baseUrl,
		workflowId: 'check-in',
		credential: { apiKeyFile },
		network,
		fleet: { changeLimitSeconds: 20 },
	};
	const device = await givenAgent({ home, settings: good });
	await device.untilLive('check-in');
	await home.writeSettings({ ...good, network: { caFile: network.caFile } });
	await device.daemon.reload();
	await device.untilStatus(({ problem, warnings }) => problem !== null || warnings.length > 0);
	device.clock.advance(20_000);
	await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes('was not online with')));
	const lost = device.untilState('offline');
	service.revoke('KIOSK-0001');
	service.dropSockets();
	await lost;
	const back = device.untilState('online');
	for (let waits = 0; waits < 60 && device.agent.status().state !== 'online'; waits += 1)
		await Promise.race([device.passWait(), back]);
	await back;
	expect(device.agent.status().baseUrl).toBe(baseUrl);
});
