import { expect, test } from 'vitest';
import { chooseWorkflow, listWorkflows, readWorkflowChoices } from '../../src/protocol/workflow-choices.ts';

const read = (workflows: unknown) => readWorkflowChoices(JSON.stringify({ workflows }));

test.each(['', 'null', '[]', '{}', '{"workflows":{}}', '{"workflows":[1,null,{"id":""},{"name":"x"}]}', '<html>'])(
	'%j lists none',
	(body) => expect(readWorkflowChoices(body)).toEqual([]),
);

test('names are cleaned, and an id stands for a name that is missing', () => {
	expect(read([{ id: 'a', name: 'A\u001b[31m \n b' }, { id: 'b' }, { id: 'c', name: 7 }])).toEqual([
		{ id: 'a', name: 'A [31m b' },
		{ id: 'b', name: 'b' },
		{ id: 'c', name: 'c' },
	]);
	expect(read(Array.from({ length: 6000 }, (_, id) => ({ id: `w${id}` })))).toHaveLength(5000);
});

const choices = read([
	{ id: 'in', name: 'Check in' },
	{ id: 'twin-1', name: 'Twin' },
	{ id: 'twin-2', name: 'Twin' },
	{ id: 'Check in', name: 'Other' },
]);

test.each([
	['in', 'in'],
	['Check in', 'Check in'],
	[' check IN', 'in'],
	['other', 'Check in'],
	['twin', null],
	['none', null],
	[null, null],
])('%j chooses %j', (asked, id) => expect(chooseWorkflow(choices, asked)?.id ?? null).toBe(id));

test('the only one needs no name', () => expect(chooseWorkflow(choices.slice(0, 1), null)?.id).toBe('in'));

test('a long list is cut in words', () => {
	const many = read(Array.from({ length: 25 }, (_, id) => ({ id: `w${id}` })));
	expect(listWorkflows(many)).toMatch(/^w0, w1, .*w19, 5 more$/);
});
