/**
 * Runs first in the executable: loads the program, with the code that `idv-agent code-cache` compiled ahead if that
 * was made of this very program, and the packages apart as they are asked for. Text only; a device runs it, this file does not.
 */
import { createHash } from 'node:crypto';

/** A CommonJS file as the function that Node would make of it. */
export function wrapped(program: string): string {
	return `(function(exports,require,module,__filename,__dirname){${program}\n})`;
}

/**
 * @param program the wrapped `run.cjs`, all that a start needs: V8 itself looks only at its length, and would run the code of
 * another one. Empty for an executable without it, which has no compiled code.
 */
export function launcherSource(program: string): string {
	const hash = createHash('sha256').update(program, 'latin1').digest('hex').slice(0, 16);
	return `
const { getRawAsset } = require('node:sea');
const { Script } = require('node:vm');
const { readFileSync, renameSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');
const here = dirname(process.execPath);
const cacheFile = join(here, 'program-${hash}.cache');
const loaded = new Map();
const makes = process.env.IDV_AGENT_CODE_CACHE === 'make';
const load = (name) => {
	const cachedData = name === 'run.cjs' && !makes ? readCache() : undefined;
	const script = new Script(Buffer.from(getRawAsset(name)).latin1Slice(), { filename: name, cachedData });
	const module = { exports: {} };
	loaded.set(name, module);
	if (name === 'run.cjs' && makes)
		process.once('SIGUSR2', () => {
			writeFileSync(cacheFile + '.new', script.createCachedData(), { mode: 0o644 });
			renameSync(cacheFile + '.new', cacheFile);
			process.exit();
		});
	script.runInThisContext()(module.exports, find, module, process.execPath, here);
};
const find = Object.assign((name) => {
	if (!name.startsWith('./')) return require(name);
	const file = name.slice(2);
	if (!loaded.has(file)) load(file);
	return loaded.get(file).exports;
}, require);
function readCache() {
	try {
		return readFileSync(cacheFile);
	} catch {
		// Not made yet: everything is compiled as it is needed.
	}
}
load('program.cjs');
`;
}
