/** Log files of another device in the place of this one's: they are told, and kept; and what is this device's own is never taken for them. */
import { cpSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readAuditLog } from '../../src/audit/audit.runner.ts';
import { readLogMark } from '../../src/state/log-mark.edge.ts';
import { readHistory } from '../../src/status/history.runner.ts';
import { finish } from '../cli/command.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import { givenAgent, givenPairedAgent, type Home } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const filesOf = ({ paths }: Home, log: string) =>
	readdirSync(paths.stateDir).filter((name) => name.startsWith(`${log}-`));
const at = ({ paths }: Home, name: string) => join(paths.stateDir, name);
const ofState = (home: Home) => ['state.json', 'state.json.bak'].map((name) => at(home, name));
const envOf = ({ paths }: Home) => ({
	IDV_AGENT_RUN_DIR: paths.runDir,
	IDV_AGENT_STATE_DIR: paths.stateDir,
	IDV_AGENT_CONFIG: paths.configFile,
});

/** A device that was paired and had one notification, named after it. */
async function givenStopped(name: string): Promise<Home> {
	const service = await givenService();
	const device = await givenPairedAgent(service);
	service.notify({ type: 'said', name });
	await device.untilEvent(({ content }) => content.includes(name));
	await device.stop();
	return device.home;
}

const giveLog = (log: string, from: Home, to: Home) => {
	for (const name of filesOf(to, log)) rmSync(at(to, name));
	for (const name of filesOf(from, log)) cpSync(at(from, name), at(to, name));
};

/** What each log has, as its reader finds it. */
async function readLogs(home: Home) {
	const { stateDir } = home.paths;
	const device = await givenAgent({ home });
	const contents = (await device.events()).filter(({ kind }) => kind === 'said').map(({ content }) => content);
	const { warnings } = device.agent.status();
	await device.stop();
	const logMark = await readLogMark(stateDir);
	const [audit, history] = [await readAuditLog(stateDir, logMark), readHistory(stateDir, logMark)];
	return { warnings, contents, audit, history };
}

describe('log files of another device', () => {
	test('of events are not read: status, log and doctor name them, and they stay [F1290]', async () => {
		const [own, other] = [await givenStopped('own'), await givenStopped('other')];
		giveLog('events', other, own);
		const names = filesOf(own, 'events');
		const bytes = readFileSync(at(own, names[0] ?? ''));
		const told = /events-\d+-[0-9a-f]+\.log: it is of another device or of an older installation/;
		const before = await examine({ home: own }, 'state');
		expectProblem(before.checks.state, 'warning', 'state-corrupt', told);
		const device = await givenAgent({ home: own });
		expect((await device.events()).filter(({ kind }) => kind === 'said')).toEqual([]);
		expect(device.agent.status().warnings).toContainEqual(
			expect.objectContaining({ code: 'state-corrupt', message: expect.stringMatching(told) }),
		);
		expect(device.logText()).toMatch(told);
		await device.stop();
		expect(readFileSync(at(own, names[0] ?? ''))).toEqual(bytes);
	});

	test('of the history and of the audit log are not read either, and each reader says so [F1290]', async () => {
		const [own, other] = [await givenStopped('own'), await givenStopped('other')];
		const { last } = await readAuditLog(other.paths.stateDir);
		for (const log of ['history', 'audit']) giveLog(log, other, own);
		const told = 'it is of another device or of an older installation';
		const { checks } = await examine({ home: own }, 'state');
		for (const log of ['history', 'audit'])
			expectProblem(checks.state, 'warning', 'state-corrupt', new RegExp(`${log}-\\d+-[0-9a-f]+\\.log: ${told}`));
		const { history, audit } = await readLogs(own);
		expect(last).toBeGreaterThan(0);
		for (const { documents } of [history, audit])
			for (const { at: time } of documents)
				expect(readHistory(other.paths.stateDir).documents.map((entry) => entry.at)).not.toContain(time);
		const shown = await finish('idv-agent', ['history'], envOf(own));
		expect(shown.stderr).toContain(told);
		const early = await finish('idv-agent', ['history', '--until', '2020-01-01'], envOf(own));
		expect(early).toMatchObject({ stdout: '', stderr: expect.stringMatching(/^Warning: The history begins at /m) });
		const verified = await finish('idv-agent', ['audit', '--verify'], envOf(own));
		expect(verified).toMatchObject({ status: 74, stdout: expect.stringContaining(told) });
	});
});

describe('the logs of a device are its own', () => {
	const withoutStamp = (home: Home) => {
		for (const file of ofState(home)) {
			const { digest: _, copy: __, ...document } = JSON.parse(readFileSync(file, 'utf8'));
			writeFileSync(file, JSON.stringify(document));
		}
	};
	test.each<readonly [string, (home: Home) => unknown]>([
		['as it was stopped', () => {}],
		['with one copy of its state', (home) => rmSync(ofState(home)[0] ?? '')],
		['without its state', (home) => ofState(home).map((file) => rmSync(file))],
		[
			'without its state and the id of it',
			(home) => [...ofState(home), at(home, 'state.id')].map((file) => rmSync(file)),
		],
		['with a damaged state', (home) => ofState(home).map((file) => writeFileSync(file, '{'))],
		['with a state that 0.1.0 has saved', withoutStamp],
		[
			'unpaired and paired again',
			async (home) => {
				const device = await givenAgent({ home });
				await device.agent.unpair();
				await device.pair((await givenService()).createPairingCode('check-in').url);
				await device.stop();
			},
		],
		[
			'in another directory',
			(home) => {
				const elsewhere = `${home.paths.stateDir}-elsewhere`;
				cpSync(home.paths.stateDir, elsewhere, { recursive: true });
				rmSync(home.paths.stateDir, { recursive: true });
				renameSync(elsewhere, home.paths.stateDir);
			},
		],
		[
			'with the state of an earlier installation',
			async (home) => {
				const earlier = await givenStopped('earlier');
				for (const [index, file] of ofState(home).entries()) cpSync(ofState(earlier)[index] ?? '', file);
			},
		],
	])('%s, also at the start after that [F1291]', async (what, happens) => {
		const home = await givenStopped('own');
		const { paths } = home;
		const [audits, entries] = [await readAuditLog(paths.stateDir), readHistory(paths.stateDir)];
		await happens(home);
		for (let start = 0; start < 2; start += 1) {
			const { warnings, contents, audit, history } = await readLogs(home);
			expect(warnings.filter(({ message }) => message.includes('.log'))).toEqual([]);
			// An unpairing erases the notifications of the service.
			expect(contents.some((content) => content.includes('own'))).toBe(!what.startsWith('unpaired'));
			expect([audit.lost, audit.damages, history.damages]).toEqual([[], [], []]);
			expect(audit.documents.slice(0, audits.documents.length)).toEqual(audits.documents);
			if (!what.startsWith('unpaired'))
				expect(history.documents.slice(0, entries.documents.length)).toEqual(entries.documents);
		}
	});
});
