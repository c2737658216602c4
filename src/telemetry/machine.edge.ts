/** Figures of the machine that a file or one system call tells: disk and temperature. Starts no program, never throws. */
import { readdir, readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { MachineFigures } from '../status/metrics.ts';

/** @param root of the file system that is looked at; default `/`. */
export async function readMachineFigures(
	directory: string,
	root = '/',
): Promise<Pick<MachineFigures, 'diskFreeBytes' | 'diskSizeBytes' | 'celsius'>> {
	const [disk, celsius] = await Promise.all([statfs(directory).catch(() => null), readTemperature(root)]);
	return {
		diskFreeBytes: disk && disk.bavail * disk.bsize,
		diskSizeBytes: disk && disk.blocks * disk.bsize,
		celsius,
	};
}

/** The hottest of the kernel's thermal zones; `null` where there is none. */
async function readTemperature(root: string): Promise<number | null> {
	const directory = join(root, 'sys/class/thermal');
	const zones = (await readdir(directory).catch(() => [])).filter((name) => name.startsWith('thermal_zone'));
	const read = await Promise.all(
		zones.map((zone) => readFile(join(directory, zone, 'temp'), 'utf8').then(Number, () => Number.NaN)),
	);
	// A sensor without a reading says 0 or less than nothing.
	const good = read.filter((thousandths) => thousandths > 0 && thousandths < 200_000);
	return good.length === 0 ? null : Math.max(...good) / 1000;
}
