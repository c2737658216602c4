/**
 * A copy of the sources and tests in which faults are planted, and the tests' runner, which stays: the checkout itself is
 * never touched, and a fault costs the tests that see it, not the start of a runner.
 */
import { execFile, execFileSync } from 'node:child_process';
import {
	chmodSync,
	cpSync,
	existsSync,
	globSync,
	mkdirSync,
	mkdtempSync,
	readdirSync,
	readFileSync,
	rmSync,
	statfsSync,
	symlinkSync,
	writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { BaseSequencer, createVitest, type TestModule, type TestSpecification } from 'vitest/node';

export const ROOT = resolve(import.meta.dirname, '../..');
const PARTS = 'src test systemd scripts bin docs package.json tsconfig.json README.md CHANGELOG.md';
/** Of one test. A fault that makes it wait for ever is noticed by then. */
const TEST_LIMIT_MS = 15_000;
/** Without the end of any test: what runs then turns in a circle without a pause, which no limit of a test can end. */
const CIRCLE_MS = 90_000;
/** How those read that end a test: the limit of a test, of a hook, and of what is looked at again and again. */
const LIMITS = /^(?:Test|Hook) timed out in \d+ms|^Matcher did not succeed in time\.$/;
/** Test files that run before the time is looked at again. */
const AT_ONCE = 4;
const PREFIX = 'idv-mutants-';
/** Of the disk, while a fault is planted; other programs use it, too. */
const MOST_BYTES = 2 * 1024 ** 3;
const MOST_PROCESSES = 200;
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** A file's time in ms, or how it failed: `late` by time limits alone, which a busy machine may have done. */
type Outcome = number | 'failed' | 'late';
type Told = { readonly message: string; readonly cause?: Told };

/** @param errors all of a file that has failed. */
export const howFailed = (errors: readonly Told[]): 'failed' | 'late' =>
	errors.length > 0 && errors.every(({ message, cause }) => LIMITS.test(message) || LIMITS.test(cause?.message ?? ''))
		? 'late'
		: 'failed';

/** Paths are relative to the copy. */
export interface Copy {
	/**
	 * Plants a fault and runs the tests in this order until one fails that passes without the fault, or there is no time left.
	 * One that fails by a time limit must do so twice, with that pass in between.
	 * @returns what noticed it: a file, or `the type check`, which is asked second; `null` when nothing did.
	 */
	noticedBy(
		file: string,
		changed: string,
		tests: readonly string[],
		hasTime?: () => boolean,
		onTime?: (test: string, ms: number) => void,
	): Promise<string | null>;
	/** The tests that load a source file, or start the program that has it. */
	testsOf(file: string): ReadonlySet<string>;
}

export async function withCopy<Result>(act: (copy: Copy) => Promise<Result>): Promise<Result> {
	clearLeftovers();
	const directory = mkdtempSync(join(tmpdir(), `${PREFIX}${process.pid}-`));
	// What a fault leaves goes with the copy, and a path to a socket has room below it.
	const temporary = join(directory, 't');
	mkdirSync(temporary);
	// Some tests are another user for a while.
	chmodSync(directory, 0o755);
	chmodSync(temporary, 0o1777);
	process.env['TMPDIR'] = temporary;
	const watch = watchGreed(directory);
	let close = async () => {};
	const clear = () => remove(directory);
	const interrupted = (_signal: string, number: number) => {
		endProcesses();
		clear();
		process.exit(128 + number);
	};
	for (const signal of SIGNALS) process.once(signal, interrupted);
	try {
		for (const path of PARTS.split(' ')) cpSync(join(ROOT, path), join(directory, path), { recursive: true });
		symlinkSync(join(ROOT, 'node_modules'), join(directory, 'node_modules'));
		const runner = await openRunner(directory);
		close = runner.close;
		return await act(copyIn(directory, runner));
	} finally {
		clearInterval(watch);
		await close();
		for (const signal of SIGNALS) process.removeListener(signal, interrupted);
		clear();
	}
}

type Runner = Awaited<ReturnType<typeof openRunner>>;

function copyIn(directory: string, { run, forget }: Runner): Copy {
	const relative = (path: string) => path.slice(directory.length + 1);
	const imports = importsIn(directory);
	const passes = async (test: string) => typeof (await run([test])).get(test) !== 'string';

	async function failing(tests: readonly string[], onTime: (test: string, ms: number) => void) {
		const outcomes = await run(tests, 1);
		for (const [test, outcome] of outcomes) if (typeof outcome === 'number') onTime(test, outcome);
		const test = tests.find((one) => typeof outcomes.get(one) === 'string');
		return test === undefined ? null : { test, isLate: outcomes.get(test) === 'late' };
	}

	/** From the second time on only what the fault concerns is looked at. */
	const compiles = (file: string) =>
		promisify(execFile)(
			'npx',
			file.endsWith('.js')
				? ['tsc', '-p', 'src/page/page']
				: ['tsc', '--noEmit', '--incremental', '--tsBuildInfoFile', 'tsc.json'],
			{ cwd: directory },
		).then(
			() => true,
			() => false,
		);

	return {
		async noticedBy(file, changed, tests, hasTime = () => true, onTime = () => {}) {
			const path = join(directory, file);
			const source = readFileSync(path, 'utf8');
			const write = (text: string) => {
				writeFileSync(path, text);
				forget(path);
			};
			async function noticing(able: readonly string[]): Promise<string | null> {
				for (let [left, isFirst] = [able, true]; left.length > 0 && (isFirst || hasTime()); isFirst = false) {
					write(changed);
					const found = await failing(left, onTime);
					if (found === null) return null;
					const { test, isLate } = found;
					write(source);
					// One that fails without the fault as well says nothing, and what came before it has passed.
					const isSound = await passes(test);
					write(changed);
					if (isSound && !(isLate && (await passes(test)))) return test;
					left = left.slice(left.indexOf(test) + 1);
				}
				return null;
			}
			try {
				// Its own test notices most of them, and the compiler is quicker than all the others.
				const first = await noticing(tests.slice(0, 1));
				if (first !== null || !hasTime()) return first;
				write(changed);
				if (!(await compiles(file))) return 'the type check';
				for (let at = 1; at < tests.length && hasTime(); at += AT_ONCE) {
					const found = await noticing(tests.slice(at, at + AT_ONCE));
					if (found !== null) return found;
				}
				return null;
			} finally {
				write(source);
			}
		},
		testsOf: (file) => {
			const reached = new Set([file]);
			for (const path of reached) for (const importer of imports.get(path) ?? []) reached.add(importer);
			return new Set([...reached].filter((path) => path.endsWith('.test.ts')));
		},
	};

	/** Who imports each file. */
	function importsIn(root: string): Map<string, string[]> {
		const importers = new Map<string, string[]>();
		for (const file of globSync('{src,test}/**/*.ts', { cwd: root })) {
			const text = readFileSync(join(root, file), 'utf8');
			const named = [...text.matchAll(/(?:from|import\() ?'(\.[^']+)'/g)].map((found) =>
				relative(resolve(root, file, '..', found[1] ?? '')),
			);
			// These start the commands, which have everything.
			const started = file === 'test/cli/command.ts' ? ['src/cli/idv-agent.ts', 'src/operator/idv.ts'] : [];
			// It serves them.
			if (file === 'src/page/files.edge.ts') started.push(...globSync('src/page/page/**/*.js', { cwd: root }));
			for (const path of [...named, ...started]) importers.set(path, [...(importers.get(path) ?? []), file]);
		}
		return importers;
	}
}

async function openRunner(root: string) {
	let order: readonly string[] = [];
	let ended: readonly TestModule[] = [];
	class InOrder extends BaseSequencer {
		override sort = async (files: TestSpecification[]) =>
			files.toSorted((one, other) => order.indexOf(one.moduleId) - order.indexOf(other.moduleId));
	}
	let circles: NodeJS.Timeout | undefined;
	const silent = {
		onTestCaseResult: () => void circles?.refresh(),
		onTestModuleEnd: () => void circles?.refresh(),
		onTestRunEnd(modules: readonly TestModule[]) {
			ended = modules;
		},
	};
	const vitest = await createVitest('test', {
		root,
		config: false,
		watch: false,
		include: ['test/*/*.test.ts'],
		pool: 'forks',
		// A fault is gone with its run: the workers are new each time.
		isolate: false,
		maxWorkers: 2,
		teardownTimeout: 1000,
		testTimeout: TEST_LIMIT_MS,
		hookTimeout: TEST_LIMIT_MS,
		// As in `npm test`: what waits for something must not give up because the machine is busy.
		expect: { poll: { timeout: TEST_LIMIT_MS } },
		reporters: [silent],
		sequence: { sequencer: InOrder },
		execArgv: ['--max-old-space-size=1024', '--no-warnings'],
		alias: [{ find: /^fast-check$/, replacement: join(root, 'test/harness/bounded-properties.ts') }],
	});

	/** Of each test; those that were left out because of `bail` are not there. */
	async function run(tests: readonly string[], bail = 0): Promise<Map<string, Outcome>> {
		order = tests.map((test) => join(root, test));
		ended = [];
		const specifications = await vitest.globTestSpecifications([...order]);
		for (const project of vitest.projects) project.config.bail = bail;
		vitest.config.bail = bail;
		let isEndless = false;
		let hasBroken = false;
		circles = setTimeout(() => {
			isEndless = true;
			endProcesses();
		}, CIRCLE_MS);
		try {
			const { unhandledErrors } = await vitest.runTestSpecifications(specifications);
			hasBroken = unhandledErrors.length > 0;
		} catch {
			// A worker that was ended; its file has no outcome.
			hasBroken = true;
		} finally {
			clearTimeout(circles);
		}
		const hasFailed = (one: TestModule) =>
			// What was ended in a circle is neither passed nor failed.
			one.state() === 'failed' || (bail === 0 && !one.ok()) || (isEndless && one.state() !== 'passed');
		const outcomes = new Map(
			ended.map((one): [string, Outcome] => [
				one.moduleId.slice(root.length + 1),
				hasFailed(one) ? howFailed(errorsOf(one)) : one.diagnostic().duration,
			]),
		);
		if (!isEndless && !hasBroken) return outcomes;
		// The runner was killed, or an error came outside of every test.
		const broken = tests.find((test) => typeof outcomes.get(test) !== 'number') ?? tests[0];
		const isTold = [...outcomes.values()].some((outcome) => typeof outcome === 'string');
		return broken === undefined || isTold ? outcomes : outcomes.set(broken, 'failed');
	}

	return {
		run,
		forget: (path: string) => vitest.invalidateFile(path),
		close: () => vitest.close(),
	};
}

const errorsOf = (one: TestModule): Told[] => [
	...one.errors(),
	...[...one.children.allSuites()].flatMap((suite) => suite.errors()),
	...[...one.children.allTests()].flatMap((test) => test.result().errors ?? []),
];

/** What a run left that was killed. */
function clearLeftovers(): void {
	for (const name of readdirSync(tmpdir())) {
		const pid = new RegExp(`^${PREFIX}(\\d+)-`).exec(name)?.[1];
		if (pid && !existsSync(`/proc/${pid}`)) remove(join(tmpdir(), name));
	}
}

/** With the small disks in it: a test that is ended because another has failed leaves the one that it has mounted. */
function remove(directory: string): void {
	const mounts = readFileSync('/proc/self/mounts', 'utf8')
		.split('\n')
		.map((line) => line.split(' ')[1] ?? '');
	for (const path of mounts.filter((one) => one.startsWith(`${directory}/`)).reverse())
		attempt(() => execFileSync('umount', ['-l', path]));
	rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

/** Ends what a fault has let loose: processes without number, or a disk that fills up. Its test has failed then. */
function watchGreed(directory: string): NodeJS.Timeout {
	const freeBytes = () => {
		const { bavail, bsize } = statfsSync(directory);
		return bavail * bsize;
	};
	const before = freeBytes();
	return setInterval(() => {
		if (freeBytes() > before - MOST_BYTES && countProcesses() < MOST_PROCESSES) return;
		endProcesses();
		remove(join(directory, 't'));
		mkdirSync(join(directory, 't'));
		chmodSync(join(directory, 't'), 0o1777);
	}, 500);
}

function countProcesses(of = 'self'): number {
	let count = 1;
	for (const task of attempt(() => readdirSync(`/proc/${of}/task`)) ?? [])
		for (const pid of attempt(() => readFileSync(`/proc/${of}/task/${task}/children`, 'utf8'))?.match(/\d+/g) ?? [])
			count += countProcesses(pid);
	return count;
}

/** Ends what this process has started, and what that has: workers, and the commands that they run. */
function endProcesses(of = 'self'): void {
	for (const task of attempt(() => readdirSync(`/proc/${of}/task`)) ?? [])
		for (const pid of attempt(() => readFileSync(`/proc/${of}/task/${task}/children`, 'utf8'))?.match(/\d+/g) ?? []) {
			endProcesses(pid);
			attempt(() => process.kill(Number(pid), 'SIGKILL'));
		}
}

/** What it has to do with may have ended by itself. */
function attempt<Result>(act: () => Result): Result | undefined {
	try {
		return act();
	} catch {
		return undefined;
	}
}
