/** Entries of the audit log that something else still knows of: each line of the history has the number of the newest one. Pure. */

/** Oldest first. `audit`: the newest number of an entry that was on the disk then. */
export interface Witness {
	readonly at: string;
	readonly audit?: number | undefined;
}

export interface Missing {
	readonly from: number;
	readonly to: number;
	/** Times of the lines between which they were written. */
	readonly after: string | null;
	readonly before: string | null;
}

/** A number never falls: where one does, or the log ends before it, the entries from there on were taken away. @param last of the log as it is. */
export function missingBy(witnesses: readonly Witness[], last: number): readonly Missing[] {
	const missing: Missing[] = [];
	/** Since the number has fallen, if it has. */
	let risen: { readonly at: string | null; readonly audit: number }[] = [];
	for (const { at, audit } of [...witnesses, { at: null, audit: last }]) {
		if (audit === undefined) continue;
		const highest = risen.at(-1);
		if (highest && audit < highest.audit) {
			const before = risen.find((one) => one.audit === highest.audit)?.at ?? null;
			const after = risen.findLast((one) => one.audit <= audit)?.at ?? null;
			missing.push({ from: audit + 1, to: highest.audit, after, before });
			risen = [];
		}
		risen.push({ at, audit });
	}
	return missing;
}
