/**
 * The check of `idv-agent doctor` on scanners: which would be listened to, and what keeps the agent from it. Opens no
 * device; a running agent that listens is asked, since systemd may hide from it what this process sees.
 */

import { asFailure, failure, toFailure } from '../base/errors.ts';
import { createLocalClient } from '../local-api/client.edge.ts';
import { LOCAL_ROUTES, type ScannerReport } from '../protocol/local-api.ts';
import { chooseScanners } from '../scanning/choose-scanner.ts';
import { findScanners } from '../scanning/devices.edge.ts';
import type { Settings } from '../settings/table.ts';
import { type Finding, notApplicable, ok, warning } from './checks.ts';
import type { DaemonWord } from './probe-device.runner.ts';

const ASK_MS = 3000;

export async function checkScanners(parts: {
	readonly settings: Settings['scanner'];
	readonly daemon: DaemonWord;
	readonly runDir: string;
	/** Root of the file system that is looked at; default `/`. */
	readonly root?: string | undefined;
}): Promise<Finding> {
	const { settings, daemon, runDir, root } = parts;
	if (settings.kind === 'off') return notApplicable('Scanners are switched off (scanner.kind).');
	const choices = chooseScanners(await findScanners({ root, device: settings.device }), settings);
	const chosen = choices.filter((choice) => choice.chosen).map(({ device }) => device);
	if (chosen.length === 0)
		return settings.device === null
			? notApplicable('No scanner was found; codes can be typed or read from a picture.')
			: warning(failure('scanner-failed', `There is no scanner at ${settings.device}, which scanner.device names.`));

	const heard = daemon.kind === 'runs' ? await askAgent(runDir) : null;
	const problem = heard?.devices.find((device) => device.problem)?.problem;
	if (problem) return warning(asFailure(problem));
	// An agent that sees no scanner says that it listens to none: that is just what is wrong here.
	const isWaiting = heard !== null && daemon.kind === 'runs' && daemon.status.state === 'unpaired';
	const unseen = isWaiting && chosen.find(({ node }) => !heard.devices.some((device) => device.node === node));
	if (unseen)
		return warning(failure('scanner-denied', `The agent does not see ${unseen.path}: systemd hides devices from it.`));
	const closed = chosen.find(({ readable }) => !readable);
	if (closed && !heard) return warning(failure('scanner-denied', `This user may not read ${closed.path}.`));
	const names = chosen.map(({ kind, path }) => `${kind} ${path}`).join(', ');
	return ok(`${names}; ${heard?.sentence ?? 'listened to while the device is not paired.'}`);
}

/** The agent's word on its scanners; `null` from one that has none. */
async function askAgent(runDir: string): Promise<ScannerReport | null> {
	try {
		const client = createLocalClient({ runDir });
		const answer = await client.request('agent', 'GET', LOCAL_ROUTES.scanners, undefined, { deadlineMs: ASK_MS });
		return answer as ScannerReport;
	} catch (error) {
		// An agent of another version.
		if (toFailure(error).code === 'not-found') return null;
		throw error;
	}
}
