/** Whether the programs of hooks are there and can be run, as far as their files say it. Runs none. */
import { accessSync, closeSync, constants, openSync, readSync, statSync } from 'node:fs';
import { isAbsolute, join } from 'node:path';
import { type Failure, failure } from '../base/errors.ts';
import { errnoOf, inWords } from '../base/files.edge.ts';
import { relativeHooks } from '../settings/contradictions.ts';
import type { Settings } from '../settings/table.ts';

/** Where hooks look for a program without a slash in its name. */
const PATHS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];

/** One failure for each. @param path the PATH of the shell, to say of what is only there. */
export function hooksThatCannotRun({ hooks }: Pick<Settings, 'hooks'>, path = ''): readonly Failure[] {
	const programs = Object.entries(hooks).flatMap(([name, [program = '']]) => {
		if (program === '' || /^[^/]+\//.test(program)) return [];
		const fault = whyHookCannotRun(program, path.split(':').filter(isAbsolute));
		return fault === null ? [] : [failure('settings-invalid', `hooks.${name}: ${program} ${fault}.`)];
	});
	return [...relativeHooks({ hooks }), ...programs];
}

function whyHookCannotRun(program: string, paths: readonly string[]): string | null {
	if (!program.includes('/')) {
		const isIn = (directories: readonly string[]) =>
			directories.some((directory) => whyNotRun(join(directory, program)) === null);
		if (isIn(PATHS)) return null;
		return isIn(paths) ? 'is in the PATH of this shell only: name it with its absolute path' : 'is not in the PATH';
	}
	const fault = whyNotRun(program);
	if (fault !== null) return fault;
	const [, interpreter] = /^#![ \t]*([^ \t\n]+)/.exec(beginningOf(program)) ?? [];
	if (interpreter?.endsWith('\r')) return 'has Windows line ends, so that its first line does not name a program';
	const missing = interpreter === undefined ? null : whyNotRun(interpreter);
	return missing === null ? null : `begins with #!${interpreter}, which ${missing}`;
}

function whyNotRun(program: string): string | null {
	try {
		accessSync(program, constants.X_OK);
		return statSync(program).isFile() ? null : 'is not a file';
	} catch (error) {
		return errnoOf(error) === 'EACCES' ? 'cannot be run: chmod 0755' : `cannot be run: ${inWords(error)}`;
	}
}

/** Empty where this user may run the program and not read it: then nothing is known to be wrong. */
function beginningOf(file: string): string {
	try {
		const bytes = Buffer.alloc(256);
		const descriptor = openSync(file, 'r');
		try {
			return bytes.toString('latin1', 0, readSync(descriptor, bytes));
		} finally {
			closeSync(descriptor);
		}
	} catch {
		return '';
	}
}
