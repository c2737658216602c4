/**
 * Injected faults: which of them a request gets. Owns the choice only; the listener carries it out.
 * Faults of open channels (silence, raw frames, closing) belong to the channel hub.
 */

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

export interface MatchedFaults {
	/** Settles when every hold on this request is released. */
	readonly held: Promise<unknown> | null;
	readonly action:
		| { readonly kind: 'none' }
		| { readonly kind: 'fail'; readonly answer: FailedAnswer }
		| { readonly kind: 'dropBeforeReply' }
		| { readonly kind: 'replyThenDrop' };
}

export interface Faults {
	failNext(match: RequestMatch, answer: FailedAnswer, times?: number): void;
	hold(match: RequestMatch): Release;
	dropBeforeReply(match: RequestMatch, times?: number): void;
	replyThenDrop(match: RequestMatch, times?: number): void;
	/** The faults of this request; each use counts. Every hold applies, and of the other faults the oldest. */
	matchFault(method: string, path: string): MatchedFaults;
	/** Forgets all faults and releases what is held. */
	clear(): void;
}

type OneOf = MatchedFaults['action'];

export function createFaults(): Faults {
	let planned: { readonly match: RequestMatch; readonly action: OneOf; left: number }[] = [];
	const holds = new Map<Release, { readonly match: RequestMatch; arrive(): void; readonly released: Promise<void> }>();

	const plan = (match: RequestMatch, action: OneOf, times: number) => planned.push({ match, action, left: times });

	return {
		failNext: (match, answer, times = 1) => void plan(match, { kind: 'fail', answer }, times),
		dropBeforeReply: (match, times = 1) => void plan(match, { kind: 'dropBeforeReply' }, times),
		replyThenDrop: (match, times = 1) => void plan(match, { kind: 'replyThenDrop' }, times),
		hold(match) {
			const arrival = Promise.withResolvers<void>();
			const end = Promise.withResolvers<void>();
			const release: Release = Object.assign(
				() => {
					holds.delete(release);
					end.resolve();
				},
				{ received: arrival.promise },
			);
			holds.set(release, { match, arrive: arrival.resolve, released: end.promise });
			return release;
		},
		matchFault(method, path) {
			const holding = [...holds.values()].filter((hold) => matches(hold.match, method, path));
			for (const hold of holding) hold.arrive();
			const matched = planned.find((fault) => fault.left > 0 && matches(fault.match, method, path));
			if (matched) matched.left -= 1;
			planned = planned.filter((fault) => fault.left > 0);
			return {
				held: holding.length > 0 ? Promise.all(holding.map((hold) => hold.released)) : null,
				action: matched?.action ?? { kind: 'none' },
			};
		},
		clear() {
			planned = [];
			for (const release of [...holds.keys()]) release();
		},
	};
}

function matches(match: RequestMatch, method: string, path: string): boolean {
	if (typeof match === 'string') return match === path;
	if (match.method !== undefined && match.method !== method) return false;
	if (match.path === undefined) return true;
	return typeof match.path === 'string' ? match.path === path : match.path.test(path);
}
