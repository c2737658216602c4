/** Texts of a deployment's own shape with `{fields}` in them: messages to the service, and paths. Knows no setting. */
import { parseJson } from './json.ts';

/** The fields that a message may name, as `{sequence}`. */
export interface TemplateFields {
	readonly deviceId: string;
	readonly workflowId: string;
	readonly sequence: number;
	/** ISO 8601, by the device's clock. */
	readonly sentAt: string;
	/** The same in milliseconds since 1970. */
	readonly sentAtMs: number;
	readonly uptimeSeconds: number;
	/** Of the message that is answered, as the service wrote it; of a ping without an id its only other value; empty where it has none. */
	readonly id: string | number | bigint;
	/** The Connection: a secret. */
	readonly token: string;
}

/** What is known of every message that answers nothing. */
const OF_ANY = ['deviceId', 'workflowId', 'sequence', 'sentAt', 'sentAtMs', 'uptimeSeconds'] as const;
/** The fields that are filled in, by what a template is for. */
const FILLED = {
	heartbeat: OF_ANY,
	first: [...OF_ANY, 'token'],
	answer: [...OF_ANY, 'id'],
	path: ['deviceId', 'workflowId'],
} as const;
export type TemplatePurpose = keyof typeof FILLED;

/** With blanks in single braces it is a part of the text itself, such as of a GraphQL query: `{ id }`. */
const NAMED = String.raw`\$?\{(?:(\w+)|\{\s*(\w+)\s*\})\}`;
const FIELD = new RegExp(`"${NAMED}"|${NAMED}`, 'g');
/** The end of each message of SignalR; its JSON is what stands before. Source: RFC 7464 has the same character. */
const RECORD_SEPARATOR = '\x1e';

/**
 * A message of a deployment's own shape. A field that is a whole JSON text (`"{sequence}"`) becomes the value itself, a
 * number without quotes; anywhere else it is put into the text, escaped as JSON wants.
 */
export function fillTemplate(template: string, fields: Partial<TemplateFields>): string {
	const isJson = /^\s*[{[]/.test(template);
	return template.replace(FIELD, (written, ...names: (string | undefined)[]) => {
		const whole = names[0] ?? names[1];
		const value = fields[(whole ?? names[2] ?? names[3] ?? '') as keyof TemplateFields];
		if (value === undefined) return written;
		if (whole !== undefined && isJson) return typeof value === 'string' ? JSON.stringify(value) : String(value);
		const plain = isJson ? JSON.stringify(String(value)).slice(1, -1) : String(value);
		return whole !== undefined ? `"${plain}"` : plain;
	});
}

/** A path, query or address with its fields, so that none of them can become a part of its own. */
export function fillPath(template: string, fields: Pick<TemplateFields, 'deviceId' | 'workflowId'>): string {
	const { deviceId, workflowId } = fields;
	return fillTemplate(template, {
		deviceId: encodeURIComponent(deviceId),
		workflowId: encodeURIComponent(workflowId),
	});
}

/** Whether what answers a message needs the id of that message. */
export function asksForId(template: string): boolean {
	return fieldsOf(template).includes('id');
}

/** Why a text cannot be such a message, as the end of a sentence about it; `null` when it can. */
export function templateProblem(template: string, purpose: TemplatePurpose): string | null {
	const known: readonly string[] = FILLED[purpose];
	const unknown = fieldsOf(template).find((name) => !known.includes(name));
	if (unknown !== undefined)
		return `names {${unknown}}, which nothing fills in; the known ones are {${known.join('}, {')}}`;
	if (purpose === 'path' || !/^\s*[{[]/.test(template)) return null;
	const sample = Object.fromEntries(known.map((name) => [name, /^(sequence|sentAtMs|uptime)/.test(name) ? 1 : 'x']));
	if (parseJson(fillTemplate(template, sample).replace(RECORD_SEPARATOR, '')) !== undefined) return null;
	return 'must be JSON once its {fields} are filled in, or a text that does not begin with { or [';
}

/** Fields that nothing fills in, as a pattern for editors. */
export const unknownField = (purpose: TemplatePurpose) =>
	NAMED.replaceAll(String.raw`(\w+)`, String.raw`(?!(?:${FILLED[purpose].join('|')})\b)\w+`);

function fieldsOf(template: string): string[] {
	return [...template.matchAll(FIELD)].map(([, ...names]) => names.find((name) => name !== undefined) ?? '');
}
