import { expect, test } from 'vitest';
import { type CodeAnswer, worthAfter } from '../../src/connection/code-fate.ts';

const ANSWER: CodeAnswer = {
	status: 400,
	headers: {},
	isPage: false,
	fate: null,
	saidNo: false,
	body: '{"errors":[{"field":"workflowId","message":"must be a UUID"}]}',
	failure: { code: 'bad-response', params: {} },
};

test.each([400, 422])(
	'a form that the service refuses with %i for another field has not used the code up',
	(status) => {
		expect(worthAfter({ ...ANSWER, status })).toBe('valid');
	},
);

test.each<[string, Partial<CodeAnswer>]>([
	['for the code itself', { body: '{"errors":[{"field":"code","message":"is not known"}]}' }],
	['with a status for something else', { status: 409 }],
	['without naming a field', { body: '{"error":"bad request"}' }],
])('refused %s, it is uncertain', (_how, answer) => {
	expect(worthAfter({ ...ANSWER, ...answer })).toBe('uncertain');
});
