/** Chooses the identity of this device from the facts known now. Choosing is `identity/identity.ts`; here a device with nothing of its own gets its id. */

import type { Settings } from '../settings/table.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import { type CompleteIdentity, chooseIdentity, type IdentityFacts } from './identity.ts';

export interface DeviceIdentityParts {
	readonly facts: IdentityFacts;
	readonly device: PersistedState;
	/** A new id for a device that has nothing of its own to be known by. */
	readonly newDeviceId: () => string;
}

/**
 * Chooses the identity; an id that had to be made is kept, so that it is made once.
 * @param pinned the identity of the pairing; `null` to look at the machine again.
 */
export function chooseDeviceIdentity(
	parts: DeviceIdentityParts,
	settings: Pick<Settings, 'deviceId' | 'serial' | 'macAddress'>,
	pinned = parts.device.state.identity,
): CompleteIdentity {
	const { facts, device } = parts;
	const choice = chooseIdentity(facts, settings, pinned, device.state.generatedId);
	if (!choice.needsGeneratedId) return choice;
	const generatedId = parts.newDeviceId();
	device.keep((state) => ({ ...state, generatedId }));
	return chooseDeviceIdentity(parts, settings, pinned);
}
