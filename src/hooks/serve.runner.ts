/** The helper's side: takes one request, runs the command of the settings that only root can change, and answers. */
import type { Duplex } from 'node:stream';
import { AgentError, asError, toFailure } from '../base/errors.ts';
import { findExposure } from '../base/file-trust.edge.ts';
import { inWords } from '../base/files.edge.ts';
import { cleanText } from '../protocol/problem.ts';
import { loadSettings } from '../settings/load.runner.ts';
import type { AgentPaths } from '../settings/paths.runner.ts';
import { readLine } from './hand-over.edge.ts';
import { createHooks } from './hooks.edge.ts';
import {
	type HelperAnswer,
	type HookName,
	helperAnswer,
	helperRequest,
	MAX_REQUEST_BYTES,
	readMessage,
} from './messages.ts';

const ROOT = 0;
/** For a whole request, in milliseconds. */
const REQUEST_WITHIN_MS = 5000;

/** A command whose caller goes away is ended. @throws AgentError `body-invalid` without a whole request in time. */
export async function serveHook(parts: {
	readonly stream: Duplex;
	readonly paths: AgentPaths;
	/** Variables of this process, of which the command gets a few. */
	readonly env: Readonly<Record<string, string | undefined>>;
	/** In milliseconds; default 5 s. */
	readonly requestWithinMs?: number;
}): Promise<void> {
	const { stream, paths, env, requestWithinMs = REQUEST_WITHIN_MS } = parts;
	const answer = (told: HelperAnswer) =>
		new Promise<void>((resolve) =>
			stream.once('close', () => resolve()).end(`${JSON.stringify(told)}\n`, () => stream.destroy()),
		);
	const refuse = (reason: string) =>
		answer({ outcome: { kind: 'notStarted', reason: cleanText(reason, 2000) }, stderr: '' });

	const limit = setTimeout(() => stream.destroy(), requestWithinMs);
	const line = await readLine(stream, MAX_REQUEST_BYTES).catch((error) => {
		stream.destroy();
		throw new AgentError('body-invalid', `No whole request came: ${inWords(error)}.`, {
			cause: error,
			remedy: 'Look for what else opens hooks.sock as the user of the agent.',
		});
	});
	clearTimeout(limit);
	const request = readMessage(line, helperRequest);
	if (!request) return refuse('the request names no hook, or has more than a hook and its input');
	const { hook, input } = request;
	const argv = await commandFor(hook, paths).catch(toFailure);
	if ('message' in argv) return refuse(argv.message);
	if (stream.destroyed) return;
	const told = await new Promise<HelperAnswer>((report) => {
		const hooks = createHooks({ report, env });
		stream.once('close', () => void hooks.close());
		hooks.run({ hook, argv, input });
	});
	if (!stream.destroyed) await answer(helperAnswer.parse(told));
}

/** @throws AgentError `file-exposed`, the first problem of the settings, or `settings-invalid` when no file names a command. */
async function commandFor(hook: HookName, paths: AgentPaths): Promise<readonly string[]> {
	// Files only: a variable or flag of the agent is not root's word.
	const { settings, documents, problems } = await loadSettings({ paths, env: {}, sets: [] });
	for (const file of [paths.confDirectory, ...documents.map(({ where }) => where)]) {
		const exposure = await findExposure(file, { secret: false, owners: [ROOT] });
		if (exposure) throw new AgentError('file-exposed', `${file} is not safe: ${exposure.reason}.`, exposure);
	}
	if (problems[0]) throw asError(problems[0]);
	const argv = settings.hooks[hook];
	if (argv.length > 0) return argv;
	throw new AgentError('settings-invalid', `No settings file names a command for hooks.${hook}.`);
}
