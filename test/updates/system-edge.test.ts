import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { getsThrough, isPackagingBusy, readBootId } from '../../src/updates/system.edge.ts';

function givenDirectory(): string {
	const directory = mkdtempSync(join(tmpdir(), 'system-'));
	onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
	return directory;
}

test.each([
	['root', '0\t0\t0\t0', true],
	['another user', '998\t998\t998\t998', false],
	["another user in a program that is root's by its mode", '998\t0\t0\t0', false],
])('a lock of dpkg that %s has open: whether apt is at work [F1911]', async (_who, ids, isBusy) => {
	const proc = givenDirectory();
	mkdirSync(join(proc, '7/fd'), { recursive: true });
	writeFileSync(join(proc, '7/status'), `Name:\tdpkg\nUid:\t${ids}\nGid:\t${ids}\n`);
	symlinkSync('/var/lib/dpkg/lock', join(proc, '7/fd/3'));
	expect(await isPackagingBusy(proc)).toBe(isBusy);
});

test('a program that tries the way to the service and was stopped by its user is ended at its deadline [F1914]', async () => {
	const program = join(givenDirectory(), 'idv-agent');
	writeFileSync(program, '#!/bin/sh\nkill -STOP $$\n');
	chmodSync(program, 0o755);
	expect(await getsThrough(program, 200)).toBe(false);
});

test('two boots of a container differ by the start of their first process, those of a machine by the name of the boot [F1938]', async () => {
	const bootOf = (name: string, started: number) => {
		const proc = givenDirectory();
		mkdirSync(join(proc, 'sys/kernel/random'), { recursive: true });
		writeFileSync(join(proc, 'sys/kernel/random/boot_id'), `${name}\n`);
		mkdirSync(join(proc, '1'));
		const later = Array.from({ length: 30 }, (_, at) => 100 + at);
		writeFileSync(join(proc, '1/stat'), `1 (a) b (c) S ${later.with(18, started).join(' ')}\n`);
		return readBootId(proc);
	};
	const first = await bootOf('host', 20);
	expect(
		[await bootOf('host', 20), await bootOf('host', 21), await bootOf('other', 20)].map((one) => one === first),
	).toEqual([true, false, false]);
});
