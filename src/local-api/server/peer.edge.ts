/** The other end of a socket, as the kernel knows it: the program there, and the bytes that are still on the way to it. */
import { readFileSync } from 'node:fs';
import type net from 'node:net';
import { loadForeignFunctions } from '../../base/foreign-functions.edge.ts';

/** Source: Linux, asm-generic/socket.h; the first number of struct ucred is the process. */
const [SOL_SOCKET, SO_PEERCRED, UCRED_BYTES] = [1, 17, 12];
/** Source: Linux, sockios.h and asm-generic/ioctls.h; an `int`. */
const [SIOCOUTQ, INT_BYTES] = [0x5411n, 4];

interface Kernel {
	getsockopt(fd: number, level: number, name: number, value: Buffer, length: Buffer): number;
	ioctl(fd: number, request: bigint, value: Buffer): number;
}
let kernel: Kernel | null | undefined;

type WithHandle = net.Socket & { readonly _handle?: { readonly fd?: number } | null };
/** -1 without one. */
const fdOf = (socket: net.Socket): number => (socket as WithHandle)._handle?.fd ?? -1;

/** Its process id when it connected; `null` where that is not known: over TCP, from another container, or on an older Node. */
export function peerProcess(socket: net.Socket): number | null {
	const fd = fdOf(socket);
	kernel ??= loadKernel();
	if (!kernel || fd < 0) return null;
	const credentials = Buffer.alloc(UCRED_BYTES);
	const length = Buffer.from(Uint32Array.of(UCRED_BYTES).buffer);
	const isKnown = kernel.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, length) === 0;
	return isKnown ? credentials.readInt32LE() || null : null;
}

/**
 * Bytes that the kernel holds for the other end: it has not confirmed them (TCP), or its program has not read them (a Unix socket, where
 * they count with what the kernel needs for them). Node tells only what it has handed to the kernel. 0 where that is not known.
 */
export function onTheWay(socket: net.Socket | null): number {
	const fd = socket ? fdOf(socket) : -1;
	if (fd < 0) return 0;
	kernel ??= loadKernel();
	const bytes = Buffer.alloc(INT_BYTES);
	return kernel?.ioctl(fd, SIOCOUTQ, bytes) === 0 ? bytes.readInt32LE() : 0;
}

/**
 * Whether a program still holds the other end of a connection on loopback: the kernel lists that end as well, without an inode once it is
 * closed. `false` where the list cannot be read. Source: Linux, Documentation/networking/proc_net_tcp.
 */
export function isOpenAtPeer({ localPort = 0, remotePort = 0 }: net.Socket): boolean {
	const [from, to] = [remotePort, localPort].map((port) => port.toString(16).toUpperCase().padStart(4, '0'));
	try {
		// Small on a device, and read only for a caller that has closed its side: no file of a disk.
		const lines = readFileSync('/proc/self/net/tcp', 'latin1').split('\n');
		const line = lines
			.map((each) => each.trim().split(/ +/))
			.find(([, own, other]) => own?.endsWith(`:${from}`) && other?.endsWith(`:${to}`));
		return (line?.[9] ?? '0') !== '0';
	} catch {
		return false;
	}
}

function loadKernel(): Kernel | null {
	const getsockopt = { arguments: ['i32', 'i32', 'i32', 'buffer', 'buffer'], return: 'i32' } as const;
	const ioctl = { arguments: ['i32', 'u64', 'buffer'], return: 'i32' } as const;
	const functions = loadForeignFunctions()?.dlopen(null, { getsockopt, ioctl }).functions;
	return (functions as Kernel | undefined) ?? null;
}
