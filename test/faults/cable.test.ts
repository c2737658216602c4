/** What happens on the cable between a device and its service: real packets, real names, a real agent process. */
import { type ExpectStatic, test as plain } from 'vitest';
import { type EmbeddedService, startService } from '../../src/service/embedded-service.runner.ts';
import { fixture, identity } from '../connection/network-peers.ts';
import { type AtTheEnd, type DeviceProcess, givenDevice } from './device-process.ts';
import { givenTwoHosts, SERVICE_NAME, type TwoHosts } from './two-hosts.ts';

const test = plain.concurrent;
/** What takes longer than CI has. */
const long = process.env['FAULTS'] === 'short' ? test.skip : test;

interface Site {
	readonly hosts: TwoHosts;
	readonly service: EmbeddedService;
	readonly device: DeviceProcess;
}

/** A device at the other end of the cable, with an API key; not started. */
async function givenSite(atTheEnd: AtTheEnd, settings: object = {}, host?: (hosts: TwoHosts) => string): Promise<Site> {
	const hosts = await givenTwoHosts({ atTheEnd });
	const service = await startService({
		host: host?.(hosts) ?? hosts.address,
		allowNonLoopback: true,
		tls: identity('server'),
		workflows: ['check-in'],
	});
	atTheEnd(() => service.close());
	const device = await givenDevice({ prefix: hosts.prefix, atTheEnd });
	await device.writeSettings({
		baseUrl: `https://${SERVICE_NAME}:${service.port}`,
		workflowId: 'check-in',
		heartbeatCadence: 2,
		deviceId: 'KIOSK-7',
		network: { caFile: fixture('ca.pem') },
		credential: { apiKeyFile: await device.secretFile('key', service.credentials.apiKey) },
		...settings,
	});
	return { hosts, service, device };
}

/** What is said after the fault arrives, and the device is who it was. */
async function expectWhole({ service, device }: Site, expect: ExpectStatic): Promise<void> {
	await device.untilState('online');
	service.notify({ type: 'after-the-fault' });
	await device.untilEvent(({ kind }) => kind === 'after-the-fault');
	expect(service.devices().map(({ deviceId }) => deviceId)).toEqual(['KIOSK-7']);
	expect(device.output()).not.toContain('"level":"error"');
}

test('a half-open line (black hole) is noticed after two pings without an answer [F035]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, device } = site;
	await hosts.startNames();
	await device.start();
	await device.untilState('online');
	hosts.blackHole();
	const { problem, channel } = await device.untilState('offline');
	expect(problem?.code).toBe('channel-silent');
	expect(problem?.message).toContain('for 10 s');
	expect(channel.nextAttemptAt).not.toBeNull();
	hosts.heal();
	await expectWhole(site, expect);
	expect((await device.events()).filter(({ type }) => type === 'gap')).not.toHaveLength(0);
});

test('a cable that is pulled is noticed, and back in it the device is online by itself [F036]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, device } = site;
	await hosts.startNames();
	await device.start();
	await device.untilState('online');
	hosts.pullCable();
	await device.untilState('offline');
	const { problem } = await device.untilStatus(
		({ problem: now }) => now?.message.includes('no interface has a link and a route') === true,
		'word of the cable',
	);
	expect(problem?.remedy).toMatch(/^Check the cable/);
	hosts.plugCable();
	await expectWhole(site, expect);
});

test('a cable that is pulled again and again teaches no shorter ping [F1034]', async ({ expect, onTestFinished }) => {
	const site = await givenSite(onTestFinished, { heartbeatCadence: 6 });
	const { hosts, device } = site;
	await hosts.startNames();
	await device.start();
	for (let count = 0; count < 3; count += 1) {
		await device.untilState('online');
		await device.untilStatus(({ channel }) => channel.lastAnswerAt != null, 'an answer');
		hosts.pullCable();
		const { problem } = await device.untilState('offline');
		expect(problem?.message).toContain('had lost its own network (eth0)');
		hosts.plugCable();
	}
	const { channel, warnings } = await device.untilState('online');
	expect(channel.idleTimeout).toBeNull();
	expect(warnings.map(({ code }) => code)).not.toContain('notifications-at-risk');
	await expectWhole(site, expect);
});

test('a name server that is dead at boot is named, and waited for [F037]', async ({ expect, onTestFinished }) => {
	const site = await givenSite(onTestFinished);
	await site.device.start();
	const { problem, sentence } = await site.device.untilProblem('dns-failed');
	expect(problem?.message).toContain(SERVICE_NAME);
	expect(sentence).toMatch(/^Not online yet: the name .* can't be resolved/i);
	await site.hosts.startNames();
	await expectWhole(site, expect);
});

test('a name server that dies later costs nothing until the line is lost, and then only until it is back [F038]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, service, device } = site;
	await hosts.startNames();
	await device.start();
	await device.untilState('online');
	await hosts.stopNames();
	service.notify({ type: 'without-names' });
	await device.untilEvent(({ kind }) => kind === 'without-names');
	service.dropSockets();
	await device.untilProblem('dns-failed');
	await hosts.startNames();
	await expectWhole(site, expect);
});

test.for([
	['IPv6 that leads nowhere', 'ip6', (hosts: TwoHosts) => hosts.address],
	['IPv4 that leads nowhere', 'ip', (hosts: TwoHosts) => hosts.address6],
] as const)(
	'%s does not keep a device from the other family [F039]',
	async ([_name, family, host], { expect, onTestFinished }) => {
		const site = await givenSite(onTestFinished, {}, host);
		const { hosts, device } = site;
		await hosts.startNames();
		hosts.blackHoleFamily(family);
		await device.start();
		await expectWhole(site, expect);
	},
);

test('seven addresses at which nothing answers do not keep a device from the eighth, at its start and at each return [F584]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, service, device } = site;
	await hosts.startNames(7);
	await device.start();
	await device.untilState('online');
	for (const returns of [1, 2, 3]) {
		service.dropSockets();
		await device.untilStatus(
			({ state, channel }) => state === 'online' && channel.reconnects === returns,
			`return number ${returns}`,
		);
	}
	await expectWhole(site, expect);
});

test('a line that drops large packets without a word is told from a host that is away [F588]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, device } = site;
	await hosts.startNames();
	hosts.shrink(600);
	await device.start();
	const { problem } = await device.untilProblem('tls-failed');
	expect(problem?.remedy).toContain('MTU');
	hosts.heal();
	await expectWhole(site, expect);
});

long('a line that loses every fifth packet carries a device [F040]', async ({ expect, onTestFinished }) => {
	const site = await givenSite(onTestFinished);
	const { hosts, device } = site;
	await hosts.startNames();
	hosts.blackHole(20);
	await device.start();
	await expectWhole(site, expect);
});

test('a port that swallows connections is a connect timeout, not a refusal [F066]', async ({
	expect,
	onTestFinished,
}) => {
	const site = await givenSite(onTestFinished);
	const { hosts, service, device } = site;
	await hosts.startNames();
	hosts.blackHolePort(service.port);
	await device.start();
	const { problem } = await device.untilProblem('connect-timeout');
	expect(problem?.remedy).toContain('firewall');
	hosts.heal();
	await expectWhole(site, expect);
});
