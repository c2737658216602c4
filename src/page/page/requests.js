/* The requests of the page to the agent. */

/** @import { ProblemDocument } from '../../protocol/problem.ts' */
/** @import { PageRequests } from '../view.ts' */

/**
 * @template {keyof PageRequests} Path
 * @typedef {{ came: true, ok: true, body: PageRequests[Path]['answer'] }
 * 	| { came: boolean, ok: false, body: Partial<ProblemDocument> }} Answer What did not come, or not from the agent, has no code.
 */

/** Longest wait for an answer of the agent: pairing takes it to the service. */
const ANSWER_MS = 120_000;
/** What every good answer of the agent has. @type {Record<keyof PageRequests, string | null>} */
const MARKS = { '/api/inspect': 'problem', '/api/pair': 'deviceId', '/api/dismiss': null };

/**
 * Never rejects.
 * @template {keyof PageRequests} Path @param {Path} path @param {PageRequests[Path]['body']} body
 * @returns {Promise<Answer<Path>>}
 */
export async function post(path, body) {
	try {
		const response = await fetch(path, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify(body),
			cache: 'no-store',
			signal: AbortSignal.timeout(ANSWER_MS),
		});
		const answer = await response.json();
		const mark = response.ok ? MARKS[path] : 'code';
		if (mark !== null && !(mark in answer)) throw new TypeError("The answer is not the agent's.");
		return { came: true, ok: response.ok, body: answer };
	} catch {
		return { came: false, ok: false, body: {} };
	}
}
