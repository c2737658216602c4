/** Fields of the state that a newer version has written and this one does not know: they outlive its saves. Pure. */
import { isObject } from '../protocol/json.ts';

type Fields = Readonly<Record<string, unknown>>;

/** The fields of a document that its known part does not have, at their places; those in lists are not looked for. */
export function newerFields(document: unknown, known: unknown): Fields {
	if (!isObject(document) || !isObject(known)) return {};
	return Object.fromEntries(
		Object.entries(document).flatMap(([name, value]) => {
			if (!Object.hasOwn(known, name)) return [[name, value]];
			const within = newerFields(value, known[name]);
			return Object.keys(within).length > 0 ? [[name, within]] : [];
		}),
	);
}

/** The state with them. Where the part that they belonged to is gone, they are gone as well. */
export function withNewerFields(state: Fields, newer: Fields): Fields {
	const merged: Record<string, unknown> = { ...state };
	for (const [name, value] of Object.entries(newer))
		if (!Object.hasOwn(state, name)) merged[name] = value;
		else if (isObject(state[name]) && isObject(value)) merged[name] = withNewerFields(state[name], value);
	return merged;
}
