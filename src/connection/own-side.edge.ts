/**
 * This device's own side of a line: the interface that has its address, and how often that has lost its link. Reads, and opens nothing.
 */
import { networkInterfaces } from 'node:os';
import { type Failure, failure } from '../base/errors.ts';
import { countCarrierChanges, readRoutes } from '../base/unix.edge.ts';
import type { NetworkContext } from './classify-network-error.ts';
import { interfaceOf, type WayOut, wayOut } from './way-out.ts';

const CHECK = 'check the cable, the switch or the radio link of this device';

const readWayOut = (routes = readRoutes()): WayOut => {
	return routes === null ? 'there' : wayOut(routes.ipv4, routes.ipv6, routes.hasLink);
};

interface OwnSide {
	readonly name: string;
	readonly losses: string;
	readonly out?: WayOut;
}

function readOwnSide(address: string): OwnSide | null {
	const routes = readRoutes();
	const name = routes && interfaceOf(routes.ipv4, address);
	return name === null ? null : { name, losses: countCarrierChanges(name), out: readWayOut(routes) };
}

const isOwn = (address: string) =>
	Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address === address));

/**
 * To be asked once a line is silent: why, if its interface, link, address or router was away since now, or it has another address; `null` where none was, or where that is not known, as of IPv6.
 * Silence for that reason says nothing of the way to the service.
 */
export function watchOwnSide(
	host: string,
	address: string | undefined,
	read: typeof readOwnSide = readOwnSide,
	has = isOwn,
): () => Failure | null {
	const before = address === undefined ? null : read(address);
	return () => {
		const now = before && read(address ?? '');
		const hasWay = now?.out === before?.out || now?.out === 'there';
		if (!before) return null;
		if (now?.name === before.name && now.losses === before.losses && hasWay && has(address ?? '')) return null;
		const message = `This device had lost its own network (${before.name}); its channel to ${host} is opened again.`;
		return failure('connection-lost', message, {
			params: { host, reason: 'own-network' },
			remedy: `If it happens often, ${CHECK}.`,
		});
	};
}

/** What may follow from a missing network of this device. */
const FOLLOWS = new Set(['dns-failed', 'service-unreachable', 'connect-timeout', 'proxy-failed', 'channel-silent']);
const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])(?::\d+)?$/;

/** The failure, or its cause on this device's own side as long as that has no network: then no name server and no service is to blame. */
export function asOwnSide(told: Failure, { host, proxy }: NetworkContext, read = readWayOut): Failure {
	const { status, reason } = told.params ?? {};
	const isAnswer = status !== undefined || reason === 'ECONNREFUSED';
	if (!FOLLOWS.has(told.code) || isAnswer || LOOPBACK.test(proxy ?? host)) return told;
	const way = read();
	if (way === 'none')
		return failure('connection-lost', 'This device has no network of its own: no interface has a link and a route.', {
			params: { host, reason: 'own-network' },
			remedy: `${CHECK[0]?.toUpperCase()}${CHECK.slice(1)}.`,
		});
	if (way === 'there' || (told.code !== 'dns-failed' && reason !== 'ENETUNREACH')) return told;
	const remedy = 'Check the address and the router that this device has got (DHCP or its settings), and its cable.';
	return failure(told.code, `${told.message} This device has no default route.`, { ...told, remedy });
}
