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
const OTHERS: Readonly<Record<string, string>> = {
	'Math.min': 'Math.max',
	'Math.max': 'Math.min',
	'Math.ceil': 'Math.floor',
	'Math.floor': 'Math.ceil',
	some: 'every',
	every: 'some',
};
/** What makes a text harmless where it goes next. */
const ESCAPE = /(?:^|\.)(?:escape|encode|quote|clean|mask|redact|withoutControl|printable)\w*$/i;
const SIMPLE = /^(?:Identifier|MemberExpression|Literal)$/;
const isNode = (value: unknown): value is Node => typeof (value as Node | null)?.type === 'string';
const nodesIn = (value: unknown): Node[] => (Array.isArray(value) ? value.filter(isNode) : []);

export function mutantsOf(source: string): Mutant[] {
	const found: Mutant[] = [];
	const textOf = ({ start, end }: Node) => source.slice(start, end);
	const add = ({ start, end }: Pick<Node, 'start' | 'end'>, text: string, kind: string) => {
		found.push({ start, end, text, kind, line: source.slice(0, start).split('\n').length });
	};
	const swap = (one: Node, other: Node, kind: string) => {
		const between = source.slice(one.end, other.start);
		if (textOf(one) !== textOf(other))
			add({ start: one.start, end: other.end }, `${textOf(other)}${between}${textOf(one)}`, kind);
	};

	function visit(node: Node, parent: Node | null): void {
		// Types do nothing; what they are said of does.
		if (node.type.startsWith('TS') && !isNode(node['expression'])) return;
		if (node.type === 'ImportDeclaration') return;
		// What is logged is for people.
		if (node.type === 'ExpressionStatement' && /^(?:parts\.)?log\./.test(textOf(node))) return;
		mutate(node);
		mutateWiring(node, parent);
		for (const value of Object.values(node))
			for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) visit(child, node);
	}

	function mutate(node: Node): void {
		const { left, right, test, expression, argument, operator, value } = node as Node & Record<string, Node>;
		switch (node.type) {
			case 'BinaryExpression': {
				const other = COMPARISONS[String(operator)];
				if (!left || !right) return;
				if (other) add(node, `${textOf(left)} ${other} ${textOf(right)}`, `${operator} becomes ${other}`);
				const by = right['value'];
				if (/^[*/]$/.test(String(operator)) && by === 1000) add(node, textOf(left), 'seconds for milliseconds');
				if (/^[+-]$/.test(String(operator)) && by === 1) add(node, textOf(left), 'one more or less');
				return;
			}
			case 'LogicalExpression': {
				if (!left || !right) return;
				const other = { '&&': '||', '||': '&&' }[String(operator)];
				if (other) add(node, `(${textOf(left)}) ${other} (${textOf(right)})`, `${operator} becomes ${other}`);
				else add(node, textOf(left), 'a default is left out');
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
				// The first line of a file may be a directive.
				if (isCall) add(node, ';', 'a step is left out');
				return;
			}
			case 'TryStatement':
				if (isNode(node['finalizer'])) add(node['finalizer'], '{}', 'a clean-up is left out');
				return;
			case 'ReturnStatement':
				if (argument?.type === 'ArrowFunctionExpression' && nodesIn(argument['params']).length === 0)
					add(argument, '() => {}', 'a clean-up is left out');
				return;
			case 'Property':
				if (isNode(value) && !/^(?:Arrow)?Function/.test(value.type) && source[node.end] === ',')
					add({ ...node, end: node.end + 1 }, '', 'a property is left out');
				return;
			case 'Literal':
				mutateLiteral(node);
		}
	}

	function mutateLiteral(node: Node): void {
		const { value } = node;
		if (typeof value === 'boolean') add(node, String(!value), `${value} is turned round`);
		else if (value === 0 || value === 1) add(node, String(1 - Number(value)), '0 and 1 are swapped');
		else if (typeof value === 'number' && value >= 1000 && value % 1000 === 0)
			add(node, String(value / 1000), 'seconds for milliseconds');
		else if (typeof value === 'number') add(node, String(value + 1), 'another number');
		const pattern = (node['regex'] as { pattern?: string } | undefined)?.pattern;
		if (pattern?.includes('\\.')) add(node, textOf(node).replace('\\.', '.'), 'an escape is lost');
		if (pattern?.startsWith('^')) add(node, textOf(node).replace('^', ''), 'an escape is lost');
	}

	/** Of values of one kind: which goes where. */
	function mutateWiring(node: Node, parent: Node | null): void {
		if (node.type === 'CallExpression' && isNode(node['callee'])) {
			const callee = textOf(node['callee']);
			const given = nodesIn(node['arguments']);
			const [first, second] = given;
			if (first && given.length === 1 && ESCAPE.test(callee)) add(node, textOf(first), 'an escape is lost');
			if (first && second && SIMPLE.test(first.type) && first.type === second.type)
				swap(first, second, 'two arguments are swapped');
			const name = callee.startsWith('Math.') ? callee : (callee.split('.').at(-1) ?? '');
			const other = Object.hasOwn(OTHERS, name) ? OTHERS[name] : undefined;
			if (other) add(node['callee'], callee.replace(name, other), `${name} becomes ${other}`);
		}
		if (node.type === 'SpreadElement' && parent?.type === 'ObjectExpression' && source[node.end] === ',')
			add({ ...node, end: node.end + 1 }, '', 'a property is left out');
		if (node.type !== 'ObjectExpression') return;
		const values = nodesIn(node['properties']).flatMap(({ value, shorthand }) =>
			isNode(value) && shorthand !== true && value.type === 'MemberExpression' ? [value] : [],
		);
		const [one, other] = values;
		if (one && other) swap(one, other, 'two properties are swapped');
	}

	visit(parseAst(source, { lang: 'ts' }) as unknown as Node, null);
	return found;
}
