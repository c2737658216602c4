/**
 * Faults that once stayed unnoticed, each with the tests that must notice it now: `npm run mutate -- --named [part of a name]`.
 * Ends with 1 when one is not noticed. A text that is no longer in its file fails too: plant the fault elsewhere.
 */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, withCopy } from './copy.ts';

interface NamedFault {
	readonly name: string;
	readonly file: string;
	readonly from: string;
	readonly to: string;
	readonly tests: string;
}

export const NAMED: readonly NamedFault[] = [
	{
		name: 'the state file is not flushed',
		file: 'src/base/files.edge.ts',
		from: 'await handle.sync();\n\t\tconst { size }',
		to: 'const { size }',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'the directory of a file that was replaced is not flushed',
		file: 'src/base/files.edge.ts',
		from: 'await fs.promises.rename(temporary, file);\n\t\tawait syncDirectory(path.dirname(file));',
		to: 'await fs.promises.rename(temporary, file);',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'service.tokenPointer is dropped when pairing by code',
		file: 'src/pairing/redeem-code.runner.ts',
		from: 'tokenPointer: service.tokenPointer,',
		to: '',
		tests: 'test/pairing',
	},
	{
		name: "the page's PIN is never read",
		file: 'src/connection/runtime.runner.ts',
		from: 'page.pinFile === null ? null : readSecretFile(page.pinFile)',
		to: 'null',
		tests: 'test/scanning/scanning.test.ts',
	},
	{
		name: 'a 5xx that sounds like an unknown workflow waits for a person',
		file: 'src/connection/classify-failure.ts',
		from: 'status >= 400 && status < 500 && saysUnknownWorkflow(answer)',
		to: 'saysUnknownWorkflow(answer)',
		tests: 'test/connection/classify-failure.test.ts',
	},
	{
		name: 'a gap begins too late after an outage',
		file: 'src/status/connectivity.runner.ts',
		from: 'Math.max(lastMs, nowMs - Math.max(limitMs, heardAgoMs))',
		to: 'Math.max(lastMs, nowMs - Math.min(limitMs, heardAgoMs))',
		tests: 'test/status',
	},
	{
		name: 'a gap begins too late where any silence goes unnoticed',
		file: 'src/status/connectivity.runner.ts',
		from: 'limitMs ? Math.max',
		to: 'limitMs >= 0 ? Math.max',
		tests: 'test/status',
	},
	{
		name: 'an older look at the plan counts although a newer one has ended',
		file: 'src/fleet/follow-plan.runner.ts',
		from: 'polling?.abort();\n\t\tpolling = new AbortController();',
		to: 'polling = new AbortController();',
		tests: 'test/fleet/follow-plan-looks.test.ts',
	},
	{
		name: 'an older look that fails counts although a newer one has ended',
		file: 'src/fleet/follow-plan.runner.ts',
		from: '} catch (error) {\n\t\t\tif (signal.aborted) return;',
		to: '} catch (error) {',
		tests: 'test/fleet/follow-plan-looks.test.ts',
	},
	{
		name: 'the pool of requests is left open',
		file: 'src/connection/network.edge.ts',
		from: 'await (await requests)?.destroy();',
		to: 'await requests;',
		tests: 'test/connection/network.test.ts',
	},
	{
		name: 'the pools of proxies are left open',
		file: 'src/connection/network.edge.ts',
		from: '[direct, ...proxied.values()]',
		to: '[direct]',
		tests: 'test/connection/network.test.ts',
	},
	{
		name: 'connections of the channel through a proxy are left open',
		file: 'src/connection/network.edge.ts',
		from: 'for (const agent of agents.values()) agent.destroy();',
		to: '',
		tests: 'test/connection/network.test.ts',
	},
	{
		name: 'a request to the service goes on when its caller has left',
		file: 'src/local-api/forwarder.edge.ts',
		from: "response.once('close', left);",
		to: '',
		tests: 'test/local-api/forwarder.test.ts',
	},
	{
		name: 'a request to the service is left open when its answer is refused',
		file: 'src/local-api/forwarder.edge.ts',
		from: "response.removeListener('close', left);\n\t\tover.abort();",
		to: "response.removeListener('close', left);",
		tests: 'test/local-api/forwarder.test.ts',
	},
	{
		name: 'the wipe of a secret leaves the tail',
		file: 'src/provisioning/files.edge.ts',
		from: 'Buffer.alloc(Math.max(size, bytes.length)',
		to: 'Buffer.alloc(bytes.length',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'the wipe of a secret is not flushed before the file is cut',
		file: 'src/provisioning/files.edge.ts',
		from: 'await handle.sync();\n\t\t\tawait handle.truncate(bytes.length);',
		to: 'await handle.truncate(bytes.length);',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'the newest events are not flushed',
		file: 'src/events/event-tail.edge.ts',
		from: 'if (flushes) yield into;',
		to: '',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'the name of the newest events is not flushed',
		file: 'src/events/event-tail.edge.ts',
		from: 'if (isNew) yield* flushNames(file);',
		to: '',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'commits of the database are not flushed',
		file: 'src/events/event-table.edge.ts',
		from: 'if (!isCommitFlushed) yield log;',
		to: '',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'a state that is taken up is not flushed',
		file: 'src/state/store.edge.ts',
		from: 'await syncFile(at(TEMPORARY));',
		to: '',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'the end of a kept answer is not flushed',
		file: 'src/pairing/kept-answer.edge.ts',
		from: 'await remove(file);\n\t\t\t\tawait syncDirectory(stateDir);',
		to: 'await remove(file);',
		tests: 'test/base/files.test.ts',
	},
	{
		name: 'a delivery of metrics leaves its connection open',
		file: 'src/telemetry/push.edge.ts',
		from: 'agent: agent ?? (isSecure && keptOpen),',
		to: '...(agent && { agent }),',
		tests: 'test/telemetry/telemetry.test.ts',
	},
	{
		name: 'two credentials do not exclude each other',
		file: 'src/settings/resolve.ts',
		from: 'if (named.length > 1)',
		to: 'if (named.length > 2)',
		tests: 'test/settings',
	},
	{
		name: 'a watcher of settings stays when the daemon ends',
		file: 'src/settings/files.edge.ts',
		from: 'watcher.close()',
		to: 'void watcher',
		tests: 'test/settings',
	},
	{
		name: 'a ping is due again at once, for ever',
		file: 'src/connection/channel.edge.ts',
		from: 'pingAtMs += pingIntervalMs * (Math.floor((nowMs - pingAtMs) / pingIntervalMs) + 1);',
		to: '',
		tests: 'test/connection/channel.test.ts',
	},
	{
		name: 'a link that is over leaves its channel open',
		file: 'src/connection/link.runner.ts',
		from: 'link.stopHeartbeats();\n\t\t\tlink.channel?.terminate();',
		to: 'link.stopHeartbeats();',
		tests: 'test/connection/link-runner.test.ts',
	},
	{
		name: 'a channel with a shorter cadence keeps the beat of a longer one',
		file: 'src/connection/link.runner.ts',
		from: 'Math.min(beat.cadenceMs, cadenceMs)',
		to: 'Math.max(beat.cadenceMs, cadenceMs)',
		tests: 'test/connection/link-runner.test.ts',
	},
	{
		name: 'a kept answer goes from the disk before the state that it has made is there',
		file: 'src/pairing/pairing.runner.ts',
		from: 'await parts.store.save(stateWriter.state).catch(() => {});',
		to: 'await answers.drop().catch(() => {});\n\t\tawait parts.store.save(stateWriter.state).catch(() => {});',
		tests: 'test/pairing/unread-answers.test.ts',
	},
	{
		name: 'the time of an earlier kept answer ends a newer one',
		file: 'src/pairing/kept-answer.runner.ts',
		from: 'kept = answer;\n\t\tcancel();',
		to: 'kept = answer;',
		tests: 'test/pairing/unread-answers.test.ts',
	},
	{
		name: 'a change of keys is written down at each look',
		file: 'src/fleet/follow-plan.runner.ts',
		from: 'if (isChanged) parts.audit.record',
		to: 'parts.audit.record',
		tests: 'test/fleet/follow-plan-looks.test.ts',
	},
	{
		name: 'what the operating system trusts is not trusted',
		file: 'src/connection/network.edge.ts',
		from: "systemCa ? getCACertificates('system') : []",
		to: 'systemCa ? [] : []',
		tests: 'test/connection/network.test.ts',
	},
	{
		name: 'the doctor leaves its channel open',
		file: 'src/diagnosis/check-list.runner.ts',
		from: 'await (await channel.begun()?.catch(() => null))?.close();',
		to: '',
		tests: 'test/diagnosis/probe-channel.test.ts',
	},
	{
		name: "the doctor's channel counts as answered because time has passed",
		file: 'src/diagnosis/probe-channel.runner.ts',
		from: 'proveAfterMs: 10 * ANSWER_MS',
		to: 'proveAfterMs: 1',
		tests: 'test/diagnosis/probe-channel.test.ts',
	},
	{
		name: 'the doctor does not see that another user may look into the state',
		file: 'src/diagnosis/probe-device.runner.ts',
		from: '(info.mode & 0o077) === 0',
		to: '(info.mode & 0o007) === 0',
		tests: 'test/diagnosis/probe-device.test.ts',
	},
	{
		name: 'a device without a serial number and without a network card has no id',
		file: 'src/identity/identity.ts',
		from: ': { ...parts, needsGeneratedId: true, deviceId: null };',
		to: ": { ...parts, needsGeneratedId: false, deviceId: { value: '', source: 'none' } };",
		tests: 'test/identity',
	},
	{
		name: 'a look at the plan goes on when the agent has stopped',
		file: 'src/fleet/follow-plan.runner.ts',
		from: 'stopped = true;\n\t\t\tpolling?.abort();',
		to: 'stopped = true;',
		tests: 'test/fleet/follow-plan-looks.test.ts',
	},
];

/** Tries all whose name has the text; returns the exit status. */
export async function tryNamed(part: string): Promise<number> {
	const asked = NAMED.filter(({ name }) => name.includes(part));
	let missed = 0;
	await withCopy(async (copy) => {
		for (const { name, file, from, to, tests } of asked) {
			const source = readFileSync(join(ROOT, file), 'utf8');
			const fits = source.includes(from);
			const able = globSync([tests, `${tests}/*.test.ts`], { cwd: ROOT }).filter(
				(test) => test.endsWith('.test.ts') && copy.testsOf(file).has(test),
			);
			const changed = source.replace(from, () => to);
			const by = fits ? await copy.noticedBy(file, changed, able) : null;
			if (by === null) missed += 1;
			const verdict = by ? 'noticed' : fits ? 'NOT NOTICED' : 'NOT THERE ANY MORE';
			process.stdout.write(`${verdict.padEnd(13)} ${name} (${by ?? tests})\n`);
		}
	});
	process.stdout.write(`${asked.length - missed} of ${asked.length} noticed\n`);
	return missed === 0 ? 0 : 1;
}
