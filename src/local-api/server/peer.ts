/** The program at the other end of a Unix socket, as the kernel names it. */
import type net from 'node:net';
import { loadForeignFunctions } from '../../base/foreign-functions.edge.ts';

/** Source: Linux, asm-generic/socket.h; the first number of struct ucred is the process. */
const [SOL_SOCKET, SO_PEERCRED, UCRED_BYTES] = [1, 17, 12];

type GetOption = (fd: number, level: number, name: number, value: Buffer, length: Buffer) => number;
let getOption: GetOption | null | undefined;

/** Its process id when it connected; `null` where that is not known: over TCP, from another container, or on an older Node. */
export function peerProcess(socket: net.Socket): number | null {
	const { fd = -1 } = (socket as net.Socket & { _handle?: { readonly fd?: number } | null })._handle ?? {};
	getOption ??= loadGetOption();
	if (!getOption || fd < 0) return null;
	const credentials = Buffer.alloc(UCRED_BYTES);
	const length = Buffer.from(Uint32Array.of(UCRED_BYTES).buffer);
	return getOption(fd, SOL_SOCKET, SO_PEERCRED, credentials, length) === 0 ? credentials.readInt32LE() || null : null;
}

function loadGetOption(): GetOption | null {
	const getsockopt = { arguments: ['i32', 'i32', 'i32', 'buffer', 'buffer'], return: 'i32' } as const;
	const functions = loadForeignFunctions()?.dlopen(null, { getsockopt }).functions;
	return (functions?.getsockopt as GetOption | undefined) ?? null;
}
