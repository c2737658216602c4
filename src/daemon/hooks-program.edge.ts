/** Starts `idv-agent hooks` beside a daemon that systemd has not started, and again when it fails. It ends when no hook is set, and with the daemon. */
import type { ChildProcess } from 'node:child_process';

const AGAIN_MS = 1000;

export type HooksProgram = ReturnType<typeof hooksBeside>;

/** @param flags those of the daemon that say where its files are. */
export function hooksBeside(flags: readonly string[]) {
	let wanted = false;
	let child: ChildProcess | null = null;

	function look(): void {
		if (child || !wanted) return;
		// Most devices have no hook.
		const { spawn } = process.getBuiltinModule('node:child_process');
		const own = process.getBuiltinModule('node:sea').isSea() ? [] : [...process.execArgv, process.argv[1] ?? ''];
		// By the channel it notices the end of this process, however that ends.
		child = spawn(process.execPath, [...own, 'hooks', ...flags], {
			argv0: process.argv0,
			stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
		});
		child.channel?.unref();
		child.unref();
		const over = () => {
			child = null;
			setTimeout(look, AGAIN_MS).unref();
		};
		child.once('exit', over);
		child.once('error', (error) => process.emitWarning(`idv-agent hooks cannot be started: ${error.message}`));
	}

	return {
		/** At the start, and after each change of the settings. */
		follow(isAnySet: boolean): void {
			wanted = isAnySet;
			look();
		},
		async end(): Promise<void> {
			wanted = false;
			const ending = child;
			if (!ending) return;
			const over = new Promise((resolve) => ending.once('exit', resolve));
			ending.kill();
			await over;
		},
	};
}
