/** Faults that change nothing that anyone could see, each with the reason: they are not planted. Data; a test sees that each still fits. */

export interface Equivalent {
	readonly file: string;
	/** As `npm run mutate` names it. */
	readonly kind: string;
	/** The whole text that the fault changes. */
	readonly before: string;
	readonly reason: string;
}

export const EQUIVALENT: readonly Equivalent[] = [];
