/** A service, or a proxy in front of one, that speaks HTTP/2 and nothing else. */
import { createSecureServer } from 'node:http2';
import { createServer as createTlsServer, type Server } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { type ChannelEvent, openChannel } from '../../src/connection/channel.edge.ts';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { createServiceClient } from '../../src/connection/service-client.edge.ts';
import { fixture, identity, listen } from './network-peers.ts';

const ONLY = { code: 'tls-failed', message: expect.stringMatching(/^127\.0\.0\.1:\d+ speaks HTTP\/2 only\.$/) };

/** The first bytes of every HTTP/2 server: an empty SETTINGS frame. */
const SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

test.each<[string, () => Server]>([
	[
		'that refuses in the handshake',
		() => createSecureServer({ ...identity('server'), allowHTTP1: false }) as unknown as Server,
	],
	[
		'that offers only h2',
		() => createTlsServer({ ...identity('server'), ALPNProtocols: ['h2'] }, (socket) => void socket.write(SETTINGS)),
	],
	['that asks for nothing', () => createTlsServer(identity('server'), (socket) => void socket.write(SETTINGS))],
])('is named to a registration and to a channel: one %s', async (_what, create) => {
	const port = await listen(create());
	const network = await createNetwork({ caFile: fixture('ca.pem') }, {});
	onTestFinished(() => network.close());
	const registered = await createServiceClient({ network, userAgent: 'test' }).registerDevice({
		baseUrl: `https://127.0.0.1:${port}`,
		authorization: { scheme: 'Token', credential: 'tr-0123456789abcdef' },
		request: { deviceId: 'kiosk-7', workflowId: 'kyc-1' },
	});
	expect(registered).toMatchObject({ ok: false, failure: ONLY });

	const url = new URL(`wss://127.0.0.1:${port}/ws/device`);
	const agent = network.channelAgent(url);
	const ended = await new Promise<ChannelEvent>((resolve) => {
		openChannel(
			{
				url,
				...(agent && { agent }),
				authorization: 'Connection tr-0123456789abcdef',
				userAgent: 'test',
				handshakeMs: 5000,
				proveAfterMs: 5000,
				pingIntervalMs: 5000,
				silenceLimitMs: 0,
			},
			resolve,
		);
	});
	expect(ended).toMatchObject({ type: 'ended', failure: ONLY });
});
