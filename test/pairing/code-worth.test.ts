/** Every refusal of a registration says whether the code is still valid, was used, or may have been. */
import { createServer, type RequestListener } from 'node:http';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError, exitStatusOf, type Failure } from '../../src/base/errors.ts';
import { listen } from '../connection/network-peers.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import { DEVICE_ID, givenAgent, givenPairedAgent, type RunningAgent } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const WORDS: Readonly<Record<string, RegExp>> = {
	valid: /was not used and stays valid|The code was not sent\./,
	used: /used up|was used already|no other code is needed/,
	uncertain: /may have (?:been )?used|may have used/,
	invalid: /has expired|is not valid there/,
};

/** A service that answers a registration as it is told to; everything else is fine. */
async function givenAnswer(answer: RequestListener): Promise<string> {
	const server = createServer((request, response) => {
		request.resume();
		if (request.method === 'POST') request.on('end', () => answer(request, response));
		else response.end();
	});
	onTestFinished(() => void server.close());
	const port = await listen(server);
	return `http://127.0.0.1:${port}/mobile?authorization=Token%20tr-${'x'.repeat(28)}&workflowId=check-in`;
}

async function refusalOf(device: RunningAgent, code: string, more: object = {}): Promise<Failure> {
	const error = await device.pair(code, more).then(
		() => null,
		(reason: unknown) => reason,
	);
	if (error instanceof AgentError) return error.failure;
	throw new Error('The pairing was not refused.', { cause: error });
}

/** What it says, once in words and once for programs, which must agree; and a step that fits. */
function worthOf({ message, remedy, params, recovers }: Failure): unknown {
	const worth = String(params?.['pairingCode']);
	expect(message, message).toMatch(WORDS[worth] as RegExp);
	for (const [other, words] of Object.entries(WORDS))
		if (other !== worth && !(worth === 'invalid' && other === 'used')) expect(message).not.toMatch(words);
	if (worth === 'valid' || worth === 'uncertain')
		expect(remedy).toMatch(/\bthe (?:same code again|code again|whole code once more)\b/);
	else expect(remedy).not.toMatch(/\bthe (?:same )?code again\b/);
	expect(recovers ?? false).toBe(false);
	return worth;
}

/** Of two tokens: the one that is over is not the code. */
const STILL_VALID = '{"message":"Device token expired; pairing token still valid"}';

type Row = readonly [status: number, worth: string, body?: string, headers?: Record<string, string>];
const PAGE = '<!doctype html><title>Sign in</title>';
const HTML = { 'content-type': 'text/html' };
const ANSWERS: readonly Row[] = [
	// Nothing has looked at the code.
	[404, 'valid'],
	[404, 'valid', PAGE, HTML],
	[405, 'valid'],
	[407, 'valid'],
	[413, 'valid'],
	[415, 'valid', '{"error":"Unsupported Media Type"}'],
	[429, 'valid', '', { 'retry-after': '30' }],
	[431, 'valid'],
	[451, 'valid'],
	[302, 'valid', '', { location: 'https://login.example.net/' }],
	[307, 'valid', '', { location: '/v2/api/device/connection' }],
	[308, 'valid', '', { location: '/v2/api/device/connection' }],
	[501, 'valid'],
	[505, 'valid'],
	[511, 'valid', PAGE, HTML],
	// The service says so itself.
	[400, 'valid', '{"detail":"deviceType is unknown. The token was not used."}'],
	[407, 'uncertain', '{"error":"Sorry, token was already used here"}'],
	[403, 'uncertain', '<!doctype html><p>Sorry, your pairing <b>code</b> has expired here, get a new one.</p>', HTML],
	[404, 'uncertain', '<!doctype html>Code already used', HTML],
	[404, 'valid', '<!doctype html>Error code: 404', HTML],
	[403, 'valid', '<!doctype html>Access denied (error code 1020)', HTML],
	[429, 'valid', '{"code":"RATE_LIMITED","error":"slow down","status_code":429}'],
	[500, 'valid', '{"message":"Database down, the code stays valid"}'],
	[409, 'valid', '{"error":"quota reached; token unused"}'],
	[401, 'valid', '{"message":"Device clock skew too large; the token remains valid."}'],
	[401, 'valid', '{"message":"The token has not been used. Device type is not permitted."}'],
	[401, 'valid', '{"code":"TOKEN_NOT_USED","reason":"DEVICE_BLOCKED"}'],
	[410, 'valid', '{"error":"token unused; IP address not allowed"}'],
	// It has looked at it, and said no more.
	[403, 'uncertain', PAGE, HTML],
	[400, 'uncertain', '{"detail":"deviceType is unknown"}'],
	[402, 'uncertain'],
	[403, 'uncertain', '{"detail":"This workflow is not allowed for kiosks"}'],
	[404, 'uncertain', '{"detail":"account not found"}'],
	[404, 'uncertain', '{}'],
	[404, 'uncertain', '{"code":"workflow-unknown"}'],
	[409, 'uncertain'],
	[418, 'uncertain'],
	[422, 'uncertain', '{"errors":[{"message":"MAC address is already used"}]}'],
	[302, 'uncertain', '', { location: '/login' }],
	[303, 'uncertain', '', { location: '/api/device/connection/1' }],
	[304, 'uncertain'],
	[408, 'uncertain'],
	[500, 'uncertain'],
	[502, 'uncertain', PAGE, HTML],
	[503, 'uncertain', '', { 'retry-after': '9' }],
	[504, 'uncertain'],
	[599, 'uncertain'],
	[200, 'uncertain', PAGE, HTML],
	[200, 'uncertain', '{"success":false,"error":"Too many devices"}'],
	[202, 'uncertain', '{"status":"pending"}'],
	[202, 'uncertain', '{"result":"accepted","reason":"The device is being enrolled: repeat the same request."}'],
	[401, 'uncertain', PAGE, HTML],
	// The token of another question.
	[403, 'uncertain', '{"detail":"CSRF token is invalid"}'],
	[400, 'uncertain', '{"message":"Unexpected token } in JSON at position 5: invalid"}'],
	// It said yes, and its answer is of no use.
	[201, 'used', '<connection><token>abc</token></connection>', { 'content-type': 'application/xml' }],
	[200, 'used', '{"data":{"k":"eyJhbGciOiJub25lIn0.eyJhIjoxfQ.c2ln"}}'],
	// It is nothing that only a service says: whatever is in between answers so as well.
	[200, 'uncertain', '{}'],
	[200, 'uncertain', '{"token":null}'],
	[201, 'uncertain', '{"token":12345678}'],
	[200, 'uncertain', '{"token":0, "device":{"registered":true}}'],
	[200, 'uncertain', '{"deviceId":35}'],
	[201, 'uncertain', '{"data":{"connection":{}, "token": ""}}'],
	[201, 'uncertain', '[]'],
	[200, 'uncertain', 'null'],
	[200, 'uncertain', 'true'],
	[200, 'uncertain', '""'],
	[200, 'uncertain', 'OK'],
	[202, 'uncertain', '{"status":"ok"}'],
	[200, 'uncertain', '<ok/>', { 'content-type': 'text/xml' }],
	[204, 'uncertain'],
	[200, 'uncertain', ''],
	[201, 'uncertain', '{"message":"n'],
	[201, 'uncertain', '{"token":"eyJ'],
	// It names the end of the code, whatever the status.
	[401, 'invalid'],
	[401, 'invalid', '{"code":"token-unknown","detail":"Unknown Short Token"}'],
	[410, 'invalid'],
	[401, 'used', '{"detail":"This Short Token was used before; it works only once."}'],
	[400, 'used', '{"error":"invalid_grant","detail":"The token has already been used"}'],
	[403, 'used', '{"code":"token_already_used"}'],
	[409, 'used', '{"code":"TOKEN-SPENT"}'],
	[422, 'used', '{"message":"Pairing code already redeemed"}'],
	[500, 'used', '{"message":"tokenAlreadyConsumed"}'],
	[400, 'invalid', '{"message":"Short token expired"}'],
	[403, 'invalid', '{"reason":"expired token"}'],
	[403, 'invalid', '{"errorCode":"TOKEN_EXPIRED","message":"Sorry."}'],
	[404, 'invalid', '{"message":"Token not found"}'],
	[422, 'invalid', '{"errors":["invalid pairing code"]}'],
	[200, 'invalid', '{"ok":false,"error":"unknown token"}'],
	[401, 'invalid', '{"message":"Invalid or expired token"}'],
];

test('every answer of a service is told with the worth of the code [F750]', async () => {
	const device = await givenAgent();
	for (const [status, worth, body = '', headers = {}] of ANSWERS) {
		const code = await givenAnswer((_request, response) => response.writeHead(status, headers).end(body));
		const refusal = await refusalOf(device, code);
		expect([status, body, worthOf(refusal), refusal.message]).toEqual([status, body, worth, refusal.message]);
	}
});

test.each([
	[401, 'uncertain', '{"code":"TOKEN_EXPIRED","message":"The token is valid, but the device limit is reached."}'],
	[400, 'uncertain', '{"errorCode":"TOKEN_USED","message":"Your code is still valid."}'],
])(
	'%i is a doubt (%s) where the reason and the words of a service contradict each other: %s [F1685]',
	async (...row) => {
		const [status, worth, body] = row;
		const code = await givenAnswer((_request, response) => response.writeHead(status).end(body));
		expect(worthOf(await refusalOf(await givenAgent(), code))).toBe(worth);
	},
);

test.each([
	[401, 'invalid', '{"message":"Token expired at 2026-11-30T08:00:00Z"}'],
	[400, 'used', '{"message":"The code was already used on 30 Nov 2026"}'],
	[401, 'invalid', '{"error":"JWT expired"}'],
	[400, 'invalid', '{"code":["This registration code has expired."]}'],
	[400, 'valid', '{"serial":["This field may not be blank."]}'],
	[400, 'uncertain', '{"message":"The token expired at your side, the code is fine"}'],
])('%i is certain (%s) also with a moment behind it, or as the word about a field: %s [F1766]', async (...row) => {
	const [status, worth, body] = row;
	const code = await givenAnswer((_request, response) => response.writeHead(status).end(body));
	expect(worthOf(await refusalOf(await givenAgent(), code))).toBe(worth);
});

test.each(['{"status":"error","code":"E17","token":"E17","message":"no licence"}', '"awaiting-approval"'])(
	'a word that stands where the Connection does is none: %s [F1768]',
	async (body) => {
		const code = await givenAnswer((_request, response) => response.writeHead(200).end(body));
		expect((await refusalOf(await givenAgent(), code)).message).toMatch(/no licence|awaiting-approval/);
	},
);

test.each<[...Row, string]>([
	[403, 'uncertain', '<html><title>403: Forbidden</title><body>403: Forbidden</body></html>', HTML, 'Tornado'],
	[403, 'uncertain', '<!doctype html>\n<title>403 Forbidden</title>\n<h1>Forbidden</h1>', HTML, 'Flask'],
	[403, 'uncertain', '<html><h1>Forbidden</h1>', { ...HTML, server: 'cloudflare', 'cf-ray': '8a-FRA' }, 'passed on'],
	[403, 'valid', '<html><title>Attention Required! | Cloudflare</title>', HTML, 'Cloudflare'],
	[403, 'valid', '<html>The requested URL was rejected. Please consult', HTML, 'F5'],
	[403, 'valid', '<html>Access Denied', { ...HTML, server: 'AkamaiGHost' }, 'Akamai'],
	[403, 'valid', '<html>403 Forbidden', { ...HTML, 'x-amzn-waf-action': 'block' }, 'AWS'],
])('%i leaves the code %s by a page: only a mark shows that a firewall has sent it [F1787]', async (...row) => {
	const [status, worth, body, headers] = row;
	const code = await givenAnswer((_request, response) => response.writeHead(status, headers).end(body));
	const refusal = await refusalOf(await givenAgent(), code);
	expect(worthOf(refusal)).toBe(worth);
	expect(/operator of the service to allow this device, and the operator of the firewall/.test(refusal.remedy)).toBe(
		worth === 'uncertain',
	);
});

test.each([
	[400, 'valid', '{"message":"The device certificate has expired; the pairing code was not consumed."}'],
	[403, 'valid', '{"message":"Not allowed here; the token is still valid and unused."}'],
	[500, 'valid', '{"message":"Transaction rolled back; code can be used again"}'],
	[400, 'valid', '{"message":"Serial unknown: the code was not consumed and can be used again"}'],
	[400, 'uncertain', '{"message":"The session has expired; the code was not used."}'],
	[422, 'invalid', '{"errors":{"token":["has expired"]}}'],
	[409, 'used', '{"detail":"The pairing code was already claimed by device K-7."}'],
	[409, 'used', '{"message":"Pairing code redeemed 2026-11-30T09:00:00Z"}'],
	[403, 'used', '{"message":"A token can be used only once."}'],
	[425, 'invalid', '{"error":"code is no longer valid"}'],
	[422, 'valid', '{"errors":{"serial":["is required"]}}'],
])('%i is read as the service means it (%s): %s [F1790]', async (...row) => {
	const [status, worth, body] = row;
	const code = await givenAnswer((_request, response) => response.writeHead(status).end(body));
	expect((await refusalOf(await givenAgent(), code)).params?.['pairingCode']).toBe(worth);
});

/** The first answer to the code is lost, the next ones are as told. */
async function givenLostAnswer(device: RunningAgent, next: () => Row) {
	let count = 0;
	const code = await givenAnswer((request, response) => {
		if (count++ === 0) return void request.socket.destroy();
		const [status, , body = '', headers = {}] = next();
		response.writeHead(status, headers).end(body);
	});
	expect(worthOf(await refusalOf(device, code))).toBe('uncertain');
	return code;
}

test('a code that may have been used stays so through every answer that did not look at it, until words about it [F1785]', async () => {
	const device = await givenAgent();
	let row: Row = [429, 'uncertain'];
	const code = await givenLostAnswer(device, () => row);
	for (row of ANSWERS.filter(
		([status, worth, body = '']) => worth === 'valid' && (status === 407 || !/unused|valid|used/i.test(body)),
	)) {
		const refusal = await refusalOf(device, code);
		expect([row, worthOf(refusal)]).toEqual([row, 'uncertain']);
		expect(device.agent.status().summary.code).toBe('unpaired-uncertain');
	}
	row = [503, 'valid', '{"detail":"The token was not used."}'];
	expect(worthOf(await refusalOf(device, code))).toBe('valid');
	expect(device.agent.status().summary.code).toBe('unpaired');
	row = [429, 'valid'];
	expect(worthOf(await refusalOf(device, code))).toBe('valid');
});

test.each([
	[401, '{"message":"The token has already been used"}'],
	[400, '{"message":"Short token expired"}'],
	[404, '{"message":"Token not found"}'],
])(
	'a code that was refused for itself (%i %s) is not called valid by a later answer that did not look at it [F1802]',
	async (...first) => {
		const device = await givenAgent();
		let [status, body]: readonly [number, string] = first;
		const code = await givenAnswer((_request, response) => response.writeHead(status).end(body));
		const said = worthOf(await refusalOf(device, code));
		expect(said).toMatch(/^(?:used|invalid)$/);
		for ([status, body] of [
			[429, ''],
			[404, 'not here'],
			[400, '{"errors":{"serial":["is required"]}}'],
		] as const)
			expect(worthOf(await refusalOf(device, code))).toBe(said === 'used' ? 'used' : 'uncertain');
		[status, body] = [503, '{"detail":"The token was not used."}'];
		expect(worthOf(await refusalOf(device, code))).toBe('valid');
	},
);

test.each([
	['"The token has already been used"', 401, 'used'],
	['', 503, 'uncertain'],
	['"Workflow not found"', 404, 'uncertain'],
] as const)(
	'a code that was refused with %s (%i) stays %s: for a list of workflows, a lost answer and what the device itself refuses as well [F1809]',
	async (message, refused, worth) => {
		const device = await givenAgent({ settings: { deviceId: DEVICE_ID } });
		let [status, body]: [number | null, string] = [refused, message && `{"message":${message}}`];
		const code = await givenAnswer((request, response) => {
			if (status === null) request.socket.destroy();
			else response.writeHead(status).end(body);
		});
		await refusalOf(device, code);
		[status, body] = [422, '{"workflows":[{"id":"a"},{"id":"b"}]}'];
		for (const text of [code, code.replace('&workflowId=check-in', '')]) {
			const listed = await refusalOf(device, text);
			expect(listed.params).toMatchObject({ pairingCode: worth });
			expect(`${listed.message} ${listed.remedy}`).toMatch(WORDS[worth] as RegExp);
			expect(`${listed.message} ${listed.remedy}`).not.toMatch(WORDS['valid'] as RegExp);
		}
		status = null;
		expect((await refusalOf(device, code)).params).toMatchObject({ pairingCode: worth });
		// Nothing is sent.
		for (const [text, asked] of [
			[code, { trustOrigin: 'https://other.example' }],
			[code, { trustOrigin: undefined }],
			[new URL(code).searchParams.get('authorization')?.replace('Token ', '') ?? '', {}],
		] as const) {
			const own = await refusalOf(device, text, asked);
			expect([own.message, own.params?.['pairingCode']]).toEqual([
				expect.stringContaining('The code was not sent.'),
				worth,
			]);
			expect(device.agent.inspectPairing({ code: text, ...asked }).problem?.params).toMatchObject({
				pairingCode: worth,
			});
		}
	},
);

test.each([
	[401, '{"message":"Unauthorized"}'],
	[401, '{"message":"Device clock is wrong"}'],
	[410, ''],
	[404, '{"message":"Workflow not found"}'],
	[404, '{"message":"Token not found"}'],
])('a code that is used up is not asked for once more by a later refusal: %i %s [F1832]', async (later, words) => {
	const device = await givenAgent();
	let [status, body]: [number, string] = [401, '{"message":"Token already used"}'];
	const code = await givenAnswer((_request, response) => response.writeHead(status).end(body));
	await refusalOf(device, code);
	[status, body] = [later, words];
	const { remedy, params } = await refusalOf(device, code);
	expect(params).toMatchObject({ pairingCode: 'used' });
	expect(remedy).toMatch(/\bnew pairing code\b/);
	expect(remedy).not.toMatch(/once more|same code/);
});

test('a code that may have been used stays so when another code came between, whatever became of that [F1786]', async () => {
	const device = await givenAgent();
	const code = await givenLostAnswer(device, () => [429, 'uncertain']);
	let status = 410;
	const url = await givenAnswer((_request, response) => response.writeHead(status).end());
	const other = url.replace('xxx', 'yyy');
	for (status of [410, 429, 500]) {
		await refusalOf(device, other);
		expect(worthOf(await refusalOf(device, code))).toBe('uncertain');
	}
	expect(worthOf(await refusalOf(device, other))).toBe('uncertain');
	status = 429;
	expect(worthOf(await refusalOf(device, other))).toBe('uncertain');
	// Another code pairs: of none before is anything open.
	const service = await givenService();
	await device.pair(service.createPairingCode('check-in').url);
	expect((await device.home.untilSaved(({ attempt }) => attempt === null)).attempt).toBeNull();
});

const doubts: readonly Row[] = [
	// A statement, and a word that denies it.
	[400, 'uncertain', '{"message":"token consumed: false"}'],
	[401, 'uncertain', '{"message":"Token used: 0"}'],
	[403, 'uncertain', '{"message":"Token is still valid? No"}'],
	// Of a used code, with a word for one that was not.
	[400, 'uncertain', '{"title":"Only unused codes are accepted"}'],
	// What became of the code stands in a sentence that says more, whatever the status is for.
	[426, 'uncertain', '{"error":"Agent too old. Token is spent, upgrade and request a new one."}'],
	[451, 'uncertain', '{"error":"Country not allowed, token invalidated"}'],
	[429, 'uncertain', '{"error":"Too many tries: request a new token"}'],
	[422, 'uncertain', '{"message":"Pairing code was cancelled","errors":[{"field":"serial","message":"is required"}]}'],
	[421, 'uncertain', '{"error":"code was burned"}'],
	[429, 'uncertain', '{"error":"This code is locked"}'],
	// Other languages, and words that only say that something is over.
	[429, 'uncertain', '{"message":"Der Kopplungscode ist abgelaufen"}'],
	[429, 'uncertain', '{"message":"Le jeton a expiré"}'],
	[429, 'uncertain', '{"message":"El código ha caducado"}'],
	[429, 'uncertain', '{"message":"Pairing attempt consumed, request a fresh one"}'],
	[429, 'valid', '{"message":"Zu viele Anfragen: warten Sie","errorcode":17,"statusCode":429}'],
	[429, 'valid', '{"message":"Trop de requêtes, error code 7"}'],
	[409, 'uncertain', '{"title":"An unused token is required"}'],
	[400, 'uncertain', '{"title":"The token is not unused"}'],
	[400, 'uncertain', '{"title":"Token is no longer unused"}'],
	[422, 'uncertain', '{"title":"The token was not used within its lifetime"}'],
	[422, 'used', '{"title":"token consumed; serial field was not used"}'],
	[422, 'used', '{"message":"The token was consumed","errors":[{"field":"serial","message":"is required"}]}'],
	[400, 'uncertain', '{"title":"The token was not used: too late."}'],
	[400, 'uncertain', '{"message":"The token was not used. It is no longer good."}'],
	[401, 'uncertain', '{"title":"Token was not used in time"}'],
	// Of a good code, with words for one that is over.
	[401, 'uncertain', '{"title":"Tokens must be used over TLS"}'],
	[401, 'uncertain', '{"title":"Token cannot be used for workflow checkin"}'],
	[401, 'uncertain', '{"title":"Token type used is not allowed"}'],
	[401, 'uncertain', '{"title":"Token used in wrong region"}'],
	[401, 'uncertain', '{"title":"Request signature used unknown key"}'],
	[401, 'uncertain', '{"title":"Request timestamp expired, check the clock"}'],
	[401, 'uncertain', '{"title":"Unauthorized","detail":"Your licence has expired"}'],
	[410, 'uncertain', '{"title":"API gateway certificate has expired"}'],
	[403, 'uncertain', '{"title":"Token can only be used once per device"}'],
	[200, 'uncertain', '{"error":"code expired in cache, retry"}'],
	[401, 'uncertain', '{"title":"maintenance"}'],
	...[400, 401, 403].map((status) => [status, 'uncertain', STILL_VALID] as const),
];

test('only a whole statement about the code makes its end, or that it stays valid, certain [F1130]', async () => {
	const device = await givenAgent();
	for (const [status, worth, body, headers = {}] of doubts) {
		const code = await givenAnswer((_request, response) => response.writeHead(status, headers).end(body));
		const refusal = await refusalOf(device, code);
		expect([body, refusal.params?.['pairingCode']]).toEqual([body, worth]);
		if (worth === 'uncertain') {
			expect(refusal.message).toMatch(WORDS[worth] as RegExp);
			expect(refusal.message).not.toMatch(/^This code (?:has expired|was used)|stays valid|not valid there/);
			expect(refusal.remedy).toMatch(/\b(?:same code again|code once more)\b.*\bask for a new/);
		}
		// What the service has said is there to be read.
		if (status !== 200) expect(refusal.message).toMatch(/answered \d+: \S/);
		else expect(refusal.message).toContain('code expired in cache, retry');
	}
});

test('no status is without one', async () => {
	const device = await givenAgent();
	const statuses = Array.from({ length: 400 }, (_, index) => 200 + index).filter((status) => status % 7 === 0);
	for (const status of statuses) {
		const code = await givenAnswer((_request, response) => response.writeHead(status).end());
		worthOf(await refusalOf(device, code));
	}
});

describe('where the line breaks', () => {
	test.each<[string, string, RequestListener]>([
		['before the answer', 'uncertain', (request) => request.socket.destroy()],
		['in the first line of the answer', 'uncertain', (request) => void request.socket.end('HTTP/1.1 20')],
		[
			'in the headers of the answer',
			'uncertain',
			(request) => void request.socket.end('HTTP/1.1 201 Created\r\nconte'),
		],
		[
			'in the body of a yes',
			'uncertain',
			(request) => void request.socket.end('HTTP/1.1 201 Created\r\ncontent-length: 99\r\n\r\n{"tok'),
		],
		[
			'in the body of a page',
			'uncertain',
			(request) =>
				void request.socket.end('HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 99\r\n\r\n<htm'),
		],
		[
			'in the body of a no',
			'uncertain',
			(request) => void request.socket.end('HTTP/1.1 422 No\r\ncontent-length: 99\r\n\r\n{"det'),
		],
		['with an answer that is none', 'uncertain', (request) => void request.socket.end('220 mail ready\r\n')],
	])('%s, the code is told as %s', async (_where, worth, answer) => {
		const device = await givenAgent();
		expect(worthOf(await refusalOf(device, await givenAnswer(answer)))).toBe(worth);
	});

	test('before the request, the code is told as valid', async () => {
		const device = await givenAgent();
		const code = 'http://127.0.0.1:9/mobile?authorization=Token%20tr-abcdefghijkl&workflowId=check-in';
		expect(worthOf(await refusalOf(device, code))).toBe('valid');
	});
});

test('a code without a workflow is told by what the service answered, not by what the device lacks', async () => {
	const device = await givenAgent();
	const without = async (body: string) => {
		const code = await givenAnswer((_request, response) => response.writeHead(422).end(body));
		return refusalOf(device, code.replace('&workflowId=check-in', ''));
	};
	expect(await without('{"detail":"workflowId is required"}')).toMatchObject({
		code: 'workflow-missing',
		params: { pairingCode: 'uncertain' },
		message: expect.stringContaining('may have been used'),
	});
	expect(await without('{"workflows":[{"id":"a"},{"id":"b"}]}')).toMatchObject({ params: { pairingCode: 'valid' } });
});

test('a code that stays valid for a list of workflows is not told by the status as one that may have been used [F1678]', async () => {
	const device = await givenAgent();
	const body = '{"workflows":[{"id":"a"},{"id":"b"}]}';
	const code = await givenAnswer((_request, response) => response.writeHead(400).end(body));
	expect(await refusalOf(device, code)).toMatchObject({ params: { pairingCode: 'valid' } });
	expect(device.agent.status().summary).toEqual({ code: 'unpaired', params: {} });
});

test('a code without a workflow that the service takes without naming one says that the device was registered there [F1162]', async () => {
	const device = await givenAgent();
	const code = await givenAnswer((_request, response) =>
		response.writeHead(201).end('{"token":"a-connection-token-123"}'),
	);
	const refusal = await refusalOf(device, code.replace('&workflowId=check-in', ''));
	expect([refusal.code, worthOf(refusal)]).toEqual(['workflow-missing', 'used']);
	expect(refusal.message).toMatch(
		/^127\.0\.0\.1:\d+ has registered this device, but neither the code nor the answer names a workflow: .* not paired\. The code is used up\.$/,
	);
	expect(refusal.remedy).toBe('Ask for a new pairing code, and name the workflow with it: pair --workflow ID.');
	// Nor does the status say that the same code may be tried once more.
	expect(device.agent.status().summary.code).toBe('unpaired');
	expect((await device.home.untilSaved(({ attempt }) => attempt?.isPast === true)).pairing).toBeNull();
});

test('where the words of the service are about something else, what they name comes first [F1415]', async () => {
	const device = await givenAgent();
	for (const [body, said] of [
		['{"title":"Clock skew too large"}', 'Clock skew too large'],
		['{"error":"invalid_token","error_description":"The token is not active yet"}', 'The token is not active yet'],
	]) {
		const code = await givenAnswer((_request, response) => response.writeHead(401).end(body));
		const refusal = await refusalOf(device, code);
		expect([refusal.code, worthOf(refusal)]).toEqual(['code-expired-or-used', 'uncertain']);
		expect(refusal.message).toContain(said);
		expect(refusal.remedy).toMatch(
			/^If the service names a cause, see to that first\. Scan or type the whole code once more;/,
		);
	}
});

test('what is refused on the device itself has not touched the code', async () => {
	const [service, other] = [await givenService(), await givenService()];
	const device = await givenPairedAgent(service);
	const code = other.createPairingCode('check-in').url;
	const refusal = await refusalOf(device, code);
	expect(refusal).toMatchObject({ code: 'already-paired', params: { pairingCode: 'valid' } });
	expect(refusal.message).toMatch(/The code was not sent\.$/);
});

test('a text that is no code is refused with its shape and without its words, and with the worth of the code that was meant [F932]', async () => {
	const device = await givenAgent();
	const link = 'https://id.example.com/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr';
	for (const [text, form, said] of [
		['a shelf label', 'text', /Nothing was sent\./],
		['WIFI:S:guests;P:secret-word;;', 'link', /Nothing was sent\./],
		['4006381333931', 'digits', /Nothing was sent\./],
		['{"baseUrl":"https://id.example.com","tok', 'json', /The code was not sent\.$/],
		[`${link}%2`, 'link', /The code was not sent\.$/],
		[`${link}&workfl`, 'link', /The code was not sent\.$/],
		['https://id.example.com/mobile?authorization=', 'link', /The code was not sent\.$/],
		['https://id.example.com/mobile?authorization=Token%20', 'link', /The code was not sent\.$/],
		[link.toLowerCase(), 'link', /The code was not sent\.$/],
	] as const) {
		const { message, params, remedy } = await refusalOf(device, text);
		expect(params, text).toMatchObject({ form, characters: text.length, pairingCode: 'valid' });
		expect(message, text).toMatch(said);
		if (/%2$|=$|%20$|workfl$|tok$/.test(text)) expect(remedy).toMatch(/^Scan or type the whole code once more/);
		expect(JSON.stringify([message, params, remedy])).not.toMatch(/secret-word|shelf|0123456789abc|4006381/i);
	}
});

test('a code that the service does not know is asked for whole once more, before a new one [F930]', async () => {
	const [device, service] = [await givenAgent(), await givenService()];
	const { url } = service.createPairingCode('check-in');
	const workflow = url.slice(url.indexOf('&'));
	const cut = url.slice(0, url.indexOf('&') - 8);
	const refusal = await refusalOf(device, cut + workflow);
	expect(refusal).toMatchObject({
		code: 'code-expired-or-used',
		params: { reason: 'refused', pairingCode: 'invalid' },
	});
	expect(refusal.message).toMatch(/As it was read, the code is not valid there\.$/);
	expect(refusal.remedy).toMatch(
		/^Scan or type the whole code once more; if it is refused again, ask for a new pairing code/,
	);
	await device.pair(url);
	await device.untilLive('check-in');
	// Of one that it knows, nothing is missing.
	expect((await refusalOf(await givenAgent(), url)).remedy).toMatch(/^Ask for a new pairing code/);
});

test('a token alone that the service does not know asks first whether the scanner types what is printed [F942]', async () => {
	const service = await givenService();
	const device = await givenAgent({ settings: { baseUrl: service.url, workflowId: 'check-in' } });
	const { token, url } = service.createPairingCode('check-in');
	const changed = `tr-${[...token.slice(3)].toReversed().join('')}`;
	const refusal = await refusalOf(device, changed);
	expect(refusal).toMatchObject({ code: 'code-expired-or-used', params: { reason: 'refused', form: 'token' } });
	expect(refusal.remedy).toMatch(/whole code once more.*"idv-agent scanner test" that it types what is printed/);
	// In a link, each sign is checked.
	const other = await refusalOf(device, url.replace(token, changed));
	expect(other.remedy).not.toContain('scanner test');
	// What a scanner adds to a link that ends with its token may be one of its signs.
	const parts = Object.fromEntries(new URL(url).searchParams);
	const search = new URLSearchParams({ workflowId: 'check-in', authorization: `${parts['authorization']}X` });
	const longer = await refusalOf(device, `${new URL(url).origin}/mobile?${search}`);
	expect(longer.remedy).toMatch(/that it types what is printed \(y and z, capitals, nothing after it\)/);
});

test('a workflow that the code itself names, and the service does not know, asks for the whole code first [F949]', async () => {
	const service = await givenService({ workflows: ['check-in'] });
	const device = await givenAgent();
	const { url } = service.createPairingCode('check-in');
	for (const text of [url.slice(0, -3), `${url}Z`]) {
		const refusal = await refusalOf(device, text);
		expect(refusal).toMatchObject({ code: 'workflow-unknown', params: { workflowBy: 'code' } });
		expect(refusal.remedy).toMatch(/^First scan or type the whole code once more/);
	}
	const named = await refusalOf(device, url.replace('&workflowId=check-in', ''), { workflowId: 'boarding' });
	expect(named).toMatchObject({ code: 'workflow-unknown' });
	expect(named.remedy).not.toContain('whole code');
});

test('a code that was cut in its workflow, at a service that lists them, is told as that and as valid, with nothing to choose [F1073]', async () => {
	const service = await givenService({
		dialect: { workflowNames: { 'check-in': 'Check in', 'check-out': 'Check out' } },
	});
	const device = await givenAgent();
	const { url } = service.createPairingCode('check-in');
	const refusal = await refusalOf(device, url.slice(0, -3));
	expect(refusal).toMatchObject({ code: 'workflow-unknown', params: { workflowBy: 'code', pairingCode: 'valid' } });
	expect(refusal.message).toMatch(
		/does not know the workflow check \(404\)\. .* offers: Check in .*\. The code was not used/,
	);
	expect(refusal.message).toMatch(
		/stays valid\. The code itself names that workflow: its end may have been cut off\.$/,
	);
	expect(refusal.remedy).toMatch(
		/^First scan or type the whole code once more.*Ask for a new pairing code, for one of/,
	);
	// Another workflow beside the one that the code names would be refused.
	expect(refusal.params).not.toHaveProperty('workflows');
	await device.pair(url);
	await device.untilLive('check-in');
});

test('a wait that the service asks for is told, for people and for programs [F947]', async () => {
	const device = await givenAgent();
	for (const status of [429, 503]) {
		const code = await givenAnswer((_request, response) => response.writeHead(status, { 'retry-after': '120' }).end());
		const refusal = await refusalOf(device, code);
		expect(refusal.params).toMatchObject({ waitSeconds: 120 });
		expect(refusal.remedy).toContain('Wait 2 min, as the service asks');
	}
});

test.each(['3600', '86400'])(
	'after a wait of %s s the code is over: another one is asked for then [F1789]',
	async (seconds) => {
		for (const [status, worth] of [
			[429, 'valid'],
			[403, 'uncertain'],
		] as const) {
			const code = await givenAnswer((_request, response) =>
				response.writeHead(status, { 'retry-after': seconds }).end(),
			);
			const { params, remedy } = await refusalOf(await givenAgent(), code);
			expect(params?.['pairingCode']).toBe(worth);
			expect(remedy).toMatch(/^Wait .*Then ask for a new pairing code: each works for a few minutes\.$/);
			expect(remedy).not.toMatch(/code again/);
		}
	},
);

test('after an answer that leaves open what became of the code, the status does not say that none came [F948]', async () => {
	const device = await givenAgent();
	const code = await givenAnswer((_request, response) => response.writeHead(503).end('{"error":"busy"}'));
	expect(await refusalOf(device, code)).toMatchObject({ params: { pairingCode: 'uncertain' } });
	const { sentence } = device.agent.status();
	expect(sentence).toMatch(/gave no usable answer to the last pairing code, so it may have been used/);
	expect(sentence).not.toMatch(/the answer .* never arrived/);
});

test.each([
	[403, '{"message":"Device limit reached: 10 seats"}', 'access-forbidden'],
	[401, '{"message":"Tenant suspended"}', 'code-expired-or-used'],
])(
	'after a refusal with %i %s, status and doctor say what the service said, also after a restart [F1788]',
	async (...row) => {
		const [status, body, refusal] = row;
		const device = await givenAgent();
		await refusalOf(device, await givenAnswer((_request, response) => response.writeHead(status).end(body)));
		const detail = JSON.parse(body).message;
		const told = { code: 'unpaired-uncertain', params: { host: expect.any(String), refusal, status, detail } };
		const words = `The last pairing code was refused, and may have been used: 127.0.0.1:`;
		const expectTold = ({ agent }: RunningAgent) => {
			expect(agent.status()).toMatchObject({ summary: told, sentence: expect.stringContaining(words) });
			expect(agent.status().sentence).toContain(`answered ${status}: ${detail}. `);
		};
		expectTold(device);
		await device.stop();
		const { checks } = await examine({ home: device.home }, 'pairing');
		expectProblem(checks.pairing, 'warning', 'pairing-uncertain', new RegExp(`^${words}`));
		expectTold(await givenAgent({ home: device.home }));
	},
);

describe('a device that was refused once', () => {
	async function givenRefusedOnce() {
		const service = await givenService();
		const settings = { pairing: { loopbackByScanner: true, rescueByScanner: true } };
		const device = await givenPairedAgent(service, { settings });
		service.revoke(DEVICE_ID);
		while (device.agent.standing() === 'paired') await device.passWait();
		expect(device.agent.standing()).toBe('refusedOnce');
		return { service, device };
	}

	test('takes a code of its own service that a person brings [F751]', async () => {
		const { service, device } = await givenRefusedOnce();
		await device.agent.pair({ code: service.createPairingCode('check-in').url });
		await device.untilLive('check-in');
		expect(device.agent.standing()).toBe('paired');
	});

	test('takes none that its scanner brings, and none of another service or workflow', async () => {
		const { service, device } = await givenRefusedOnce();
		const other = await givenService();
		const codes = [service, other].map((one) => one.createPairingCode('check-in').url);
		expect(device.agent.inspectPairing({ code: codes[0] ?? '' }, 'scanner').problem?.code).toBe('already-paired');
		expect(await refusalOf(device, codes[1] ?? '')).toMatchObject({ code: 'already-paired' });
		const moved = service.createPairingCode('boarding').url;
		expect(await refusalOf(device, moved)).toMatchObject({ code: 'already-paired' });
	});

	test('runs the workflow that it had, whatever was asked for in vain since', async () => {
		const { service, device } = await givenRefusedOnce();
		await device.agent.setWorkflow('typo').catch(() => {});
		await device.agent.pair({ code: service.createPairingCode('check-in').url });
		await device.untilLive('check-in');
	});
});

test('an exit status that says "try again" is for a code that can still be used [F826]', () => {
	expect(exitStatusOf('pairing-uncertain', { pairingCode: 'used' })).toBe(77);
	expect(exitStatusOf('service-overloaded', { pairingCode: 'invalid' })).toBe(77);
	for (const pairingCode of ['valid', 'uncertain']) expect(exitStatusOf('pairing-uncertain', { pairingCode })).toBe(75);
	expect(exitStatusOf('pairing-uncertain')).toBe(75);
});
