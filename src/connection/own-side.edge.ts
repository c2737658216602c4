/**
 * This device's own side of a line: the interface that has its address, and how often that has lost its link. Reads, and opens nothing.
 */
import { networkInterfaces } from 'node:os';
import { type Failure, failure } from '../base/errors.ts';
import { countCarrierChanges } from '../base/unix.edge.ts';

/** An interface without a link is not in the list. */
function readOwnSide(address: string): { readonly name: string; readonly losses: string } | null {
	const has = ([, all = []]: [string, { readonly address: string }[] | undefined]) =>
		all.some((one) => one.address === address);
	const [name] = Object.entries(networkInterfaces()).find(has) ?? [];
	return name === undefined ? null : { name, losses: countCarrierChanges(name) };
}

/**
 * To be asked once a line is silent: why, if its interface, link or address was away since now; `null` where none was, or where that is not known.
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
