/** Real proxies and TLS fronts between a device and its service, for requests and for the channel alike. */
import { describe, test as plain, type TestContext } from 'vitest';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { type DeviceProcess, givenDevice } from './device-process.ts';
import {
	haproxy,
	mitmproxy,
	nginx,
	PASSWORD,
	type ProxyOptions,
	type RunningProxy,
	squid,
	tinyproxy,
} from './proxies.ts';
import { givenTwoHosts, SERVICE_NAME, type TwoHosts } from './two-hosts.ts';

const test = plain.concurrent;
/** What takes longer than CI has. */
const long = process.env['FAULTS'] === 'short' ? test.skip : test;
type Context = Pick<TestContext, 'expect' | 'onTestFinished'>;

interface Site {
	readonly hosts: TwoHosts;
	readonly service: EmbeddedService;
	readonly device: DeviceProcess;
	/** Writes the settings with a change and starts the device, or has it read them anew. */
	settings(change: object): Promise<void>;
}

/** A service that the device can reach only by way of a proxy: its own port swallows connections. */
async function givenSite({ onTestFinished }: Context, { direct = false, plainHttp = false } = {}): Promise<Site> {
	const hosts = await givenTwoHosts({ atTheEnd: onTestFinished });
	await hosts.startNames();
	const service = await startService({
		...(plainHttp ? {} : { host: hosts.address, allowNonLoopback: true, tls: identity('server') }),
		workflows: ['check-in'],
	});
	onTestFinished(() => service.close());
	if (!direct) hosts.blackHolePort(service.port);
	const device = await givenDevice({ prefix: hosts.prefix, atTheEnd: onTestFinished });
	const apiKeyFile = await device.secretFile('key', service.credentials.apiKey);
	return {
		hosts,
		service,
		device,
		settings: (change) =>
			device.writeSettings({
				baseUrl: `https://${SERVICE_NAME}:${service.port}`,
				workflowId: 'check-in',
				heartbeatCadence: 2,
				deviceId: 'KIOSK-7',
				network: { caFile: fixture('ca.pem') },
				credential: { apiKeyFile },
				...change,
			}),
	};
}

/** Requests, the channel and heartbeats go through; the credential is still what it was. */
async function expectOnline({ service, device }: Site, { expect }: Context, proxy: RunningProxy): Promise<void> {
	const heartbeat = service.waitFor('heartbeat', ({ heartbeat: { sequence } }) => sequence >= 2, 120_000);
	await device.untilState('online');
	await heartbeat;
	service.notify({ type: 'through-the-proxy' });
	await device.untilEvent(({ kind }) => kind === 'through-the-proxy');
	expect(device.output()).not.toContain(PASSWORD);
	expect(device.output()).not.toContain(encodeURIComponent(PASSWORD));
	expect(device.output()).not.toContain(service.credentials.apiKey);
	expect(proxy.log()).not.toContain(service.credentials.apiKey);
}

type Start = (options: ProxyOptions) => Promise<RunningProxy>;
const FORWARD: readonly (readonly [string, Start])[] = [
	['tinyproxy', tinyproxy],
	['squid', squid],
	['mitmproxy', mitmproxy],
];

describe.concurrent.for(FORWARD)('%s', ([name, start]) => {
	/** What inspects TLS shows an authority of its own. */
	const trusting = (proxy: RunningProxy) => proxy.caFile ?? fixture('ca.pem');

	test('with user and password carries requests and the channel [F054]', async (context) => {
		const site = await givenSite(context);
		const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished, password: true });
		await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.urlWithPassword } });
		await site.device.start();
		await expectOnline(site, context, proxy);
	});

	long(
		'that wants a password is named as the proxy, costs no credential, and a password helps [F056]',
		async (context) => {
			const { expect } = context;
			const site = await givenSite(context);
			const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished, password: true });
			await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.url } });
			await site.device.start();
			const { problem, sentence } = await site.device.untilProblem('proxy-refused');
			expect(sentence).toMatch(/proxy/i);
			expect(problem?.remedy).toContain('the credential of this device is not in question');
			expect(site.service.requests).toEqual([]);
			await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.urlWithPassword } });
			await expectOnline(site, context, proxy);
		},
	);

	long('from the environment is used by requests and the channel, and NO_PROXY by both [F055]', async (context) => {
		const { expect } = context;
		const site = await givenSite(context, { direct: true });
		const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished });
		await site.settings({ network: { caFile: trusting(proxy) } });
		await site.device.start({ environment: { HTTPS_PROXY: proxy.url } });
		await expectOnline(site, context, proxy);
		await site.device.end();
		await proxy.stop();
		await site.settings({});
		await site.device.start({ environment: { HTTPS_PROXY: proxy.url, NO_PROXY: SERVICE_NAME } });
		expect((await site.device.untilState('online')).problem).toBeNull();
	});

	long(
		'that dies takes the device offline, and is named until network.proxy names one that runs [F070]',
		async (context) => {
			const { expect } = context;
			const site = await givenSite(context);
			const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished });
			await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.url } });
			await site.device.start();
			await site.device.untilState('online');
			await proxy.stop();
			const { problem } = await site.device.untilProblem('proxy-failed');
			expect(problem?.message).toContain('proxy');
			expect(problem?.remedy).toContain('Check network.proxy and that the proxy runs');
			expect(JSON.parse(await site.device.state()).connections).toHaveLength(1);
			const another = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished });
			await site.settings({ network: { caFile: trusting(another), proxy: another.url } });
			await expectOnline(site, context, another);
		},
	);

	const filtering = name === 'mitmproxy' ? test.skip : name === 'squid' ? long : test;
	filtering('that allows no such host is named as the proxy [F057]', async (context) => {
		const { expect } = context;
		const site = await givenSite(context);
		const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished, refuse: true });
		await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.url } });
		await site.device.start();
		const { problem } = await site.device.untilProblem('proxy-refused');
		expect(problem?.message).toContain('403');
		expect(site.service.requests).toEqual([]);
	});

	long('says that a service behind it can not be reached [F058]', async (context) => {
		const { expect } = context;
		const site = await givenSite(context);
		const proxy = await start({ address: site.hosts.address, atTheEnd: context.onTestFinished });
		await site.settings({ network: { caFile: trusting(proxy), proxy: proxy.url } });
		await site.device.start();
		await site.device.untilState('online');
		const away = Promise.withResolvers<void>();
		context.onTestFinished(() => away.resolve());
		const restarted = site.service.restart({ until: away.promise, hard: true });
		const { problem } = await site.device.untilStatus(
			({ problem: now }) => now !== null && now.code !== 'connection-lost',
			'word of what is away',
		);
		expect(['proxy-failed', 'service-overloaded', 'service-failed', 'tls-failed']).toContain(problem?.code);
		away.resolve();
		await restarted;
		await expectOnline(site, context, proxy);
	});
});

test('a proxy that inspects TLS with an authority that nobody has named is not trusted, and the remedy names the setting [F053]', async (context) => {
	const { expect } = context;
	const site = await givenSite(context);
	const proxy = await mitmproxy({ address: site.hosts.address, atTheEnd: context.onTestFinished });
	await site.settings({ network: { caFile: fixture('ca.pem'), proxy: proxy.url } });
	await site.device.start();
	const { problem } = await site.device.untilProblem('certificate-untrusted');
	expect(problem?.remedy).toContain('network.caFile');
	expect(site.service.requests).toEqual([]);
	await site.settings({ network: { caFile: proxy.caFile, proxy: proxy.url } });
	await expectOnline(site, context, proxy);
});

describe.concurrent.for([
	['nginx', nginx],
	['haproxy', haproxy],
] as const)('%s before the service', ([name, start]) => {
	const front = async (site: Site, context: Context, more: object = {}) => {
		const { address } = site.hosts;
		const { port: servicePort } = site.service;
		const proxy = await start({ address, atTheEnd: context.onTestFinished, servicePort, ...more });
		return { proxy, baseUrl: `https://${SERVICE_NAME}:${proxy.port}` };
	};

	long(
		'carries requests and the channel; what it says itself while the service is away is waited out [F059]',
		async (context) => {
			const { expect } = context;
			const site = await givenSite(context, { direct: true, plainHttp: true });
			const { proxy, baseUrl } = await front(site, context);
			await site.settings({ baseUrl });
			await site.device.start();
			await expectOnline(site, context, proxy);
			const away = Promise.withResolvers<void>();
			context.onTestFinished(() => away.resolve());
			const restarted = site.service.restart({ until: away.promise, hard: true });
			const { problem } = await site.device.untilStatus(
				({ problem: now }) => now?.code === 'service-failed' || now?.code === 'service-overloaded',
				'word of the front',
			);
			expect(problem?.message).toMatch(/answered 50[23]/);
			away.resolve();
			await restarted;
			await expectOnline(site, context, proxy);
		},
	);

	test('wants a client certificate: without it the device says so, with it all is well [F060]', async (context) => {
		const { expect } = context;
		const site = await givenSite(context, { direct: true, plainHttp: true });
		const { proxy, baseUrl } = await front(site, context, { clientCertificate: true });
		await site.settings({ baseUrl });
		await site.device.start();
		const { problem } = await site.device.untilStatus(({ problem: now }) => now !== null, 'problem');
		// haproxy cuts the line with its alert still unread: that nobody can tell from a lost connection.
		expect(name === 'nginx' ? ['tls-failed'] : ['tls-failed', 'connection-lost']).toContain(problem?.code);
		if (problem?.code === 'tls-failed') expect(problem.remedy).toContain('network.clientCertificateFile');
		await site.settings({
			baseUrl,
			network: {
				caFile: fixture('ca.pem'),
				clientCertificateFile: fixture('client.pem'),
				clientKeyFile: fixture('client.key'),
			},
		});
		await site.device.reconnect();
		await expectOnline(site, context, proxy);
	});

	long('refuses with 403: nothing is deleted, and a person is asked', async (context) => {
		const { expect } = context;
		const site = await givenSite(context, { direct: true, plainHttp: true });
		const { baseUrl } = await front(site, context, { refuse: true });
		await site.settings({ baseUrl });
		await site.device.start();
		const { problem } = await site.device.untilProblem('access-forbidden');
		expect(problem?.message).toContain('403');
	});
});
