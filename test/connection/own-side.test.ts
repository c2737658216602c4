import { networkInterfaces } from 'node:os';
import { expect, test } from 'vitest';
import { failure } from '../../src/base/errors.ts';
import { readRoutes } from '../../src/base/unix.edge.ts';
import { classifyNetworkError, fellSilent } from '../../src/connection/classify-network-error.ts';
import { asOwnSide, watchOwnSide } from '../../src/connection/own-side.edge.ts';
import { interfaceOf, type WayOut, wayOut } from '../../src/connection/way-out.ts';

const eth0: { name: string; losses: string; out?: WayOut } = { name: 'eth0', losses: '2\n', out: 'there' };

test.each<[string, typeof eth0 | null, boolean?]>([
	['has lost its link and got it back', { name: 'eth0', losses: '4\n' }],
	['has no link, or has gone with its address', null],
	['has lost its router', { ...eth0, out: 'no default route' as const }],
	['has left its address to another one', { name: 'wlan0', losses: '2\n' }],
	['has got another address of the same net', eth0, false],
] as const)(
	'silence while the interface %s is told as the loss of the own network [F1033]',
	(_, after, isOwn = true) => {
		let [now, has]: [typeof eth0 | null, boolean] = [eth0, true];
		const read = () => now;
		const lost = watchOwnSide('id.example', '10.0.0.7', read, () => has);
		expect(lost()).toBeNull();
		[now, has] = [after, isOwn];
		expect(lost()).toMatchObject({
			code: 'connection-lost',
			message: 'This device had lost its own network (eth0); its channel to id.example is opened again.',
			remedy: expect.stringContaining('cable'),
		});
	},
);

test("the interface of an own address is found by the routes of the machine, and none for a stranger's", () => {
	const [[name, all] = ['', []]] = Object.entries(networkInterfaces()).filter(([name]) => name !== 'lo');
	const own = all?.find(({ family }) => family === 'IPv4')?.address ?? '';
	const routes = readRoutes()?.ipv4 ?? '';
	expect(interfaceOf(routes, own)).toBe(own === '' ? null : name);
	for (const other of ['203.0.113.250', '::1', '127.0.0.1']) expect(interfaceOf(routes, other)).toBeNull();
	expect(interfaceOf(HEAD + ROUTER + SITE, '192.0.2.7')).toBe('eth0');
});

test('of a line whose own side is not known nothing is said, and addresses that stay are not lost', () => {
	let now: typeof eth0 | null = null;
	const unknown = watchOwnSide('id.example', '10.0.0.7', () => now);
	now = eth0;
	expect(unknown()).toBeNull();
	expect(watchOwnSide('id.example', undefined)()).toBeNull();
	const own = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
	expect(own.map(({ address }) => watchOwnSide('id.example', address)())).toEqual(own.map(() => null));
});

const HEAD = 'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n';
const SITE = 'eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n';
const ROUTER = 'eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n';
const ZERO = '0'.repeat(32);
const six = (to: string, bits: string, flags: string, name: string) =>
	`${to} ${bits} ${ZERO} 00 ${ZERO} 00000400 00000003 00000000 ${flags} ${name}\n`;
const ALONE = six(`fe80${'0'.repeat(28)}`, '40', '00000001', 'eth0') + six(ZERO, '00', '00200200', 'lo');

test.each([
	['a route of the site and a router', HEAD + ROUTER + SITE, ALONE, true, 'there'],
	['a router of IPv6 only', HEAD, ALONE + six(ZERO, '00', '00000003', 'eth0'), true, 'there'],
	['no router', HEAD + SITE, ALONE, true, 'no default route'],
	[
		'a router that refuses all',
		`${HEAD}${SITE}*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n`,
		'',
		true,
		'no default route',
	],
	['routes without a link', HEAD + ROUTER + SITE, ALONE + six(ZERO, '00', '00000003', 'eth0'), false, 'none'],
	['no route at all', HEAD, ALONE, true, 'none'],
	['no route at all, without IPv6', HEAD, '', true, 'none'],
] as const)('of a machine with %s the way out is known', (_, ipv4, ipv6, hasLink, expected) => {
	expect(wayOut(ipv4, ipv6, () => hasLink)).toBe(expected);
});

const coded = (code: string, more = {}) =>
	classifyNetworkError(Object.assign(new Error(), { code }), { host: 'id.example', ...more });

test('as long as this device has no network, that stays the cause, whatever fails for it [F1143]', () => {
	const context = { host: 'id.example' };
	for (const told of [
		...['EAI_AGAIN', 'ENETUNREACH', 'EHOSTUNREACH', 'ETIMEDOUT'].map((code) => coded(code)),
		fellSilent({ ...context, seconds: 8, hasAnswered: true }),
	]) {
		expect(asOwnSide(told, context, () => 'none')).toMatchObject({
			code: 'connection-lost',
			message: 'This device has no network of its own: no interface has a link and a route.',
			params: { reason: 'own-network' },
			recovers: true,
			remedy: expect.stringMatching(/^Check the cable/),
		});
		expect(asOwnSide(told, context, () => 'there')).toBe(told);
	}
	for (const code of ['EAI_AGAIN', 'ENETUNREACH'])
		expect(asOwnSide(coded(code), context, () => 'no default route')).toMatchObject({
			code: coded(code).code,
			message: expect.stringMatching(/\. This device has no default route\.$/),
			remedy: expect.stringContaining('router'),
		});
	// What a host has answered, and what is on this device, needs no network of its own.
	const answered = failure('proxy-failed', 'No.', { params: { status: 502 } });
	for (const told of [coded('ECONNREFUSED'), coded('ECONNRESET'), answered])
		expect(asOwnSide(told, context, () => 'none')).toBe(told);
	for (const way of [
		...['localhost:8490', '127.0.0.1', '[::1]:80'].map((host) => ({ host })),
		{ ...context, proxy: '127.0.0.1:3128' },
	])
		expect(asOwnSide(coded('ETIMEDOUT'), way, () => 'none').code).toBe('connect-timeout');
	const proxied = { host: 'localhost:8490', proxy: 'proxy.example:3128' };
	expect(asOwnSide(coded('ETIMEDOUT'), proxied, () => 'none').code).toBe('connection-lost');
});

test('a line that falls silent after a ping was answered is not told as a service that answers none [F1144]', () => {
	const silent = { host: 'id.example', seconds: 8 };
	expect(fellSilent({ ...silent, hasAnswered: false }).remedy).toContain('silenceLimitSeconds to 0');
	const direct = fellSilent({ ...silent, hasAnswered: true }).remedy;
	const proxied = fellSilent({ ...silent, hasAnswered: true, proxy: 'proxy.example:3128' }).remedy;
	for (const remedy of [direct, proxied]) expect(remedy).not.toContain('silenceLimitSeconds');
	expect(direct).toMatch(/the line is silent.*network of this site/);
	expect(proxied).toMatch(/look at the proxy first/);
	expect(proxied).toContain('proxy.example:3128');
});
