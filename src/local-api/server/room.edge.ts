/** The connections and requests of a listener, or of several that share a room: how many there may be, and what is each caller's own part of them. */
import type net from 'node:net';
import { peerProcess } from './peer.edge.ts';

/** Requests at once. */
export interface RoomSize {
	/** Of one caller, which no other can take from it. */
	readonly ensured: number;
	/** Beyond those, of all callers together. Default: no bound of its own. */
	readonly more?: number;
	/** So many are left for callers that have fewer than the ensured. Default: none. */
	readonly kept?: number;
	readonly all: number;
}

/** Connections that ask nothing, or are told that there is no room. */
const SPARE_CONNECTIONS = 384;

/** A program that opens many at once sends its requests after that. For so long there may be {@link SPARE_CONNECTIONS} more. */
const ASKS_WITHIN_MS = 1000;

export type Room = ReturnType<typeof createRoom>;

/** @param size as it is now: settings may change it. */
export function createRoom(size: () => RoomSize) {
	const taken = new Map<string, number>();
	/** Oldest first. */
	const open = new Set<net.Socket>();
	const asking = new Set<net.Socket>();
	let making: NodeJS.Timeout | null = null;
	const tooMany = () => open.size - size().all - SPARE_CONNECTIONS;
	const isFull = (own: number) => {
		const { ensured, more = Number.POSITIVE_INFINITY, kept = 0, all } = size();
		const counts = [...taken.values()];
		const total = counts.reduce((sum, count) => sum + count, 0);
		const beyond = counts.reduce((sum, count) => sum + Math.max(0, count - ensured), 0);
		return total >= all || (own >= ensured && (beyond >= more || total >= all - kept));
	};

	/** The oldest that asks nothing, of the program that has most of those. */
	function leave(): boolean {
		const silent = [...open].filter((each) => !asking.has(each));
		const programs = [...Map.groupBy(silent, peerProcess).values()];
		const most = Math.max(...programs.map(({ length }) => length));
		const leaves = programs.find(({ length }) => length === most)?.[0];
		return leaves !== undefined && open.delete(leaves.destroy());
	}

	/** One at a time: requests that have come meanwhile are read before the next one leaves. */
	function makeRoom(): void {
		if (tooMany() > 0 && leave()) setImmediate(makeRoom);
		else making = null;
	}

	function watch(): void {
		if (tooMany() > 0) {
			if (!making) making = setTimeout(() => setImmediate(makeRoom), ASKS_WITHIN_MS).unref();
		} else if (making) {
			clearTimeout(making);
			making = null;
		}
	}

	return {
		/** Connections that have sent a request and wait for its answer: these are never cut off to make room. */
		asking,
		/** @returns the function that gives the place back, or the bound that is reached: of the caller or of the room. */
		take(caller: string, most = Number.POSITIVE_INFINITY): (() => void) | 'own' | 'all' {
			const own = taken.get(caller) ?? 0;
			if (own >= most) return 'own';
			if (isFull(own)) return 'all';
			taken.set(caller, own + 1);
			return () => {
				const before = taken.get(caller) ?? 1;
				if (before > 1) taken.set(caller, before - 1);
				else taken.delete(caller);
			};
		},
		/** Where too many stay open, some leave. */
		admit(socket: net.Socket): void {
			open.add(socket);
			socket.once('close', () => {
				open.delete(socket);
				watch();
			});
			if (tooMany() > SPARE_CONNECTIONS) leave();
			watch();
		},
	};
}
