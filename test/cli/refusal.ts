/** What every refusal looks like. */
import { expect } from 'vitest';
import type { Outcome } from './command.ts';

export interface WantedRefusal {
	/** Exit status. */
	readonly status: number;
	readonly code: string;
	/** In the message or the remedy. */
	readonly words: RegExp;
}

/** One line on stderr: what is wrong, what to do, the permanent code. */
export function expectRefusal({ status, stderr }: Outcome, expected: WantedRefusal): void {
	expect(stderr).toMatch(new RegExp(`^Error: [^\\n]+[.!?] [^\\n]+[.!?] \\[${expected.code}\\]\\n$`));
	expect(stderr).toMatch(expected.words);
	expect(status).toBe(expected.status);
}

/** The same as one JSON document on stdout, and nothing on stderr. */
export function expectJsonRefusal({ status, stdout, stderr }: Outcome, expected: WantedRefusal): void {
	const {
		error: { params = {}, ...error },
	} = JSON.parse(stdout);
	for (const value of Object.values(params)) expect(['string', 'number']).toContain(typeof value);
	expect(error).toEqual({ code: expected.code, message: expect.any(String), remedy: expect.stringMatching(/\S/) });
	expect(`${error.message} ${error.remedy}`).toMatch(expected.words);
	expect({ status, stderr }).toEqual({ status: expected.status, stderr: '' });
}
