/** Debian's nginx as it serves a fleet plan: TLS, gzip, ETag, and an access log that is read back. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, watch } from 'node:fs';
import { chmod, mkdir, mkdtemp, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { fixture } from '../../connection/network-peers.ts';

const DEADLINE_MS = 20_000;

export interface Access {
	readonly status: number;
	/** Bytes of the body as they were sent. */
	readonly bytes: number;
	/** `gzip` ratio; `-` for a body that was sent as it is. */
	readonly packed: string;
	readonly agent: string;
}

export interface Nginx {
	/** https, of the plan. */
	readonly url: string;
	/** PEM of the authority that has signed its certificate. */
	readonly caFile: string;
	/** Puts a plan in the place of the one from before, as a deployment does. */
	publish(plan: unknown): Promise<void>;
	/** The access log, once it has so many lines. */
	untilLogged(count: number): Promise<readonly Access[]>;
	/** Resolves when nothing listens any more. */
	stop(): Promise<void>;
	start(): void;
}

export async function startNginx(): Promise<Nginx> {
	const binary = ['/usr/sbin/nginx', '/usr/bin/nginx'].find((path) => existsSync(path));
	if (!binary) throw new Error('nginx is missing. Install it: apt-get install nginx');
	const directory = await mkdtemp(join(tmpdir(), 'plan-nginx-'));
	const port = await freePort();
	// Its workers are another user.
	await chmod(directory, 0o755);
	const log = join(directory, 'access.log');
	await mkdir(join(directory, 'www'));
	await writeFile(log, '');
	await writeFile(join(directory, 'nginx.conf'), configOf(directory, port));
	const control = (...args: string[]) =>
		execFileSync(binary, ['-p', directory, '-c', 'nginx.conf', ...args], { stdio: 'pipe' });
	let published = Math.floor(Date.now() / 1000);
	let runs = false;
	const start = () => {
		control();
		runs = true;
	};
	const stop = async () => {
		if (!runs) return;
		runs = false;
		// It takes its pid file away when nobody is served any more.
		const gone = new Promise<void>((resolve) => {
			const look = () => {
				if (existsSync(join(directory, 'nginx.pid'))) return;
				watcher.close();
				resolve();
			};
			const watcher = watch(directory, look);
		});
		control('-s', 'stop');
		await gone;
	};
	start();
	onTestFinished(async () => {
		await stop();
		await rm(directory, { recursive: true, force: true, maxRetries: 5 });
	});
	return {
		url: `https://127.0.0.1:${port}/plan.json`,
		caFile: fixture('ca.pem'),
		async publish(plan) {
			await writeFile(join(directory, 'plan.aside'), JSON.stringify(plan));
			// Its ETag is made of the length and of whole seconds: plans of a test come quicker than that.
			published += 1;
			await utimes(join(directory, 'plan.aside'), published, published);
			await rename(join(directory, 'plan.aside'), join(directory, 'www', 'plan.json'));
		},
		untilLogged: (count) =>
			new Promise((resolve, reject) => {
				const look = () => {
					const lines = readFileSync(log, 'utf8').split('\n').filter(Boolean);
					if (lines.length < count) return;
					done();
					resolve(lines.map((line) => JSON.parse(line)));
				};
				const watcher = watch(log, look);
				const deadline = setTimeout(() => {
					done();
					reject(new Error(`Not ${count} lines in the access log:\n${readFileSync(log, 'utf8')}`));
				}, DEADLINE_MS);
				const done = () => {
					clearTimeout(deadline);
					watcher.close();
				};
				look();
			}),
		start,
		stop,
	};
}

function configOf(directory: string, port: number): string {
	return `
pid nginx.pid;
error_log error.log;
worker_processes 1;
events {}
http {
	types { application/json json; }
	log_format plan escape=json '{"status":$status,"bytes":$body_bytes_sent,"packed":"$gzip_ratio","agent":"$http_user_agent"}';
	access_log access.log plan;
	gzip on;
	gzip_types application/json;
	gzip_min_length 0;
	client_body_temp_path ${directory}/t1;
	proxy_temp_path ${directory}/t2;
	fastcgi_temp_path ${directory}/t3;
	uwsgi_temp_path ${directory}/t4;
	scgi_temp_path ${directory}/t5;
	server {
		listen 127.0.0.1:${port} ssl;
		ssl_certificate ${fixture('server.pem')};
		ssl_certificate_key ${fixture('server.key')};
		root www;
	}
}
`;
}

async function freePort(): Promise<number> {
	const server = createServer();
	await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
	const address = server.address();
	await new Promise((resolve) => server.close(resolve));
	return typeof address === 'object' && address ? address.port : 0;
}
