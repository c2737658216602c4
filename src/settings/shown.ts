/** Settings as they may be shown: without anything that looks like a secret. Pure. */
import { createSecretRegistry, redact, SECRET_MARK } from '../base/redact.ts';
import { listSettings } from './table.ts';

/** The value, or a mark in its place; also texts in it that look like a secret, such as in the arguments of a hook. */
export function shownValue(path: string, value: unknown): unknown {
	if (listSettings().get(path)?.secret && value !== null) return SECRET_MARK;
	const clean = (text: unknown) => (typeof text === 'string' ? redact(text, createSecretRegistry()) : text);
	return Array.isArray(value) ? value.map(clean) : clean(value);
}
