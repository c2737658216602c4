/** Loaded before a program by `start-modules.test.ts`: on SIGUSR2 it writes down what has been loaded, and by whom. */
'use strict';
const { writeFileSync } = require('node:fs');
const Module = require('node:module');

/** @type {Record<string, { ms: number, by: string }>} */
const asked = {};
const load = Module._load;
Module._load = function (name, ...rest) {
	if (name in asked) return load.call(this, name, ...rest);
	const by =
		new Error().stack?.split('\n').find((line) => /\.cjs:\d+:\d+/.test(line) && !line.includes('start-hook')) ?? '';
	const startedAt = process.hrtime.bigint();
	try {
		return load.call(this, name, ...rest);
	} finally {
		asked[name.replace(/^node:/, '')] = { ms: Number(process.hrtime.bigint() - startedAt) / 1e6, by: by.trim() };
	}
};
process.on('SIGUSR2', () => {
	const files = Object.keys(require.cache).map((path) => path.split('/').at(-1));
	const builtin = process.moduleLoadList
		.filter((name) => name.startsWith('NativeModule '))
		.map((name) => name.slice(13));
	writeFileSync(process.env.START_MODULES ?? '', JSON.stringify({ files, builtin, asked }));
	process.exit();
});
