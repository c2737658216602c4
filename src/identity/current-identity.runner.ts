/** The device's identity as it is now, chosen again only when that is asked for. */
import type { Settings } from '../settings/table.ts';
import type { PinnedIdentity } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import {
	type CompleteIdentity,
	chooseIdentity,
	type IdentityFacts,
	isLeftByAnother,
	type KeptId,
	keptId,
} from './identity.ts';

export type CurrentIdentity = ReturnType<typeof keepIdentity>;

/** @param parts.newDeviceId makes an id; it is kept, so that it is made once. */
export function keepIdentity(parts: {
	readonly facts: IdentityFacts;
	readonly device: PersistedState;
	readonly newDeviceId: () => string;
	readonly settings: () => Settings;
}) {
	const { facts, device, newDeviceId, settings } = parts;
	function choose(pinned: PinnedIdentity | null, kept: KeptId | null): CompleteIdentity {
		const choice = chooseIdentity(facts, settings(), pinned, kept);
		if (!choice.needsGeneratedId) return choice;
		const generatedId = newDeviceId();
		device.keep((state) => ({ ...state, generatedId, registeredOn: choice.fingerprint }));
		return { ...choice, needsGeneratedId: false, deviceId: { value: generatedId, source: 'generated' } };
	}
	function ofState(): CompleteIdentity {
		const { identity, registeredOn } = device.state;
		const kept = keptId(device.state);
		const choice = choose(identity, kept);
		// Of a device that registered with an older version, the machine on which this one first starts counts.
		if (kept && !identity && !registeredOn) device.keep((state) => ({ ...state, registeredOn: choice.fingerprint }));
		if (!identity && isLeftByAnother(facts, choice, kept))
			device.keep((state) => ({ ...state, connections: [], registeredOn: choice.fingerprint }));
		return choice;
	}
	let now = ofState();
	return {
		get now() {
			return now;
		},
		ids: () => [now.deviceId.value, now.serial.value, now.macAddress.value],
		/** Chooses again from settings, state and machine. */
		choose() {
			now = ofState();
		},
		/**
		 * By what the machine shows now, without regard to an earlier pairing. A copy that is paired again must not go on
		 * under the id of the device that it was copied from.
		 */
		ofMachine() {
			const kept = keptId(device.state);
			return choose(null, chooseIdentity(facts, {}, device.state.identity, kept).cloned ? null : kept);
		},
	};
}
