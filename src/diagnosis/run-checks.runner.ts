/**
 * Runs the checks of `idv-agent doctor`: in parallel where nothing stands in between, each within its limit, and reports
 * them in their order. What a check means is decided in `check-results.ts`; what it looks at stands in `probes.runner.ts`.
 */

import type { Clock } from '../base/clock.edge.ts';
import { failure, toFailure } from '../base/errors.ts';
import {
	assess,
	blockerTo,
	CHECKS,
	type CheckId,
	type Finding,
	failed,
	needsOf,
	type Verdict,
	withFoundations,
} from './checks.ts';

/** Raised when a field of the report changes its meaning or goes away; new fields and checks do not raise it. */
export const DOCTOR_SCHEMA_VERSION = 1;
/** All checks together end within this time, in milliseconds: a person waits. */
const DOCTOR_DEADLINE_MS = 9500;
/** One check alone, in milliseconds. */
const CHECK_DEADLINE_MS = 5000;

/** Looks at one thing. @param limitMs how long it may take. */
export type Probe = (limitMs: number) => Promise<Finding>;
export type Probes = Readonly<Record<CheckId, Probe>>;

/** One check as it is reported. */
export type CheckReport = Finding & {
	readonly id: CheckId;
	readonly title: string;
	/** How long it took, in milliseconds. */
	readonly ms: number;
};

export interface Diagnosis extends Verdict {
	readonly checks: readonly CheckReport[];
	/** Milliseconds. */
	readonly ms: number;
}

export interface DiagnoseOptions {
	readonly probes: Probes;
	/** Whose foundations are checked as well. */
	readonly checks: readonly CheckId[];
	readonly warningsAsErrors: boolean;
	readonly clock: Clock;
	/** In the order of the table, each as soon as it and all before it are known. */
	readonly onCheck?: (check: CheckReport) => void;
	/** Default {@link DOCTOR_DEADLINE_MS}. */
	readonly deadlineMs?: number;
}

export async function diagnose(options: DiagnoseOptions): Promise<Diagnosis> {
	const { clock, probes, onCheck = () => {}, deadlineMs = DOCTOR_DEADLINE_MS } = options;
	const startedMs = clock.monotonicMs();
	const findings = new Map<CheckId, Finding>();
	const running = new Map<CheckId, Promise<CheckReport>>();

	const check = async (id: CheckId): Promise<CheckReport> => {
		await Promise.all(needsOf(id).map((need) => running.get(need)));
		const fromMs = clock.monotonicMs();
		const finding = blockerTo(id, findings) ?? (await tryProbe(id, startedMs + deadlineMs - fromMs));
		findings.set(id, finding);
		return { id, title: CHECKS[id].title, ...finding, ms: Math.round(clock.monotonicMs() - fromMs) };
	};

	const tryProbe = async (id: CheckId, leftMs: number): Promise<Finding> => {
		const limitMs = Math.max(1, Math.min(CHECK_DEADLINE_MS, leftMs));
		let cancel = () => {};
		const late = new Promise<Finding>((resolve) => {
			cancel = clock.schedule(limitMs, () => resolve(tooLate(limitMs)));
		});
		try {
			// A little less than the limit: a probe that ends by itself says more than one that is given up.
			return await Promise.race([probes[id](Math.ceil(limitMs * 0.95)), late]);
		} catch (error) {
			return failed(toFailure(error));
		} finally {
			cancel();
		}
	};

	const ids = withFoundations(options.checks);
	// Foundations stand above: each finds the ones that it waits for.
	for (const id of ids) running.set(id, check(id));
	const reports: CheckReport[] = [];
	for (const id of ids) {
		const report = await running.get(id);
		if (!report) continue;
		reports.push(report);
		onCheck(report);
	}
	const pairs = reports.map((report): [CheckId, Finding] => [report.id, report]);
	const { warningsAsErrors } = options;
	return { ...assess(pairs, { warningsAsErrors }), checks: reports, ms: Math.round(clock.monotonicMs() - startedMs) };
}

function tooLate(limitMs: number): Finding {
	return failed(
		failure('request-timeout', `This was not over within ${(limitMs / 1000).toFixed(1)} s.`, {
			remedy: 'Try it alone, with --check; a slow line or a busy device may need more time.',
		}),
	);
}
