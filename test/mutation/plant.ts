/**
 * Plants faults one at a time in a copy of the sources and says what noticed each. Of the tests those run that load the file: its own
 * first, the quick before the slow, until one fails or the time for one fault is over. Ends with how many of all were noticed.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { type Copy, ROOT, withCopy } from './copy.ts';
import { changedFaults, drawFaults, type Planned } from './draw.ts';

/** More than this share unnoticed, and more than so many, is too much. */
const MOST = { share: 0.15, count: 2 };
/** For one fault, in milliseconds of tests as they take without it. */
const BUDGET_MS = 20_000;
/** How long each test file took, from run to run. */
const TIMES = join(ROOT, 'node_modules/.cache/idv-agent/mutate-times.json');
const UNKNOWN_MS = 2000;

interface Asked {
	readonly seed: number;
	readonly count: number;
	readonly folders: readonly string[];
	/** Of all of it, in seconds; what is left then is not planted. */
	readonly limitSeconds: number;
}

/** So many faults in each folder. Returns the exit status. */
export function plantDrawn({ seed, count, folders, limitSeconds }: Asked): Promise<number> {
	const groups = folders.map((folder) => ({ name: folder, faults: drawFaults(folder, seed, count) }));
	return plant(groups, `seed ${seed}`, limitSeconds);
}

/** As many as the time permits of those on lines that differ from a commit. */
export function plantChanged(
	since: string | undefined,
	{ seed, limitSeconds }: Pick<Asked, 'seed' | 'limitSeconds'>,
): Promise<number> {
	return plant([{ name: 'changed lines', faults: changedFaults(since, seed) }], `seed ${seed}`, limitSeconds);
}

async function plant(
	groups: readonly { readonly name: string; readonly faults: readonly Planned[] }[],
	how: string,
	limitSeconds: number,
): Promise<number> {
	const untilMs = performance.now() + limitSeconds * 1000;
	const survivors: string[] = [];
	let [planted, noticed, left] = [0, 0, 0];
	await withCopy(async (copy) => {
		const times = readTimes();
		for (const { name, faults } of groups) {
			let seen = 0;
			let here = 0;
			for (const fault of faults) {
				if (performance.now() > untilMs) {
					left += 1;
					continue;
				}
				const by = await noticing(copy, fault, times, () => performance.now() < untilMs);
				if (by === null && performance.now() > untilMs) {
					left += 1;
					continue;
				}
				here += 1;
				const told = describe(fault);
				if (by !== null) seen += 1;
				else survivors.push(told);
				say(`  ${by === null ? 'NOT noticed' : 'noticed'}: ${told}${by ? ` (${by})` : ''}`);
			}
			planted += here;
			noticed += seen;
			if (groups.length > 1) say(`${name}: ${seen} of ${here}`);
			writeTimes(times);
		}
	});
	if (survivors.length > 0) say(`Not noticed:\n${survivors.map((one) => `  ${one}`).join('\n')}`);
	if (left > 0) say(`${left} more were left out: ${limitSeconds} s were over.`);
	const { says, status } = verdictOf({ planted, noticed, left });
	say(`${says}, ${how}`);
	return status;
}

/** The last words, and the exit status. @param left for which there was no time: a run that tried none of them says nothing of the tests. */
export function verdictOf({ planted, noticed, left }: Readonly<Record<'planted' | 'noticed' | 'left', number>>) {
	if (planted === 0 && left > 0)
		return { says: 'Nothing was shown: the time was over before there was an answer for the first fault', status: 1 };
	if (planted === 0) return { says: 'Nothing was tried: there is no fault to plant', status: 0 };
	const missed = planted - noticed;
	const says = `${noticed} of ${planted} noticed`;
	if (missed <= MOST.count || missed <= MOST.share * planted) return { says, status: 0 };
	const why =
		'Too many: each needs a test, stands for code that is not needed, or goes into test/mutation/equivalent.ts with the reason.';
	return { says: `${why}\n${says}`, status: 1 };
}

/** What noticed it: a test file, or the type check; `null` for nothing. */
async function noticing(
	copy: Copy,
	fault: Planned,
	times: Map<string, number>,
	hasTime: () => boolean,
): Promise<string | null> {
	const source = readFileSync(join(ROOT, fault.file), 'utf8');
	const changed = source.slice(0, fault.start) + fault.text + source.slice(fault.end);
	const name = basename(fault.file).replace(/\..*/, '');
	const folder = fault.file.split('/')[1] ?? '';
	const isItsOwn = (test: string) => basename(test).startsWith(`${name}.`);
	const rank = (test: string) => (isItsOwn(test) ? 0 : dirname(test) === `test/${folder}` ? 1e6 : 1e9) + timeOf(test);
	const timeOf = (test: string) => times.get(test) ?? UNKNOWN_MS;
	let budgetMs = BUDGET_MS;
	const able = [...copy.testsOf(fault.file)]
		.toSorted((one, other) => rank(one) - rank(other))
		.filter((test) => {
			// One that is too slow for what is left makes room for the next.
			const fits = isItsOwn(test) || timeOf(test) < budgetMs;
			if (fits) budgetMs -= timeOf(test);
			return fits;
		});
	return copy.noticedBy(fault.file, changed, able, hasTime, (test, ms) => void times.set(test, ms));
}

function readTimes(): Map<string, number> {
	if (!existsSync(TIMES)) return new Map();
	return new Map(Object.entries(JSON.parse(readFileSync(TIMES, 'utf8'))));
}

function writeTimes(times: ReadonlyMap<string, number>): void {
	mkdirSync(dirname(TIMES), { recursive: true });
	writeFileSync(TIMES, JSON.stringify(Object.fromEntries(times)));
}

function describe({ file, line, kind, before }: Planned): string {
	return `${file}:${line}: ${kind}: ${before.replaceAll(/\s+/g, ' ').slice(0, 120)}`;
}

const say = (text: string) => process.stdout.write(`${text}\n`);
