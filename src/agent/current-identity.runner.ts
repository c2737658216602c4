/** Who the device is now. Chosen again only when it is asked for: a changed setting, a pairing, an accepted repair. */

import { chooseDeviceIdentity, type DeviceIdentityParts } from '../identity/choose.runner.ts';
import type { CompleteIdentity } from '../identity/identity.ts';
import type { Settings } from '../settings/table.ts';

export interface CurrentIdentity {
	readonly now: CompleteIdentity;
	/** Chooses again from settings, state and machine. */
	choose(): void;
	/** By what the machine shows now, without regard to an earlier pairing. */
	ofMachine(): CompleteIdentity;
}

export function keepIdentity(parts: DeviceIdentityParts & { readonly settings: () => Settings }): CurrentIdentity {
	let now = chooseDeviceIdentity(parts, parts.settings());
	return {
		get now() {
			return now;
		},
		choose() {
			now = chooseDeviceIdentity(parts, parts.settings());
		},
		ofMachine: () => chooseDeviceIdentity(parts, parts.settings(), null),
	};
}
