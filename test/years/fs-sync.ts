/** In the place of `node:fs` for the agent's sources: the simulated disk; what it lacks is the machine's own. */

import * as real from 'node:fs';
import { dirname } from 'node:path';
import * as promises from './fs-async.ts';
import { simulatedDisk } from './machine-edges.ts';

export * from 'node:fs';

export const existsSync = (path: string) => simulatedDisk().files.has(path) || simulatedDisk().directories.has(path);
const fault = (code: string, path: string) => Object.assign(new Error(`${code}: ${path}`), { code });
/** Open files by their descriptors; a process that is gone leaves its own behind. */
const open = new Map<number, string>();
let descriptors = 1000;
/** Opens to append or to read; a directory too. */
/** How far each descriptor has read. */
const readTo = new Map<number, number>();
export function openSync(path: string, flags: string | number = 'r', mode = 0o600): number {
	const disk = simulatedDisk();
	const isNew = flags === 'wx' || (typeof flags === 'number' && (flags & real.constants.O_EXCL) !== 0);
	if (isNew && existsSync(path)) throw fault('EEXIST', path);
	if (!existsSync(path)) {
		if (typeof flags === 'number' ? (flags & real.constants.O_CREAT) === 0 : flags === 'r') disk.find(path);
		disk.create(path, mode);
	}
	descriptors += 1;
	open.set(descriptors, path);
	return descriptors;
}
export const closeSync = (descriptor: number) => {
	open.delete(descriptor);
	readTo.delete(descriptor);
};
const nodeOf = (descriptor: number) => simulatedDisk().find(open.get(descriptor) ?? '');
/** @param place the offset in the bytes, or for a text its position in the file. @param position default: at the end. */
export function writeSync(
	descriptor: number,
	content: Buffer | string,
	place?: number,
	length?: number,
	position?: number,
): number {
	const node = nodeOf(descriptor);
	const isText = typeof content === 'string';
	const bytes = isText ? Buffer.from(content) : content.subarray(place, length && (place ?? 0) + length);
	return simulatedDisk().write(
		open.get(descriptor) ?? '',
		node,
		bytes,
		(isText ? place : position) ?? node.bytes.length,
	);
}
export function ftruncateSync(descriptor: number, length = 0): void {
	const node = nodeOf(descriptor);
	if (node.bytes.length === length) return;
	simulatedDisk().writes += 1;
	node.bytes = Buffer.from(node.bytes.subarray(0, length));
}
export function fsyncSync(descriptor: number): void {
	const path = open.get(descriptor) ?? '';
	const disk = simulatedDisk();
	if (disk.directories.has(path)) disk.flushDirectory(path);
	else disk.flushFile(nodeOf(descriptor));
}
/** What was written before its end is durable; a process that is gone is never called back. */
export function fsync(descriptor: number, callback: (error: Error | null) => void): void {
	const disk = simulatedDisk();
	void disk.step(() => fsyncSync(descriptor), disk.flushMs()).then(() => callback(null), callback);
}
export const fdatasync = fsync;
export function write(
	descriptor: number,
	bytes: Buffer,
	offset: number,
	length: number,
	position: number,
	callback: (error: Error | null, written: number) => void,
): void {
	const disk = simulatedDisk();
	void disk
		.step(() => writeSync(descriptor, Buffer.from(bytes), offset, length, position), 0)
		.then(
			(written) => callback(null, written),
			(error) => callback(error, 0),
		);
}
export const readFileSync = (path: string, encoding: BufferEncoding) =>
	simulatedDisk().find(path).bytes.toString(encoding);
export function writeFileSync(file: string | number, content: string | Buffer): void {
	const disk = simulatedDisk();
	const path = typeof file === 'number' ? (open.get(file) ?? '') : file;
	const node = disk.files.get(path) ?? disk.create(path);
	disk.writeAll(path, node, Buffer.from(content));
}
export function readdirSync(path: string, as?: 'buffer'): (string | Buffer)[] {
	const names = simulatedDisk().names(path);
	return names.map((name) => name.slice(path.length + 1)).map((name) => (as === 'buffer' ? Buffer.from(name) : name));
}
export function renameSync(from: string, to: string): void {
	const disk = simulatedDisk();
	disk.rename([
		[to, disk.find(from)],
		[from, undefined],
	]);
}
export function linkSync(from: string, to: string): void {
	const disk = simulatedDisk();
	if (disk.files.has(to)) throw fault('EEXIST', to);
	disk.rename([[to, disk.find(from)]]);
}
export const unlinkSync = (path: string) => simulatedDisk().remove(path);
export function rmSync(path: string, { force = false } = {}): void {
	if (!force || simulatedDisk().files.has(path)) simulatedDisk().remove(path);
}

const statOf = (path: string) => {
	const disk = simulatedDisk();
	const isFile = !disk.directories.has(path);
	const { bytes, mode } = isFile ? disk.find(path) : { bytes: Buffer.alloc(0), mode: 0o40700 };
	const more = {
		uid: process.getuid?.() ?? 0,
		gid: 0,
		mtimeMs: 0,
		isFile: () => isFile,
		isDirectory: () => !isFile,
		isSymbolicLink: () => false,
	};
	return { size: bytes.length, mode, ...more };
};
export const statSync = statOf;
export const lstatSync = (path: string, { throwIfNoEntry = true } = {}) =>
	throwIfNoEntry || existsSync(path) ? statOf(path) : undefined;
export const fstatSync = (descriptor: number) => {
	const path = open.get(descriptor);
	return path === undefined ? real.fstatSync(descriptor) : statOf(path);
};
export function readSync(
	descriptor: number,
	buffer: Buffer,
	offset = 0,
	length = buffer.length - offset,
	position: number | null = null,
): number {
	const at = position ?? readTo.get(descriptor) ?? 0;
	const path = open.get(descriptor) ?? '';
	const readable = path.endsWith('.log') ? simulatedDisk().readable(path, at, length) : length;
	const bytesRead = nodeOf(descriptor).bytes.copy(buffer, offset, at, at + readable);
	if (position === null) readTo.set(descriptor, at + bytesRead);
	return bytesRead;
}
/** No name is a link here. */
export const realpathSync = Object.assign((path: string) => path, { native: (path: string) => path });
export function mkdirSync(path: string): void {
	for (let at = path; !simulatedDisk().directories.has(at); at = dirname(at)) simulatedDisk().directories.add(at);
}
export function fchmodSync(descriptor: number, mode: number): void {
	nodeOf(descriptor).mode = mode;
}
export const fchownSync = () => {};
export const accessSync = (path: string) => void statOf(path);
export function truncateSync(path: string, length = 0): void {
	const node = simulatedDisk().find(path);
	node.bytes = Buffer.from(node.bytes.subarray(0, length));
}
export { promises };

export default {
	...real,
	existsSync,
	openSync,
	closeSync,
	writeSync,
	ftruncateSync,
	fsyncSync,
	fsync,
	fdatasync,
	write,
	readFileSync,
	writeFileSync,
	readdirSync,
	renameSync,
	linkSync,
	unlinkSync,
	rmSync,
	statSync,
	lstatSync,
	fstatSync,
	readSync,
	realpathSync,
	mkdirSync,
	fchmodSync,
	fchownSync,
	accessSync,
	truncateSync,
	promises: promises.default,
};
