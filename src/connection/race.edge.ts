/**
 * Opens one connection to a host that has several addresses, as in RFC 8305: the next address is tried while those before it
 * may still answer, and the first that answers is taken. Whatever the agent says to another machine goes through here.
 */
import { ADDRCONFIG, type LookupAddress } from 'node:dns';
import { connect, isIP, type Socket, type TcpNetConnectOpts } from 'node:net';
import { type Address, nextAddress } from './addresses.ts';
import { CONNECT_MS } from './ask.edge.ts';

/** Between two addresses. Node's own way gives the first one up at that moment, and with it every slow line. Source: RFC 8305, 8. */
const NEXT_ADDRESS_MS = 250;
/** For so long IPv4 waits for the addresses of IPv6, which NAT does not cut. Source: RFC 8305, 8. */
const RESOLUTION_DELAY_MS = 50;
/** So much longer the others have before one that has disappointed is tried: it may be nearer than they are. */
const DOUBTED_AFTER_MS = 1000;
/** Ends before the deadline of the caller, since the race knows why there is no connection. */
const LIMIT_MS = CONNECT_MS - 1000;

/** As `lookup` of node:dns. */
export type Lookup = (
	host: string,
	options: { readonly family: 4 | 6; readonly hints: number; readonly all: true },
	done: (error: Error | null, addresses: LookupAddress[]) => void,
) => void;

type Resolved = Parameters<Lookup>[2];

/** By lookup, then by family and name: a name server that is silent about one of them takes a thread for 10 s each time. */
const underWay = new WeakMap<Lookup, Map<string, Resolved[]>>();

/** A caller that asks while the same is being asked gets that answer. */
const lookUpOnce: (lookup: Lookup, ...asked: Parameters<Lookup>) => void = (lookup, host, options, done) => {
	const all = underWay.get(lookup) ?? new Map<string, Resolved[]>();
	underWay.set(lookup, all);
	const key = `${options.family} ${host}`;
	const waiting = all.get(key);
	if (waiting) return void waiting.push(done);
	const told = [done];
	all.set(key, told);
	lookup(host, options, (error, found) => {
		all.delete(key);
		for (const one of told) one(error, found);
	});
};

export type Target = Pick<TcpNetConnectOpts, 'host' | 'port' | 'keepAlive' | 'keepAliveInitialDelay' | 'timeout'>;

export interface Race {
	/** Rejects with the error of the only address, or with all of them in an `AggregateError`. */
	readonly won: Promise<Socket>;
	/** The addresses of the name as far as they were known when it was settled; empty for an address. Never rejects. */
	readonly resolved: Promise<readonly string[]>;
	/** Closes whatever is not connected yet. */
	cancel(): void;
}

/**
 * Timers and sockets of a race do not keep the process alive: the caller has a deadline of its own.
 * @param doubted addresses that have disappointed, the newest last.
 */
export function race(
	{ host = '', ...target }: Target,
	lookup: Lookup,
	limitMs = LIMIT_MS,
	doubted: readonly string[] = [],
): Race {
	const family = isIP(host);
	// That of IPv4 first: where one of both is not answered, it is that of IPv6.
	const pending = new Set<4 | 6>(family === 0 ? [4, 6] : []);
	const won = Promise.withResolvers<Socket>();
	const resolved = Promise.withResolvers<readonly string[]>();
	const waiting = new Set<Address>();
	const names: string[] = [];
	const errors: Error[] = [];
	const open = new Set<Socket>();
	let unresolved: Error | null = null;
	let isOver = false;
	let hasBegun = false;
	let lastFamily = 4;
	let nextTimer: NodeJS.Timeout | undefined;
	let leadTimer: NodeJS.Timeout | undefined;
	let isLeadOver = doubted.length === 0;
	const limit = setTimeout(() => {
		const code = hasBegun ? 'ETIMEDOUT' : 'EAI_AGAIN';
		errors.push(Object.assign(new Error(hasBegun ? 'No address answered.' : 'No name server answered.'), { code }));
		lose();
	}, limitMs).unref();

	function settle(): boolean {
		if (isOver) return false;
		isOver = true;
		clearTimeout(nextTimer);
		clearTimeout(leadTimer);
		clearTimeout(limit);
		resolved.resolve(names);
		for (const socket of open) socket.destroy();
		return true;
	}

	function lose(): void {
		if (!settle()) return;
		if (names.length === 0 && unresolved) won.reject(unresolved);
		else won.reject(errors.length === 1 ? errors[0] : new AggregateError(errors));
	}

	function nextIn(ms: number): void {
		clearTimeout(nextTimer);
		nextTimer = setTimeout(tryNext, ms).unref();
	}

	function tryNext(): void {
		if (isOver) return;
		clearTimeout(nextTimer);
		nextTimer = undefined;
		const next = nextAddress([...waiting], lastFamily, doubted);
		if (next && !isLeadOver && doubted.includes(next.address) && open.size + pending.size > 0) {
			leadTimer ??= setTimeout(endLead, DOUBTED_AFTER_MS).unref();
		} else if (next) {
			waiting.delete(next);
			attempt(next.address);
			lastFamily = next.family;
			nextIn(NEXT_ADDRESS_MS);
		} else if (open.size + pending.size === 0) lose();
	}

	function endLead(): void {
		isLeadOver = true;
		tryNext();
	}

	function attempt(address: string): void {
		hasBegun = true;
		const socket = connect({ ...target, host: address, noDelay: true }).unref();
		open.add(socket);
		const fail = (error: Error) => {
			open.delete(socket);
			errors.push(error);
			tryNext();
		};
		socket.once('error', fail);
		socket.once('connect', () => {
			open.delete(socket);
			socket.off('error', fail);
			if (settle()) won.resolve(socket.ref());
		});
	}

	function resolve(family: 4 | 6): void {
		// A host without IPv6 does not ask for it. IPv4 is asked for on every host: a host with loopback alone counts as one without it.
		lookUpOnce(lookup, host, { family, hints: family === 6 ? ADDRCONFIG : 0, all: true }, (error, found) => {
			pending.delete(family);
			if (isOver) return;
			// What is said of IPv4 is true of the name; this host may simply have no IPv6.
			if (error && family === 4) unresolved = error;
			for (const one of error ? [] : found) {
				waiting.add(one);
				names.push(one.address);
			}
			if (pending.size === 0) resolved.resolve(names);
			if (waiting.size === 0 && pending.size > 0) return;
			if (!hasBegun && pending.has(6)) nextIn(RESOLUTION_DELAY_MS);
			else if (!hasBegun || nextTimer === undefined) tryNext();
		});
	}

	if (family !== 0) attempt(host);
	for (const each of [...pending]) resolve(each);
	return { won: won.promise, resolved: resolved.promise, cancel: lose };
}
