import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { createServer as createHttpsServer, Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { connect, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { createSecureContext } from 'node:tls';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { AgentError } from '../../src/base/errors.ts';
import { classifyNetworkError } from '../../src/connection/classify-network-error.ts';
import { createNetwork, type Network, type NetworkSettings } from '../../src/connection/network.edge.ts';
import { addAuthorities } from '../../src/connection/tls-files.edge.ts';
import { proxiesOf } from '../../src/connection/way.ts';
import { connectProxy, fixture, identity, listen, rawServer } from './network-peers.ts';

async function network(settings: NetworkSettings = {}, env: Record<string, string | undefined> = {}): Promise<Network> {
	const made = await createNetwork(settings, env);
	onTestFinished(() => made.close());
	return made;
}

async function fileWith(text: string): Promise<string> {
	const directory = await mkdtemp(join(tmpdir(), 'network-'));
	onTestFinished(() => rm(directory, { recursive: true }));
	const path = join(directory, 'file.pem');
	await writeFile(path, text);
	return path;
}

async function get(made: Network, url: string): Promise<{ status: number; text: string }> {
	const { signal } = new AbortController();
	const answer = await made.ask({ method: 'GET', url: new URL(url), headers: {}, body: null, idleMs: 5000, signal });
	return { status: answer.statusCode ?? 0, text: await text(answer) };
}

describe('which way is taken', () => {
	const https = 'https://id.example.com/';
	const http = 'http://id.example.com/';
	const set = { HTTPS_PROXY: 'http://proxy.test:3128', HTTP_PROXY: 'http://proxy.test:3129' };
	const rows: [string, boolean, string, Record<string, string>, string?][] = [
		['directly without a proxy', false, https, {}],
		['through HTTPS_PROXY', true, https, { HTTPS_PROXY: 'http://proxy.test:3128' }],
		['through https_proxy', true, https, { https_proxy: 'http://proxy.test:3128' }],
		['for wss through HTTPS_PROXY', true, 'wss://id.example.com/ws/device', { HTTPS_PROXY: 'http://proxy.test:3128' }],
		['for https past HTTP_PROXY', false, https, { HTTP_PROXY: 'http://proxy.test:3128' }],
		['for http through HTTP_PROXY', true, http, { HTTP_PROXY: 'http://proxy.test:3128' }],
		['through a proxy without a scheme', true, https, { HTTPS_PROXY: 'proxy.test:3128' }],
		['through the setting, whatever the environment says', true, https, {}, 'http://proxy.test:3128'],
		['directly when the setting is empty', false, https, set, ''],
		['directly for a name in NO_PROXY', false, https, { ...set, NO_PROXY: 'other.test, id.example.com' }],
		['directly for a name in no_proxy', false, https, { ...set, no_proxy: 'id.example.com' }],
		['directly under a domain in NO_PROXY', false, https, { ...set, NO_PROXY: 'example.com' }],
		['directly under a dotted domain', false, https, { ...set, NO_PROXY: '.example.com' }],
		['directly under a starred domain', false, https, { ...set, NO_PROXY: '*.example.com' }],
		['directly for a star', false, https, { ...set, NO_PROXY: '*' }],
		['directly for the named port', false, https, { ...set, NO_PROXY: 'id.example.com:443' }],
		['through the proxy for another port', true, https, { ...set, NO_PROXY: 'id.example.com:8443' }],
		['through the proxy for a name that only ends alike', true, https, { ...set, NO_PROXY: 'd.example.com' }],
		['directly into a network in NO_PROXY', false, 'https://10.1.2.3/', { ...set, NO_PROXY: '10.0.0.0/8' }],
		['through the proxy out of it', true, 'https://11.1.2.3/', { ...set, NO_PROXY: '10.0.0.0/8' }],
		['directly to an IPv6 address in NO_PROXY', false, 'https://[fd00::1]/', { ...set, NO_PROXY: 'fd00::1' }],
		['directly into an IPv6 network', false, 'https://[fd00::1]/', { ...set, NO_PROXY: 'fd00::/8' }],
		['directly to a network of one address [F1853]', false, 'https://10.1.2.3/', { ...set, NO_PROXY: '10.1.2.3/32' }],
		['directly to a bracketed IPv6 address', false, 'https://[fd00::1]/', { ...set, NO_PROXY: '[fd00::1]:443' }],
		['directly to a name with its dot', false, 'https://id.example.com./', { ...set, NO_PROXY: 'id.example.com' }],
		['directly for the usual port of http', false, http, { ...set, NO_PROXY: 'id.example.com:80' }],
		['directly for the usual port of wss', false, 'wss://id.example.com/', { ...set, NO_PROXY: 'id.example.com:443' }],
		['through the proxy to an address that ends like a name', true, 'https://10.0.0.1/', { ...set, NO_PROXY: '0.1' }],
		['through the proxy past a network that is none', true, 'https://10.1.2.3/', { ...set, NO_PROXY: '10.0.0.0/33' }],
		['directly for no_proxy before NO_PROXY', false, https, { ...set, no_proxy: 'id.example.com', NO_PROXY: 'x' }],
		['directly to localhost', false, 'https://localhost:8443/', set],
		['directly to loopback, even with the setting', false, 'wss://127.0.0.1:8443/', set, 'http://proxy.test:1'],
		['directly to IPv6 loopback', false, 'http://[::1]:8080/', set],
	];
	test.each(rows)('%s', async (_name, expected, url, env, proxy) => {
		const made = await network(proxy === undefined ? {} : { proxy }, env);
		expect(made.proxyName(new URL(url)) !== null).toBe(expected);
	});
});

test('of two names of a variable the small letters count, unless they are empty', async () => {
	const proxyFor = async (env: Record<string, string>) =>
		(await network({}, env)).proxyFor(new URL('https://id.example.com/'));
	const upper = { HTTPS_PROXY: 'http://upper.test:1' };
	expect(await proxyFor({ ...upper, https_proxy: 'http://lower.test:1' })).toBe('http://lower.test:1/');
	expect(await proxyFor({ ...upper, https_proxy: '' })).toBe('http://upper.test:1/');
});

test('one agent serves one way', async () => {
	const made = await network(
		{ caFile: fixture('ca.pem') },
		{ HTTPS_PROXY: 'http://proxy.test:1', NO_PROXY: 'other.test' },
	);
	const [url, other] = [new URL('wss://id.example.com/'), new URL('wss://other.test/')];
	const agents = [made.channelAgent(url), made.channelAgent(other)];
	expect(new Set(agents).size).toBe(2);
	expect([made.channelAgent(url), made.channelAgent(other)]).toEqual(agents);
	expect(made.channelAgent(url)).toBe(agents[0]);
	const both = await network({ proxy: 'http://proxy.test:1' });
	const [plain, secure] = ['ws', 'wss'].map((scheme) => both.channelAgent(new URL(`${scheme}://id.example.com/`)));
	expect([plain instanceof HttpsAgent, secure instanceof HttpsAgent]).toEqual([false, true]);
});

describe('settings that can not be used', () => {
	const refusal = async (settings: NetworkSettings, env: Record<string, string> = {}) => {
		const error: unknown = await createNetwork(settings, env).catch((thrown: unknown) => thrown);
		expect(error).toBeInstanceOf(AgentError);
		return error as AgentError;
	};

	test.each([
		'socks5://user:hunter2@proxy.test',
		'http://',
		'http://user:hunter2@',
		'::hunter2',
		'http://a%C3:%A9hunter2@proxy.test',
	])('the proxy %s is refused without being repeated', async (proxy) => {
		const error = await refusal({ proxy });
		expect(error.code).toBe('settings-invalid');
		expect(error.message).toContain('network.proxy');
		expect(error.message).not.toContain('hunter2');
	});

	test('a bad proxy in the environment is named by its variable', async () => {
		expect((await refusal({}, { https_proxy: 'ftp://proxy.test' })).message).toContain('https_proxy');
	});

	test('a CA file that is not there is unreadable, and named [F102]', async () => {
		const error = await refusal({ caFile: '/nowhere/ca.pem' });
		expect(error.code).toBe('settings-unreadable');
		expect(error.message).toContain('/nowhere/ca.pem');
	});

	test('a CA file without a certificate is invalid', async () => {
		expect((await refusal({ caFile: await fileWith('hello') })).code).toBe('settings-invalid');
	});

	test('a CA file with a damaged certificate is invalid', async () => {
		const damaged = '-----BEGIN CERTIFICATE-----\nMIIBdamaged\n-----END CERTIFICATE-----\n';
		expect((await refusal({ caFile: await fileWith(damaged) })).code).toBe('settings-invalid');
	});

	test('a client certificate without its key is invalid', async () => {
		expect((await refusal({ clientCertificateFile: fixture('client.pem') })).code).toBe('settings-invalid');
	});

	test('a client certificate and its key that are both missing are both named [F1640]', async () => {
		const files = { clientCertificateFile: '/nowhere/c.pem', clientKeyFile: '/nowhere/c.key' };
		const { message } = await refusal(files);
		expect(message).toMatch(
			/^network\.clientCertificateFile \/nowhere\/c\.pem .*network\.clientKeyFile \/nowhere\/c\.key /,
		);
	});

	test('a client certificate with the key of another is invalid', async () => {
		const settings = { clientCertificateFile: fixture('client.pem'), clientKeyFile: fixture('server.key') };
		expect((await refusal(settings)).code).toBe('settings-invalid');
	});
});

describe('requests', () => {
	test('trust the own authority besides the usual ones', async () => {
		const port = await listen(createHttpsServer(identity('server'), (_request, response) => response.end('hello')));
		const url = `https://localhost:${port}/`;
		await expect(get(await network(), url)).rejects.toThrow();
		expect(await get(await network({ caFile: fixture('ca.pem') }), url)).toEqual({ status: 200, text: 'hello' });
	});

	test.each<[string, NetworkSettings, Record<string, string>, string]>([
		[
			'the usual authorities besides the own one',
			{ caFile: fixture('expired.pem') },
			{ NODE_EXTRA_CA_CERTS: fixture('ca.pem') },
			'hello',
		],
		[
			'those of the operating system where they are to',
			{ systemCa: true, caFile: fixture('expired.pem') },
			{ SSL_CERT_FILE: fixture('ca.pem') },
			'hello',
		],
		['the own one besides those', { systemCa: true, caFile: fixture('ca.pem') }, {}, 'hello'],
		['no others', { caFile: fixture('expired.pem') }, { SSL_CERT_FILE: fixture('ca.pem') }, 'certificate'],
	])('trust %s', async (_name, settings, more, expected) => {
		const port = await listen(createHttpsServer(identity('server'), (_request, response) => response.end('hello')));
		// A process of its own: what is usual is read once, and the server's authority is to be among it.
		const asks = `
			import { text } from 'node:stream/consumers';
			import { createNetwork } from ${JSON.stringify(resolve(import.meta.dirname, '../../src/connection/network.edge.ts'))};
			const network = await createNetwork(${JSON.stringify(settings)}, {});
			const url = new URL('https://localhost:${port}/');
			const { signal } = new AbortController();
			const asked = network.ask({ method: 'GET', url, headers: {}, body: null, idleMs: 5000, signal });
			process.stdout.write(await asked.then(text, ({ message }) => message));
			await network.close();`;
		const env = { ...process.env, ...more };
		const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', asks], { env });
		expect(stdout).toContain(expected);
	});

	test('trust each authority of a file', async () => {
		const port = await listen(createHttpsServer(identity('server'), (_request, response) => response.end('hello')));
		const both = ['expired.pem', 'ca.pem'].map((name) => readFileSync(fixture(name), 'utf8')).join('');
		expect((await get(await network({ caFile: await fileWith(both) }), `https://localhost:${port}/`)).text).toBe(
			'hello',
		);
	});

	test("an authority is added to what Node has parsed by a function that Node's contexts have", () => {
		const context = createSecureContext();
		addAuthorities(context, [readFileSync(fixture('ca.pem'), 'utf8')]);
		expect(context.context).toHaveProperty('addCACert', expect.any(Function));
	});

	test('still verify when the environment tells Node not to', async () => {
		const before = process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
		process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = '0';
		onTestFinished(() => {
			if (before === undefined) delete process.env['NODE_TLS_REJECT_UNAUTHORIZED'];
			else process.env['NODE_TLS_REJECT_UNAUTHORIZED'] = before;
		});
		const port = await listen(createHttpsServer(identity('server'), (_request, response) => response.end('hello')));
		await expect(get(await network(), `https://localhost:${port}/`)).rejects.toThrow();
	});

	test('show the client certificate [F050]', async () => {
		const server = createHttpsServer(
			{ ...identity('server'), requestCert: true, rejectUnauthorized: true },
			(_request, response) => response.end('known'),
		);
		const port = await listen(server);
		const made = await network({
			caFile: fixture('ca.pem'),
			clientCertificateFile: fixture('client.pem'),
			clientKeyFile: fixture('client.key'),
		});
		expect((await get(made, `https://localhost:${port}/`)).text).toBe('known');
	});

	test('go through the proxy with its user and password', async () => {
		const targetPort = await listen(
			createHttpsServer(identity('server'), (request, response) => response.end(request.headers.host)),
		);
		const proxy = await connectProxy({ targetPort, password: 'kiosk:p@ss' });
		const made = await network({ caFile: fixture('ca.pem'), proxy: `http://kiosk:p%40ss@127.0.0.1:${proxy.port}` });
		expect((await get(made, 'https://service.test/')).text).toBe('service.test');
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:443 /);
	});

	test('in plain http tunnel too, so that only the service can answer', async () => {
		const targetPort = await listen(createHttpServer((_request, response) => response.end('plain')));
		const proxy = await connectProxy({ targetPort });
		const made = await network({}, { HTTP_PROXY: `http://127.0.0.1:${proxy.port}` });
		expect((await get(made, 'http://service.test/')).text).toBe('plain');
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:80 /);
	});

	test.each([
		['http://id.example/', () => createHttpServer((_request, response) => response.end('hello'))],
		[
			'https://service.test/',
			() => createHttpsServer(identity('server'), (_request, response) => response.end('hello')),
		],
	])('for %s go through a proxy that speaks TLS, whose certificate is for its own name', async (url, createTarget) => {
		const targetPort = await listen(createTarget());
		const proxy = createHttpsServer(identity('server'));
		proxy.on('connect', (_request, socket) => {
			const target = connect(targetPort, '127.0.0.1', () => {
				socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
				target.pipe(socket).pipe(target);
			});
			socket.on('error', () => target.destroy());
			// What is left of TLS when the program has ended.
			target.on('error', () => socket.destroy());
		});
		const port = await listen(proxy);
		const asks = `
			import { text } from 'node:stream/consumers';
			import { createNetwork } from ${JSON.stringify(resolve(import.meta.dirname, '../../src/connection/network.edge.ts'))};
			const network = await createNetwork({ proxy: 'https://localhost:${port}' }, {});
			const { signal } = new AbortController();
			const asked = network.ask({ method: 'GET', url: new URL('${url}'), headers: {}, body: null, idleMs: 5000, signal });
			process.stdout.write(await asked.then(text, ({ message, cause }) => message + cause));
			await network.close();`;
		const env = { ...process.env, NODE_EXTRA_CA_CERTS: fixture('ca.pem') };
		const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', asks], { env });
		expect(stdout).toBe('hello');
	});

	test('and so does a channel in plain ws', async () => {
		const targetPort = await listen(createHttpServer((_request, response) => response.end('plain')));
		const proxy = await connectProxy({ targetPort });
		const made = await network({}, { HTTP_PROXY: `http://127.0.0.1:${proxy.port}` });
		const agent = made.channelAgent(new URL('ws://service.test/ws/device'));
		const [answer] = await once(httpRequest({ agent, host: 'service.test', path: '/ws/device' }).end(), 'response');
		expect(await text(answer)).toBe('plain');
		expect(proxy.heads[0]).toMatch(/^CONNECT service\.test:80 /);
	});

	test('go each through the proxy of its own', async () => {
		const plain = await listen(createHttpServer((_request, response) => response.end('plain')));
		const secure = await listen(createHttpsServer(identity('server'), (_request, response) => response.end('secure')));
		const [forPlain, forSecure] = [
			await connectProxy({ targetPort: plain }),
			await connectProxy({ targetPort: secure }),
		];
		const [HTTP_PROXY, HTTPS_PROXY] = [forPlain, forSecure].map(({ port }) => `http://127.0.0.1:${port}`);
		const made = await network({ caFile: fixture('ca.pem') }, { HTTP_PROXY, HTTPS_PROXY });
		expect((await get(made, 'http://service.test/')).text).toBe('plain');
		expect((await get(made, 'https://service.test/')).text).toBe('secure');
		expect([forPlain.heads.length, forSecure.heads.length]).toEqual([1, 1]);
	});

	test('and channels check certificates also after a look that accepts each', async () => {
		const port = await listen(createHttpsServer(identity('wrong-host'), (_request, response) => response.end()));
		const made = await network({ caFile: fixture('ca.pem') });
		const url = new URL(`https://localhost:${port}/`);
		expect((await made.inspect(url, 5000)).error).toBeNull();
		await expect(get(made, url.href)).rejects.toThrow();
		const agent = made.channelAgent(new URL(`wss://localhost:${port}/`)) as HttpsAgent;
		expect(agent.options.rejectUnauthorized).toBe(true);
	});

	test.each([
		['302 Found\r\nlocation: https://login.example/sign-in?to=secret', 'a redirect to login.example (302)'],
		['307 No\r\nlocation: sign-in', 'a redirect (307)'],
		['200 OK\r\ncontent-type: text/html; charset=utf-8', 'a web page (200)'],
		['200 OK', 'a web page (200)', '<!doctype html>'],
		['600 What', 'an answer of its own (600)'],
	])('name the proxy that answers %j in place of a tunnel [F691]', async (head, what, body = '') => {
		const proxy = await rawServer((socket) => socket.end(`HTTP/1.1 ${head}\r\n\r\n${body}`));
		const made = await network({ proxy: `http://127.0.0.1:${proxy.port}` });
		const error = await get(made, 'https://service.test/').catch((thrown: unknown) => thrown);
		const failed = classifyNetworkError(error, { host: 'service.test', proxy: 'proxy.test:3128' });
		expect(failed).toMatchObject({
			code: 'proxy-failed',
			message: `The proxy sent ${what} instead of a connection to service.test.`,
			remedy: expect.stringContaining('the proxy'),
		});
	});

	test.each([
		['closes before TLS', (socket: Socket) => socket.end()],
		['closes during TLS', (socket: Socket) => socket.once('data', () => socket.end())],
		['resets before TLS', (socket: Socket) => socket.resetAndDestroy()],
		['resets during TLS', (socket: Socket) => socket.once('data', () => socket.resetAndDestroy())],
	])('name the proxy that accepts one and %s [F1032]', async (_, leave) => {
		const peer = await rawServer((socket) => {
			socket.on('error', () => {});
			socket.write('HTTP/1.1 200 OK\r\n\r\n', () => leave(socket));
		});
		const proxy = `127.0.0.1:${peer.port}`;
		const made = await network({ proxy: `http://user:password@${proxy}` });
		const url = new URL('https://service.test/');
		const error = await get(made, url.href).catch((thrown: unknown) => thrown);
		expect(classifyNetworkError(error, { host: url.host, proxy: made.proxyName(url) })).toMatchObject({
			code: 'connection-lost',
			message: `The connection to service.test through the proxy ${proxy} was lost (ECONNRESET) after the proxy had accepted it: the proxy or the service has ended it.`,
			remedy: expect.stringContaining('check both the proxy'),
			params: { proxy },
		});
	});

	test('go through a tunnel that any success makes', async () => {
		const proxy = await rawServer((socket) => {
			socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\ninside'));
			socket.write('HTTP/1.1 204 Made\r\n\r\n');
		});
		const made = await network({ proxy: `http://127.0.0.1:${proxy.port}` });
		expect((await get(made, 'http://service.test/')).text).toBe('inside');
	});

	test.each([
		['http', /^HPE_/],
		['https', /^ERR_SSL_/],
	])('see at once when a proxy sends a page through its tunnel, for %s', async (scheme, code) => {
		const proxy = await rawServer((socket) => {
			socket.once('data', () => socket.write('<html>Sign in</html>'));
			socket.write('HTTP/1.1 200 OK\r\n\r\n');
		});
		const made = await network({ proxy: `http://127.0.0.1:${proxy.port}` });
		await expect(get(made, `${scheme}://service.test/`)).rejects.toMatchObject({ code: expect.stringMatching(code) });
	});

	test('leave a proxy whose answer drips', async () => {
		const left = Promise.withResolvers<void>();
		const proxy = await rawServer((socket) => {
			socket.write('HTTP/1.1 200 OK\r\nx: ');
			const drip = setInterval(() => socket.write('.'), 20);
			socket.once('close', () => {
				clearInterval(drip);
				left.resolve();
			});
		});
		const made = await network({ proxy: `http://127.0.0.1:${proxy.port}` });
		const agent = made.channelAgent(new URL('wss://service.test/'));
		const request = httpsRequest({ agent, host: 'service.test', timeout: 100 });
		await expect(once(request.end(), 'response')).rejects.toThrow('no tunnel');
		await left.promise;
	});

	test.each([
		['upgrades to what nobody asked for', 'HTTP/1.1 101 No\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n', 'ECONNRESET'],
		['upgrades to nothing', 'HTTP/1.1 101 No\r\n\r\n', 'HPE_INVALID_STATUS'],
		['has no status', 'HTTP/1.1 000 No\r\ncontent-length: 0\r\n\r\n', 'HPE_INVALID_STATUS'],
		['has a body that is no HTTP', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno', 'HPE_INVALID_CHUNK_SIZE'],
	])('end with an answer that %s', async (_name, answer, code) => {
		const { port } = await rawServer((socket) => socket.write(answer));
		await expect(get(await network(), `http://127.0.0.1:${port}/`)).rejects.toMatchObject({ code });
	});

	test('wait for a reader who stands still, but not for a service', async () => {
		const whole = Buffer.alloc(16 * 1024 * 1024);
		const port = await listen(
			createHttpServer(({ url }, response) => {
				if (url === '/whole') response.end(whole);
				else if (url === '/part') response.write('part');
			}),
		);
		const made = await network();
		const { signal } = new AbortController();
		const ask = (path: string, idleMs: number) =>
			made.ask({
				method: 'GET',
				url: new URL(`http://127.0.0.1:${port}${path}`),
				headers: {},
				body: null,
				idleMs,
				signal,
			});
		const [unread, part] = [await ask('/whole', 400), await ask('/part', 400)];
		await expect(ask('/nothing', 1000)).rejects.toThrow('stopped');
		expect((await buffer(unread)).length).toBe(whole.length);
		await expect(text(part)).rejects.toThrow('stopped');
	});

	test('go through a proxy whose certificate network.caFile covers, and through no other: that is told as the certificate [F1592]', async () => {
		const heads: string[] = [];
		const proxy = createHttpsServer(identity('server'));
		proxy.on('connect', ({ url }, socket) => {
			heads.push(url ?? '');
			socket.destroy();
		});
		const address = `https://localhost:${await listen(proxy)}`;
		const failed = await get(await network({ proxy: address }), 'https://service.test/').catch((error) => error);
		expect(heads).toEqual([]);
		expect(classifyNetworkError(failed, { host: 'service.test', proxy: address })).toMatchObject({
			code: 'proxy-failed',
			message: expect.stringMatching(/^The certificate of the proxy on the way to service\.test is not trusted/),
			remedy: expect.stringContaining('network.caFile'),
		});
		const made = await network({ caFile: fixture('ca.pem'), proxy: address });
		await expect(get(made, 'https://service.test/')).rejects.toThrow();
		expect(heads).toEqual(['service.test:443']);
	});
});

test.each([
	['http://user:p@ss@proxy.test:3128', 'p@ss'],
	['http://user:a/b#c?d@proxy.test:3128', 'a/b#c?d'],
	['http://user:50%@proxy.test:3128', '50%'],
	['http://user:p%40ss@proxy.test:3128', 'p@ss'],
	['user:p:w@proxy.test:3128', 'p:w'],
	['http://:token@proxy.test:3128', 'token', ''],
	['http://token@proxy.test:3128', '', 'token'],
])('the credentials of a proxy may have any character: %s', async (proxy, password, user = 'user') => {
	const network = await createNetwork({ proxy }, {});
	const url = new URL(network.proxyFor(new URL('https://id.example')) ?? '');
	expect([url.host, url.username, decodeURIComponent(url.password)]).toEqual(['proxy.test:3128', user, password]);
	await network.close();
});

describe('closing ends what is still open:', () => {
	/** A server that takes requests and never answers; `left` resolves when a connection that had sent one is gone. */
	async function givenSilence(make: (onRequest: (request: IncomingMessage) => void) => Server) {
		const asked = Promise.withResolvers<void>();
		const left = Promise.withResolvers<void>();
		const server = make((request) => {
			request.socket.once('close', () => left.resolve());
			asked.resolve();
		});
		return { port: await listen(server), asked: asked.promise, left: left.promise };
	}
	const plainly = () => givenSilence((onRequest) => createHttpServer(onRequest));

	test('a request on the direct way', async () => {
		const { port, asked, left } = await plainly();
		const made = await network();
		const answer = get(made, `http://127.0.0.1:${port}/`);
		answer.catch(() => {});
		await asked;
		await made.close();
		await expect(answer).rejects.toThrow();
		await left;
	});

	test('a request through a proxy', async () => {
		const { port, asked, left } = await plainly();
		const proxy = await connectProxy({ targetPort: port });
		const made = await network({}, { HTTP_PROXY: `http://127.0.0.1:${proxy.port}` });
		const answer = get(made, 'http://service.test/');
		answer.catch(() => {});
		await asked;
		await made.close();
		await expect(answer).rejects.toThrow();
		await left;
	});

	test.each(['http', 'https'])('a tunnel that a proxy does not make, for %s', async (scheme) => {
		const proxy = await connectProxy({ behaviour: 'hang' });
		const made = await network({ proxy: `http://127.0.0.1:${proxy.port}` });
		const answer = get(made, `${scheme}://service.test/`);
		answer.catch(() => {});
		await proxy.asked;
		await made.close();
		await expect(answer).rejects.toThrow();
		await proxy.abandoned;
	});

	test('a handshake of the channel', async () => {
		const { port, asked, left } = await givenSilence((onRequest) => createHttpsServer(identity('server'), onRequest));
		const made = await network({ caFile: fixture('ca.pem') });
		const agent = made.channelAgent(new URL(`wss://localhost:${port}/ws/device`));
		const handshake = httpsRequest({ agent, host: '127.0.0.1', port, servername: 'service.test' });
		const failed = once(handshake, 'error');
		handshake.end();
		await asked;
		await made.close();
		await failed;
		await left;
	});
});

/** Whether a ClientHello offers an earlier session. Source: RFC 8446, 4.1.2 and 4.2.11 (`pre_shared_key` is the last extension). */
function offersSession(hello: Buffer): boolean {
	let at = 5 + 4 + 2 + 32;
	at += 1 + hello.readUInt8(at);
	at += 2 + hello.readUInt16BE(at);
	at += 1 + hello.readUInt8(at);
	const end = at + 2 + hello.readUInt16BE(at);
	at += 2;
	for (; at < end; at += 4 + hello.readUInt16BE(at + 2)) if (hello.readUInt16BE(at) === 41) return true;
	return false;
}

test.each(['resets', 'never answers'])(
	'a front that %s a handshake which offers an earlier session is met with whole ones from then on [F1578]',
	async (how) => {
		const { cert, key } = identity('server');
		const service = await listen(createHttpsServer({ cert, key }, (_request, response) => void response.end('ok')));
		const offered: boolean[] = [];
		const front = await listen(
			createTcpServer((socket) => {
				socket.on('error', () => {});
				socket.once('data', (hello: Buffer) => {
					offered.push(offersSession(hello));
					if (offered.at(-1)) return how === 'resets' ? void socket.resetAndDestroy() : undefined;
					const behind = connect(service).on('error', () => {});
					behind.write(hello);
					socket.pipe(behind).pipe(socket);
				});
			}),
		);
		const made = await network({ caFile: fixture('ca.pem') });
		const url = `https://localhost:${front}/`;
		const ask = async () => {
			const signal = AbortSignal.timeout(2000);
			const asked = { method: 'GET', url: new URL(url), headers: {}, body: null, idleMs: 5000, signal } as const;
			return made.ask(asked).then(
				(answer) => text(answer),
				() => 'failed',
			);
		};
		expect([await ask(), await ask(), await ask(), await ask()]).toEqual(['ok', 'failed', 'ok', 'ok']);
		expect(offered).toEqual([false, true, false, false]);
	},
);

test('only the variables of proxies that are followed belong to the way out [F1655]', () => {
	const followed = { HTTPS_PROXY: 'http://a:1', http_proxy: 'http://b:1', NO_PROXY: 'c' };
	const others = { ALL_PROXY: 'http://d:1', IDV_AGENT_NETWORK_PROXY: 'e:1', https_proxy: '' };
	expect(proxiesOf({ ...followed, ...others })).toEqual(followed);
});
