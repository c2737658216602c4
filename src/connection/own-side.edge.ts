/**
 * This device's own side of a line: the interface that has its address, and how often that has lost its link. Reads, and opens nothing.
 */
import { type Failure, failure } from '../base/errors.ts';
import { countCarrierChanges, findInterface } from '../base/unix.edge.ts';

function readOwnSide(address: string): { readonly name: string; readonly losses: string } | null {
	const name = findInterface(address);
	return name === null ? null : { name, losses: countCarrierChanges(name) };
}

/**
 * To be asked once a line is silent: why, if its interface, link or address was away since now; `null` where none was, or where that is not known, as of IPv6.
 * Silence for that reason says nothing of the way to the service.
 */
export function watchOwnSide(host: string, address: string | undefined, read = readOwnSide): () => Failure | null {
	const before = address === undefined ? null : read(address);
	return () => {
		const now = before && read(address ?? '');
		if (!before || (now?.name === before.name && now.losses === before.losses)) return null;
		const message = `This device had lost its own network (${before.name}); its channel to ${host} is opened again.`;
		return failure('connection-lost', message, {
			params: { host, reason: 'own-network' },
			remedy: 'If it happens often, check the cable, the switch or the radio link of this device.',
		});
	};
}
