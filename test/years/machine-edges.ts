/** What the stand-ins for the machine's own modules are bound to: one simulated device at a time. */
import type { HookCall } from '../../src/hooks/hooks.edge.ts';
import type { Disk } from './disk.ts';

let disk: Disk | null = null;
let onHook: (call: HookCall) => void = () => {};

/** @throws when the agent touches a disk outside of a simulated life. */
export function simulatedDisk(): Disk {
	if (!disk) throw new Error('no simulated life is under way');
	return disk;
}

export const currentDisk = () => disk;
export const noteHook = (call: HookCall) => onHook(call);

/** Binds the stand-ins to a life; `null` when it is over. */
export function bindMachine(bound: { disk: Disk; onHook: (call: HookCall) => void } | null): void {
	disk = bound?.disk ?? null;
	onHook = bound?.onHook ?? (() => {});
}
