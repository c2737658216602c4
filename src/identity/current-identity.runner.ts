/** The device's identity as it is now, chosen again only when that is asked for. */
import type { Settings } from '../settings/table.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import { type CompleteIdentity, chooseIdentity, type IdentityFacts, keptId } from './identity.ts';

export type CurrentIdentity = ReturnType<typeof keepIdentity>;

/** @param parts.newDeviceId makes an id; it is kept, so that it is made once. */
export function keepIdentity(parts: {
	readonly facts: IdentityFacts;
	readonly device: PersistedState;
	readonly newDeviceId: () => string;
	readonly settings: () => Settings;
}) {
	const { facts, device, newDeviceId, settings } = parts;
	function choose(pinned = device.state.identity): CompleteIdentity {
		// A copy that is paired again must not go on under the id of the device that it was copied from.
		const isCopy = pinned === null && chooseIdentity(facts, {}, device.state.identity, null).cloned;
		const choice = chooseIdentity(facts, settings(), pinned, isCopy ? null : keptId(device.state));
		if (!choice.needsGeneratedId) return choice;
		const generatedId = newDeviceId();
		device.keep((state) => ({ ...state, generatedId }));
		return { ...choice, needsGeneratedId: false, deviceId: { value: generatedId, source: 'generated' } };
	}
	let now = choose();
	return {
		get now() {
			return now;
		},
		ids: () => [now.deviceId.value, now.serial.value, now.macAddress.value],
		/** Chooses again from settings, state and machine. */
		choose() {
			now = choose();
		},
		/** By what the machine shows now, without regard to an earlier pairing. */
		ofMachine: () => choose(null),
	};
}
