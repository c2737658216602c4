/**
 * Runs first in the executable: loads the program, with the code that `idv-agent code-cache` compiled ahead if that
 * was made of this very program, and the packages apart as they are asked for; called as root's program of idv-agent-updates, that one
 * instead. Text only; a device runs it, this file does not.
 */
import { createHash } from 'node:crypto';

/**
 * Variables by which Node and OpenSSL decide which authorities count, what to load and what to write, most of them before any code runs.
 * Source: Node 26, doc/node.1 and src/node_options.cc; OpenSSL 3.5, openssl-env(7).
 */
const FOREIGN = /^(?:NODE_|OPENSSL_|SSL_CERT_(?:FILE|DIR)$|SSLKEYLOGFILE$|CTLOG_FILE$|RANDFILE$)/;

/** The tools take an authority from `NODE_EXTRA_CA_CERTS`, which Node has read by now: a pipeline may stand behind an inspecting proxy. */
const OF_NODE = /^NODE_(?!EXTRA_CA_CERTS$)/;

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
const { hash } = require('node:crypto');
const { closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } = require('node:fs');
const { basename, dirname, isAbsolute, join } = require('node:path');
const isForeign = (name) => ${program === '' ? OF_NODE : FOREIGN}.test(name);
if (Object.keys(process.env).some(isForeign)) {
	// Node and OpenSSL have read some of them by now.
	const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !isForeign(name)));
	process.removeAllListeners('warning');
	process.execve(process.execPath, [process.argv0, ...process.argv.slice(2)], env);
}
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
			writeCache(script.createCachedData());
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
const digestOf = (data) => hash('sha256', data, 'buffer');
function readCache() {
	try {
		const file = readFileSync(cacheFile);
		// V8 runs what it is given: a damaged page of the disk would end every command. The digest keeps the data aligned.
		if (digestOf(file.subarray(32)).equals(file.subarray(0, 32))) return file.subarray(32);
	} catch {
		// Not made yet: everything is compiled as it is needed.
	}
}
function writeCache(data) {
	const flush = (file, ...written) => {
		const open = openSync(file, written.length > 0 ? 'w' : 'r', 0o644);
		for (const bytes of written) if (writeSync(open, bytes) !== bytes.length) throw new Error('not written');
		fsyncSync(open);
		closeSync(open);
	};
	flush(cacheFile + '.new', digestOf(data), data);
	renameSync(cacheFile + '.new', cacheFile);
	flush(here);
}
// From beside its own name, so that the judge of a new version runs from copies of both. Never by a name that leads to where the caller is.
const beside = process.argv0 + '.cjs';
if (basename(beside) === 'idv-agent-updates.cjs' && isAbsolute(beside)) {
	const script = new Script(readFileSync(beside, 'latin1'), { filename: beside });
	script.runInThisContext()({}, require, {}, beside, dirname(beside));
} else load('program.cjs');
`;
}
