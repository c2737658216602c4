/** Published plans that a store has kept in part only, or lost: told as that, with the way to publish over them. */
import { AgentError } from '../base/errors.ts';
import type { Shell } from '../cli/output.runner.ts';
import { isEnvelope } from '../fleet/plan-format.ts';
import { type RolloutRecord, readRecord, recordPlaceOf } from '../fleet/rollout-record.ts';
import { parseJson } from '../protocol/json.ts';
import { readStored } from './fleet-store.runner.ts';

const textOf = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

/** Whether bytes that cannot be read as a plan are none: one with a fault, or of a newer format, says itself that it is a plan. */
function isNoPlan(bytes: Uint8Array): boolean {
	const document = parseJson(textOf(bytes));
	const payload = isEnvelope(document) && (document as { payload: unknown }).payload;
	const plan = typeof payload === 'string' ? parseJson(textOf(Buffer.from(payload, 'base64'))) : document;
	const format: unknown = (plan as { format?: unknown } | null | undefined)?.format;
	return typeof format !== 'string' || !format.startsWith('idv-fleet-plan/');
}

/** The error for bytes at a place where a plan was published and that are none now; `null` for other bytes, and where nothing was published. */
export function damageIn(bytes: Uint8Array, place: string, { signed }: RolloutRecord): AgentError | null {
	const last = signed.at(-1);
	if (!last || !isNoPlan(bytes)) return null;
	const message = `${place} holds a damaged plan (${bytes.length} bytes, not a whole plan), not revision ${last.revision}, which was signed for it last.`;
	return new AgentError('plan-invalid', message, {
		remedy: `Look at what has cut it off. Then publish over it: idv fleet sign with --previous FILE, where FILE is revision ${last.revision} or the plan that was in force before it, signed or not.`,
	});
}

/** As {@link damageIn}, by the record that lies beside the plan. */
export async function damageAt(shell: Shell, bytes: Uint8Array, place: string): Promise<AgentError | null> {
	const stored = isNoPlan(bytes) ? await readStored(shell, recordPlaceOf(place)) : null;
	const record = stored && readRecord(textOf(stored.bytes));
	return record && damageIn(bytes, place, record);
}

/** The record without what was signed last, where a person says that the plan before that is in force; as it is where that may have been.
 * @param seen the digest of the plan in force that a person has named; `undefined` where nothing was asked.
 * @throws AgentError `damage`, where another plan is named. */
export function withoutDamaged(
	record: RolloutRecord,
	seen: string | null | undefined,
	damage: AgentError,
): RolloutRecord {
	const last = record.signed.at(-1);
	if (seen === undefined || seen === last?.digest) return record;
	if (seen !== last?.previous) throw damage;
	return { ...record, signed: record.signed.slice(0, -1) };
}
