/** The device's identity as it is now, chosen again only when that is asked for. */
import type { Settings } from '../settings/table.ts';
import type { DeviceState, PinnedIdentity } from '../state/device-state.ts';
import type { PersistedState } from '../state/persisted-state.runner.ts';
import {
	type CompleteIdentity,
	chooseIdentity,
	type IdentityFacts,
	isLeftByAnother,
	type KeptId,
	keptId,
	withSerialSince,
} from './identity.ts';

export type CurrentIdentity = ReturnType<typeof keepIdentity>;

/** @param parts.newDeviceId makes an id; it is in memory alone until it is needed, so that no image of a disk holds it. */
export function keepIdentity(parts: {
	readonly facts: IdentityFacts;
	readonly device: PersistedState;
	readonly newDeviceId: () => string;
	readonly settings: () => Settings;
}) {
	const { facts, device, newDeviceId, settings } = parts;
	let fresh: string | null = null;
	/** The generated id that the disk has, or had until it was forgotten. */
	let onDisk = device.state.generatedId;
	function choose(pinned: PinnedIdentity | null, kept: KeptId | null): CompleteIdentity {
		const choice = chooseIdentity(facts, settings(), pinned, kept);
		if (!choice.needsGeneratedId) return choice;
		const isForgotten = fresh === onDisk && device.state.generatedId !== fresh;
		fresh = fresh === null || isForgotten ? newDeviceId() : fresh;
		return { ...choice, needsGeneratedId: false, deviceId: { value: fresh, source: 'generated' } };
	}
	function ofState(): CompleteIdentity {
		const { identity, registeredOn } = device.state;
		const kept = keptId(device.state);
		const choice = choose(identity, kept);
		// Of a device that registered with an older version, the machine on which this one first starts counts.
		if (kept && !identity && !registeredOn) device.keep((state) => ({ ...state, registeredOn: choice.fingerprint }));
		if (!identity && isLeftByAnother(facts, choice, kept))
			device.keep((state) => ({ ...state, connections: [], generatedId: null, registeredOn: choice.fingerprint }));
		device.keep((state) => withSerialSince(state, choice));
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
		 * To be awaited before a registration under this id: one that was made here goes to the disk first, or each start would register another
		 * device. `null` if nothing has to be saved. Rejects with AgentError `state-unwritable`.
		 */
		keep(id: string): Promise<void> | null {
			if (id !== fresh || id === onDisk) return null;
			const { fingerprint } = now;
			// A Connection in the state may be of the device that this one was copied from.
			const on = (state: DeviceState) => (state.connections.length > 0 ? state.registeredOn : fingerprint);
			const saved = device.record((state) => ({ ...state, generatedId: id, registeredOn: on(state) }));
			return saved.then(() => {
				onDisk = id;
			});
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
