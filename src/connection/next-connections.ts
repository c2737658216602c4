/**
 * Where a service puts the next Connection, by what its Connections have done: a place whose Connections have opened channels is read
 * before one that a setting only claims, because a device that has nothing else goes dark with the wrong one. Pure.
 */
import { type Failure, failure } from '../base/errors.ts';
import type { DeviceState } from '../state/device-state.ts';

/** One alone may have ended while the device was offline. */
const TOLD_AFTER = 2;

type State = Pick<DeviceState, 'connections' | 'nextConnection'>;

/** What is known of the places of this service. */
function knownOf({ nextConnection }: State, baseUrl: string) {
	const unknown = { baseUrl, worked: null, refused: null, times: 0 };
	return nextConnection?.baseUrl === baseUrl ? nextConnection : unknown;
}

/** `service.nextConnection` as settings have it, and who asks. */
export interface Asked {
	readonly inForce: string | null;
	/** Of the newest settings, which may only be tried yet: the service may have moved before them, and each link spends a Connection. */
	readonly newest: string | null;
	/** Whether the device has a new Connection without a person: then it does without the place where the settings say so. */
	readonly mayRegister: boolean;
}

/**
 * The places in which a link looks, the surest first: the first that names one is the only one from then on.
 * @param own that of the link's own settings. Default: in force.
 */
export function placesOfNext(
	state: State,
	baseUrl: string,
	{ inForce, newest, mayRegister }: Asked,
	own = inForce,
): string[] {
	const worked = own === null && mayRegister ? null : knownOf(state, baseUrl).worked;
	// Where Connections are good for more than one channel, what is only tried is for the link that tries it.
	const places = inForce === null ? [worked, own] : [worked, inForce, newest];
	return [...new Set(places)].filter((place) => place !== null);
}

/** A Connection by which a channel was asked for. */
export interface Shown {
	readonly token: string;
	/** The place that has named it. */
	readonly from: string | undefined;
}

export function shownBy({ connections }: State, token: string): Shown {
	return { token, from: connections.find((one) => one.token === token)?.from };
}

/** Whether the place that has named it is one whose Connections have opened channels. */
export function isOfProvenPlace(state: State, baseUrl: string, token: string): boolean {
	const { from, refused } = state.connections.find((one) => one.token === token) ?? {};
	return from !== undefined && !refused && from === knownOf(state, baseUrl).worked;
}

/** The state once a channel counts. */
export function withNextProven<Kept extends State>(state: Kept, baseUrl: string, { from }: Shown): Kept {
	const { worked, times } = knownOf(state, baseUrl);
	if (from === undefined || (worked === from && times === 0)) return state;
	return { ...state, nextConnection: { baseUrl, worked: from, refused: null, times: 0 } };
}

/** The state once the service has refused a channel: each Connection counts once, and one that has worked does not. */
export function withNextRefused<Kept extends State>(state: Kept, baseUrl: string, { token, from }: Shown): Kept {
	const saved = state.connections.find((one) => one.token === token);
	// Its channel was open where the service has named the next one on it.
	const hasNamedNext = saved !== state.connections.at(-1);
	if (from === undefined || saved?.worked || saved?.refused || hasNamedNext) return state;
	const known = knownOf(state, baseUrl);
	const times = known.refused === from ? known.times + 1 : 1;
	const worked = known.worked === from && times >= TOLD_AFTER ? null : known.worked;
	const connections = state.connections.map((one) => (one === saved ? { ...one, refused: true as const } : one));
	return { ...state, connections, nextConnection: { baseUrl, worked, refused: from, times } };
}

/** The warning of `service.nextConnection`, and `null` where it is right. */
export function toldOfNext(state: State, baseUrl: string, asked: Asked): Failure | null {
	const { worked, refused, times } = knownOf(state, baseUrl);
	const { inForce: wanted } = asked;
	if (wanted !== null && wanted === refused && times >= TOLD_AFTER) {
		const message = `service.nextConnection: what ${wanted} names has opened no channel the last times: the service refused it, and the device continued with the earlier Connection, or registered again.`;
		const remedy = 'Correct service.nextConnection, or remove it if a Connection is good for more than one channel.';
		return failure('settings-invalid', message, { remedy });
	}
	const newest = state.connections.at(-1);
	const goesOn =
		newest?.from === worked && !newest?.worked && !newest?.refused && placesOfNext(state, baseUrl, asked)[0] === worked;
	if (worked === null || worked === wanted || !goesOn) return null;
	const isNow = wanted === null ? 'is not set any more' : `is ${wanted} now`;
	const message = `service.nextConnection ${isNow}, and the service still names the next Connection in ${worked}, and channels have opened with that: the device continues to use it.`;
	return failure('settings-invalid', message, { remedy: `Set service.nextConnection to ${worked} again.` });
}
