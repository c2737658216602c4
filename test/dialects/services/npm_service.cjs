/**
 * An identity verification service with npm's `websocket`, written from docs/service-interface.md alone. Where that is silent: the token
 * of a registration is in a header, the channel is /api/ws/device/DEVICE and takes it in the query, pings are never answered, and any
 * frame of a device ends the channel. Answers to heartbeats there are none; chatter comes between the notifications. Arguments: user and
 * password of the operator.
 */
const { randomBytes, randomUUID } = require('node:crypto');
const { createServer } = require('node:http');
const { server: WebSocketServer } = require('websocket');

const [user, password] = process.argv.slice(2);
const basic = `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
const codes = new Map();
const keys = new Map();
const connections = new Map();
const say = (...words) => console.log(words.join(' '));
const secret = (bytes) => randomBytes(bytes).toString('hex');

function allowed(authorization = '', permission) {
	return authorization === basic || keys.get(authorization.replace(/^ApiKey /, ''))?.includes(permission);
}

function answerTo(method, url, authorization, body) {
	const workflowId = url.searchParams.get('workflowId');
	switch (`${method} ${url.pathname}`) {
		case 'GET /api/deeplink/qrcode': {
			if (!allowed(authorization, 'ephemeral_device:write')) return [401, { fault: { text: 'operators only' } }];
			const code = `tr-${secret(14)}`;
			codes.set(code, workflowId);
			return [
				200,
				{ data: { qr: { content: `${url.origin}/mobile?authorization=Token%20${code}&workflowId=${workflowId}` } } },
			];
		}
		case 'POST /api/apikey': {
			if (authorization !== basic) return [401, { fault: { text: 'operators only' } }];
			const { name, permissions } = JSON.parse(body);
			const token = secret(20);
			keys.set(token, permissions);
			return [201, { id: randomUUID(), token, name, permissions }];
		}
		case 'POST /api/v1/deeplink': {
			if (!allowed(authorization, 'deeplink:write')) return [403, { fault: { text: 'deeplink:write is missing' } }];
			const link = `${url.origin}/mobile?authorization=Token%20${secret(14)}&sessionId=${secret(12)}`;
			const [createdAt, expiresAt] = [0, 3_600_000].map((ms) => new Date(Date.now() + ms).toISOString());
			return [201, { url: link, createdAt, expiresAt, workflowIds: url.searchParams.getAll('workflowId') }];
		}
		case 'POST /api/device/connection': {
			if (!codes.delete(authorization?.replace(/^Token /, '')) && !allowed(authorization, 'ephemeral_device:write')) {
				say('lost');
				return [401, { fault: { text: 'this code is not valid' } }];
			}
			const token = secret(24);
			connections.set(token, JSON.parse(body).deviceId);
			return [201, { registered: true }, { 'X-Device-Connection': token }];
		}
		default:
			return [404, { fault: { text: 'nothing here' } }];
	}
}

const server = createServer((request, response) => {
	let body = '';
	request.setEncoding('utf8').on('data', (text) => {
		body += text;
	});
	request.on('end', () => {
		const url = new URL(request.url, `http://${request.headers.host}`);
		const [status, document, headers = {}] = answerTo(request.method, url, request.headers.authorization, body);
		response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(document));
	});
});
let number = 0;
new WebSocketServer({ httpServer: server, keepalive: false }).on('request', (request) => {
	const [, deviceId] = /^\/api\/ws\/device\/([^/?]+)$/.exec(request.resourceURL.pathname) ?? [];
	if (deviceId === undefined) return request.reject(404);
	if (connections.get(request.resourceURL.query.connection) !== deviceId) return request.reject(403);
	const peer = request.accept();
	peer.on('ping', (cancel) => cancel());
	peer.on('message', () => peer.close(4002, 'devices are silent'));
	const telling = setInterval(() => {
		number += 1;
		const t = ['SESSION_STARTED', 'POLL_ANSWERED', 'SESSION_ENDED'][number % 3];
		peer.sendUTF(JSON.stringify({ v: 2, t, meta: { uuid: `m${number}`, session: secret(4) } }));
		say('sent', deviceId, `m${number}`, t);
	}, 300);
	peer.on('close', () => clearInterval(telling));
});
server.listen(0, '127.0.0.1', () => say('port', server.address().port));
