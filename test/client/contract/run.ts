/** A program that runs to its end. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** @returns standard output. @throws Error with all output when it fails. */
export async function run(program: string, args: readonly string[], cwd: string): Promise<string> {
	const options = { cwd, maxBuffer: 1 << 26, timeout: 120_000 };
	const { stdout } = await promisify(execFile)(program, args, options).catch(
		(error: { stdout: string; stderr: string }) => {
			throw new Error(`${program} ${args.join(' ')}\n${error.stdout}\n${error.stderr}`);
		},
	);
	return stdout;
}
