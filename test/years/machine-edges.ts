/** What the stand-ins for the machine's own modules are bound to: one simulated device at a time. */
import type { Disk } from './disk.ts';

let disk: Disk | null = null;

/** @throws when the agent touches a disk outside of a simulated life. */
export function simulatedDisk(): Disk {
	if (!disk) throw new Error('no simulated life is under way');
	return disk;
}

export const currentDisk = () => disk;

/** Binds the stand-ins to a life; `null` when it is over. */
export function bindMachine(bound: Disk | null): void {
	disk = bound;
}
