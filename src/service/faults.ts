/** Which injected fault a request gets; the listener carries it out. Those of open channels are the channel hub's. */

/** A path, or a method and a path; the path is below the base path and without the query. Left out matches all. */
export type RequestMatch = string | { readonly method?: string; readonly path?: string | RegExp };

/** The answer that stands in for the real one. */
export interface FailedAnswer {
	/** 200 to 599. */
	readonly status: number;
	readonly headers?: Readonly<Record<string, string>>;
	/** An object is sent as JSON. Default: a problem document from status 400 on, else nothing. */
	readonly body?: string | Uint8Array | object;
}

/** Lets held requests continue; `received` settles when the first of them has arrived. */
export type Release = (() => void) & { readonly received: Promise<void> };

export type FaultAction =
	| { readonly kind: 'none' | 'dropBeforeReply' | 'replyThenDrop' }
	| { readonly kind: 'fail'; readonly answer: FailedAnswer };

export type Faults = ReturnType<typeof createFaults>;

export function createFaults() {
	let planned: { readonly match: RequestMatch; readonly action: FaultAction; left: number }[] = [];
	const holds = new Map<Release, { readonly match: RequestMatch; arrive(): void; readonly released: Promise<void> }>();

	const plan = (match: RequestMatch, action: FaultAction, left = 1) => void planned.push({ match, action, left });

	return {
		failNext: (match: RequestMatch, answer: FailedAnswer, times?: number) =>
			plan(match, { kind: 'fail', answer }, times),
		dropBeforeReply: (match: RequestMatch, times?: number) => plan(match, { kind: 'dropBeforeReply' }, times),
		replyThenDrop: (match: RequestMatch, times?: number) => plan(match, { kind: 'replyThenDrop' }, times),
		hold(match: RequestMatch): Release {
			const arrival = signal();
			const end = signal();
			const release: Release = Object.assign(
				() => {
					holds.delete(release);
					end.give();
				},
				{ received: arrival.given },
			);
			holds.set(release, { match, arrive: arrival.give, released: end.given });
			return release;
		},
		/** Each use counts. Every hold applies, and of the other faults the oldest. `held`: until all are released. */
		matchFault(method: string, path: string) {
			const holding = [...holds.values()].filter((hold) => matches(hold.match, method, path));
			for (const hold of holding) hold.arrive();
			const matched = planned.find((fault) => fault.left > 0 && matches(fault.match, method, path));
			if (matched) matched.left -= 1;
			planned = planned.filter((fault) => fault.left > 0);
			const action: FaultAction = matched?.action ?? { kind: 'none' };
			return { held: holding.length > 0 ? Promise.all(holding.map(({ released }) => released)) : null, action };
		},
		/** Forgets all faults and releases what is held. */
		clear(): void {
			planned = [];
			for (const release of [...holds.keys()]) release();
		},
	};
}

/** As `Promise.withResolvers`, which the Node of a test with `idv-agent/testing` may not have yet. */
function signal() {
	let give = () => {};
	const given = new Promise<void>((resolve) => {
		give = resolve;
	});
	return { give, given };
}

function matches(match: RequestMatch, method: string, path: string): boolean {
	if (typeof match === 'string') return match === path;
	if (match.method !== undefined && match.method !== method) return false;
	if (match.path === undefined) return true;
	return typeof match.path === 'string' ? match.path === path : match.path.test(path);
}
