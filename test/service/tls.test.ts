import { expect, test } from 'vitest';
import { credentialsOf, givenService, openChannel, send } from './fixture.ts';

/** For 127.0.0.1 and nothing else; worth nothing outside of this test. */
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgaxEcp4YCCv3I1ldF
yRCH4EqLYGYoEJnSJkRAhHaVovmhRANCAAQYzebFjtv9+mc7M682AlzTU44/Vodw
joOjjhFis0rUgCqCZNXsX3Zj5c967uJ1ZHD4tsKB6RP5qggxSkaJKYo8
-----END PRIVATE KEY-----
`;
const cert = `-----BEGIN CERTIFICATE-----
MIIBkDCCATagAwIBAgIUaISV/atX04SAC2GqQ47bN94rg5EwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyMTA0MTUzNFoYDzIxMjYxMDI4
MDQxNTM0WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQYzebFjtv9+mc7M682AlzTU44/VodwjoOjjhFis0rUgCqCZNXsX3Zj
5c967uJ1ZHD4tsKB6RP5qggxSkaJKYo8o2QwYjAdBgNVHQ4EFgQUz2yy9DBWpGC5
kqcFlqY1RIpI5tcwHwYDVR0jBBgwFoAUz2yy9DBWpGC5kqcFlqY1RIpI5tcwDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0gAMEUC
IGCovz6pS6aVFTTisxSbT5zl/pB826eZ4k+kmbQH3XkuAiEAvyUZxRXSo4hjzVxn
8Ov2ogZScgLOoJAkvoeeVMjHh+E=
-----END CERTIFICATE-----
`;

test('the service speaks TLS with a certificate: requests, links, channel, cut lines and restart', async () => {
	const service = await givenService({ tls: { key, cert } });
	expect(service.url).toBe(`https://127.0.0.1:${service.port}`);
	expect(service.createPairingCode(null).url).toMatch(/^https:/);
	const register = () =>
		send(service.url, {
			path: '/api/device/connection',
			authorization: credentialsOf(service).Basic,
			body: { deviceId: 'kiosk-1', workflowId: 'check-in' },
			ca: cert,
		});
	const { token } = (await register()).json;
	const cut = await openChannel(service, token, { ca: cert });
	service.dropSockets();
	expect(await cut.closed).toMatchObject({ code: 1006 });
	const closed = await openChannel(service, token, { ca: cert });
	await service.restart();
	expect(await closed.closed).toMatchObject({ code: 1012 });
	service.dropBeforeReply('/api/device/connection');
	await expect(register()).rejects.toThrow('socket hang up');
	await expect(openChannel(service, null, { ca: cert })).rejects.toMatchObject({ status: 401 });
});
