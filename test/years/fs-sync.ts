/** In the place of `node:fs` for the agent's sources: the simulated disk; what it lacks is the machine's own. */
import { simulatedDisk } from './machine-edges.ts';

export * from 'node:fs';

export const existsSync = (path: string) => simulatedDisk().files.has(path) || simulatedDisk().directories.has(path);
/** Opens to append, as a file is made for SQLite. */
export function openSync(path: string): number {
	if (!existsSync(path)) simulatedDisk().create(path);
	return 0;
}
export const closeSync = () => {};
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
