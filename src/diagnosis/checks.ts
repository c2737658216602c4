/**
 * The checks of `idv-agent doctor`: what each is called, what it stands on, and what all of them together mean.
 * Pure: probes nothing, knows no time limit and words no single finding.
 */
import { type ErrorCode, EXIT, exitStatusOf, type Failure } from '../base/errors.ts';

interface CheckRow {
	/** For a person, in a table. */
	readonly title: string;
	/** What has to hold before this check can say anything. Only checks that stand above it in the table. */
	readonly needs: readonly string[];
}

const row = (title: string, ...needs: string[]): CheckRow => ({ title, needs });

/** Every check by its permanent id, in the order in which they are reported: causes before what follows from them. */
export const CHECKS = {
	settings: row('Settings'),
	state: row('State directory'),
	'disk-space': row('Disk space'),
	memory: row('Memory'),
	identity: row('Identity', 'settings'),
	pairing: row('Pairing', 'settings'),
	dns: row('DNS', 'settings'),
	tcp: row('TCP connection', 'dns'),
	proxy: row('Proxy', 'tcp'),
	// On nothing but the settings: it is wanted most when nothing else works.
	clock: row('Clock', 'settings'),
	tls: row('TLS certificate', 'proxy'),
	http: row('HTTP answer', 'tls'),
	channel: row('Channel handshake', 'http'),
	heartbeat: row('Heartbeat', 'channel'),
	'local-socket': row('Local sockets'),
	scanner: row('Scanner', 'settings'),
	unit: row('systemd unit'),
} as const satisfies Record<string, CheckRow>;

export type CheckId = keyof typeof CHECKS;

/** In the order of the table. */
export const CHECK_IDS = Object.keys(CHECKS) as readonly CheckId[];

/** What a check has found. */
export type Finding =
	| { readonly status: 'ok'; readonly message: string }
	/** A failure keeps the device from its work now; a warning will, or may. */
	| {
			readonly status: 'warning' | 'failed';
			readonly code: ErrorCode;
			readonly message: string;
			readonly remedy: string;
	  }
	/** Nothing to check here; `blockedBy` names the check without which it could not be made. */
	| { readonly status: 'skipped'; readonly message: string; readonly blockedBy: CheckId | null };

export const ok = (message: string): Finding => ({ status: 'ok', message });
export const failed = ({ code, message, remedy }: Failure): Finding => ({ status: 'failed', code, message, remedy });
export const warning = ({ code, message, remedy }: Failure): Finding => ({ status: 'warning', code, message, remedy });
/** There is nothing of this kind to check; what stands on it goes ahead. */
export const notApplicable = (message: string): Finding => ({ status: 'skipped', message, blockedBy: null });
export const blockedBy = (id: CheckId): Finding => ({
	status: 'skipped',
	message: `Not checked, because ${id} failed.`,
	blockedBy: id,
});

/** What stands under a check, itself included, in the order of the table. */
export function withFoundations(asked: readonly CheckId[]): CheckId[] {
	const desired = new Set<CheckId>(asked);
	// From the last to the first: foundations stand above.
	for (const id of [...CHECK_IDS].reverse()) if (desired.has(id)) for (const need of needsOf(id)) desired.add(need);
	return CHECK_IDS.filter((id) => desired.has(id));
}

export function needsOf(id: CheckId): readonly CheckId[] {
	return CHECKS[id].needs as readonly CheckId[];
}

/**
 * Why a check need not be made: a foundation failed, or could itself not be checked. The check that failed is named, not
 * the one in between. `null` when it can be made.
 */
export function blockerTo(id: CheckId, findings: ReadonlyMap<CheckId, Finding>): Finding | null {
	for (const need of needsOf(id)) {
		const found = findings.get(need);
		if (found?.status === 'failed') return blockedBy(need);
		if (found?.status === 'skipped' && found.blockedBy !== null) return blockedBy(found.blockedBy);
	}
	return null;
}

/** What all findings together mean: the worst of them, and the exit status of the first that counts. */
export interface Verdict {
	readonly verdict: 'ok' | 'warning' | 'failed';
	/** A sysexit; of the first failure, for causes stand first. */
	readonly exitStatus: number;
	/** The first check that decided it; `null` when all is well. */
	readonly first: CheckId | null;
}

/** @param findings in the order of the table. @param warningsAsErrors whether a warning alone is a failure. */
export function assess(
	findings: readonly (readonly [CheckId, Finding])[],
	{ warningsAsErrors }: { readonly warningsAsErrors: boolean },
): Verdict {
	const first = findings.find(([, { status }]) => status === 'failed' || (warningsAsErrors && status === 'warning'));
	const warned = findings.some(([, { status }]) => status === 'warning');
	if (!first) return { verdict: warned ? 'warning' : 'ok', exitStatus: EXIT.ok, first: null };
	const [id, found] = first;
	return { verdict: 'failed', exitStatus: 'code' in found ? exitStatusOf(found.code) : EXIT.internal, first: id };
}
