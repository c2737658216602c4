/**
 * Starts `idv-agent` or `idv` under a Node that can run it: this one, or the one that `npm ci` brings to a checkout.
 * Never reads an argument or a setting; those belong to the command.
 *
 * CommonJS (`package.json` beside it says so): before 18.20 and 20.10 Node refuses a file without an extension as a
 * module, and an old Node is exactly what has to get through here. It also starts 3 ms sooner.
 */
'use strict';

const { join } = require('node:path');

/** The oldest Node that runs the sources as they are; the same as `engines` in package.json. */
const OLDEST_NODE = [22, 19];
/**
 * Where the sources of each command are, under the package's root.
 * @type {Record<string, string>}
 */
const SOURCES = { 'idv-agent': 'src/cli/idv-agent.ts', idv: 'src/operator/idv.ts' };
/** sysexits EX_UNAVAILABLE: something that this command needs is missing. */
const EXIT_UNAVAILABLE = 69;
/** sysexits EX_TEMPFAIL: the same command may work later. */
const EXIT_TEMPORARY = 75;
/**
 * What is passed on to a Node that runs as a child.
 * @type {NodeJS.Signals[]}
 */
const FORWARDED_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'];
/**
 * What a terminal sends to the whole group: the child has it already.
 * @type {NodeJS.Signals[]}
 */
const TERMINAL_SIGNALS = ['SIGINT', 'SIGQUIT'];

/**
 * @typedef {object} Facts
 * @property {string} name `idv-agent` or `idv`.
 * @property {string} root Directory of the package.
 * @property {string} version This Node's version, such as `22.19.0`.
 * @property {string} execPath Real path of this Node.
 * @property {string} platform `process.platform`.
 * @property {string} arch `process.arch`.
 * @property {(path: string) => string | null} realPath Real path of a file or directory, `null` if there is none.
 *
 * @typedef {{ kind: 'here', entry: string, sources: boolean }} Here Run this file in this process.
 * @typedef {{ kind: 'otherNode', node: string }} OtherNode Start again under this Node.
 * @typedef {{ kind: 'missing', message: string }} Missing Nothing can run; one line that says what to do.
 */

/**
 * What to run and under which Node. A checkout runs its sources, an installed package its bundle.
 * @param {Facts} facts
 * @returns {Here | OtherNode | Missing}
 */
function chooseRuntime(facts) {
	const { name, root, realPath } = facts;
	const sources = join(root, SOURCES[name]);
	const bundle = join(root, 'dist', `${name}.cjs`);
	const inCheckout = realPath(sources) !== null;
	const runsSources = inCheckout && realPath(join(root, 'node_modules')) !== null;
	if (!runsSources && realPath(bundle) === null) {
		const message = inCheckout
			? `${name}: its packages are not installed; run "npm ci" in ${root}.`
			: `${name}: neither ${sources} nor ${bundle} is there; install the package again.`;
		return { kind: 'missing', message };
	}
	if (isNewEnough(facts.version)) return { kind: 'here', entry: runsSources ? sources : bundle, sources: runsSources };

	const brought = `node-${facts.platform}-${facts.arch}`;
	const node = realPath(join(root, 'node_modules', brought, 'bin', 'node'));
	// A brought Node that is itself too old would start itself for ever.
	if (node !== null && node !== facts.execPath) return { kind: 'otherNode', node };
	const orBring = inCheckout ? `, or run "npm ci --include=optional" in ${root}, which brings one on Linux` : '';
	const message = `${name}: needs Node ${OLDEST_NODE.join('.')} or newer, and ${facts.execPath} is ${facts.version}; install one${orBring}.`;
	return { kind: 'missing', message };
}

/**
 * @param {string} version
 * @returns {boolean}
 */
function isNewEnough(version) {
	const [major, minor] = version.split('.').map(Number);
	return major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
}

/**
 * Runs a command of this package, whatever Node it was called with.
 * @param {'idv-agent' | 'idv'} name
 * @param {string} script The calling script in `bin/`.
 */
function launch(name, script) {
	const { realpathSync } = require('node:fs');
	/** @param {string} path */
	const realPath = (path) => {
		try {
			return realpathSync(path);
		} catch {
			return null;
		}
	};
	const root = join(realpathSync(script), '..', '..');
	const { execPath, platform, arch } = process;
	const runtime = chooseRuntime({ name, root, version: process.versions.node, execPath, platform, arch, realPath });
	if (runtime.kind === 'missing') {
		process.stderr.write(`${runtime.message}\n`);
		process.exitCode = EXIT_UNAVAILABLE;
	} else if (runtime.kind === 'otherNode') {
		const again = [realpathSync(script), ...process.argv.slice(2)];
		startUnder(runtime.node, again);
	} else {
		// Beside what it was made from: the default is under /tmp, where another user could plant code for root.
		const beside = runtime.sources ? join('node_modules', '.cache', 'idv-agent') : join('dist', '.cache');
		require('node:module').enableCompileCache(join(root, beside));
		if (runtime.sources) void import(require('node:url').pathToFileURL(runtime.entry).href);
		else require(runtime.entry);
	}
}

/**
 * Becomes another Node where this one can: it keeps the process id and leaves nothing behind that waits.
 * @param {string} node
 * @param {string[]} args
 */
function startUnder(node, args) {
	// Node 22.15 aborts with a stack trace when execve fails, so what can be known is asked first.
	if (typeof process.execve === 'function' && isExecutable(node)) process.execve(node, [node, ...args], process.env);
	else spawnUnder(node, args);
}

/**
 * @param {string} file
 * @returns {boolean}
 */
function isExecutable(file) {
	const { accessSync, constants } = require('node:fs');
	try {
		accessSync(file, constants.X_OK);
		return true;
	} catch {
		return false;
	}
}

/**
 * Runs another Node as a child that has our stdio and our signals, and ends the way it ends.
 * @param {string} node
 * @param {string[]} args
 */
function spawnUnder(node, args) {
	const { spawn } = require('node:child_process');
	const onTerminal = require('node:tty').isatty(0);
	const child = spawn(node, args, { stdio: 'inherit' });
	for (const signal of FORWARDED_SIGNALS)
		process.on(signal, () => {
			if (!(onTerminal && TERMINAL_SIGNALS.includes(signal))) child.kill(signal);
		});
	child.on('error', (error) => {
		const { code } = /** @type {NodeJS.ErrnoException} */ (error);
		const full = ['EMFILE', 'ENFILE', 'EAGAIN', 'ENOMEM'].includes(code ?? '');
		const remedy = full
			? 'the machine or a limit (ulimit -n, -u) has no room for it now: end something, then try again'
			: `install Node ${OLDEST_NODE.join('.')} or newer`;
		process.stderr.write(`${node} could not be started (${error.message}); ${remedy}.\n`);
		process.exit(full ? EXIT_TEMPORARY : EXIT_UNAVAILABLE);
	});
	child.on('exit', (code, signal) => {
		if (signal === null) process.exit(code);
		// Whoever started us should see the same end: a shell stops its loop only for a real SIGINT.
		process.removeAllListeners(signal);
		process.kill(process.pid, signal);
		process.exit(128 + require('node:os').constants.signals[signal]);
	});
}

module.exports = { chooseRuntime, launch, startUnder, spawnUnder };
