/** A process with a state store of its own, for tests that kill it, starve it or compete with it. */
import fs from 'node:fs';
import { flushCompileCache } from 'node:module';
import process from 'node:process';
import { toFailure } from '../../src/base/errors.ts';
import { type DeviceState, EMPTY_STATE } from '../../src/state/device-state.ts';
import { openStateStore } from '../../src/state/store.edge.ts';

const [mode, stateDir = '', from = '0'] = process.argv.slice(2);
const say = (text: string) => process.stdout.write(`${text}\n`);
const stateOf = (id: string): DeviceState => ({ ...EMPTY_STATE, generatedId: id });

// Those that are killed would leave nothing for the next one to start faster with.
flushCompileCache();

const outcome = (promise: Promise<void>) => promise.then(() => 'saved', toFailure);

// Permissions do not apply to root, and those who ask for them look at the real user: given up for good.
if (mode === 'unprivileged' && process.getuid?.() === 0) process.setuid?.(65534);

/** Only says why it is not let in. */
if (mode === 'refused') {
	say(JSON.stringify(await openStateStore(stateDir).catch(toFailure)));
	process.exit();
}

const store = await openStateStore(stateDir);
const loaded = await store.load();

/** Holds the lock until it is killed. */
if (mode === 'hold') {
	process.stdin.resume();
	say('open');
}

/** Saves one state after the other, of changing length, and says so after each. */
if (mode === 'save') {
	for (let number = Number(from) + 1; ; number += 1) {
		await store.save(stateOf(`${number}:${'x'.repeat((number * 997) % 5000)}`));
		say(`saved ${number}`);
	}
}

/** For a process that may not write large files: says what became of a large save, a probe and a small save. */
if (mode === 'limited') {
	say(
		JSON.stringify({
			large: await outcome(store.save(stateOf('x'.repeat(100_000)))),
			probe: await outcome(store.probe()),
			small: await outcome(store.save(stateOf('small'))),
		}),
	);
	await store.close();
}

/** Says what it can do in a place that it may not write to, and once that has changed. */
if (mode === 'unprivileged') {
	const save = await outcome(store.save(EMPTY_STATE));
	const probe = await outcome(store.probe());
	fs.chmodSync(stateDir, 0o700);
	fs.chmodSync(`${stateDir}/lock.db`, 0o600);
	const later = [await outcome(store.probe()), await outcome(store.save(stateOf('later')))];
	say(JSON.stringify({ loaded, save, probe, later, loadedLater: await store.load() }));
	await store.close();
}
