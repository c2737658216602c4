/** The flags of `check`, `sign` and `next-ring` that stop a slip, and the files that they name. */
import { AgentError } from '../base/errors.ts';
import { errnoOf } from '../base/files.edge.ts';
import { applyBrakes, type Brakes } from '../fleet/brakes.ts';
import type { Finding } from '../fleet/lint.ts';
import { parseJson } from '../protocol/json.ts';
import { type PlanFile, placed, readBounded, readPlanFile } from './fleet-files.ts';
import { readInventory } from './inventory.ts';

const MAX_WORKFLOWS_BYTES = 1024 * 1024;

export interface BrakeFlags {
	readonly inventory?: string | undefined;
	/** The plan in force. */
	readonly previous?: string | undefined;
	/** A file, or names with commas between them. */
	readonly workflows?: string | undefined;
	readonly maxMoves?: number | undefined;
	readonly allowMoves?: number | undefined;
}

/** The plan's findings with those of the brakes, errors first. */
export async function withBrakes(read: PlanFile, flags: BrakeFlags): Promise<PlanFile> {
	const { maxMoves, allowMoves } = flags;
	if (flags.inventory === undefined && (maxMoves ?? allowMoves) !== undefined)
		throw new AgentError('usage', '--max-moves and --allow-moves require --inventory FILE: it says who would move.');
	const previous = flags.previous === undefined ? undefined : await readPlanFile(flags.previous);
	const inventory = flags.inventory === undefined ? undefined : await readInventory(flags.inventory);
	const workflows = flags.workflows === undefined ? undefined : await readWorkflows(flags.workflows);
	const brakes: Brakes = {
		nowMs: Date.now(),
		previous: previous && { plan: previous.plan, isSame: previous.digest === read.digest },
		inventory,
		workflows,
		maxMoves,
		allowMoves,
	};
	const more = applyBrakes(read.plan, brakes);
	const findings = [...read.findings, ...placed(more, new TextDecoder().decode(read.payload))];
	const rank = ({ level }: { readonly level: Finding['level'] }) => (level === 'error' ? 0 : 1);
	return { ...read, findings: findings.sort((a, b) => rank(a) - rank(b)) };
}

/** Names as a list in JSON, one on each line, or with commas between them. @throws AgentError `usage`. */
async function readWorkflows(given: string): Promise<string[]> {
	const bytes = await readBounded(given, MAX_WORKFLOWS_BYTES, 'inventory-invalid', 'workflows').catch((error) => {
		const isFile = /\/|\.(txt|csv|json|lst|list)$/i.test(given);
		if (errnoOf((error as Error).cause) === 'ENOENT' && !isFile) return null;
		throw error;
	});
	const text = bytes === null ? given : new TextDecoder().decode(bytes).replace(/^\ufeff/, '');
	const names = /^\s*\[/.test(text) ? namesInJson(text, given) : text.split(/[\n,;]/);
	const found = names.map((name) => name.trim().replace(/^"(.*)"$/, '$1')).filter((name) => name !== '');
	if (found.length > 0) return found;
	throw new AgentError('usage', '--workflows names no workflow.', { remedy: 'Give a file, or names such as a,b,c.' });
}

function namesInJson(text: string, file: string): string[] {
	const document = parseJson(text);
	if (Array.isArray(document) && document.every((name) => typeof name === 'string')) return document;
	throw new AgentError('inventory-invalid', `${file} is not a list of names in JSON.`, {
		remedy: 'Write ["a", "b"], or one name on each line.',
	});
}
