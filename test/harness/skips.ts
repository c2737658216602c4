/** Lists the tests that this machine skips, by name; each says in its title or its group's what it needs. */
import type { Reporter, TestModule, Vitest } from 'vitest/node';

export class Skips implements Reporter {
	#isFiltered = false;

	onInit({ config }: Vitest): void {
		this.#isFiltered = config.testNamePattern !== undefined;
	}

	onTestRunEnd(modules: readonly TestModule[]): void {
		// What a filter leaves out was not meant to run.
		if (this.#isFiltered) return;
		const names = modules.flatMap((module) =>
			[...module.children.allTests('skipped')].map(({ fullName }) => `${module.relativeModuleId} > ${fullName}`),
		);
		for (const name of names) console.log(`Skipped: ${name}`);
		const silent = names.filter((name) => !/\(needs [^)]+\)/.test(name));
		if (silent.length === 0) return;
		console.error(`These do not say what they need, as "(needs root)":\n${silent.join('\n')}`);
		process.exitCode = 1;
	}
}
