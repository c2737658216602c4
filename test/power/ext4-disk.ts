/** A small ext4 of the kernel's own in an image file, and what a power cut at this moment would leave of it: a copy of the image. */
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Large enough for a journal, in bytes. */
const IMAGE_BYTES = 12 << 20;
/** Small blocks, so that the end of a small file often lies in a block of its own. */
const MAKE = ['-q', '-b', '1024', '-E', 'lazy_itable_init=0,lazy_journal_init=0', '-O', '^metadata_csum'];

export interface Ext4Disk {
	readonly directory: string;
	/** The bytes that have reached the image. */
	raw(): Buffer;
	/** Writes everything back, as a medium that was taken out properly. */
	flush(): void;
	/** A disk with what the image has now; its journal is replayed when it is mounted. */
	afterCut(): Ext4Disk;
}

/** @param atTheEnd has things undone. */
export function mountExt4(atTheEnd: (act: () => void) => void, from?: string): Ext4Disk {
	const base = mkdtempSync(join(tmpdir(), 'idv-ext4-'));
	const image = join(base, 'image');
	const directory = join(base, 'disk');
	mkdirSync(directory);
	atTheEnd(() => {
		spawnSync('umount', ['-l', directory], { stdio: 'ignore' });
		rmSync(base, { recursive: true, force: true });
	});
	if (from) copyFileSync(from, image);
	else {
		writeFileSync(image, '');
		truncateSync(image, IMAGE_BYTES);
		execFileSync('mkfs.ext4', [...MAKE, image], { stdio: 'pipe' });
	}
	execFileSync('mount', ['-t', 'ext4', '-o', 'loop', image, directory], { stdio: 'pipe' });
	return {
		directory,
		raw: () => readFileSync(image),
		flush: () => void execFileSync('sync', ['--file-system', directory]),
		afterCut: () => mountExt4(atTheEnd, image),
	};
}

/** Why there can be no such disk here, in a few words; `null` if there can. */
export function refusedHere(): string | null {
	const undo: (() => void)[] = [];
	try {
		mountExt4((act) => undo.push(act));
		return null;
	} catch {
		return 'loop mounts';
	} finally {
		for (const act of undo) act();
	}
}
