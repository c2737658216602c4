/** Headers that a deployment asks for, as `Name: value`: in settings, or on the lines of a file; and the secrets among them. Pure; no message repeats a value. */
import { type Authorization, secretsOf } from '../protocol/authorization.ts';
import { anyCase } from '../protocol/later.ts';

/** Headers that belong to the request itself. */
const OF_REQUEST = /^(?:content-.*|host|connection|transfer-encoding|expect|te|upgrade)$/i;
/** Besides, those by which the agent shows who it is. */
const OF_AGENT = /^(?:authorization|user-agent|sec-websocket-.*)$/i;
const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const VALUE = /^[\x20-\x7e]*$/;
/** A line of the service, for editors. No two parts of it take the same blanks: of many that would be slow. */
export const SERVICE_LINE = {
	pattern: String.raw`${NAME.source.slice(0, -1)}:\t*[\x20-\x7e]*\t*$`,
	not: { pattern: anyCase(`${OF_REQUEST.source}|${OF_AGENT.source}`).replaceAll('$', ':') },
};

export type Headers = Readonly<Record<string, string>>;

/** @returns name and value, or what is wrong with the line, as the end of a sentence. */
export function readHeader(line: string, forService: boolean): readonly [name: string, value: string] | string {
	const colon = line.indexOf(':');
	const [name, value] = [line.slice(0, Math.max(0, colon)), line.slice(colon + 1).trim()];
	if (!NAME.test(name) || !VALUE.test(value)) return 'is not Name: value';
	if (OF_REQUEST.test(name) || (forService && OF_AGENT.test(name))) return `names ${name}, which the agent sets itself`;
	return [name.toLowerCase(), value];
}

/** Lines of a file; empty ones and those that begin with # are left out. @throws what `refuse` makes of a line and its fault. */
export function readHeaderLines(
	text: string,
	forService: boolean,
	refuse: (line: number, what: string) => Error,
): Headers {
	const lines = text.replace(/^\ufeff/, '').split(/\r?\n/);
	return Object.fromEntries(
		lines.flatMap((line, index) => {
			if (line.trim() === '' || line.startsWith('#')) return [];
			const read = readHeader(line, forService);
			if (typeof read === 'string') throw refuse(index + 1, read);
			return [read];
		}),
	);
}

/** A shorter text stands in many answers. */
const LEAST_SECRET = 8;
const isLong = ({ length }: string) => length >= LEAST_SECRET;
/** Each is looked for in each answer. */
const MOST_PARTS = 16;
/** A credential behind its scheme, and each value of a cookie, is a secret alone as well. */
function secretParts(value: string): string[] {
	const parts = value.split(/[\s;,]+/);
	const all = [value, ...parts, ...parts.map((part) => part.replace(/^[^=]*=/, ''))];
	return [...new Set(all)].filter(isLong).slice(0, MOST_PARTS);
}

/** The texts that no words of a service may repeat: the values of secret headers, their parts, and the credential that registers. */
export function secretValuesOf(headers: Headers, reusable: Authorization | null): string[] {
	// As it is sent: a password may be a word of many answers.
	const sent = reusable ? secretsOf(reusable).slice(0, 1).filter(isLong) : [];
	return [...Object.values(headers).flatMap(secretParts), ...sent];
}
