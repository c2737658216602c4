/** Writes every setting with what it means and its default: the file that lies beside an empty `config.json`. */
import { listSettings } from '../../core/settings-table.ts';

const HEAD = `// Every setting of idv-agent with its default. This file is not read: it only explains.
// Put what you need into config.json, or into a file of its own in conf.d/ (which wins), without comments:
// { "baseUrl": "https://id.example.com", "service": { "channelPath": "/ws/device" } }
// A change is noticed within a second. idv-agent config check says what is wrong, idv-agent config show what is in force.
`;

/** JSON with comments. Each line is commented out: what it says is so anyway. */
export function writeSettingsExample(): string {
	const lines: string[] = [];
	let group = '';
	for (const [path, { about, fallback }] of listSettings()) {
		const [first = '', inner] = path.split('.');
		const isIn = inner === undefined ? '' : first;
		if (group !== isIn) {
			if (group !== '') lines.push('\t// },');
			if (isIn !== '') lines.push('', `\t// "${isIn}": {`);
			group = isIn;
		}
		const indent = isIn === '' ? '\t// ' : '\t//   ';
		lines.push(`${indent}${about}`, `${indent}"${inner ?? first}": ${JSON.stringify(fallback)},`);
	}
	if (group !== '') lines.push('\t// },');
	return `${HEAD}{\n${lines.join('\n')}\n}\n`;
}
