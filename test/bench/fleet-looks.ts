/**
 * What the looks of many devices at their fleet plan cost the web server: Debian's nginx with TLS, and the product's own look
 * (`fetchPlan`) from as many processes as the machine has processors. A look is the same whoever makes it, so that devices need
 * not run: each has had its first look (a whole handshake and the plan), and comes again with its ETag and its TLS session.
 * Beside them the floor, a bare request with the same headers, and the same on a connection that is kept.
 * `npm run suite -- bench:fleet --looks 100000`. Asserts nothing.
 */
import { execFileSync, fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, request } from 'node:https';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createNetwork } from '../../src/connection/network.edge.ts';
import { fetchPlan } from '../../src/fleet/fetch-plan.edge.ts';
import { readCpuMs } from './measure.ts';

const TLS = join(import.meta.dirname, '../fixtures/tls');
const PORT = 18_443;
const AT_ONCE = 8;
const DEVICES = 100_000;
const INTERVAL_SECONDS = 300;
const KINDS = ['first', 'again', 'floor', 'kept'] as const;
type Kind = (typeof KINDS)[number];

async function makeLooks(kind: Kind, looks: number): Promise<void> {
	const url = new URL(`https://127.0.0.1:${PORT}/plan.json`);
	const caFile = join(TLS, 'ca.pem');
	const open = () => createNetwork({ caFile }, {});
	const shared = await open();
	const look = async (etag: string | null, network = shared) =>
		fetchPlan(network, {
			url,
			etag,
			userAgent: 'idv-agent/bench',
			deadlineMs: 60_000,
			maxBytes: 2 ** 21,
			signal: new AbortController().signal,
		});
	const first = await look(null);
	const etag = first.kind === 'changed' ? first.etag : null;
	const agent = new Agent({ ca: readFileSync(caFile), keepAlive: kind === 'kept' });
	const bare = () =>
		new Promise<void>((resolve, reject) => {
			const headers = { accept: 'application/json', 'accept-encoding': 'gzip', 'user-agent': 'idv-agent/bench' };
			const asked = request(url, { agent, headers: { ...headers, 'if-none-match': etag ?? '' } }, (answer) => {
				answer.resume().on('end', resolve);
			});
			asked.on('error', reject).end();
		});
	const once = async () => {
		if (kind === 'again') return void (await look(etag));
		if (kind !== 'first') return bare();
		const network = await open();
		await look(null, network);
		await network.close();
	};
	let left = looks;
	const lane = async () => {
		while (left > 0) {
			left -= 1;
			await once();
		}
	};
	await Promise.all(Array.from({ length: AT_ONCE }, lane));
	agent.destroy();
	await shared.close();
}

/** @param listed ids in the plan. */
export async function measureLooks(looks: number, listed = 2000): Promise<void> {
	const directory = await mkdtemp(join(tmpdir(), 'fleet-looks-'));
	await chmod(directory, 0o755);
	await mkdir(join(directory, 'www'));
	const ids = Array.from({ length: listed }, (_, index) => `KIOSK-${String(index * 7).padStart(6, '0')}`);
	const rules = [{ name: 'own', match: { deviceIds: ids }, workflowId: 'own' }];
	const plan = { format: 'idv-fleet-plan/1', revision: 1, defaults: { workflowId: 'document-check' }, rules };
	await writeFile(join(directory, 'www', 'plan.json'), JSON.stringify(plan));
	await writeFile(join(directory, 'nginx.conf'), configOf(directory));
	const nginx = (...more: string[]) =>
		execFileSync('/usr/sbin/nginx', ['-p', directory, '-c', 'nginx.conf', ...more], { stdio: 'pipe' });
	nginx();
	try {
		const master = Number(readFileSync(join(directory, 'nginx.pid'), 'utf8'));
		const worker = Number(readFileSync(`/proc/${master}/task/${master}/children`, 'utf8').trim().split(' ')[0]);
		const said = { first: 'first look', again: 'looks again', floor: 'floor, a bare request', kept: 'bare, kept open' };
		for (const kind of KINDS) {
			const count = kind === 'again' ? looks : Math.ceil(looks / 20);
			const cpuBefore = readCpuMs(worker);
			const logBefore = readFileSync(join(directory, 'access.log')).length;
			const beganAt = performance.now();
			const clientMs = await runClients(kind, count);
			const seconds = (performance.now() - beganAt) / 1000;
			nginx('-s', 'reopen');
			const log = readFileSync(join(directory, 'access.log')).subarray(logBefore).toString();
			const lines = log
				.trim()
				.split('\n')
				.map((line) => line.split(' '));
			const share = (fits: (line: string[]) => boolean) =>
				`${((lines.filter(fits).length / lines.length) * 100).toFixed(1)} %`;
			const bytes = lines.reduce((sum, [, sent]) => sum + Number(sent), 0) / lines.length;
			const cpuMs = (readCpuMs(worker) - cpuBefore) / lines.length;
			const load = ((DEVICES / INTERVAL_SECONDS) * cpuMs) / 10;
			console.log(
				`${said[kind].padEnd(24)} ${String(lines.length).padStart(7)} looks, ${Math.round(lines.length / seconds)} a second; ` +
					`304 ${share(([status]) => status === '304')}, session resumed ${share(([, , reused]) => reused === 'r')}, ` +
					`connection kept ${share(([, , , nth]) => Number(nth) > 1)}; ${Math.round(bytes)} bytes each; ` +
					`CPU each: nginx ${cpuMs.toFixed(3)} ms, client ${(clientMs / lines.length).toFixed(2)} ms; ` +
					`${DEVICES} devices every ${INTERVAL_SECONDS} s: ${load.toFixed(1)} % of a processor`,
			);
		}
	} finally {
		nginx('-s', 'stop');
		await rm(directory, { recursive: true, force: true, maxRetries: 5 });
	}
}

/** @returns processor time of all clients in milliseconds. */
async function runClients(kind: Kind, looks: number): Promise<number> {
	const clients = availableParallelism();
	const spent = Array.from(
		{ length: clients },
		() =>
			new Promise<number>((resolve, reject) => {
				const child = fork(import.meta.filename, [kind, String(Math.ceil(looks / clients))]);
				let cpuMs = 0;
				child.on('message', (told) => {
					cpuMs = Number(told);
				});
				child.on('exit', (code) => (code === 0 ? resolve(cpuMs) : reject(new Error(`A client ended with ${code}.`))));
			}),
	);
	return (await Promise.all(spent)).reduce((sum, one) => sum + one, 0);
}

function configOf(directory: string): string {
	return `
pid nginx.pid;
error_log error.log;
worker_processes 1;
worker_rlimit_nofile 10000;
events { worker_connections 4000; }
http {
	types { application/json json; }
	log_format look '$status $bytes_sent $ssl_session_reused $connection_requests';
	access_log access.log look;
	gzip on;
	gzip_types application/json;
	client_body_temp_path ${directory}/t1;
	proxy_temp_path ${directory}/t2;
	fastcgi_temp_path ${directory}/t3;
	uwsgi_temp_path ${directory}/t4;
	scgi_temp_path ${directory}/t5;
	keepalive_requests 1000000;
	server {
		listen 127.0.0.1:${PORT} ssl;
		ssl_certificate ${TLS}/server.pem;
		ssl_certificate_key ${TLS}/server.key;
		ssl_session_cache shared:looks:10m;
		root www;
	}
}
`;
}

const [kind, count] = process.argv.slice(2);
if (process.send && KINDS.some((one) => one === kind)) {
	await makeLooks(kind as Kind, Number(count));
	const { user, system } = process.cpuUsage();
	process.send((user + system) / 1000);
	process.disconnect?.();
}
