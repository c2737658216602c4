import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATALOGUE, type ErrorCode, failure } from '../../src/base/errors.ts';
import { CHECK_IDS, CHECKS, type CheckId } from '../../src/diagnosis/check-list.runner.ts';
import { hintsOf } from '../../src/diagnosis/check-results.ts';
import {
	assess,
	blockedBy,
	blockerTo,
	type Finding,
	failed,
	notApplicable,
	ok,
	warning,
	withPrerequisites,
} from '../../src/diagnosis/checks.ts';

const row = (wanted: CheckId) => CHECKS.find(({ id }) => id === wanted) ?? CHECKS[0];
const idsWithPrerequisites = (asked: readonly CheckId[]) => withPrerequisites(CHECKS, asked).map(({ id }) => id);
const failing = failed(failure('dns-failed', 'The name can not be resolved.'));
const STRICT = { warningsAsErrors: true };
const LENIENT = { warningsAsErrors: false };

test('a channel that fails is told the open points that its remedy does not name; nothing else is', () => {
	const refused = failed(
		failure('credential-refused', 'The channel answered 401.', { remedy: 'Check service.queryName.' }),
	);
	expect(hintsOf('channel', refused)).toEqual([
		'If the Connection is new, check service.channelAuth: some services take it in the query.',
		'If Connections that do not say their life end regularly, set service.connectionLifeSeconds.',
		'If each Connection opens one channel only, set service.nextConnection to the place of the next one.',
	]);
	expect(hintsOf('credential', refused)).toEqual([]);
	expect(hintsOf('channel', ok('It is open.'))).toEqual([]);
});

describe('the list', () => {
	test('holds the permanent ids in the permanent order, each with what it needs', () => {
		expect(CHECKS.map(({ id, needs }) => [id, ...needs].join(' '))).toEqual([
			'settings',
			'state',
			'disk-space',
			'memory',
			'identity settings',
			'pairing settings',
			'dns settings',
			'tcp dns',
			'proxy tcp',
			'clock settings',
			'tls proxy',
			'http tls',
			'channel http',
			'heartbeat channel',
			'local-socket',
			'plan settings',
			'first-code settings',
			'scanner settings',
			'hooks settings',
			'unit',
			'agent',
		]);
	});

	test('every check needs only checks that come earlier', () => {
		for (const [index, { id, needs }] of CHECKS.entries())
			for (const need of needs) expect([id, CHECK_IDS.slice(0, index)]).toEqual([id, expect.arrayContaining([need])]);
	});

	test('every check has a title of its own', () => {
		expect(new Set(CHECKS.map(({ title }) => title)).size).toBe(CHECKS.length);
	});
});

describe('a check that was asked for', () => {
	test('brings its prerequisites, in the order of the list', () => {
		expect(idsWithPrerequisites(['tls'])).toEqual(['settings', 'dns', 'tcp', 'proxy', 'tls']);
		expect(idsWithPrerequisites(['unit', 'state'])).toEqual(['state', 'unit']);
		expect(idsWithPrerequisites(CHECK_IDS)).toEqual(CHECK_IDS);
	});
});

describe('a check whose prerequisite', () => {
	test('failed is skipped and names it', () => {
		const blocker = blockerTo(row('tcp'), new Map([['dns', failing]]));
		expect(blocker).toEqual(blockedBy('dns'));
		expect(blocker).toEqual({ status: 'skipped', message: expect.stringContaining('dns'), blockedBy: 'dns' });
	});

	test('was skipped for a failure names the failure, not the check in between', () => {
		expect(blockerTo(row('tls'), new Map([['proxy', blockedBy('dns')]]))).toMatchObject({ blockedBy: 'dns' });
	});

	test.each([
		['is well', ok('Well.')],
		['is only a warning', warning(failure('disk-low', 'Low.'))],
		['does not apply here', notApplicable('There is no proxy.')],
	])('%s is run', (_name, finding: Finding) => {
		expect(blockerTo(row('tls'), new Map([['proxy', finding]]))).toBeNull();
	});
});

describe('the verdict', () => {
	test('is well when nothing is wrong, whatever was skipped', () => {
		expect(
			assess(
				[
					['settings', ok('Valid.')],
					['proxy', notApplicable('None.')],
				],
				STRICT,
			),
		).toEqual({
			verdict: 'ok',
			exitStatus: 0,
			first: null,
		});
	});

	test('one warning among what is well is a warning', () => {
		const findings = [
			['disk-space', warning(failure('disk-low', 'Low.'))],
			['memory', ok('Enough.')],
		] as const;
		expect(assess(findings, LENIENT)).toEqual({ verdict: 'warning', exitStatus: 0, first: null });
	});

	test('what there is not is skipped for nothing', () => {
		expect(notApplicable('There is no proxy.')).toEqual({
			status: 'skipped',
			message: 'There is no proxy.',
			blockedBy: null,
		});
	});

	test('a warning alone costs the exit status only if that is wanted', () => {
		const findings = [['disk-space', warning(failure('disk-low', 'Low.'))]] as const;
		expect(assess(findings, LENIENT)).toEqual({ verdict: 'warning', exitStatus: 0, first: null });
		expect(assess(findings, STRICT)).toEqual({ verdict: 'failed', exitStatus: 74, first: 'disk-space' });
	});

	test('takes the exit status of the first failure, and no warning before it', () => {
		const code = fc.constantFrom(...(Object.keys(CATALOGUE) as ErrorCode[]));
		const finding = fc.oneof(
			fc.constant(ok('Well.')),
			fc.constant(notApplicable('None.')),
			code.map((name) => failed(failure(name, 'Failed.'))),
			code.map((name) => warning(failure(name, 'Warned.'))),
		);
		const pairs = fc
			.tuple(...CHECK_IDS.map((id) => finding.map((found): [CheckId, Finding] => [id, found])))
			.map((all) => all as [CheckId, Finding][]);
		fc.assert(
			fc.property(pairs, fc.boolean(), (findings, warningsAsErrors) => {
				const counts = findings.filter(
					([, { status }]) => status === 'failed' || (warningsAsErrors && status === 'warning'),
				);
				const [id, found] = counts[0] ?? [null, null];
				const { exitStatus, first } = assess(findings, { warningsAsErrors });
				expect(first).toBe(id);
				expect(exitStatus).toBe(found && 'code' in found ? CATALOGUE[found.code].exit : 0);
			}),
		);
	});
});
