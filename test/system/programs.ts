/** The programs of Debian that the browser suite needs. */
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

/** @throws Error that says how to get what is missing. */
export function findProgram(program: string): string {
	const paths = (process.env['PATH'] ?? '').split(delimiter).map((directory) => join(directory, program));
	const found = [...paths, `/usr/bin/${program}`].find(isExecutable);
	if (found === undefined)
		throw new Error(
			`This suite needs ${program}: apt-get install --no-install-recommends chromium ffmpeg firefox-esr fonts-noto-core`,
		);
	return found;
}

function isExecutable(path: string): boolean {
	try {
		accessSync(path, constants.X_OK);
		return true;
	} catch {
		return false;
	}
}
