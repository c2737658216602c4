/** Writes every setting with what it means and its default: the file that lies beside an empty `config.json`. */
import { listSettings } from '../src/settings/table.ts';

const HEAD = `// Every setting of idv-agent with its default. This file is not read: it only explains.
// Put what you need into config.json, or into a file of its own in conf.d/ (which wins); both may have comments:
// { "baseUrl": "https://id.example.com", "service": { "channelPath": "/ws/device" } }
// A change is noticed within a second. idv-agent config check says what is wrong, idv-agent config show what is in force.
`;

/** JSON with comments. Each line is commented out: what it says is so anyway. */
export function writeSettingsExample(): string {
	const lines: string[] = [];
	const indent = (depth: number) => `\t// ${'  '.repeat(depth)}`;
	let open: readonly string[] = [];
	const enter = (groups: readonly string[]) => {
		const isShared = (group: string, depth: number) => groups[depth] === group;
		const shared = open.findIndex((group, depth) => !isShared(group, depth));
		const kept = shared < 0 ? open.length : shared;
		for (let depth = open.length - 1; depth >= kept; depth -= 1) lines.push(`${indent(depth)}},`);
		for (let depth = kept; depth < groups.length; depth += 1) {
			if (depth === 0) lines.push('');
			lines.push(`${indent(depth)}"${groups[depth]}": {`);
		}
		open = groups;
	};
	for (const [path, { about, fallback }] of listSettings()) {
		const groups = path.split('.');
		const name = groups.pop();
		enter(groups);
		const here = indent(groups.length);
		lines.push(`${here}${about}`, `${here}"${name}": ${JSON.stringify(fallback)},`);
	}
	enter([]);
	return `${HEAD}{\n${lines.join('\n')}\n}\n`;
}
