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
export function expectRefusal({ status, stderr }: Outcome, wanted: WantedRefusal): void {
	expect(stderr).toMatch(new RegExp(`^Error: [^\\n]+[.!?] [^\\n]+[.!?] \\[${wanted.code}\\]\\n$`));
	expect(stderr).toMatch(wanted.words);
	expect(status).toBe(wanted.status);
}

/** The same as one JSON document on stdout, and nothing on stderr. */
export function expectJsonRefusal({ status, stdout, stderr }: Outcome, wanted: WantedRefusal): void {
	const { error } = JSON.parse(stdout);
	expect(error).toEqual({ code: wanted.code, message: expect.any(String), remedy: expect.stringMatching(/\S/) });
	expect(`${error.message} ${error.remedy}`).toMatch(wanted.words);
	expect({ status, stderr }).toEqual({ status: wanted.status, stderr: '' });
}
