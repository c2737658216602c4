/**
 * The floor for pairing: what a script with two hard-coded calls takes, and nothing else: no check, no saving, no way back.
 * `pairing-script BASE_URL SHORT_TOKEN` prints `start` when it is ready to go and `open` when the channel is.
 */
import http from 'node:http';
import { WebSocket } from 'ws';

process.stdout.write('start\n');
const [baseUrl = '', token = ''] = process.argv.slice(2);
const body = JSON.stringify({ deviceId: `script-${process.pid}`, workflowId: 'document-check' });
const request = http.request(`${baseUrl}/api/device/connection`, {
	method: 'POST',
	headers: { authorization: `Token ${token}`, 'content-type': 'application/json' },
});
request.on('response', async (response) => {
	let text = '';
	for await (const chunk of response) text += String(chunk);
	const connection = (JSON.parse(text) as { token: string }).token;
	const url = `${baseUrl.replace(/^http/, 'ws')}/ws/device`;
	const channel = new WebSocket(url, {
		headers: { authorization: `Connection ${connection}` },
		perMessageDeflate: false,
	});
	channel.on('open', () => process.stdout.write('open\n'));
});
request.end(body);
