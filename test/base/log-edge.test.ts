import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createLog, type Log, type LogFields, type LogLevel, openLogDestination } from '../../src/base/log.edge.ts';
import { openShaper } from '../../src/base/shapes.edge.ts';

const WRITER = path.join(import.meta.dirname, 'log-writer.ts');

let directory: string;
let file: string;
let fd: number;
const shaper = openShaper(() => ['id.example.com']);

beforeEach(() => {
	directory = fs.mkdtempSync(path.join(os.tmpdir(), 'log-'));
	file = path.join(directory, 'log');
	fd = fs.openSync(file, 'w');
});

afterEach(() => {
	fs.closeSync(fd);
	fs.rmSync(directory, { recursive: true });
});

function openLog(options: { level?: LogLevel; env?: Record<string, string> } = {}): Log {
	const { env = {}, ...rest } = options;
	return createLog({ shaper, destination: openLogDestination(fd, env), ...rest });
}

const written = () => fs.readFileSync(file, 'utf8');
const records = () =>
	written()
		.split('\n')
		.slice(0, -1)
		.map((line) => JSON.parse(line));

describe('a line', () => {
	test('is one JSON object: level, time, message and the fields', () => {
		openLog().warn('offline', { code: 'dns-failed', host: 'id.example.com', delayMs: 1500, attempt: 2 });
		const [{ time, ...record }] = records();
		expect(record).toEqual({
			level: 'warn',
			msg: 'offline',
			attempt: 2,
			code: 'dns-failed',
			delayMs: 1500,
			host: 'id.example.com',
		});
		expect(new Date(time).toISOString()).toBe(time);
	});

	test('is written only from the level that is set, which can change', () => {
		const log = openLog({ level: 'warn' });
		for (const severity of ['debug', 'info', 'warn', 'error'] as const) log[severity](severity);
		log.setLevel('debug');
		log.debug('debug again');
		expect(records().map((record) => record.msg)).toEqual(['warn', 'error', 'debug again']);
	});

	test('has no field that is unknown, and no value that is not a scalar', () => {
		const fields = {
			status: 401,
			token: 'something',
			headers: { authorization: 'x' },
			host: { toString: () => 'something' },
			code: undefined,
			signal: null,
		} as unknown as LogFields;
		openLog().info('answered', fields);
		const [{ time: _time, ...record }] = records();
		expect(record).toEqual({ level: 'info', msg: 'answered', status: 401, signal: null });
	});

	test("is one line, whatever a server's text holds", () => {
		openLog().warn('refused:\r\n\u001b[2J\u202eevil\u0000', { host: 'a\nb' });
		expect(records()).toMatchObject([
			{ msg: expect.stringMatching(/^refused: \[text-\d+-\w{6}\]$/), host: expect.stringMatching(/^[^\r\n]*$/) },
		]);
	});

	test('has a bounded length', () => {
		openLog().error('long '.repeat(100_000), { host: 'h'.repeat(100_000) });
		expect(records()).toHaveLength(1);
		expect(written().length).toBeLessThan(3000);
	});
});

describe('secrets', () => {
	test('of a foreign word only its shape is in a line, neither in the message nor in a field is it cut in two', () => {
		const log = openLog();
		log.error('refused xQk7-secret-of-this-device9', { workflowId: 'xQk7-secret-of-this-device9' });
		log.error(`${'x'.repeat(1990)}xQk7-secret-of-this-device9`);
		expect(written()).not.toContain('xQk7-sec');
		const shape = /^\[token-27-[0-9a-f]{6}\]$/;
		expect(records()[0]).toMatchObject({ workflowId: expect.stringMatching(shape) });
		expect(records()[0].msg).toBe(`refused ${records()[0].workflowId}`);
	});

	test('a line has the parameters of its message, which another writer reads it by [F1182]', () => {
		const detail = '5 of 10, card 411 and 111';
		openLog().warn(`closed with 4123: ${detail}`, { code: 'x', params: { closeCode: 4123, maxBytes: 65_536, detail } });
		const line = written().trim();
		expect(line).not.toMatch(/411|111/);
		expect(JSON.parse(line)).toMatchObject({
			msg: expect.stringMatching(/^closed with 4123: \[/),
			params: { closeCode: 4123, maxBytes: 65_536, detail: expect.stringMatching(/^\[/) },
		});
		expect(openShaper(() => [], true).line(line)).toBe(line);
	});

	test('unknown credentials and query strings are in no line', () => {
		openLog().warn('GET https://h.example/mobile?authorization=Token%20qrs failed: Authorization: Bearer x.y.z', {
			path: '/ws/device?ticket=qrs',
		});
		expect(written()).not.toMatch(/qrs|x\.y\.z|h\.example/);
		expect(records()[0].msg).toMatch(
			/^GET https:\/\/\[\S+\]\/mobile\?authorization=Token%20\[\S+\] failed: Authorization: Bearer \[/,
		);
	});

	test('whatever is logged, every line stays JSON and no planted secret survives', () => {
		const secret = 'planted "secret"\\with+signs';
		const piece = fc.oneof(
			fc.string(),
			fc.string({ unit: 'binary' }),
			fc.constantFrom(secret, 'Token ', '"', '\\', '?key='),
		);
		const message = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''));
		const log = openLog();
		let count = 0;
		fc.assert(
			fc.property(message, message, (msg, host) => {
				log.info(msg, { host });
				count += 1;
			}),
			{ numRuns: 100 },
		);
		expect(records()).toHaveLength(count);
		for (const { msg, host } of records()) expect(`${msg} ${host}`).not.toContain(secret);
	});
});

describe('where a line goes', () => {
	test("the system's journal gets priorities, when standard output is the stream that it names", () => {
		const { dev, ino } = fs.fstatSync(fd, { bigint: true });
		const log = openLog({ level: 'debug', env: { JOURNAL_STREAM: `${dev}:${ino}` } });
		for (const severity of ['debug', 'info', 'warn', 'error'] as const) log[severity]('happened');
		const lines = written().trimEnd().split('\n');
		expect(lines.map((line) => line.slice(0, 3))).toEqual(['<7>', '<6>', '<4>', '<3>']);
		expect(lines.map((line) => JSON.parse(line.slice(3)).msg)).toEqual(Array(4).fill('happened'));
	});

	test('an inherited stream that is not this one changes nothing', () => {
		openLog({ env: { JOURNAL_STREAM: '8:1' } }).info('happened');
		expect(records()).toMatchObject([{ msg: 'happened' }]);
	});

	test('a terminal gets plain text', async () => {
		const command = `echo go | '${process.execPath}' '${WRITER}' 1`;
		const child = spawn('script', ['-q', '-e', '-c', command, '/dev/null'], { stdio: ['ignore', 'pipe', 'inherit'] });
		const shown = await text(child.stdout);
		expect(shown).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARN {2}waiting count=1\r\n/);
	});

	test('plain text puts values with spaces in quotes and is scrubbed too', () => {
		const lines: string[] = [];
		const log = createLog({ shaper, destination: { form: 'terminal', write: (line) => lines.push(line) } });
		log.info('online', { workflowId: 'two words', host: 'xQk7-secret9', status: 200 });
		expect(lines[0]).toMatch(/Z INFO {2}online host=\[word-12-\w+\] status=200 workflowId="two words"\n$/);
	});

	test('a reader that goes away costs the lines, not the agent', async () => {
		const child = spawn(process.execPath, [WRITER, '500'], { stdio: 'pipe' });
		child.stdout.destroy();
		await once(child.stdout, 'close');
		child.stdin.write('go');
		expect(await text(child.stderr)).toBe('still alive');
		expect(child.exitCode ?? (await once(child, 'exit'))[0]).toBe(0);
	});

	test('a full disk costs the lines, not the agent', () => {
		const full = fs.openSync('/dev/full', 'w');
		const log = createLog({ shaper, destination: openLogDestination(full, {}) });
		expect(() => log.error('lost')).not.toThrow();
		fs.closeSync(full);
		expect(() => log.error('lost too')).not.toThrow();
	});

	test('a reader that is slow is not waited for, and gets whole lines again later', () => {
		const pipe = path.join(directory, 'pipe');
		execFileSync('mkfifo', [pipe]);
		const end = fs.openSync(pipe, fs.constants.O_RDWR | fs.constants.O_NONBLOCK);
		const log = createLog({ shaper, destination: openLogDestination(end, {}) });
		const sent = 2000;
		for (let count = 1; count <= sent; count += 1) log.info('x'.repeat(200), { count });
		const buffer = Buffer.alloc(1024 * 1024);
		let received = '';
		const drain = () => {
			try {
				for (;;) received += buffer.toString('utf8', 0, fs.readSync(end, buffer));
			} catch (error) {
				expect(error).toMatchObject({ code: 'EAGAIN' });
			}
		};
		for (const after of ['after the pause', 'and later']) {
			drain();
			log.info(after);
		}
		drain();
		fs.closeSync(end);
		const lines = received
			.trimEnd()
			.split('\n')
			.map((line) => JSON.parse(line));
		expect(lines.slice(-2).map((line) => line.msg)).toEqual(['after the pause', 'and later']);
		expect(lines.length).toBeLessThan(sent);
		// What the pipe holds, and then 64 KiB more: without a hole.
		expect(lines.slice(0, -2).map((line) => line.count)).toEqual(lines.slice(0, -2).map((_, index) => index + 1));
		expect(Buffer.byteLength(received)).toBeGreaterThan(120_000);
	});
});
