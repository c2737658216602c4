/**
 * Every suite and benchmark beside `npm test`, by name: `npm run suite` lists them, `npm run suite -- NAME [ARGUMENTS…]` runs one, and
 * `--short NAME` its form for CI. `.ci/run` takes the names and their order from here (`--ci`: those on one line run side by side). A suite that is not in this table does not exist.
 */
import { spawn } from 'node:child_process';
import { constants } from 'node:os';
import { delimiter, join, resolve } from 'node:path';

interface Suite {
	/** What it shows, in one line. */
	readonly says: string;
	/** What it needs beyond npm; it names what is missing itself. */
	readonly needs?: string;
	readonly run: readonly string[];
	/** CI's form: arguments and variables that make it quicker. Without it CI does not run the suite. */
	readonly short?: { readonly args?: readonly string[]; readonly env?: Readonly<Record<string, string>> };
	/** CI runs it beside the one before it: it mostly waits, or it needs one core and measures no time. */
	readonly beside?: true;
}

const vitest = (config: string): readonly string[] => ['vitest', 'run', '--config', config];

/** In CI's order. */
export const SUITES: Readonly<Record<string, Suite>> = {
	system: {
		says: 'the package on a real systemd: install, upgrade, kills, removal',
		needs: 'root, Debian, control groups',
		run: vitest('test/system/vitest.config.ts'),
		short: { env: { SYSTEM: 'short' } },
	},
	update: {
		says: 'good and bad versions by a real apt, dpkg and systemd (--rounds N --seed S)',
		needs: 'root, Debian, control groups',
		run: ['node', 'test/update/run.ts'],
		short: { args: ['--rounds', '1', '--seed', '1981'], env: { UPDATE: 'short' } },
	},
	root: {
		says: 'more than 40 attempts of a hostile user of the agent against root, of which none succeeds',
		needs: 'root, Debian, control groups',
		run: [...vitest('test/update/vitest.config.ts'), 'test/update/root.test.ts'],
	},
	dialects: {
		says: 'idv probe against services of four stacks and services drawn from a seed, each online by its file alone',
		needs: 'go, ruby and tornado of Debian',
		run: vitest('test/dialects/vitest.config.ts'),
		// Services of fixed seeds: a draw that is red for the first time belongs to `npm run test:dialects`.
		short: { env: { DIALECTS_SEED: '784360537', DIALECTS_COUNT: '12' } },
		beside: true,
	},
	limits: {
		says: 'every parser of outside bytes at its limit, with texts made to cost time or memory',
		run: ['node', '--no-warnings', '--expose-gc', 'test/limits/run.ts'],
		short: {},
	},
	fleet: {
		says: "drawn fleets: what status says against each device's own state (--seed S --fleets N --devices N)",
		run: ['node', '--no-warnings', 'test/fleet/property/run.ts'],
		short: { args: ['--fleets', '20', '--seed', '33'] },
	},
	'fleet-nginx': {
		says: 'fleet plans from a real nginx',
		needs: 'nginx',
		run: vitest('test/fleet/nginx/vitest.config.ts'),
		short: {},
	},
	codes: {
		says: 'codes made and read by third-party programs',
		needs: 'qrencode, zbarimg, imagemagick',
		run: vitest('test/scanning/codes/vitest.config.ts'),
		short: {},
	},
	telemetry: {
		says: 'metrics pushed to a real store',
		needs: 'VictoriaMetrics',
		run: vitest('test/telemetry/store/vitest.config.ts'),
		short: {},
	},
	diagnosis: {
		says: 'doctor in network namespaces, and secrets that must appear in no output',
		needs: 'shows more as root',
		run: vitest('test/diagnosis/namespaces/vitest.config.ts'),
		short: {},
		beside: true,
	},
	scanners: {
		says: 'scanners on serial lines',
		needs: 'socat',
		run: vitest('test/scanning/devices/vitest.config.ts'),
		short: {},
		beside: true,
	},
	memory: {
		says: '128 readers of full stores, and unread answers of the service, within the memory of the unit (--seconds S --stores 0,1,2,3,4,5,6,7,8)',
		needs: 'shows more with control groups',
		run: ['node', '--no-warnings', 'test/memory/run.ts'],
		short: { args: ['--seconds', '3', '--stores', '1,4,8'] },
	},
	clients: {
		says: "clients generated from docs/openapi.json, and the packed library in a developer's project",
		needs: 'the npm registry',
		run: vitest('test/client/contract/vitest.config.ts'),
		short: {},
	},
	'clients-matrix': {
		says: 'the packages for npm under each package manager, Node, form of TypeScript and runner of tests',
		needs: 'the npm registry',
		run: ['node', '--no-warnings', 'test/client/matrix/run.ts'],
		short: { args: ['--short'] },
		beside: true,
	},
	years: {
		says: 'the whole agent on virtual time: weeks of drawn faults (--minutes M | --seed S --years Y)',
		run: ['node', '--no-warnings', '--max-semi-space-size=64', 'test/years/run.ts'],
		short: { args: ['--lives', '9', '--seed', '8000001', '--years', '0.05'] },
	},
	disk: {
		says: 'a paired device whose files are damaged, each in many ways, and planted bugs that this must find (--cases N --seed S)',
		needs: 'shows more as root',
		run: ['node', '--no-warnings', 'test/disk/run.ts'],
		short: { args: ['--cases', '60', '--seed', '7'] },
		beside: true,
	},
	faults: {
		says: 'namespaces, full disks, shifted clocks, proxies and third-party servers',
		needs: 'root, Debian',
		run: vitest('test/faults/vitest.config.ts'),
		short: { env: { FAULTS: 'short' } },
	},
	power: {
		says: 'power cuts that lose what was not flushed (--cuts N --seed S)',
		needs: 'root, Debian, FUSE',
		run: ['node', 'test/power/run.ts'],
		short: { args: ['--cuts', '8', '--seed', '99'] },
		beside: true,
	},
	crash: {
		says: 'the agent killed during thousands of notifications',
		run: vitest('test/crash/vitest.config.ts'),
		short: { env: { CRASH_ROUNDS: '5', CRASH_SEED: '728725' } },
	},
	recovery: {
		says: 'how soon a device is back after each cause of test/recovery/causes.ts (--json --seed S --lives N --no-sockets)',
		run: ['node', 'test/recovery/run.ts'],
		short: { args: ['--lives', '3', '--devices', '1000'] },
	},
	mutate: {
		says: 'whether the tests notice faults (--changed | --seed S --count N [FOLDER…])',
		run: ['node', '--no-warnings', 'test/mutation/run.ts'],
		short: { args: ['--changed', '--since', 'HEAD~1', '--limit', '40'] },
	},
	browser: {
		says: "the page in Debian's browsers",
		needs: 'chromium, firefox, ffmpeg',
		run: vitest('test/system/browser.config.ts'),
		short: { env: { BROWSER: 'short' } },
	},
	'fleet-scale': {
		says: '2,000 devices moved in rings, minutes long',
		run: vitest('test/fleet/scale/vitest.config.ts'),
	},
	vm: { says: "Debian's own kernel in qemu", needs: 'root, Debian', run: ['node', 'test/vm/run.ts'] },
	soak: { says: 'random faults for --minutes M, invariants after each', run: ['node', 'test/faults/soak.ts'] },
	bench: { says: 'start, memory, idle CPU and pairing of the script', run: ['node', 'test/bench/run.ts'] },
	'bench:device': { says: 'the same of executable and package', run: ['node', 'test/bench/device.ts'] },
	'bench:storage': { says: 'flushes and bytes for an event', run: ['node', 'test/bench/storage.ts'] },
	'bench:relay': { says: 'notifications handed on a second, and their delay', run: ['node', 'test/bench/relay.ts'] },
	'bench:forward': { says: 'forwarded requests beside direct ones', run: ['node', 'test/bench/forward.ts'] },
	'bench:storm': { says: '5,000 devices after an outage', run: ['node', 'test/bench/fleet-storm.ts'] },
	'bench:backoff': {
		says: 'the reconnect delays beside those of other clients',
		run: ['node', 'test/bench/backoff-storm.ts'],
	},
	'bench:refusals': { says: 'a minute of wrong 401s for 10,000 devices', run: ['node', 'test/bench/refusals.ts'] },
	'bench:rate-limit': { says: 'kiosks behind one limited address', run: ['node', 'test/bench/rate-limit.ts'] },
	'bench:scan': { says: 'codes read in pictures', run: ['node', 'test/bench/scan.ts'] },
	'bench:fleet': { says: 'a plan for 100,000 devices', run: ['node', 'test/bench/fleet.ts'] },
	'bench:telemetry': { says: 'a push of metrics', run: ['node', 'test/bench/telemetry.ts'] },
};

const ROOT = resolve(import.meta.dirname, '..');

function list(): void {
	const width = Math.max(...Object.keys(SUITES).map((name) => name.length));
	for (const [name, { says, needs }] of Object.entries(SUITES))
		console.log(`${name.padEnd(width)}  ${says}${needs ? ` [${needs}]` : ''}`);
	console.log('\nnpm run suite -- NAME [ARGUMENTS…]; --short NAME runs the form that CI runs.');
}

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): void {
	const [program = '', ...rest] = args;
	const path = [join(ROOT, 'node_modules/.bin'), process.env['PATH']].join(delimiter);
	const child = spawn(program === 'node' ? process.execPath : program, rest, {
		cwd: ROOT,
		stdio: 'inherit',
		env: { ...process.env, ...env, PATH: path },
	});
	// A terminal sends its signals to the child as well; what is sent to this process alone is passed on.
	for (const signal of ['SIGTERM', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
	process.on('SIGINT', () => {});
	child.on('error', (error) => {
		console.error(`${program} did not start: ${error.message}`);
		process.exitCode = 69;
	});
	child.on('exit', (status, signal) => {
		process.exitCode = status ?? 128 + (signal ? constants.signals[signal] : 0);
	});
}

function main([first, ...rest]: readonly string[]): void {
	if (first === undefined) {
		list();
		return;
	}
	if (first === '--ci') {
		const lines: string[][] = [];
		for (const [name, { short, beside }] of Object.entries(SUITES))
			if (short && beside) lines.at(-1)?.push(name);
			else if (short) lines.push([name]);
		for (const names of lines) console.log(names.join(' '));
		return;
	}
	const isShort = first === '--short';
	const [name = '', args] = isShort ? [rest[0], rest.slice(1)] : [first, rest];
	const suite = Object.hasOwn(SUITES, name) ? SUITES[name] : undefined;
	if (!suite || (isShort && !suite.short)) {
		console.error(`There is no ${isShort ? 'short form of a ' : ''}suite "${name}". npm run suite lists them.`);
		process.exitCode = 64;
		return;
	}
	run([...suite.run, ...((isShort && suite.short?.args) || []), ...args], isShort ? suite.short?.env : {});
}

if (import.meta.main) main(process.argv.slice(2));
