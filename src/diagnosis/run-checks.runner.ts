/** Runs the checks in parallel unless one needs another, each within its limit, and reports them in their order. */
import type { Clock } from '../base/clock.edge.ts';
import { failure, toFailure } from '../base/errors.ts';
import { assess, blockerTo, type Check, type Finding, failed, withPrerequisites } from './checks.ts';

/** Raised when a field of the report changes its meaning or goes away; new fields and checks do not raise it. */
export const DOCTOR_SCHEMA_VERSION = 1;
/** All checks together end within this time, in milliseconds: a person waits. */
const DOCTOR_DEADLINE_MS = 9500;
const CHECK_DEADLINE_MS = 5000;
const RUN_ALONE = 'Run it alone, with --check; a slow line or a busy device may need more time.';

export type CheckReport = Finding & {
	readonly id: string;
	readonly title: string;
	/** How long it took, in milliseconds. */
	readonly ms: number;
};

export type Diagnosis = Awaited<ReturnType<typeof diagnose>>;

export interface DiagnoseOptions<Context> {
	readonly list: readonly Check<Context>[];
	/** Handed to every check. */
	readonly context: Context;
	/** Ids of the checks to run; their prerequisites also run. */
	readonly checks: readonly string[];
	readonly warningsAsErrors: boolean;
	readonly clock: Clock;
	/** In the order of the list, each as soon as it and all before it are known. */
	readonly onCheck?: (check: CheckReport) => void;
}

export async function diagnose<Context>(options: DiagnoseOptions<Context>) {
	const { clock, context, warningsAsErrors, onCheck = () => {} } = options;
	const startedMs = clock.monotonicMs();
	const findings = new Map<string, Finding>();
	const running = new Map<string, Promise<CheckReport>>();

	const report = async (check: Check<Context>): Promise<CheckReport> => {
		const before = [...running.values()];
		const { id, title, needs } = check;
		await Promise.all(needs.map((need) => running.get(need)));
		const fromMs = clock.monotonicMs();
		const leftMs = startedMs + DOCTOR_DEADLINE_MS - fromMs;
		const finding = blockerTo(check, findings) ?? (await run(check, leftMs, () => Promise.all(before)));
		findings.set(id, finding);
		return { id, title, ...finding, ms: Math.round(clock.monotonicMs() - fromMs) };
	};

	const run = async (check: Check<Context>, leftMs: number, before: () => Promise<Finding[]>): Promise<Finding> => {
		const limitMs = Math.max(1, Math.min(CHECK_DEADLINE_MS, leftMs));
		const late = Promise.withResolvers<Finding>();
		const message = `This check did not end within ${(limitMs / 1000).toFixed(1)} s.`;
		const tooLate = failed(failure('request-timeout', message, { remedy: RUN_ALONE }));
		const cancel = clock.schedule(limitMs, () => late.resolve(tooLate));
		try {
			// A little less than the limit: a check that ends on its own says more than one that is cut off.
			const run = check.run(context, Math.ceil(limitMs * 0.95), () => {
				// Those have limits of their own.
				cancel();
				return before();
			});
			return await Promise.race([run, late.promise]);
		} catch (error) {
			return failed(toFailure(error));
		} finally {
			cancel();
		}
	};

	const reports: CheckReport[] = [];
	// Prerequisites come earlier in the list: each check finds those that it waits for.
	for (const check of withPrerequisites(options.list, options.checks)) running.set(check.id, report(check));
	for (const found of running.values()) {
		reports.push(await found);
		onCheck(await found);
	}
	const pairs = reports.map((one) => [one.id, one] as const);
	return { ...assess(pairs, { warningsAsErrors }), checks: reports, ms: Math.round(clock.monotonicMs() - startedMs) };
}
