/**
 * `npm run mutate -- --seed S [--count N] [area …]`: N faults for each area, drawn by the seed, planted one at a time in a
 * copy of the sources. Of the area's tests those run that load the file, its own first and the quick before the slow, until one
 * fails. Prints what noticed each fault and the share noticed. Ends with 1 when an area is below nine of ten.
 */
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { randomNumbers } from '../fixtures/random-numbers.ts';
import { type Copy, ROOT, withCopy } from './copy.ts';
import { type Mutant, mutantsOf } from './mutants.ts';

const WANTED = 0.9;

interface Area {
	readonly sources: readonly string[];
	/** Its own tests. */
	readonly tests: readonly string[];
	/** For what those leave. */
	readonly more: readonly string[];
}

const AREAS: Readonly<Record<string, Area>> = {
	pairing: {
		sources: ['src/pairing/*.ts'],
		tests: ['test/pairing'],
		more: [
			'test/agent/{leaving,remedies}.test.ts',
			'test/cli/pairing.test.ts',
			'test/page',
			'test/connection/settings-bearing.test.ts',
		],
	},
	link: {
		sources: ['src/connection/link.runner.ts', 'src/connection/heartbeats.runner.ts', 'src/connection/line.runner.ts'],
		tests: [
			'test/connection/{heartbeats,link-runner}.test.ts',
			'test/connection/line',
			'test/status/gaps.test.ts',
			'test/agent/links.test.ts',
		],
		more: [
			'test/agent',
			'test/connection/settings-bearing.test.ts',
			'test/workflow/workflow.test.ts',
			'test/pairing/pairing.test.ts',
		],
	},
	presence: {
		sources: ['src/status/connectivity.runner.ts', 'src/status/status.ts', 'src/status/sentence.ts'],
		tests: ['test/status'],
		more: ['test/agent', 'test/hooks/hooks.test.ts', 'test/workflow/workflow.test.ts'],
	},
	fleet: {
		sources: ['src/fleet/{follow-plan.runner,fetch-plan.edge,attempt,record,targeting,verify-plan.runner}.ts'],
		tests: ['test/fleet'],
		more: ['test/workflow', 'test/operator/fleet.test.ts'],
	},
	channel: {
		sources: ['src/connection/channel.edge.ts'],
		tests: ['test/connection/channel.test.ts', 'test/connection/handshake.test.ts'],
		more: ['test/agent/links.test.ts', 'test/connection/http2.test.ts', 'test/diagnosis/probe-channel.test.ts'],
	},
	network: {
		sources: [
			'src/connection/network.edge.ts',
			'src/connection/ask.edge.ts',
			'src/connection/classify-network-error.ts',
		],
		tests: ['test/connection/network.test.ts', 'test/connection/classify-failure.test.ts'],
		more: [
			'test/connection/service-client.test.ts',
			'test/connection/channel.test.ts',
			'test/diagnosis/probe-network.test.ts',
		],
	},
	state: {
		sources: ['src/state/store.edge.ts', 'src/state/persisted-state.runner.ts', 'src/base/files.edge.ts'],
		tests: ['test/state', 'test/base/files.test.ts'],
		more: [
			'test/agent/start.test.ts',
			'test/provisioning',
			'test/settings/files.test.ts',
			'test/diagnosis/probe-device.test.ts',
		],
	},
	doctor: {
		sources: [
			'src/diagnosis/{check-list.runner,checks,check-results,run-checks.runner,inspection-target.runner}.ts',
			'src/diagnosis/{probe-*,machine-probes.edge}.ts',
		],
		tests: ['test/diagnosis'],
		more: ['test/cli/doctor.test.ts'],
	},
};

export const AREA_NAMES = Object.keys(AREAS).join(', ');

/** Runs the sample; returns the exit status. */
export async function sampleMutants({
	seed,
	count,
	names,
}: {
	seed: number;
	count: number;
	names: readonly string[];
}): Promise<number> {
	const unknown = names.filter((name) => !(name in AREAS));
	if (unknown.length > 0) {
		process.stderr.write(`There is no area ${unknown.join(', ')}: ${AREA_NAMES}.\n`);
		return 64;
	}
	const asked = names.length > 0 ? names : Object.keys(AREAS);
	return withCopy(async (copy) => {
		let enough = true;
		for (const name of asked) if ((await sampleArea(name, seed, count, copy)) < WANTED) enough = false;
		return enough ? 0 : 1;
	});
}

async function sampleArea(name: string, seed: number, count: number, copy: Copy): Promise<number> {
	const { sources, tests, more } = AREAS[name] as Area;
	const all = globSync([...sources], { cwd: ROOT })
		.toSorted()
		.flatMap((file) => mutantsOf(readFileSync(join(ROOT, file), 'utf8')).map((mutant) => ({ file, ...mutant })));
	const random = randomNumbers(seed);
	const drawn: typeof all = [];
	const { length } = all;
	while (drawn.length < count && all.length > 0) drawn.push(...all.splice(Math.floor(random() * all.length), 1));
	const loading = new Map([...new Set(drawn.map(({ file }) => file))].map((file) => [file, copy.testsOf(file)]));
	const own = globSync(tests.map(testFiles), { cwd: ROOT });
	const asked = [...new Set([...own, ...globSync(more.map(testFiles), { cwd: ROOT })])];
	const able = asked.filter((test) => [...loading.values()].some((tests) => tests.has(test)));
	say(`${name}: ${drawn.length} of ${length} faults, seed ${seed}; first its ${able.length} test files without any`);
	const times = await copy.try(able);
	for (const [test, ms] of times) if (ms === null) say(`  fails without any fault, so it is left out: ${test}`);
	let noticed = 0;
	for (const mutant of drawn) {
		const source = readFileSync(join(ROOT, mutant.file), 'utf8');
		const rank = (test: string) =>
			(basename(test).startsWith(basename(mutant.file).replace(/\..*/, '')) ? 0 : own.includes(test) ? 1e6 : 1e9) +
			(times.get(test) ?? 0);
		const seeing = able.filter((test) => loading.get(mutant.file)?.has(test) && typeof times.get(test) === 'number');
		const changed = source.slice(0, mutant.start) + mutant.text + source.slice(mutant.end);
		const by = await copy.noticedBy(
			mutant.file,
			changed,
			seeing.toSorted((one, other) => rank(one) - rank(other)),
		);
		if (by !== null) noticed += 1;
		say(`  ${by === null ? 'NOT noticed' : 'noticed'}: ${describe(mutant, source)}${by ? ` (${by})` : ''}`);
	}
	const share = drawn.length === 0 ? 1 : noticed / drawn.length;
	const verdict =
		share < WANTED ? ', which is too few: each that was not needs a test, or stands for code that is not needed' : '';
	say(`${name}: ${noticed} of ${drawn.length} noticed, seed ${seed}${verdict}`);
	return share;
}

/** A folder means what lies in it. */
const testFiles = (path: string) =>
	path.endsWith('.test.ts') ? path : path.includes('/', 5) ? `${path}*.test.ts` : `${path}/*.test.ts`;

function describe({ file, line, kind, start, end }: Mutant & { file: string }, source: string): string {
	return `${file}:${line}: ${kind}: ${source.slice(start, end).replaceAll(/\s+/g, ' ').slice(0, 120)}`;
}

const say = (line: string) => process.stdout.write(`${line}\n`);
