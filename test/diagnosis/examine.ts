/** What tests of the doctor share: a device in a directory of its own, the real checks on it, and how a failure has to look. */
import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.edge.ts';
import { CHECKS, type CheckId, openContext } from '../../src/diagnosis/check-list.runner.ts';
import type { Finding } from '../../src/diagnosis/checks.ts';
import type { InspectionTarget } from '../../src/diagnosis/inspection-target.runner.ts';
import { type CheckReport, type Diagnosis, diagnose } from '../../src/diagnosis/run-checks.runner.ts';
import { plantTree, type Tree } from '../fixtures/machines.ts';
import { givenHome, type Home } from '../harness/harness.ts';

export interface Setup extends Partial<InspectionTarget> {
	/** Of an agent that runs or has run; default: of a device on which none ever ran. */
	readonly home?: Home;
	/** Contents of `config.json`; left out, it stays as it is. */
	readonly settings?: object | string;
	/** The file tree of the machine; default: an empty one. */
	readonly machine?: Tree;
	readonly clock?: Clock;
}

export interface Examination extends Omit<Diagnosis, 'checks'> {
	readonly checks: Readonly<Partial<Record<CheckId, CheckReport>>>;
}

/** The checks and their prerequisites. */
export async function examine(setup: Setup, ...asked: CheckId[]): Promise<Examination> {
	const { settings, machine = {}, clock = systemClock, home = await givenHome(), ...target } = setup;
	if (settings !== undefined) await home.writeSettings(settings);
	const machineRoot = await mkdtemp(join(home.directory, 'examined-'));
	await plantTree(machineRoot, machine);
	const { paths } = home;
	const absent = { unit: null, mainPid: null, serviceUser: null, isOfUnit: false };
	const context = openContext({
		inspected: { paths, env: {}, sets: [], ...absent, ...target },
		clock,
		userAgent: 'test',
		machineRoot,
	});
	onTestFinished(() => context.close());
	const diagnosis = await diagnose({ list: CHECKS, context, checks: asked, warningsAsErrors: false, clock });
	await context.close();
	return { ...diagnosis, checks: Object.fromEntries(diagnosis.checks.map((one) => [one.id, one])) };
}

/** What every failure and warning has to say. */
export function expectProblem(found: Finding | undefined, status: 'failed' | 'warning', code: string, words: RegExp) {
	const message = expect.stringMatching(words);
	expect(found).toMatchObject({ status, code, message, remedy: expect.stringMatching(/\S/) });
}

export function expectSkipped({ checks }: Examination, blocker: CheckId | null, ...ids: CheckId[]): void {
	for (const id of ids) expect([id, checks[id]]).toMatchObject([id, { status: 'skipped', blockedBy: blocker }]);
}
