import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { CheckId } from '../../src/diagnosis/check-list.runner.ts';
import { connectProxy, fixture, identity, listen, rawServer, refusedPort } from '../connection/network-peers.ts';
import { examine, expectProblem, expectSkipped } from './examine.ts';

const look = (settings: object, ...checks: CheckId[]) => examine({ settings }, ...checks);

const trusting = { network: { caFile: fixture('ca.pem') } };

async function tlsPort(certificate: string, status = 405): Promise<number> {
	const { cert, key } = identity(certificate);
	return listen(createHttpsServer({ cert, key }, (_request, response) => response.writeHead(status).end()));
}

describe('the way to the service', () => {
	test('ends at a port that refuses connections', async () => {
		const report = await look({ baseUrl: `https://localhost:${await refusedPort()}` }, 'tls');
		expect(report.checks.dns).toMatchObject({ status: 'ok', message: expect.stringContaining('127.0.0.1') });
		expectProblem(report.checks.tcp, 'failed', 'service-unreachable', /ECONNREFUSED/);
		expect(report.checks.tls).toMatchObject({ status: 'skipped', blockedBy: 'tcp' });
	});

	test('ends at a proxy that refuses; with a password that it takes it goes on', async () => {
		const proxy = await connectProxy({ targetPort: await tlsPort('server'), password: 'kiosk:s3cret-of-the-proxy' });
		const settings = (user: string) => ({
			baseUrl: 'https://service.test',
			network: { proxy: `http://${user}127.0.0.1:${proxy.port}`, caFile: fixture('ca.pem') },
		});
		const refused = await look(settings(''), 'http');
		expectProblem(refused.checks.proxy, 'failed', 'proxy-refused', /407/);
		expect(refused.checks.tls).toMatchObject({ status: 'skipped', blockedBy: 'proxy' });
		const taken = await look(settings('kiosk:s3cret-of-the-proxy@'), 'http', 'clock');
		expect(taken.checks).toMatchObject({
			proxy: { status: 'ok', message: `127.0.0.1:${proxy.port} connects to service.test.` },
			clock: { status: 'ok' },
			tls: { status: 'ok' },
			http: { status: 'ok', message: expect.stringContaining('405') },
		});
		expect(JSON.stringify(taken.checks)).not.toContain('s3cret');
	});

	test('ends at a proxy that is not there, and says that it is the proxy', async () => {
		const network = { proxy: `http://127.0.0.1:${await refusedPort()}` };
		const report = await look({ baseUrl: 'https://service.test', network }, 'http');
		expectProblem(report.checks.tcp, 'failed', 'proxy-failed', /proxy on the way to service\.test/);
	});

	test.each([
		['expired', 'certificate-expired', /expired .*signed by Test authority, ended 2020-01-02/],
		['not-yet-valid', 'clock-wrong', /not valid yet/],
		['wrong-host', 'certificate-wrong-host', /for another host/],
	])('ends at a certificate that is %s', async (certificate, code, words) => {
		const settings = { baseUrl: `https://localhost:${await tlsPort(certificate)}`, ...trusting };
		const report = await look(settings, 'http', 'clock');
		expectProblem(report.checks.tls, 'failed', code, words);
		expect(report.checks.http).toMatchObject({ status: 'skipped', blockedBy: 'tls' });
		// The time is asked for all the same: a wrong clock is the usual cause.
		expect(report.checks.clock).toMatchObject({ status: 'ok', message: expect.stringContaining('not accepted') });
	});

	test('ends at a certificate of an authority that is not trusted', async () => {
		const report = await look({ baseUrl: `https://localhost:${await tlsPort('server')}` }, 'tls');
		expectProblem(report.checks.tls, 'failed', 'certificate-untrusted', /signed by Test authority/);
		expect(report.checks.tls).toMatchObject({ remedy: expect.stringContaining('network.caFile') });
	});

	test('that is whole shows the days that the certificate has left', async () => {
		const report = await look({ baseUrl: `https://localhost:${await tlsPort('server', 401)}`, ...trusting }, 'http');
		expect(report.checks).toMatchObject({
			tls: { status: 'ok', message: expect.stringMatching(/\d{4,} days left/) },
			http: { status: 'ok' },
		});
		expect(report.exitStatus).toBe(0);
	});

	test('that does not speak TLS at all is told', async () => {
		const port = await listen(createServer((socket) => socket.end('220 mail.example ESMTP\r\n')));
		expectProblem(
			(await look({ baseUrl: `https://localhost:${port}` }, 'tls')).checks.tls,
			'failed',
			'tls-failed',
			/TLS/,
		);
	});

	test('leads to a host that never answers', async () => {
		const port = await listen(createServer(() => {}));
		const report = await look({ baseUrl: `https://localhost:${port}` }, 'http');
		expectProblem(report.checks.tls, 'failed', 'handshake-timeout', /localhost/);
		expect(report.checks.http).toMatchObject({ status: 'skipped', blockedBy: 'tls' });
	});

	test('on which a handshake is lost after another one was made is not told as a port that is closed [F1558]', async () => {
		const service = await tlsPort('server');
		let made = 0;
		const port = await listen(
			createServer((socket) => {
				made += 1;
				// The connection alone, and the look at the certificate.
				if (made <= 2) socket.pipe(connect(service)).pipe(socket);
				socket.on('error', () => {});
			}),
		);
		const report = await look({ baseUrl: `https://localhost:${port}`, ...trusting }, 'http');
		expect(report.checks).toMatchObject({ tcp: { status: 'ok' }, tls: { status: 'ok' } });
		expectProblem(report.checks.http, 'failed', 'tls-failed', /accepts connections, but its part of the TLS handshake/);
	});

	const answering = async (listener: RequestListener) => ({
		baseUrl: `http://127.0.0.1:${await listen(createHttpServer(listener))}`,
	});

	test('leads to a captive portal', async () => {
		const portal = await answering((_request, response) =>
			response.setHeader('content-type', 'text/html').end('<html>Accept our terms</html>'),
		);
		expectProblem((await look(portal, 'http')).checks.http, 'failed', 'captive-portal', /web page/);
	});

	test('leads to a service that has too much to do, and asks for a wait [F1561]', async () => {
		const busy = await answering((_request, response) => response.writeHead(503, { 'retry-after': '3600' }).end());
		expectProblem(
			(await look(busy, 'http')).checks.http,
			'failed',
			'service-overloaded',
			/It asks to wait for 60 min\.$/,
		);
	});

	test('leads to a portal that sends elsewhere', async () => {
		const portal = await answering((_request, response) =>
			response.writeHead(302, { location: 'http://portal.example/login' }).end(),
		);
		expectProblem((await look(portal, 'http')).checks.http, 'failed', 'captive-portal', /portal\.example/);
	});

	test('shows by the Date of the service that the clock here is wrong', async () => {
		const threeDays = 3 * 86_400_000;
		const ahead = await answering((_request, response) =>
			response
				.setHeader('date', new Date(Date.now() + threeDays).toUTCString())
				.writeHead(405)
				.end(),
		);
		const report = await look(ahead, 'clock');
		expectProblem(report.checks.clock, 'failed', 'clock-wrong', /3 days slow, by the clock of 127\.0\.0\.1/);
		expect(report.exitStatus).toBe(69);
	});

	test('that ends at a name stops there, and names the name', async () => {
		const report = await look({ baseUrl: 'https://nowhere.invalid' }, 'heartbeat', 'clock');
		expectProblem(report.checks.dns, 'failed', 'dns-failed', /^The name nowhere\.invalid can't be resolved \(E/);
		expectSkipped(report, 'dns', 'tcp', 'proxy', 'tls', 'http', 'channel', 'heartbeat');
		// The clock needs no network check; without an answer it is not compared, and says why.
		expectSkipped(report, null, 'clock');
		expect(report.checks.clock?.message).toBe('Not compared: nowhere.invalid could not be asked (dns-failed).');
		expect(report).toMatchObject({ first: 'dns', exitStatus: 69 });
	});

	test('that ends at the name of the proxy is the fault of the proxy', async () => {
		const settings = { baseUrl: 'https://service.test', network: { proxy: 'http://nowhere.invalid:3128' } };
		const report = await look(settings, 'tcp');
		expectProblem(
			report.checks.dns,
			'failed',
			'proxy-failed',
			/^The proxy on the way to service\.test can't be reached/,
		);
	});

	test('has no name to resolve when it is an address, of either family', async () => {
		for (const [host, shown] of [
			['127.0.0.1', '127.0.0.1'],
			['[::1]', '\\[::1\\]'],
		] as const) {
			const report = await look({ baseUrl: `https://${host}:${await refusedPort()}` }, 'tcp');
			expectSkipped(report, null, 'dns');
			expect(report.checks.dns?.message).toMatch(new RegExp(`^${shown} is an IP address; there is nothing to resolve`));
			expectProblem(report.checks.tcp, 'failed', 'service-unreachable', /refuses connections/);
		}
	});

	test('names the port and the address that accepted the connection', async () => {
		const port = await tlsPort('server');
		const { checks } = await look({ baseUrl: `https://localhost:${port}` }, 'tcp');
		expect(checks.tcp?.message).toBe(`127.0.0.1 accepts connections on port ${port}.`);
	});

	test.each([
		['never answers', 'hang'],
		['hangs up', 'drop'],
	] as const)('ends at a proxy that %s', async (_name, behaviour) => {
		const proxy = await connectProxy({ behaviour });
		const settings = { baseUrl: 'https://service.test', network: { proxy: `http://127.0.0.1:${proxy.port}` } };
		const report = await look(settings, 'http');
		expectProblem(report.checks.proxy, 'failed', 'proxy-failed', /^The proxy gave no connection to service\.test\.$/);
		expectSkipped(report, 'proxy', 'tls', 'http');
		await proxy.abandoned;
	});

	test.each(['server', 'expired'])('through a proxy shows the certificate: %s', async (certificate) => {
		const proxy = await connectProxy({ targetPort: await tlsPort(certificate) });
		const settings = {
			baseUrl: 'https://service.test',
			network: { proxy: `http://127.0.0.1:${proxy.port}`, ...trusting.network },
		};
		const { checks } = await look(settings, 'tls');
		expect(checks.proxy).toMatchObject({ status: 'ok' });
		if (certificate === 'server') expect(checks.tls?.message).toMatch(/days left, signed by Test authority, TLSv1\.3/);
		else expectProblem(checks.tls, 'failed', 'certificate-expired', /signed by Test authority, ended 2020-01-02/);
	});

	test('through a proxy to a host that never finishes its handshake is not the fault of the proxy', async () => {
		const proxy = await connectProxy({ targetPort: await listen(createServer(() => {})) });
		const settings = { baseUrl: 'https://service.test', network: { proxy: `http://127.0.0.1:${proxy.port}` } };
		const { checks } = await look(settings, 'tls');
		expect(checks.proxy).toMatchObject({ status: 'ok' });
		expectProblem(checks.tls, 'failed', 'handshake-timeout', /^service\.test did not finish its TLS handshake in time/);
		await proxy.abandoned;
	});

	test('sends no credential, and to a certificate that is not accepted only a request for the time', async () => {
		const heads: string[] = [];
		const { cert, key } = identity('server');
		const server = createHttpsServer({ cert, key }, ({ method, url, headers }, response) => {
			heads.push(`${method} ${url} ${Object.keys(headers).toSorted()}`);
			response.writeHead(405).end();
		});
		const baseUrl = `https://localhost:${await listen(server)}`;
		await look({ baseUrl }, 'http', 'clock');
		expect(heads).toEqual(['HEAD / connection,host']);
		await look({ baseUrl, ...trusting }, 'http');
		expect(heads.join()).not.toMatch(/authorization/);
	});

	test('a host with a valid certificate that never answers fails in HTTP only', async () => {
		const { cert, key } = identity('server');
		const port = await listen(createHttpsServer({ cert, key }, () => {}));
		const report = await look({ baseUrl: `https://localhost:${port}`, ...trusting }, 'channel', 'clock');
		expect(report.checks.tls).toMatchObject({ status: 'ok' });
		expectProblem(report.checks.http, 'failed', 'request-timeout', /localhost:\d+ did not answer in time\.$/);
		expectSkipped(report, 'http', 'channel');
		expectSkipped(report, null, 'clock');
	});

	test('an answer without a date leaves the clock uncompared', async () => {
		const { port } = await rawServer((socket) => socket.end('HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n'));
		const report = await look({ baseUrl: `http://127.0.0.1:${port}` }, 'clock', 'http');
		expectSkipped(report, null, 'clock', 'tls', 'proxy');
		expect(report.checks.clock?.message).toBe(`Not compared: the answer of 127.0.0.1:${port} has no date.`);
		expect(report.checks.http).toMatchObject({ status: 'ok' });
	});

	test('a clock that is fast is told with its direction', async () => {
		const date = new Date(Date.now() - 3_600_000).toUTCString();
		const service = await answering((_request, response) => response.setHeader('date', date).writeHead(405).end());
		const { checks } = await look(service, 'clock');
		expectProblem(checks.clock, 'failed', 'clock-wrong', /^This device's clock is 60 min fast|1 h/);
	});
});
