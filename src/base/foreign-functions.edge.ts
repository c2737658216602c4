/** Functions of libc, by an experimental module of Node. */

/** 4 ms and 0.3 MiB: only where something calls for it. Node's warning would be an error in the journal. `undefined` before Node 26.1. */
export function loadForeignFunctions(): typeof import('node:ffi') | undefined {
	const { emitWarning } = process;
	try {
		process.emitWarning = () => {};
		return process.getBuiltinModule('node:ffi');
	} finally {
		process.emitWarning = emitWarning;
	}
}
