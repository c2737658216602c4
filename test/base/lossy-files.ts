/** Real files whose calls fail when a test says so, and which lose, when the power is cut, what was not flushed. */
import fs from 'node:fs';
import path from 'node:path';
import type { FileCalls } from '../../src/base/log-segment.edge.ts';

export const EIO = Object.assign(new Error('EIO: i/o error'), { code: 'EIO' });

type Call = 'write' | 'fdatasync' | 'fsync' | 'openSync' | 'readSync' | 'unlinkSync' | 'readdirSync';

/** @param directory the only one with files. */
export function lossyFiles(directory: string) {
	/** What a cut leaves: contents by name. */
	let durable = new Map<string, Buffer>();
	/** Contents by what the open file is, whatever its name. */
	const flushed = new Map<number, Buffer>();
	const inodeOf = (name: string) => fs.statSync(path.join(directory, name)).ino;
	const disk = {
		/** The error of a call, looked at each time. */
		failure: (_call: Call, _name: string): Error | null => null,
		/** Bytes of each file that cannot be read, from which to before which. */
		badSector: null as readonly [from: number, to: number] | null,
		calls: [] as string[],
		/** Bytes that were asked to be written. */
		written: 0,
		/** What is there counts as flushed, as after a long time. */
		settle() {
			for (const name of fs.readdirSync(directory))
				flushed.set(inodeOf(name), fs.readFileSync(path.join(directory, name)));
			flushNames();
		},
		/** Leaves of each file what was flushed, and of what was written since then a part, drawn by `keeps` for each 512 bytes. */
		cutPower(keeps: () => boolean) {
			const now = new Map(fs.readdirSync(directory).map((name) => [name, fs.readFileSync(path.join(directory, name))]));
			for (const name of now.keys()) if (!durable.has(name) && keeps()) durable.set(name, Buffer.alloc(0));
			for (const name of now.keys()) fs.rmSync(path.join(directory, name));
			for (const [name, before] of durable) {
				const after = now.get(name) ?? before;
				const left = keeps() ? Buffer.concat([before], Math.max(before.length, after.length)) : Buffer.from(before);
				for (let at = 0; at < left.length; at += 512)
					if (keeps() && at < after.length) after.copy(left, at, at, Math.min(at + 512, after.length, left.length));
				fs.writeFileSync(path.join(directory, name), left);
			}
			flushed.clear();
			disk.settle();
		},
		files: null as unknown as FileCalls,
	};
	const flushNames = () => {
		durable = new Map(fs.readdirSync(directory).map((name) => [name, flushed.get(inodeOf(name)) ?? Buffer.alloc(0)]));
	};
	const nameOf = (to: number) => path.basename(fs.readlinkSync(`/proc/self/fd/${to}`));
	const failed = (call: Call, name: string) => {
		disk.calls.push(`${call} ${name}`);
		return disk.failure(call, name);
	};
	const check = (call: Call, name: string) => {
		const error = failed(call, name);
		if (error) throw error;
	};
	const write = (
		to: number,
		bytes: Uint8Array,
		offset: number,
		length: number,
		at: number,
		done: (error: Error | null, written: number) => void,
	) => {
		const error = failed('write', nameOf(to));
		disk.written += length;
		if (error) return void setImmediate(done, error, 0);
		fs.write(to, bytes, offset, length, at, done);
	};
	const fdatasync = (to: number, done: (error: Error | null) => void) => {
		const [error, inode, bytes] = [
			failed('fdatasync', nameOf(to)),
			fs.fstatSync(to).ino,
			fs.readFileSync(`/proc/self/fd/${to}`),
		];
		if (error) return void setImmediate(done, error);
		flushed.set(inode, bytes);
		for (const name of durable.keys())
			if (fs.existsSync(path.join(directory, name)) && inodeOf(name) === inode) durable.set(name, bytes);
		setImmediate(done, null);
	};
	const fsync = (to: number, done: (error: Error | null) => void) => {
		const error = failed('fsync', nameOf(to));
		if (!error) flushNames();
		setImmediate(done, error);
	};
	disk.files = {
		...fs,
		write: write as unknown as FileCalls['write'],
		fdatasync: fdatasync as unknown as FileCalls['fdatasync'],
		fsync: fsync as unknown as FileCalls['fsync'],
		openSync(file, flags, mode) {
			check('openSync', path.basename(String(file)));
			return fs.openSync(file, flags, mode);
		},
		unlinkSync(file) {
			check('unlinkSync', path.basename(String(file)));
			fs.unlinkSync(file);
		},
		readdirSync: ((file: string) => {
			check('readdirSync', path.basename(file));
			return fs.readdirSync(file);
		}) as unknown as FileCalls['readdirSync'],
		readSync: ((to: number, bytes: Buffer, offset: number, length: number, at: number) => {
			check('readSync', nameOf(to));
			const [from, end] = disk.badSector ?? [Number.POSITIVE_INFINITY, 0];
			if (at >= from && at < end) throw EIO;
			// As the system does: what is before it is read.
			return fs.readSync(to, bytes, offset, at < from ? Math.min(length, from - at) : length, at);
		}) as unknown as FileCalls['readSync'],
	};
	return disk;
}
