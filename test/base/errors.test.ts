import { describe, expect, test } from 'vitest';
import {
	AgentError,
	CATALOGUE,
	dispositionOf,
	type ErrorCode,
	EXIT,
	exitStatusOf,
	failure,
	retryClassOf,
	toFailure,
} from '../../src/base/errors.ts';
import { joinSentences, problemDocument, sentenceOf } from '../../src/base/sentences.ts';

const CODES = Object.keys(CATALOGUE) as ErrorCode[];
const words = (text: string) => text.toLowerCase().match(/[a-z]+/g) ?? [];

describe('every code of the catalogue', () => {
	test.each(CODES)('%s is kebab-case and short enough to read out', (code) => {
		expect(code).toMatch(/^[a-z]+(-[a-z]+)*$/);
		expect(code.length).toBeLessThanOrEqual(32);
	});

	test.each(CODES)('%s has a remedy: a sentence that says more than its code does', (code) => {
		const { remedy } = CATALOGUE[code];
		expect(remedy).toMatch(/^[A-Z].*\.$/s);
		expect(remedy).toBe(remedy.trim());
		expect(remedy.length).toBeLessThanOrEqual(200);
		const own = new Set(words(code));
		expect(words(remedy).filter((word) => !own.has(word)).length).toBeGreaterThanOrEqual(2);
		// What went wrong belongs to the message of the day.
		expect(remedy).not.toMatch(/^(Error|Failed|Could not|Cannot|Can't|Unable|The (request|connection) (failed|was))/);
	});

	test.each(CODES)('%s ends a command with a sysexits status that is no success', (code) => {
		expect(Object.values(EXIT)).toContain(exitStatusOf(code));
		expect(exitStatusOf(code)).not.toBe(EXIT.ok);
	});

	test.each(CODES)('%s has a remedy for a person, and says only by data that the agent recovers', (code) => {
		expect(CATALOGUE[code].remedy).not.toMatch(/by itself|automatically|the agent (retries|reconnects)|nothing to do/i);
		expect(failure(code, 'x').recovers ?? false).toBe(CATALOGUE[code].recovers);
		// What is retried recovers; what waits for a person does not.
		const row: { retry?: object } = CATALOGUE[code];
		if (row.retry) expect(CATALOGUE[code].recovers).toBe(dispositionOf(code) === 'retry');
	});

	test.each(CODES)('%s in a link says who acts next, and how it is spaced', (code) => {
		expect(['retry', 'reregister', 'askHuman']).toContain(dispositionOf(code));
		expect(['unreachable', 'overloaded', 'refused', 'occupied', 'surprising', 'slow']).toContain(retryClassOf(code));
		// Only a person can help: to try often would not.
		if (dispositionOf(code) === 'askHuman') expect(['surprising', 'slow']).toContain(retryClassOf(code));
		// The count of refusals that blocks is kept for what a new registration could cure, and for that only.
		expect(retryClassOf(code) === 'refused').toBe(dispositionOf(code) === 'reregister');
	});
});

describe('the catalogue', () => {
	/** Told apart by programs; the same thing to do for a person. */
	const ALIKE: readonly (readonly ErrorCode[])[] = [['handshake-timeout', 'request-timeout']];

	test('gives two codes the same remedy only where the same thing is to be done', () => {
		const byRemedy = Map.groupBy(CODES, (code) => CATALOGUE[code].remedy);
		expect([...byRemedy.values()].filter((codes) => codes.length > 1)).toEqual(ALIKE);
	});

	test('has the exit statuses of sysexits', () => {
		expect(EXIT).toEqual({
			ok: 0,
			usage: 64,
			badData: 65,
			unavailable: 69,
			internal: 70,
			io: 74,
			temporary: 75,
			refused: 77,
			configuration: 78,
		});
	});

	test('never blames the credential for a network, a proxy, a clock or a service in trouble', () => {
		const innocent: ErrorCode[] = [
			'captive-portal',
			'proxy-refused',
			'proxy-failed',
			'clock-wrong',
			'service-failed',
			'service-overloaded',
			'tls-failed',
			'certificate-untrusted',
		];
		for (const code of innocent) expect(dispositionOf(code), code).not.toBe('reregister');
	});
});

describe('a failure', () => {
	test('takes the remedy of the catalogue unless a better one is known', () => {
		expect(failure('dns-failed', 'No address for h.')).toEqual({
			code: 'dns-failed',
			message: 'No address for h.',
			remedy: CATALOGUE['dns-failed'].remedy,
			recovers: true,
		});
		expect(failure('dns-failed', 'x', { remedy: 'Plug the cable in.' }).remedy).toBe('Plug the cable in.');
	});

	test('names a wait only if there is one', () => {
		expect(failure('service-overloaded', 'x')).not.toHaveProperty('retryAfterMs');
		expect(failure('service-overloaded', 'x', { retryAfterMs: 0 }).retryAfterMs).toBe(0);
	});

	test('crosses a socket as it is', () => {
		const told = failure('service-overloaded', 'x', { retryAfterMs: 5000, params: { host: 'h', status: 503 } });
		expect(JSON.parse(JSON.stringify(told))).toEqual(told);
	});
});

describe('the text for a reader', () => {
	const told = failure('connection-lost', 'The line to h was cut');
	test('is message and remedy, and what the agent does where it still works on it', () => {
		expect(sentenceOf(told, 'over')).toBe('The line to h was cut. If it happens often, check the line.');
		expect(sentenceOf(told, 'ongoing')).toBe(
			'The line to h was cut. If it happens often, check the line. The agent retries automatically.',
		);
		expect(sentenceOf({ ...told, recovers: false }, 'ongoing')).toBe(sentenceOf(told, 'over'));
	});

	test('has no holes where a part is missing, and keeps the end that a part has', () => {
		expect(joinSentences(' Really? ', '', 'No')).toBe('Really? No.');
	});

	test('stands in a problem document beside the code and the parameters', () => {
		const refused = failure('body-too-large', 'The body has more than 5 bytes.', { params: { maxBytes: 5 } });
		expect(problemDocument(refused, { status: 413, title: 'Content Too Large' })).toEqual({
			status: 413,
			title: 'Content Too Large',
			code: 'body-too-large',
			detail: 'The body has more than 5 bytes.',
			remedy: refused.remedy,
			params: { maxBytes: 5 },
			sentence: 'The body has more than 5 bytes. Send less; the message names the limit.',
		});
	});
});

describe('an error', () => {
	test('carries its failure, its cause and its exit status', () => {
		const cause = new Error('ENOSPC');
		const error = new AgentError('state-unwritable', 'The disk is full.', { cause, remedy: 'Free some space.' });
		expect(error).toBeInstanceOf(Error);
		expect(error).toMatchObject({ name: 'AgentError', code: 'state-unwritable', message: 'The disk is full.', cause });
		expect(toFailure(error)).toEqual({
			code: 'state-unwritable',
			message: 'The disk is full.',
			remedy: 'Free some space.',
		});
		expect(exitStatusOf(error.code)).toBe(EXIT.io);
	});

	test('without a cause has none', () => {
		expect('cause' in new AgentError('usage', 'x')).toBe(false);
	});

	test.each([
		[new TypeError('x is not a function'), 'TypeError: x is not a function'],
		['thrown text', 'thrown text'],
		[undefined, 'undefined'],
		[404, '404'],
	])('that nobody foresaw is a fault of ours: %s', (thrown, message) => {
		expect(toFailure(thrown)).toMatchObject({ code: 'internal', message });
	});
});
