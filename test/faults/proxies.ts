/** Real proxies and TLS fronts of Debian, each in a directory of its own, on an address of ours. Knows nothing of the agent. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fixture } from '../connection/network-peers.ts';
import type { AtTheEnd } from './device-process.ts';
import { SERVICE_NAME } from './two-hosts.ts';

export const USER = 'kiosk';
export const PASSWORD = 'pr0xy-pass-word';

export interface RunningProxy {
	readonly port: number;
	/** For `network.proxy`. */
	readonly url: string;
	/** The same with user and password. */
	readonly urlWithPassword: string;
	/** File with the authority that it shows certificates of, if it inspects TLS. */
	readonly caFile: string | null;
	/** What it has printed and logged. */
	log(): string;
	stop(): Promise<void>;
}

export interface ProxyOptions {
	readonly address: string;
	readonly atTheEnd: AtTheEnd;
	/** Ask for user and password. */
	readonly password?: boolean;
	/** Refuse every host. */
	readonly refuse?: boolean;
	/** End lines that are silent for so long. */
	readonly idleSeconds?: number;
}

interface Plan {
	readonly files?: Readonly<Record<string, string>>;
	readonly command: readonly string[];
	readonly caFile?: string;
	readonly environment?: Readonly<Record<string, string>>;
}

async function start(options: ProxyOptions, plan: (directory: string, port: number) => Plan): Promise<RunningProxy> {
	const { address, atTheEnd } = options;
	const directory = mkdtempSync(join(tmpdir(), 'idv-proxy-'));
	// Some of them change to a user of their own.
	chmodSync(directory, 0o777);
	atTheEnd(() => rmSync(directory, { recursive: true, force: true }));
	const port = await freePort(address);
	const { files = {}, command, caFile = null, environment = {} } = plan(directory, port);
	for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
	writeFileSync(join(directory, 'hosts'), `127.0.0.1 localhost\n${address} ${SERVICE_NAME}\n`);
	// The name of the service is known on the device's side only; the proxy gets a hosts file of its own.
	const [program = '', ...args] = [
		...['unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'mount --bind "$0" /etc/hosts && exec "$@"'],
		join(directory, 'hosts'),
		...command,
	];
	const { PATH = '' } = process.env;
	let printed = '';
	const child: ChildProcess = spawn(program, args, {
		stdio: ['ignore', 'pipe', 'pipe'],
		env: { PATH: `${PATH}:/usr/sbin`, HOME: directory, ...environment },
	});
	const gone = once(child, 'close');
	for (const stream of [child.stdout, child.stderr])
		stream?.setEncoding('utf8').on('data', (text: string) => {
			printed += text;
		});
	const stop = async () => {
		child.kill('SIGKILL');
		await gone;
	};
	atTheEnd(stop);
	// A server of somebody else tells in no common way that it is ready.
	for (let attempt = 0; !(await accepts(address, port)); attempt += 1) {
		if (child.exitCode !== null || attempt > 600)
			throw new Error(`${program} (${command[0]}) did not start: ${printed}`);
		await pause(50);
	}
	return {
		port,
		url: `http://${address}:${port}`,
		urlWithPassword: `http://${USER}:${encodeURIComponent(PASSWORD)}@${address}:${port}`,
		caFile,
		log: () => printed,
		stop,
	};
}

export const tinyproxy = (options: ProxyOptions) =>
	start(options, (directory, port) => ({
		files: {
			conf: [
				`Port ${port}`,
				`Listen ${options.address}`,
				'Timeout 600',
				...(options.password ? [`BasicAuth ${USER} ${PASSWORD}`] : []),
				...(options.refuse ? [`Filter "${join(directory, 'filter')}"`, 'FilterDefaultDeny Yes'] : []),
				'',
			].join('\n'),
			filter: '^nowhere$\n',
		},
		command: ['tinyproxy', '-d', '-c', join(directory, 'conf')],
	}));

export const squid = (options: ProxyOptions) =>
	start(options, (directory, port) => ({
		files: {
			conf: [
				`http_port ${options.address}:${port}`,
				`pid_filename ${join(directory, 'pid')}`,
				'access_log none',
				`cache_log ${join(directory, 'cache.log')}`,
				'cache deny all',
				'shutdown_lifetime 0 seconds',
				...(options.idleSeconds ? [`read_timeout ${options.idleSeconds} seconds`] : []),
				...(options.password
					? [
							`auth_param basic program ${join(directory, 'check')}`,
							'acl known proxy_auth REQUIRED',
							'http_access allow known',
							'http_access deny all',
						]
					: [options.refuse ? 'http_access deny all' : 'http_access allow all']),
				'',
			].join('\n'),
			check: `#!/bin/sh\nwhile read -r user pass; do [ "$user $pass" = "${USER} ${encodeURIComponent(PASSWORD)}" ] && echo OK || echo ERR; done\n`,
		},
		command: ['sh', '-c', `chmod 755 ${directory}/check && exec squid -N -f ${join(directory, 'conf')}`],
	}));

/** Inspects TLS, as a site's firewall does: shows certificates of an authority of its own. */
export const mitmproxy = (options: ProxyOptions) =>
	start(options, (directory, port) => ({
		command: [
			'mitmdump',
			'--listen-host',
			options.address,
			'--listen-port',
			String(port),
			'--set',
			`confdir=${directory}`,
			'--set',
			`ssl_verify_upstream_trusted_ca=${fixture('ca.pem')}`,
			...(options.password ? ['--proxyauth', `${USER}:${PASSWORD}`] : []),
		],
		caFile: join(directory, 'mitmproxy-ca-cert.pem'),
	}));

export interface FrontOptions extends ProxyOptions {
	/** The service behind it, in plain HTTP on loopback. */
	readonly servicePort: number;
	/** Ask for the client certificate of the fixtures. */
	readonly clientCertificate?: boolean;
}

/** The front as the service's own site would configure it: TLS outside, plain HTTP inside. */
export const nginx = (options: FrontOptions) =>
	start(options, (directory, port) => ({
		files: {
			conf: `daemon off; master_process off; error_log stderr; pid ${directory}/pid;
events {}
http {
	access_log off; client_body_temp_path ${directory}/b; proxy_temp_path ${directory}/p;
	fastcgi_temp_path ${directory}/f; uwsgi_temp_path ${directory}/u; scgi_temp_path ${directory}/s;
	server {
		listen ${options.address}:${port} ssl;
		ssl_certificate ${fixture('server.pem')}; ssl_certificate_key ${fixture('server.key')};
		${options.clientCertificate ? `ssl_client_certificate ${fixture('ca.pem')}; ssl_verify_client on;` : ''}
		location / {
			${options.refuse ? 'return 403;' : ''}
			proxy_pass http://127.0.0.1:${options.servicePort};
			proxy_http_version 1.1;
			${options.idleSeconds ? `proxy_read_timeout ${options.idleSeconds}s; proxy_send_timeout ${options.idleSeconds}s;` : ''}
			proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
		}
	}
}
`,
		},
		command: ['nginx', '-p', directory, '-c', join(directory, 'conf')],
	}));

export const haproxy = (options: FrontOptions) =>
	start(options, (directory, port) => {
		mkdirSync(directory, { recursive: true });
		const both = join(directory, 'both.pem');
		writeFileSync(both, readFileSync(fixture('server.pem'), 'utf8') + readFileSync(fixture('server.key'), 'utf8'));
		const verify = options.clientCertificate ? `ca-file ${fixture('ca.pem')} verify required` : '';
		return {
			files: {
				conf: `defaults
	mode http
	timeout connect 5s
	timeout client 60s
	timeout server 60s
	timeout tunnel ${options.idleSeconds ? `${options.idleSeconds}s` : '1h'}
frontend outside
	bind ${options.address}:${port} ssl crt ${both} ${verify}
	${options.refuse ? 'http-request deny deny_status 403' : ''}
	default_backend inside
backend inside
	server one 127.0.0.1:${options.servicePort}
`,
			},
			command: ['haproxy', '-db', '-f', join(directory, 'conf')],
		};
	});

async function freePort(address: string): Promise<number> {
	const server = createServer();
	await new Promise<void>((resolve) => server.listen(0, address, resolve));
	const { port } = server.address() as { port: number };
	await new Promise((resolve) => server.close(resolve));
	return port;
}

function accepts(address: string, port: number): Promise<boolean> {
	return new Promise((resolve) => {
		const socket = connect(port, address);
		socket.once('connect', () => {
			socket.destroy();
			resolve(true);
		});
		socket.once('error', () => resolve(false));
	});
}
