/** Which faults are planted: the folders of the sources, a draw by a seed, and the lines that changed since a commit. */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { ROOT } from './copy.ts';
import { EQUIVALENT } from './equivalent.ts';
import { type Mutant, mutantsOf } from './mutants.ts';

export interface Planned extends Mutant {
	readonly file: string;
	/** The text that the fault changes. */
	readonly before: string;
}

/** Each folder of `src`, and the scripts. */
export const FOLDERS = [...globSync('src/*', { cwd: ROOT }).map((path) => basename(path)), 'scripts'].toSorted();

const isSource = (file: string) => /^(?:src\/.*\.(?:ts|js)|scripts\/[^/]+\.ts)$/.test(file);
const filesOf = (folder: string) =>
	globSync(folder === 'scripts' ? 'scripts/*.ts' : `src/${folder}/**/*.{ts,js}`, { cwd: ROOT }).toSorted();

function faultsIn(file: string): Planned[] {
	const source = readFileSync(join(ROOT, file), 'utf8');
	return mutantsOf(source)
		.map((mutant) => ({ ...mutant, file, before: source.slice(mutant.start, mutant.end) }))
		.filter((planned) => !EQUIVALENT.some((one) => isThat(one, planned)));
}

/** Whether an entry of the list of equivalent faults means this one. */
export function isThat(one: (typeof EQUIVALENT)[number], { file, kind, before }: Planned): boolean {
	return one.file === file && one.kind === kind && one.before === before;
}

/** Every fault of a file, those included that change nothing. */
export const allFaultsIn = (file: string): Pick<Planned, 'kind' | 'before'>[] => {
	const source = readFileSync(join(ROOT, file), 'utf8');
	return mutantsOf(source).map(({ kind, start, end }) => ({ kind, before: source.slice(start, end) }));
};

/** So many faults of a folder, by the seed; each kind is as likely as any other. */
export function drawFaults(folder: string, seed: number, count: number): Planned[] {
	return draw(filesOf(folder).flatMap(faultsIn), seed, count);
}

function draw(faults: readonly Planned[], seed: number, count: number): Planned[] {
	const random = randomNumbers(seed);
	const byKind = Map.groupBy(faults, ({ kind }) => kind);
	const drawn: Planned[] = [];
	while (drawn.length < count && byKind.size > 0) {
		const [kind, left] = [...byKind][Math.floor(random() * byKind.size)] as [string, Planned[]];
		drawn.push(...left.splice(Math.floor(random() * left.length), 1));
		if (left.length === 0) byKind.delete(kind);
	}
	return drawn;
}

/** Faults on the lines that differ from a commit, in the files as they lie there, committed or not; in an order by the seed. */
export function changedFaults(since: string | undefined, seed: number): Planned[] {
	const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 1e8 });
	const isDirty = git('status', '--porcelain', '--', 'src', 'scripts') !== '';
	const commit = since ?? (isDirty ? 'HEAD' : beforeToday(git));
	const lines = changedLines(
		git('diff', '--merge-base', '--unified=0', '--no-color', '--no-ext-diff', commit, '--', 'src', 'scripts'),
	);
	for (const file of git('ls-files', '--others', '--exclude-standard', '--', 'src', 'scripts').split('\n'))
		lines.set(file, () => true);
	const faults = [...lines].flatMap(([file, has]) =>
		(isSource(file) ? faultsIn(file) : []).filter(({ line }) => has(line)),
	);
	return draw(faults, seed, faults.length);
}

/** The newest commit that is twelve hours older than the last one: what came since belongs together. */
function beforeToday(git: (...args: string[]) => string): string {
	const lastSeconds = Number(git('log', '-1', '--format=%ct'));
	return git('rev-list', '-1', `--before=${lastSeconds - 12 * 3600}`, 'HEAD').trim() || 'HEAD~1';
}

/** By file, from a diff without context: whether a line is new. */
export function changedLines(diff: string): Map<string, (line: number) => boolean> {
	const lines = new Map<string, (line: number) => boolean>();
	for (const part of diff.split(/^diff --git /m).slice(1)) {
		const file = /^\+\+\+ b\/(.*)$/m.exec(part)?.[1];
		const ranges = [...part.matchAll(/^@@ -\S+ \+(\d+)(?:,(\d+))? @@/gm)].map(([, from, length = '1']) => ({
			from: Number(from),
			to: Number(from) + Number(length),
		}));
		if (file !== undefined) lines.set(file, (line) => ranges.some(({ from, to }) => line >= from && line < to));
	}
	return lines;
}
