/**
 * 50 requests of an application, one after the other, over TLS at a round trip of 40 ms: passed on by the forwarder beside undici's
 * own pool used directly. `npm run suite -- bench:forward`. Asserts nothing.
 */
import { readFileSync } from 'node:fs';
import { createServer as createLocal } from 'node:http';
import { createServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcp, type Socket } from 'node:net';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { Pool } from 'undici';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { createForwarder } from '../../src/local-api/forwarder.edge.ts';

const TLS = join(import.meta.dirname, '../fixtures/tls');
const ONE_WAY_MS = 20;
const REQUESTS = 50;
const ROUNDS = 5;

const identity = { cert: readFileSync(join(TLS, 'server.pem')), key: readFileSync(join(TLS, 'server.key')) };
const service = createServer(identity, (request, response) => request.resume().once('end', () => response.end('{}')));
const slow = createTcp((near) => {
	const far = connect(portOf(service));
	const late = (from: Socket, to: Socket) => {
		from.on('data', (chunk) => setTimeout(() => to.write(chunk), ONE_WAY_MS));
		from.once('close', () => setTimeout(() => to.destroy(), ONE_WAY_MS)).on('error', () => {});
	};
	late(near, far);
	late(far, near);
});
const portOf = (server: { address(): unknown }) => (server.address() as AddressInfo).port;
const listening = (server: { listen(port: number, host: string, done: () => void): unknown }) =>
	new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));

await listening(service);
await listening(slow);
const origin = `https://localhost:${portOf(slow)}`;
const ca = readFileSync(join(TLS, 'ca.pem'));

async function direct(): Promise<number> {
	const pool = new Pool(origin, { connect: { ca } });
	const began = performance.now();
	for (let count = 0; count < REQUESTS; count += 1)
		await (await pool.request({ path: '/api/v1/things', method: 'GET' })).body.text();
	const ms = performance.now() - began;
	await pool.close();
	return ms;
}

async function forwarded(): Promise<number> {
	const network = await createNetwork({ caFile: join(TLS, 'ca.pem') }, {});
	const target = () => ({ baseUrl: origin, token: 'connection-token-of-the-benchmark' });
	const forward = createForwarder({ network, target, allow: () => [] });
	const local = createLocal((request, response) => void forward(request, response, request.url ?? ''));
	await listening(local);
	const near = new Pool(`http://127.0.0.1:${portOf(local)}`);
	const began = performance.now();
	for (let count = 0; count < REQUESTS; count += 1) {
		const { body, statusCode } = await near.request({ path: '/api/v1/things', method: 'GET' });
		if (statusCode !== 200) throw new Error(`status ${statusCode}`);
		await body.text();
	}
	const ms = performance.now() - began;
	await near.close();
	local.close();
	await network.close();
	return ms;
}

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
const figures = { direct: [] as number[], forwarded: [] as number[] };
for (let round = 0; round < ROUNDS; round += 1) {
	figures.direct.push(await direct());
	figures.forwarded.push(await forwarded());
}
const [floor, ours] = [median(figures.direct), median(figures.forwarded)];
console.log(`${REQUESTS} requests one after the other, TLS, ${2 * ONE_WAY_MS} ms of round trip, medians of ${ROUNDS}:`);
console.log(
	`undici's pool ${Math.round(floor)} ms; forwarded ${Math.round(ours)} ms; ratio ${(ours / floor).toFixed(2)}`,
);
slow.close();
service.close();
