/** Every single fault that can be planted in a source file: text in, places and replacements out. Decides nothing about which. */
import { parseAst } from 'rolldown/parseAst';

export interface Mutant {
	readonly start: number;
	readonly end: number;
	/** What stands there instead. */
	readonly text: string;
	/** What is changed, in a few words. */
	readonly kind: string;
	/** Counted from 1. */
	readonly line: number;
}

interface Node {
	readonly type: string;
	readonly start: number;
	readonly end: number;
	readonly [field: string]: unknown;
}

const COMPARISONS: Readonly<Record<string, string>> = {
	'<': '<=',
	'<=': '<',
	'>': '>=',
	'>=': '>',
	'===': '!==',
	'!==': '===',
};
const isNode = (value: unknown): value is Node => typeof (value as Node | null)?.type === 'string';

export function mutantsOf(source: string): Mutant[] {
	const found: Mutant[] = [];
	const textOf = ({ start, end }: Node) => source.slice(start, end);
	const add = ({ start, end }: Node, text: string, kind: string) => {
		found.push({ start, end, text, kind, line: source.slice(0, start).split('\n').length });
	};

	function visit(node: Node): void {
		// Types do nothing; what they are said of does.
		if (node.type.startsWith('TS') && !isNode(node['expression'])) return;
		if (node.type === 'ImportDeclaration') return;
		mutate(node);
		for (const value of Object.values(node))
			for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child);
	}

	function mutate(node: Node): void {
		const { left, right, test, expression, argument, operator, value } = node as Node & Record<string, Node>;
		switch (node.type) {
			case 'BinaryExpression': {
				const other = COMPARISONS[String(operator)];
				if (other && left && right)
					add(node, `${textOf(left)} ${other} ${textOf(right)}`, `${operator} becomes ${other}`);
				return;
			}
			case 'LogicalExpression': {
				if (!left || !right) return;
				const other = { '&&': '||', '||': '&&' }[String(operator)];
				if (other) add(node, `(${textOf(left)}) ${other} (${textOf(right)})`, `${operator} becomes ${other}`);
				else add(node, textOf(left), '?? is left out');
				return;
			}
			case 'IfStatement':
				if (!test) return;
				add(test, `!(${textOf(test)})`, 'if is turned round');
				add(test, 'false', 'if never');
				return;
			case 'ConditionalExpression':
				if (test) add(test, `!(${textOf(test)})`, '?: is turned round');
				return;
			case 'UnaryExpression':
				if (String(operator) === '!' && argument) add(node, textOf(argument), '! is left out');
				return;
			case 'AwaitExpression':
				if (argument) add(node, `(${textOf(argument)})`, 'await is left out');
				return;
			case 'ExpressionStatement': {
				const isCall = expression && /^(?:Call|Await|Chain|Assignment|Unary)Expression$/.test(expression.type);
				// What is logged is for people, and the first line of a file may be a directive.
				if (isCall && !/^(?:parts\.)?log\./.test(textOf(node))) add(node, ';', 'a step is left out');
				return;
			}
			case 'Property':
				if (isNode(value) && !/^(?:Arrow)?Function/.test(value.type) && source[node.end] === ',')
					add({ ...node, end: node.end + 1 }, '', 'a property is left out');
				return;
			case 'Literal':
				if (typeof node['value'] === 'boolean') add(node, String(!node['value']), `${node['value']} is turned round`);
				else if (node['value'] === 0 || node['value'] === 1)
					add(node, String(1 - Number(node['value'])), '0 and 1 are swapped');
				return;
		}
	}

	visit(parseAst(source, { lang: 'ts' }) as unknown as Node);
	return found;
}
