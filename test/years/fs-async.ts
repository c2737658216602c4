/** In the place of `node:fs/promises` for the agent's sources: the simulated disk. */
import { dirname } from 'node:path';
import { simulatedDisk } from './machine-edges.ts';

const fault = (code: string, path: string) => Object.assign(new Error(`${code}: ${path}`), { code });
const O_ACCMODE = 3;

const statOf = (bytes: number, mode: number, isFile: boolean) => ({
	size: bytes,
	mode,
	uid: process.getuid?.() ?? 0,
	gid: 0,
	mtimeMs: 0,
	isFile: () => isFile,
	isDirectory: () => !isFile,
});

async function open(path: string, flags: string | number = 'r', mode = 0o600) {
	const disk = simulatedDisk();
	const node = await disk.step(() => {
		if (disk.directories.has(path)) return null;
		if (flags === 'wx') {
			if (disk.files.has(path)) throw fault('EEXIST', path);
			return disk.create(path, mode);
		}
		return disk.find(path);
	});
	const mayWrite = typeof flags === 'number' ? (flags & O_ACCMODE) !== 0 : flags !== 'r';
	let at = 0;
	return {
		stat: () => disk.step(() => statOf(node?.bytes.length ?? 0, node?.mode ?? 0o40700, node !== null), 0),
		async read(buffer: Buffer) {
			const bytes = node?.bytes ?? Buffer.alloc(0);
			const bytesRead = bytes.copy(buffer, 0, at);
			at += bytesRead;
			return { buffer, bytesRead };
		},
		write: (bytes: Buffer, offset: number, length: number, position: number) =>
			disk.step(() => {
				if (!node || !mayWrite) throw fault('EBADF', path);
				return { bytesWritten: disk.write(path, node, bytes.subarray(offset, offset + length), position) };
			}),
		writeFile: (bytes: Buffer) =>
			disk.step(() => {
				if (!node || !mayWrite) throw fault('EBADF', path);
				disk.writeAll(path, node, bytes);
			}),
		truncate: (length: number) =>
			disk.step(() => {
				if (node) node.bytes = node.bytes.subarray(0, length);
			}),
		sync: () => disk.step(() => (node ? disk.flushFile(node) : disk.flushDirectory(path)), disk.flushMs()),
		chmod: async (changed: number) => {
			if (node) node.mode = changed;
		},
		chown: async () => {},
		close: async () => {},
	};
}

const access = (path: string) =>
	simulatedDisk().step(() => {
		if (!simulatedDisk().directories.has(path)) simulatedDisk().find(path);
	});
const mkdir = (path: string) =>
	simulatedDisk().step(() => {
		for (let at = path; !simulatedDisk().directories.has(at); at = dirname(at)) simulatedDisk().directories.add(at);
	});
/** No name is a link here. */
const realpath = async (path: string) => {
	await access(path);
	return path;
};
const unlink = (path: string) => simulatedDisk().step(() => simulatedDisk().remove(path));
const rename = (from: string, to: string) =>
	simulatedDisk().step(() => {
		const node = simulatedDisk().find(from);
		simulatedDisk().rename([
			[to, node],
			[from, undefined],
		]);
	});
const link = (from: string, to: string) =>
	simulatedDisk().step(() => {
		const disk = simulatedDisk();
		if (disk.files.has(to)) throw fault('EEXIST', to);
		disk.rename([[to, disk.find(from)]]);
	});
const readdir = (path: string) =>
	simulatedDisk().step(() => {
		if (!simulatedDisk().directories.has(path)) throw fault('ENOENT', path);
		return simulatedDisk()
			.names(path)
			.map((name) => name.slice(path.length + 1));
	});
const stat = (path: string) =>
	simulatedDisk().step(() => {
		if (simulatedDisk().directories.has(path)) return statOf(0, 0o40700, false);
		const node = simulatedDisk().find(path);
		return statOf(node.bytes.length, node.mode, true);
	});
/** The medium of a provisioning is FAT: Linux, uapi/linux/magic.h. */
const statfs = async () => ({ type: 0x4d44 });
const readFile = (path: string, encoding?: BufferEncoding) =>
	simulatedDisk().step(() => {
		const { bytes } = simulatedDisk().find(path);
		return encoding ? bytes.toString(encoding) : bytes;
	});
const writeFile = async (path: string, content: string | Buffer, { flag = 'w' }: { flag?: string } = {}) => {
	const disk = simulatedDisk();
	await disk.step(() => {
		if (flag === 'wx' && disk.files.has(path)) throw fault('EEXIST', path);
		disk.writeAll(path, disk.files.get(path) ?? disk.create(path), Buffer.from(content));
	});
};
const truncate = (path: string) =>
	simulatedDisk().step(() => {
		simulatedDisk().find(path).bytes = Buffer.alloc(0);
	});
const constants = { R_OK: 4, W_OK: 2 };

export {
	access,
	constants,
	link,
	mkdir,
	open,
	readdir,
	readFile,
	realpath,
	rename,
	stat,
	statfs,
	truncate,
	unlink,
	writeFile,
};
export default {
	access,
	constants,
	link,
	mkdir,
	open,
	readdir,
	readFile,
	realpath,
	rename,
	stat,
	statfs,
	truncate,
	unlink,
	writeFile,
};
