/** Which changes of the settings bear on whether the service can be reached and the device is accepted. Pure. */
import type { Settings } from '../settings/table.ts';

const GROUPS = ['service', 'network', 'credential'] as const;

/** Whether a setting of `service.*`, `network.*` or `credential.*` has changed: then what failed is tried at once. */
export function bearsOn(before: Settings, after: Settings): boolean {
	return GROUPS.some((group) => JSON.stringify(before[group]) !== JSON.stringify(after[group]));
}
