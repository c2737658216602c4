/** `idv-agent support-bundle`: one file that says how this device is, for its owner to read and to send. */
import { open, rm } from 'node:fs/promises';
import { resolve } from 'node:path';
import { AgentError } from '../base/errors.ts';
import { CHECK_IDS } from '../diagnosis/check-list.runner.ts';
import { HOOKS_UNIT } from '../diagnosis/hook-rights.ts';
import { becomeServiceUser, findInspectionTarget, UNIT } from '../diagnosis/inspection-target.runner.ts';
import { readJournal } from '../diagnosis/machine-probes.edge.ts';
import { gatherBundle, JOURNAL_LINES } from '../diagnosis/support-bundle.runner.ts';
import { packTarball } from '../diagnosis/tarball.edge.ts';
import { loadSettings } from '../settings/load.runner.ts';
import { examine } from './doctor.runner.ts';
import type { AskFlags } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';
import { VERSION } from './version.runner.ts';

export async function supportBundle(shell: Shell, flags: AskFlags & { readonly out?: string | undefined }) {
	const at = new Date().toISOString();
	const path = resolve(flags.out ?? `idv-agent-support-${at.slice(0, 19).replaceAll(':', '')}.tar.gz`);
	const inspected = await findInspectionTarget(flags, shell.env);
	const file = await open(path, 'wx', 0o600).catch((error: unknown) => {
		throw unwritable(path, error);
	});
	try {
		// As the calling user: the user of the service may read neither the journal nor write here.
		const journal = await readJournal([UNIT, HOOKS_UNIT], JOURNAL_LINES);
		becomeServiceUser(inspected);
		const loaded = await loadSettings(inspected);
		const doctor = await examine(inspected, { checks: CHECK_IDS, warningsAsErrors: false });
		const files = await gatherBundle({ inspected, loaded, doctor, journal, agentVersion: VERSION, at });
		// One folder, wherever it is unpacked.
		const folder = `idv-agent-support-${at.slice(0, 19).replaceAll(':', '')}`;
		const inFolder = files.map(({ name, text }) => ({ name: `${folder}/${name}`, text }));
		const packed = await packTarball(inFolder, Date.parse(at));
		await file.writeFile(packed);
		await file.sync();
		const contents = files.map(({ name, text }) => ({ name, bytes: Buffer.byteLength(text) }));
		if (shell.isJson) return shell.json({ path, bytes: packed.length, contents });
		shell.table(contents.map(({ name, bytes }) => [name, `${bytes} bytes`]));
		shell.line(`\nWritten to ${path}, for its owner only. Read it before you send it: tar -xOzf ${path} | less`);
	} catch (error) {
		await rm(path, { force: true }).catch(() => {});
		throw unwritable(path, error);
	} finally {
		await file.close();
	}
}

function unwritable(path: string, error: unknown): unknown {
	const code = (error as NodeJS.ErrnoException | null)?.code;
	if (error instanceof AgentError || typeof code !== 'string') return error;
	const reason = code === 'EEXIST' ? 'there is a file already' : code;
	return new AgentError('bundle-unwritable', `${path} cannot be written: ${reason}.`, { cause: error });
}
