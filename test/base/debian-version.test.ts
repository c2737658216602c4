import { execFileSync, spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compareVersions, versionProblem } from '../../src/base/debian-version.ts';

const hasDpkg = spawnSync('dpkg', ['--version']).status === 0;

const drawn = (letters: string, min: number, max: number) =>
	fc.string({ unit: fc.constantFrom(...letters), minLength: min, maxLength: max });
/** Debian's grammar, drawn part by part. */
const debian = fc
	.record({
		epoch: fc.option(fc.nat(99), { nil: null }),
		first: fc.nat(99),
		upstream: drawn('019azAZ.+~-', 0, 12),
		revision: fc.option(drawn('019azAZ.+~', 1, 8), { nil: null }),
	})
	.map(({ epoch, first, upstream, revision }) => {
		// Without a revision the upstream version has no hyphen, by the policy.
		const named = revision === null ? upstream.replaceAll('-', '') : upstream;
		return `${epoch === null ? '' : `${epoch}:`}${first}${named}${revision === null ? '' : `-${revision}`}`;
	});
/** Close to a version, and mostly none. */
const close = drawn('019a.+~-:/*= _\n\0^$;|', 0, 10);

describe('versions for a plan', () => {
	test.each(['0.3.0', '1:0.2.0-1~x', '0.3.0+site2', '2026.11.22~rc1', '0', '1-1-1', '0.3.0~', '2147483647:1'])(
		'%s may be ordered',
		(version) => expect(versionProblem(version)).toBeNull(),
	);

	test.each([
		...['0.3.0+', '0.3.0-', '0.3.0-1+', '0.3.0--', '0.3.0+-', '0.3.0-+', '1:0.3.0+', '+', '-', '1+'],
		...['-0.3.0', '-1', '--purge', '+0.3.0', 'v0.3.0', 'latest', 'a', '~1', '.1', ''],
		...[':0.3.0', '1:', '1:-1', '-1:0.3.0', '1:2:3', 'a:1', '1:a', '2147483648:1', '0x1:1', '1 :1', '1: 1'],
		...['0.3.0/stable', '0.3.0/', '0.3.0*', '0.*', '0.3.0?', '0.3.0=1', '0.3.0 ', ' 0.3.0', '0.3 .0', '0.3.0^', '0_3'],
		...['0.3.0\n', '0.3.0\nPin-Priority: 1001', '0.3.0\0', '0.3.0\t', '0.3.0\u0007', '0.3.0\r', '0.3.0\u2028'],
		...['٣.0', '０.3.0', '0.3.0é', `0.${'3'.repeat(63)}`, `0.${'3'.repeat(100_000)}`],
	])('%j may not be ordered', (text) => expect(versionProblem(text)).not.toBeNull());

	test('a version may be ordered if it is one of Debian that does not end in an operator of apt [F441]', () => {
		fc.assert(
			fc.property(debian, (version) => {
				expect(versionProblem(version) === null).toBe(!/[+-]$/.test(version));
			}),
		);
		const grammar = /^(\d+:)?\d([A-Za-z0-9.+~-]*-[A-Za-z0-9.+~]+|[A-Za-z0-9.+~]*)$/;
		fc.assert(
			fc.property(close, (text) => {
				expect(versionProblem(text) === null).toBe(grammar.test(text) && !/[+-]$/.test(text));
			}),
			{ numRuns: 2000 },
		);
	});

	test.skipIf(!hasDpkg)('dpkg takes every version that may be ordered, without a warning (needs dpkg)', () => {
		fc.assert(
			fc.property(fc.oneof(debian, close), (text) => {
				fc.pre(versionProblem(text) === null);
				expect(spawnSync('dpkg', ['--validate-version', text], { encoding: 'utf8' })).toMatchObject({
					status: 0,
					stderr: '',
				});
			}),
			{ numRuns: 60 },
		);
	});
});

describe('two versions', () => {
	test.each([
		['0.3.0', '0:0.3.0-0'],
		['0.3.0', '0.03.00'],
		['0.3.0', '0.3.0-0'],
		['1:1', '01:1'],
	])('%s and %s are the same', (a, b) => expect(compareVersions(a, b)).toBe(0));

	test.each([
		['0.2.0', '0.10.0'],
		['0.3.0~rc1', '0.3.0'],
		['0.3.0', '0.3.0+site1'],
		['0.3.0-1', '0.3.0-2'],
		['9.9.9', '1:0.1.0'],
		['1.0a', '1.0+'],
		['1.0~~', '1.0~'],
		['0.99999999999999999998', '0.99999999999999999999'],
	])('%s is older than %s', (a, b) => {
		expect(compareVersions(a, b)).toBeLessThan(0);
		expect(compareVersions(b, a)).toBeGreaterThan(0);
	});

	test.skipIf(!hasDpkg)('they are ordered as dpkg orders them (needs dpkg)', () => {
		const near = fc.tuple(debian, debian, fc.boolean()).map(([a, b, isNear]) => [a, isNear ? `${a}${b.slice(-1)}` : b]);
		const script =
			'dpkg --compare-versions "$0" lt "$1" && echo -1 || { dpkg --compare-versions "$0" eq "$1" && echo 0 || echo 1; }';
		fc.assert(
			fc.property(near, ([a = '', b = '']) => {
				const told = execFileSync('sh', ['-c', script, a, b], {
					encoding: 'utf8',
					stdio: ['ignore', 'pipe', 'ignore'],
				});
				expect(Math.sign(compareVersions(a, b))).toBe(Number(told));
			}),
			{ numRuns: 150 },
		);
	});
});
