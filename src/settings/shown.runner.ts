/** Settings as they may be shown. */
import { openShaper } from '../base/shapes.edge.ts';
import { SECRET_MARK } from '../protocol/problem.ts';
import { listSettings } from './table.ts';

/** The value, or a mark in its place. Arguments of a hook and headers may hold anything: of their unknown words only the shape. */
export function shownValue(path: string, value: unknown): unknown {
	if (listSettings().get(path)?.secret && value !== null) return shownAddress(String(value));
	if (!Array.isArray(value) || !/^hooks\.|^service\.headers$/.test(path)) return value;
	const { said } = openShaper();
	return value.map((one, at) => (path.startsWith('hooks.') && at === 0 ? one : said(String(one))));
}

/** Where an address leads: a password, a path and a query may be secrets. */
export function shownAddress(text: string): string {
	const [, scheme = '', user = '', host = '', rest = ''] =
		/^(https?:\/\/)?(?:([^/?#]*)@)?([\w.-]+(?::\d{1,5})?|\[[\da-f:.]+\](?::\d{1,5})?)(?:[/?#](.*))?$/i.exec(text) ?? [];
	if (host === '') return SECRET_MARK;
	return `${scheme}${user && `${SECRET_MARK}@`}${host}${rest && `/${SECRET_MARK}`}`;
}
