/** In the place of `node:fs` for the agent's sources: the simulated disk; what it lacks is the machine's own. */
import { simulatedDisk } from './machine-edges.ts';

export * from 'node:fs';

export const existsSync = (path: string) => simulatedDisk().files.has(path) || simulatedDisk().directories.has(path);
/** Open files by their descriptors; a process that is gone leaves its own behind. */
const open = new Map<number, string>();
let descriptors = 1000;
/** Opens to append or to read; a directory too. */
export function openSync(path: string, flags = 'r'): number {
	const disk = simulatedDisk();
	if (!existsSync(path)) {
		if (flags === 'r') disk.find(path);
		disk.create(path);
	}
	descriptors += 1;
	open.set(descriptors, path);
	return descriptors;
}
export const closeSync = (descriptor: number) => void open.delete(descriptor);
const nodeOf = (descriptor: number) => simulatedDisk().find(open.get(descriptor) ?? '');
export function writeSync(descriptor: number, bytes: Buffer, offset = 0): number {
	const node = nodeOf(descriptor);
	simulatedDisk().write(open.get(descriptor) ?? '', node, bytes.subarray(offset), node.bytes.length);
	return bytes.length - offset;
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
export const fdatasyncSync = fsyncSync;
export const readFileSync = (path: string, encoding: BufferEncoding) =>
	simulatedDisk().find(path).bytes.toString(encoding);
export function writeFileSync(path: string, content: string): void {
	const disk = simulatedDisk();
	const node = disk.files.get(path) ?? disk.create(path);
	disk.write(path, node, Buffer.from(content), 0);
}
export const readdirSync = (path: string) =>
	simulatedDisk()
		.names(path)
		.map((name) => name.slice(path.length + 1));
export function renameSync(from: string, to: string): void {
	const disk = simulatedDisk();
	disk.rename([
		[to, disk.find(from)],
		[from, undefined],
	]);
}
export function rmSync(path: string, { force = false } = {}): void {
	if (!force || simulatedDisk().files.has(path)) simulatedDisk().remove(path);
}
