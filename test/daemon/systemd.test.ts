import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { connectSystemd, findHandedOver, nextFeedMs } from '../../src/daemon/systemd.edge.ts';

const MODULE = fileURLToPath(new URL('../../src/daemon/systemd.edge.ts', import.meta.url));
let directory: string;

beforeAll(() => {
	directory = mkdtempSync(join(tmpdir(), 'idv-systemd-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

/**
 * Runs a program whose descriptor 3 is a pipe, as systemd would hand it over, and returns what was written to it.
 * `code` has `connectSystemd`, `say` (writes to the pipe itself) and `environment` with everything that systemd sets.
 */
async function runService(code: string, env: Record<string, string> = {}): Promise<string> {
	const program = `
		import { writeSync, readdirSync } from 'node:fs';
		import { execFileSync } from 'node:child_process';
		import { connectSystemd } from ${JSON.stringify(MODULE)};
		const say = (text) => writeSync(3, text + '\\n');
		const environment = { NOTIFY_SOCKET: '/run/x', LISTEN_PID: String(process.pid), LISTEN_FDS: '1', LISTEN_FDNAMES: 'notify', ...process.env };
		${code}`;
	const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
		env: env,
		stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
	});
	const pipe = child.stdio[3] as NodeJS.ReadableStream;
	let said = '';
	pipe.on('data', (chunk) => {
		said += chunk;
	});
	const status = await new Promise((resolve) => child.on('close', resolve));
	expect(status).toBe(0);
	return said;
}

describe('without systemd', () => {
	test('there is nobody to tell', () => {
		expect(connectSystemd({})).toBeNull();
		expect(connectSystemd({ NOTIFY_SOCKET: '', WATCHDOG_USEC: '1000' })).toBeNull();
	});
});

describe('what systemd hands over', () => {
	test('is found by its name, and only if it was handed to this process', () => {
		const env = { LISTEN_PID: String(process.pid), LISTEN_FDS: '2', LISTEN_FDNAMES: 'agent:admin:late' };
		const find = (name: string, more = {}) => findHandedOver(name, { ...env, ...more });
		expect([find('agent'), find('admin'), find('late'), find('other')]).toEqual([3, 4, null, null]);
		expect(find('agent', { LISTEN_PID: '1' })).toBeNull();
		expect(findHandedOver('agent', {})).toBeNull();
	});
});

describe('with a descriptor that the unit hands over', () => {
	test('readiness, sentences, reloads and the end are single messages, in order', async () => {
		const said = await runService(`
			const systemd = connectSystemd(environment);
			systemd.ready('Not paired.');   say('|');
			systemd.status('Online.');      say('|');
			systemd.status('Online.');      say('|');
			const before = process.hrtime.bigint() / 1000n;
			systemd.reloading();            say('|');
			say(before + '|');
			systemd.ready('Online.');       say('|');
			systemd.stopping();
			systemd.close();
		`);
		const [ready, online, again, reloading = '', before, readyAgain, stopping] = said.split('|\n');
		expect([ready, online, again]).toEqual(['READY=1\nSTATUS=Not paired.', 'STATUS=Online.', '']);
		const since = Number(/^RELOADING=1\nMONOTONIC_USEC=(\d+)$/.exec(reloading)?.[1]) - Number(before);
		expect(since).toBeGreaterThanOrEqual(0);
		expect(since).toBeLessThan(1_000_000);
		expect([readyAgain, stopping]).toEqual(['READY=1', 'STOPPING=1']);
	});

	test('it is found by its name among others, and only if it was handed to this process', async () => {
		const said = await runService(`
			const chosen = connectSystemd({ ...environment, LISTEN_FDS: '2', LISTEN_FDNAMES: 'other:notify' });
			chosen.status('to descriptor 4, which is not open');
			const foreign = connectSystemd({ ...environment, LISTEN_PID: '1', NOTIFY_SOCKET: '/nowhere' });
			foreign.status('to a socket that is not there');
			const mine = connectSystemd(environment);
			mine.status('mine');
		`);
		expect(said).toBe('STATUS=mine');
	});

	test('a sentence cannot say anything else, and is cut to what one message holds', async () => {
		const said = await runService(`
			const systemd = connectSystemd(environment);
			systemd.status('one\\nREADY=1\\r\\ttwo'); say('');
			systemd.status('ü'.repeat(5000));
		`);
		const [first, second = ''] = said.split('\n');
		expect(first).toBe('STATUS=one READY=1 two');
		expect(second).toMatch(/^STATUS=ü+…$/);
		expect(Buffer.byteLength(second)).toBeLessThan(1100);
	});

	test('a manager that has gone away harms nothing', async () => {
		const said = await runService(`
			import { closeSync } from 'node:fs';
			const systemd = connectSystemd({ ...environment, WATCHDOG_USEC: '3000' });
			say('before');
			closeSync(3);
			systemd.ready('x');
			systemd.stopping();
		`);
		expect(said).toBe('before\n');
	});

	test('a command that the service runs does not inherit it', async () => {
		const said = await runService(`
			const systemd = connectSystemd(environment);
			try { execFileSync('/bin/sh', ['-c', 'echo leaked >&3'], { stdio: 'ignore' }); } catch {}
			say('done');
		`);
		expect(said).toBe('done\n');
	});
});

describe('the watchdog', () => {
	test('is fed while the event loop turns, and not while it hangs', async () => {
		const said = await runService(`
			const systemd = connectSystemd({ ...environment, WATCHDOG_USEC: '30000' });
			const hang = () => { say('[hangs'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100); say('turns]'); };
			const keepAlive = setTimeout(() => {}, 10_000);
			setTimeout(hang, 70);
			setTimeout(() => { systemd.close(); clearTimeout(keepAlive); }, 240);
		`);
		const [before = '', rest = ''] = said.split('[hangs');
		const [during, after = ''] = rest.split('turns]');
		expect(before).toContain('WATCHDOG=1');
		expect(during).toBe('\n');
		expect(after).toContain('WATCHDOG=1');
	});

	test('is fed twice in each interval, also after a process that stood still [F1875]', () => {
		expect(nextFeedMs(1000, 1003, 60_000)).toBe(31_000);
		expect(nextFeedMs(1000, 1900, 60_000)).toBe(31_000);
		expect(nextFeedMs(1000, 500_000, 60_000)).toBe(529_000);
	});

	test('is left alone when it is meant for another process, or is off', async () => {
		const said = await runService(`
			const foreign = connectSystemd({ ...environment, WATCHDOG_USEC: '3000', WATCHDOG_PID: '1' });
			const off = connectSystemd({ ...environment });
			const odd = connectSystemd({ ...environment, WATCHDOG_USEC: 'soon' });
			const fed = connectSystemd({ ...environment, WATCHDOG_USEC: '30000', WATCHDOG_PID: String(process.pid) });
			setTimeout(() => { say('|' + performance.now()); process.exit(0); }, 25);
		`);
		const [fed = '', ms] = said.trimEnd().split('|');
		expect(fed).toMatch(/^(WATCHDOG=1)+$/);
		// Since the process began. Every 10 ms the one that is meant; the others would come every millisecond.
		expect(fed.length / 'WATCHDOG=1'.length).toBeLessThanOrEqual(Number(ms) / 10 + 1);
	});

	test('does not keep a service alive that has nothing else to do', async () => {
		expect(await runService(`connectSystemd({ ...environment, WATCHDOG_USEC: '60000000' })`)).toBe('');
	});
});

/** A manager's side of `NOTIFY_SOCKET`: reads messages until the last one of a service, each with the process that sent it. */
const MANAGER = `
import json, socket, struct, sys
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
manager.bind(sys.argv[1].replace('@', chr(0)))
manager.settimeout(10)
print('listens', flush=True)
text = ''
while text != 'STOPPING=1':
	data, [(_, _, sender)], _, _ = manager.recvmsg(4096, 1024)
	text = data.decode()
	print(json.dumps([struct.unpack('iii', sender)[0], text]), flush=True)
`;

describe('where systemd hands no descriptor over', () => {
	const talk = (flags: readonly string[], address: string, more = '', onComplaint = () => {}) => {
		const program = `
			import { connectSystemd } from ${JSON.stringify(MODULE)};
			const systemd = connectSystemd();
			systemd.ready('Not paired: ü.');
			systemd.status('Online.');
			systemd.status('Online.');
			${more}
			systemd.stopping();`;
		const service = spawn(process.execPath, [...flags, '--input-type=module', '--eval', program], {
			env: { NOTIFY_SOCKET: address },
			stdio: ['ignore', 'ignore', 'pipe'],
		});
		let complaint = '';
		service.stderr.on('data', (chunk) => {
			complaint += chunk;
			onComplaint();
		});
		return new Promise<{ pid?: number; status: number | null; complaint: string }>((resolve) =>
			service.on('close', (status) => resolve({ ...(service.pid ? { pid: service.pid } : {}), status, complaint })),
		);
	};

	test.each(['path', 'abstract'])(
		'the service itself sends single messages, in order, to a socket by %s name',
		async (kind) => {
			const address = kind === 'path' ? join(directory, 'notify') : `@idv-systemd-${process.pid}`;
			const manager = spawn('python3', ['-c', MANAGER, address], { stdio: ['ignore', 'pipe', 'inherit'] });
			const heard: string[] = [];
			const lines = createInterface(manager.stdout)[Symbol.asyncIterator]();
			expect((await lines.next()).value).toBe('listens');
			const { pid, status, complaint } = await talk([], address);
			for await (const line of lines) heard.push(line);
			expect(heard.map((line) => JSON.parse(line))).toEqual([
				[pid, 'READY=1\nSTATUS=Not paired: ü.'],
				[pid, 'STATUS=Online.'],
				[pid, 'STOPPING=1'],
			]);
			expect([status, complaint]).toEqual([0, '']);
		},
	);

	test('a manager that is not there, and an address that is none, harm nothing', async () => {
		expect(await talk([], join(directory, 'nobody'))).toMatchObject({ status: 0, complaint: '' });
		expect(await talk([], join(directory, 'x'.repeat(200)))).toMatchObject({ status: 0, complaint: '' });
	});

	/** Does not read before it is told; so many messages are more than the system keeps for it. */
	const givenBusyManager = async (name: string) => {
		const address = join(directory, name);
		const manager = spawn('python3', ['-c', MANAGER.replace("text = ''", 'text = sys.stdin.read()'), address], {
			stdio: ['pipe', 'pipe', 'inherit'],
		});
		onTestFinished(() => void manager.kill());
		const lines = createInterface(manager.stdout)[Symbol.asyncIterator]();
		expect((await lines.next()).value).toBe('listens');
		const room = Number(readFileSync('/proc/sys/net/unix/max_dgram_qlen', 'utf8'));
		return { address, manager, lines, tooMany: `for (let n = 0; n < ${room}; n += 1) systemd.status('Online ' + n);` };
	};

	test('a manager that is busy for a moment gets every message', async () => {
		const { address, manager, lines, tooMany } = await givenBusyManager('busy');
		const said = talk([], address, `process.stderr.write('.'); ${tooMany}`, () => manager.stdin.end());
		const heard: string[] = [];
		for await (const line of lines) heard.push(JSON.parse(line)[1]);
		const count = Number(/n < (\d+)/.exec(tooMany)?.[1]);
		const sentences = Array.from({ length: count }, (_, n) => `STATUS=Online ${n}`);
		expect(heard.slice(2)).toEqual([...sentences, 'STOPPING=1']);
		expect(await said).toMatchObject({ status: 0 });
	});

	test('a manager that has stopped reading does not keep the service', async () => {
		const { address, tooMany } = await givenBusyManager('full');
		expect(await talk([], address, tooMany)).toMatchObject({ status: 0 });
	});

	test('a Node that cannot send says what is needed', async () => {
		const { status, complaint } = await talk(['--no-experimental-ffi'], '/run/systemd/notify');
		expect(status).toBe(0);
		expect(complaint).toContain('Node 26.1 or newer, or a unit with OpenFile=/run/systemd/notify:notify');
	});
});
