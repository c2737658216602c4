/** Follows the settings: reads them again when they may have changed, has the agent use them, and tells what could not be taken. */
import type { Agent } from '../agent/agent.runner.ts';
import { type Failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { joinSentences } from '../base/sentences.ts';
import {
	besideLast,
	type FirstRuntime,
	namedFiles,
	type OpenRuntime,
	openRuntime,
	type RuntimeParts,
} from '../connection/runtime.runner.ts';
import { lookAtSettings, type SettingsWatch, stampsOf, watchSettings } from '../settings/files.edge.ts';
import type { bearGone } from '../settings/gone-files.ts';
import { type LoadedSettings, loadSettings, type SettingsSources, tellGone } from '../settings/load.runner.ts';
import { toldProblems, toldUnusable, type Unusable } from '../settings/told-problems.ts';

export function followSettings(parts: {
	readonly agent: Pick<Agent, 'applyRuntime' | 'warn' | 'ways'>;
	/** Which of the files that are gone stay in force, also those that were gone at the start. */
	readonly gone: ReturnType<typeof bearGone>;
	readonly log: Pick<Log, 'setLevel' | 'warn'>;
	/** With how the settings files were before the start has read them. */
	readonly sources: SettingsSources & { readonly seen: string };
	readonly runtimeParts: RuntimeParts;
	/** Takes note of each runtime that is opened, to close it, and of what it was to have, to name it in the log. */
	readonly opened: (runtime: OpenRuntime, pushed: LoadedSettings) => void;
	/** Of the start, with the files that the newest settings name then, also while earlier ones are in force because one cannot be used. */
	readonly first: Pick<FirstRuntime, 'problems' | 'files' | 'seen'>;
	/** Has the rest of the device follow what is in force now. */
	readonly onTaken: (settings: LoadedSettings) => Promise<void>;
}) {
	const { agent, gone, log, sources, runtimeParts } = parts;
	const { paths } = sources;
	const { ways } = agent;
	let told: readonly string[] = [];
	let applied = Promise.resolve();
	let stopped = false;
	let watch: SettingsWatch | null = null;

	/** One warning for each thing that is wrong with the settings. */
	function tell(
		problems: readonly Failure[],
		files: readonly Unusable[],
		{ unknown, notices }: Pick<LoadedSettings, 'unknown' | 'notices'>,
	): void {
		const all = [...toldProblems(problems, unknown), ...files.map(toldUnusable), ...notices];
		const topics = new Map(all.map((one) => [`settings ${one.message}`, one]));
		// What is told with other words goes on: its place in the file may be another.
		for (const [topic, one] of topics) agent.warn(topic, one);
		for (const topic of told) if (!topics.has(topic)) agent.warn(topic, null);
		told = [...topics.keys()];
	}

	async function load(isAsked: boolean): Promise<{ changed: LoadedSettings; problems: readonly Failure[] }> {
		const before = ways.lastGood();
		const changed = await loadSettings(sources, { loaded: before, ...(!isAsked && { keepsGone: gone.bears }) });
		gone.looked();
		const left = tellGone(before.documents, changed.documents);
		const last = changed.problems.at(-1);
		if (left && last && !changed.holdsTogether)
			return { changed, problems: changed.problems.with(-1, { ...last, message: joinSentences(last.message, left) }) };
		if (left) log.warn(`${left} Its settings are no longer in force.`, { code: 'settings-unreadable' });
		return { changed, problems: changed.problems };
	}

	async function apply(isAsked: boolean): Promise<void> {
		try {
			const { changed, problems } = await load(isAsked);
			watch?.follow(namedFiles(changed));
			const before = { ...ways.wanted(), way: ways.runtime().way, barely: true };
			const withLast = { ...runtimeParts, last: ways.last() };
			const opened = await openRuntime(changed, withLast, before);
			parts.opened(opened, changed);
			const { runtime, tried } = await besideLast(opened, withLast);
			parts.opened(runtime, changed);
			log.setLevel(changed.settings.log.level);
			tell(problems, opened.problems, changed);
			agent.applyRuntime(runtime, tried);
			await parts.onTaken(changed);
		} catch (error) {
			tell([toFailure(error)], [], { unknown: [], notices: [] });
		}
	}

	/** @param isAsked a person asks for it: a file that is gone counts no longer. */
	function reload(isAsked = true): Promise<void> {
		if (!stopped) applied = applied.then(() => apply(isAsked));
		return applied;
	}

	tell(ways.wanted().resolved.problems, parts.first.problems, ways.wanted().resolved);
	return {
		reload,
		/** Watches the files from now on. */
		begin(): void {
			watch = watchSettings(paths, () => void reload(false));
			const { files, seen } = parts.first;
			watch.follow(files);
			// Something may have changed since they were read, before they were watched.
			if (sources.seen !== lookAtSettings(paths) || seen !== stampsOf(files)) void reload(false);
		},
		/** Reads nothing any more; resolves when the last change has been applied. */
		close(): Promise<void> {
			stopped = true;
			watch?.close();
			return applied;
		},
	};
}
