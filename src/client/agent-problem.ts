/** The error of `idv-agent/client`. Imports nothing: its declaration is a part of the client's own. */

/** What the agent refused or could not do. `agent-not-running`, `request-timeout` and `no-progress` are the client's own codes,
 * as are, with the status 0, `usage` and `body-invalid` for a request that was not sent, and `connection-lost` for one that may have been carried out. */
export class AgentProblem extends Error {
	override readonly name = 'AgentProblem';
	/** HTTP status of the answer; 0 where there was none. */
	readonly status: number;
	/** Permanent, for programs: `access-denied`, `body-invalid`, … */
	readonly code: string;
	/** What to do about it; empty where the agent names nothing. */
	readonly remedy: string;
	/** The names and numbers in the message, for the same text in another language. */
	readonly params: Readonly<Record<string, string | number>> | undefined;
	/** The least wait that the agent asked for. */
	readonly retryAfterMs: number | undefined;

	/** Also of the other build of this client: an application may load both, by `import` and by `require`. */
	static override [Symbol.hasInstance](value: unknown): boolean {
		// biome-ignore lint/complexity/noThisInStatic: it may be a class that extends this one.
		if (this !== AgentProblem) return Function.prototype[Symbol.hasInstance].call(this, value);
		return value instanceof Error && value.name === 'AgentProblem';
	}

	constructor(
		status: number,
		code: string,
		message: string,
		remedy: string,
		{ cause, params, retryAfterMs }: { cause?: unknown } & Partial<Pick<AgentProblem, 'params' | 'retryAfterMs'>> = {},
	) {
		super(message, { cause });
		this.status = status;
		this.code = code;
		this.remedy = remedy;
		this.params = params;
		this.retryAfterMs = retryAfterMs;
	}
}
