/**
 * The receiving end of `relay.ts`: a bare `ws` client of the service, or a consumer of the agent's event stream; what both do
 * with a notification is the same. Bundled the way the agent is.
 *
 * `relay-consumer ws URL TOKEN_FILE [FILE]` or `relay-consumer sse SOCKET`. With a file, the bare client appends what it received
 * to it and flushes it before it looks at it; what comes meanwhile shares the next flush. Prints `{"ready":true}`; for each line of input,
 * `{"count":…}`, it waits for so many notifications and prints when the last came and how long they took.
 */
import { fdatasync, openSync, readFileSync, writeSync } from 'node:fs';
import http from 'node:http';
import { createInterface } from 'node:readline';
import { WebSocket } from 'ws';

interface Notification {
	readonly type: string;
	readonly sentNs: string;
}

const print = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
let expected = 0;
let latencies: number[] = [];
/** How often the agent has closed the stream on us. */
let closings = 0;
let gaps = 0;

function take(notification: Notification): void {
	const nowNs = process.hrtime.bigint();
	latencies.push(Number(nowNs - BigInt(notification.sentNs)) / 1000);
	if (latencies.length !== expected) return;
	latencies.sort((one, other) => one - other);
	const at = (share: number) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
	print({ lastNs: String(nowNs), p50: at(0.5), p99: at(0.99), closings, gaps });
	latencies = [];
}

/** The floor for durable events: the same bytes, and nothing else. */
function flushFirst(file: string): (data: string) => void {
	const descriptor = openSync(file, 'a');
	let waiting: string[] = [];
	let isFlushing = false;
	const flush = () => {
		const group = waiting;
		waiting = [];
		isFlushing = group.length > 0;
		if (!isFlushing) return;
		writeSync(descriptor, group.join('\n'));
		fdatasync(descriptor, () => {
			for (const data of group) take(JSON.parse(data));
			flush();
		});
	};
	return (data) => {
		waiting.push(data);
		if (!isFlushing) setImmediate(() => isFlushing || flush());
	};
}

function readChannel(url: string, tokenFile: string, file: string | undefined): void {
	const receive = file === undefined ? (data: string) => take(JSON.parse(data)) : flushFirst(file);
	const authorization = `Connection ${readFileSync(tokenFile, 'utf8').trim()}`;
	const channel = new WebSocket(url, { headers: { authorization }, perMessageDeflate: false });
	channel.on('open', () => print({ ready: true }));
	channel.on('message', (data) => receive(String(data)));
	channel.on('close', () => process.exit(69));
}

function readStream(socketPath: string, since: string | null): void {
	let last = since;
	const headers = { accept: 'text/event-stream', ...(since === null ? {} : { 'last-event-id': since }) };
	const request = http.get({ socketPath, path: '/v1/events', headers }, (response) => {
		if (since === null) print({ ready: true });
		let rest = '';
		response.setEncoding('utf8').on('data', (chunk: string) => {
			const frames = (rest + chunk).split('\n\n');
			rest = frames.pop() ?? '';
			for (const frame of frames) {
				let data = '';
				let event = '';
				for (const line of frame.split('\n'))
					if (line.startsWith('data: ')) data = line.slice(6);
					else if (line.startsWith('id: ')) last = line.slice(4);
					else if (line.startsWith('event: ')) event = line.slice(7);
				if (event === 'notification') take((JSON.parse(data) as { data: Notification }).data);
				else if (event === 'gap' && since !== null) gaps += 1;
			}
		});
		response.on('close', () => {
			closings += 1;
			readStream(socketPath, last);
		});
	});
	request.on('error', () => process.exit(69));
}

const [kind, where = '', tokenFile = '', file] = process.argv.slice(2);
if (kind === 'ws') readChannel(where, tokenFile, file);
else readStream(where, null);
const input = createInterface({ input: process.stdin });
input.on('line', (line) => {
	expected = (JSON.parse(line) as { count: number }).count;
});
input.on('close', () => process.exit(0));
