/** Codes that strangers might print, through the real pairing of a real agent: who is asked anything by the network? */
import { createServer, type Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { pairPreviewSchema } from '../../src/protocol/local-answers.ts';
import { listen } from '../connection/network-peers.ts';
import { givenAgent, type RunningAgent } from '../harness/harness.ts';

const ALLOWED = 'https://id.example.com';
const CODES = 300;

/** A proxy through which everything goes, which lets nothing through and remembers where it should have gone. */
async function givenProxy(): Promise<{ url: string; targets: string[] }> {
	const targets: string[] = [];
	const server = createServer((socket: Socket) => {
		socket.on('data', (chunk: Buffer) => {
			const [method, target] = chunk.toString('latin1').split(' ');
			targets.push(method === 'CONNECT' ? (target ?? '') : chunk.toString('latin1'));
			socket.end('HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
		});
	});
	return { url: `http://127.0.0.1:${await listen(server)}`, targets };
}

const token = 'Token%20tr-0123456789abcdefghijklmnopqr';
const host = fc.oneof(
	{ weight: 2, arbitrary: fc.constant('id.example.com') },
	{
		weight: 12,
		arbitrary: fc.constantFrom(
			'evil.example',
			'id.example.com.',
			'id.example.com.evil.example',
			'evil.example:443',
			'id.example.com:443',
			'id.example.com:8443',
			'id.example.com@evil.example',
			'id.example.com:443@evil.example',
			'id.example.com%40evil.example',
			'id.example.com%2Eevil.example',
			'id.example.com\\@evil.example',
			'evil.example\\@id.example.com',
			'evil.example#@id.example.com',
			'evil.example/?@id.example.com',
			'ID.EXAMPLE.COM',
			'id。example。com',
			'іd.example.com',
			'id.exаmple.com',
			'xn--d-5sb.example.com',
			'id.example.com\u200b',
			'id\u00ad.example.com',
			'127.0.0.1',
			'127.1',
			'0x7f000001',
			'2130706433',
			'[::1]',
			'[::ffff:127.0.0.1]',
			'localhost',
			'localhost.evil.example',
			'169.254.169.254',
			'0.0.0.0',
		),
	},
	{ weight: 2, arbitrary: fc.domain() },
	{ weight: 1, arbitrary: fc.string({ maxLength: 20 }) },
);
const scheme = fc.constantFrom(
	'https://',
	'https://',
	'http://',
	'HTTPS://',
	'https:/',
	'https:\\\\',
	'https:',
	'ftp://',
	'javascript:',
	'//',
);
const path = fc.constantFrom(
	'/mobile',
	'/mobile',
	'',
	'/',
	'/../mobile',
	'/@evil.example/mobile',
	'/%2e%2e/mobile',
	'//evil.example/mobile',
);
const query = fc.constantFrom(
	`?authorization=${token}&workflowId=wf-1`,
	`?workflowId=wf-1&authorization=${token}`,
	`?authorization=${token}`,
	`?authorization=${token}&authorization=${token}&workflowId=wf-1`,
	'?authorization=ApiKey%20ak-1234567890&workflowId=wf-1',
	`?baseUrl=https%3A%2F%2Fevil.example&authorization=${token}&workflowId=wf-1`,
);
const link = fc.tuple(scheme, host, path, query).map((parts) => parts.join(''));
const nested = fc.tuple(host, link).map(([outer, inner]) => `https://${outer}/open?link=${encodeURIComponent(inner)}`);
const json = fc
	.tuple(
		fc.oneof(
			fc.tuple(scheme, host).map((parts) => parts.join('')),
			fc.constantFrom(null, 1, [ALLOWED], { href: ALLOWED }, `${ALLOWED}/`, `${ALLOWED}?x`, ` ${ALLOWED}`),
		),
		fc.constantFrom('tr-0123456789abcdefghijklmnopqr', 'Token tr-0123456789abcdefghijklmnopqr', 7, ''),
	)
	.map(([baseUrl, found]) => JSON.stringify({ baseUrl, token: found, workflowId: 'wf-1' }));
const damage = fc.record({
	at: fc.nat({ max: 200 }),
	remove: fc.nat({ max: 3 }),
	insert: fc.string({ unit: 'binary', maxLength: 3 }),
});
const damaged = fc
	.tuple(fc.oneof(link, nested, json), fc.array(damage, { minLength: 1, maxLength: 3 }))
	.map(([text, edits]) =>
		edits.reduce((before, { at, remove, insert }) => {
			const start = at % (before.length + 1);
			return before.slice(0, start) + insert + before.slice(start + remove);
		}, text),
	);
const code = fc.oneof(
	{ weight: 4, arbitrary: link },
	{ weight: 2, arbitrary: nested },
	{ weight: 2, arbitrary: json },
	{ weight: 3, arbitrary: damaged },
	{ weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 60 }) },
	{ weight: 1, arbitrary: fc.nat({ max: 20 }).map((times) => `${ALLOWED}/mobile?x=${'a'.repeat(times * 300)}`) },
);

/** Tries every code as it is scanned, and what a hasty person would do; gives how many were good enough to be sent. */
async function tryAll(device: RunningAgent, codes: number): Promise<number> {
	let sent = 0;
	const { agent } = device;
	for (const text of fc.sample(code, { numRuns: codes, seed: codes })) {
		const preview = agent.inspectPairing({ code: text });
		if (!pairPreviewSchema.safeParse(preview).success)
			expect.fail(`${JSON.stringify(text)} gave ${JSON.stringify(preview)}`);
		const refusal: unknown = await agent.pair({ code: text, replace: true }).then(
			() => null,
			(reason: unknown) => reason,
		);
		if (!(refusal instanceof AgentError)) expect.fail(`${JSON.stringify(text)}: ${String(refusal)}`);
		const reached = refusal.code === 'proxy-failed' || refusal.code === 'proxy-refused';
		// Where only the workflow is missing, the service is asked which there are.
		const mayAsk = preview.ready || preview.problem?.code === 'workflow-missing';
		if (reached !== mayAsk) expect.fail(`${JSON.stringify(text)}: ${refusal.code}, ready: ${preview.ready}`);
		if (reached) sent += 1;
	}
	return sent;
}

describe('of 300 codes that strangers might print, none throws, and none has the agent ask anybody', () => {
	test.each([
		['but the origin that its settings trust', { pairing: { trustedOrigins: [ALLOWED] } }],
		['but the service that its settings name', { baseUrl: ALLOWED }],
	])('%s', async (_name, settings) => {
		const proxy = await givenProxy();
		const device = await givenAgent({ settings: { ...settings, network: { proxy: proxy.url } } });
		const sent = await tryAll(device, CODES / 2);
		expect(sent).toBeGreaterThan(5);
		expect(proxy.targets.length).toBeGreaterThanOrEqual(sent);
		expect(new Set(proxy.targets)).toEqual(new Set(['id.example.com:443']));
	});

	test('where no origin is known and none was confirmed', async () => {
		const proxy = await givenProxy();
		const device = await givenAgent({ settings: { network: { proxy: proxy.url } } });
		expect(await tryAll(device, CODES)).toBe(0);
		expect(proxy.targets).toEqual([]);
	});
});
