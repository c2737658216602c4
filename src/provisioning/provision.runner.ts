/**
 * Takes a `provision.json` into use, once: the secret encrypted for this machine, the rest as a settings file, the medium
 * wiped. Runs as root beside the agent or before it, and leaves it to the agent to notice. Each step may be cut off by a
 * loss of power: the next start does it again.
 */
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { AgentError, asError, type Failure, failure, toFailure } from '../base/errors.ts';
import { tellEnds } from '../connection/credential-ends.ts';
import { chooseIdentity, type IdentityChoice, type IdentityFacts, keptId } from '../identity/identity.ts';
import { openToFirstComer } from '../pairing/rules.ts';
import { isObject } from '../protocol/json.ts';
import { readTokenTimes } from '../protocol/token-life.ts';
import { type LoadedSettings, loadSettings } from '../settings/load.runner.ts';
import type { AgentPaths } from '../settings/paths.runner.ts';
import { lookAtState } from '../state/copies.edge.ts';
import { readProvisionFile, readRecord, wasTaken, wipe, withTaken, writeDurably } from './files.edge.ts';
import {
	MAX_PROVISION_BYTES,
	mayProvision,
	type Provision,
	type ProvisionedSecret,
	provisionedSettings,
	readProvision,
	withoutSecrets,
} from './provision.ts';

export interface ProvisionSource {
	/** Path, or what messages call it. */
	readonly name: string;
	/** The text, where it is not a file. */
	readonly text?: string;
	/** `false` for what goes away automatically, such as a credential that systemd hands over. Default `true` for a file. */
	readonly isMedium?: boolean;
	/** It was named, so it has to be there. */
	readonly mustExist?: boolean;
}

export interface ProvisionParts {
	readonly paths: AgentPaths;
	/** For encrypted credentials: `/etc/credstore.encrypted`. */
	readonly credstore: string;
	/** Where the agent's unit finds them: `/run/credentials/idv-agent.service`. */
	readonly credentialsDirectory: string;
	/** Encrypts for this machine; `null` where that cannot be done. */
	readonly seal: (name: string, secret: string) => Promise<Uint8Array | null>;
	/** The check of settings, with the files that they name. */
	readonly check: (settings: LoadedSettings) => Promise<Record<'problems' | 'notices', readonly Failure[]>>;
	/** What this machine is known by. */
	readonly readFacts: () => Promise<IdentityFacts>;
	/** Now, ISO 8601. */
	readonly now: string;
}

export interface ProvisionResult {
	/** `none`: nothing was brought. `unchanged`: everything that was brought had been taken before. */
	readonly outcome: 'none' | 'unchanged' | 'applied';
	readonly from: string | null;
	/** The names in the file that were set. */
	readonly names: readonly string[];
	readonly settingsFile: string | null;
	/** Where the secret is now, and whether it is encrypted there. */
	readonly secret: { readonly file: string; readonly encrypted: boolean } | null;
	readonly notices: readonly Failure[];
}

/** The lowest of `conf.d`: everything else there takes precedence. */
const PROVISION_SETTINGS = '00-provision.json';
const RECORD = 'provisioned.json';

/**
 * Goes through what was brought, in this order, up to the first that is new.
 * @throws AgentError `provision-invalid`, `already-paired`, `provision-failed`: nothing was changed, but the secret may
 * lie encrypted where nothing asks for it.
 */
export async function provision(sources: readonly ProvisionSource[], parts: ProvisionParts): Promise<ProvisionResult> {
	const recordFile = join(parts.paths.confDirectory, '..', RECORD);
	const settingsFile = join(parts.paths.confDirectory, PROVISION_SETTINGS);
	const record = await readRecord(recordFile);
	const isInForce = existsSync(settingsFile);
	const notices: Failure[] = [];
	const result = { from: null, names: [], settingsFile: null, secret: null, notices };
	let wasThere = false;
	for (const source of sources) {
		const text = source.text ?? (await readProvisionFile(source.name, MAX_PROVISION_BYTES));
		if (text === null) {
			if (source.mustExist) throw new AgentError('provision-invalid', `${source.name} is not there.`);
			continue;
		}
		if (!wasThere) notices.push(...(await identityNow(parts)).warnings);
		wasThere = true;
		if (Buffer.byteLength(text) > MAX_PROVISION_BYTES)
			throw new AgentError('provision-invalid', `${source.name} is larger than ${MAX_PROVISION_BYTES} bytes.`);
		const isOld = isInForce && wasTaken(record, text);
		const provision = readProvision(text, source.name);
		if (!isOld && provision.isSpent && record.taken.length === 0)
			throw new AgentError('provision-invalid', `The secret of ${source.name} was taken by another device.`, {
				remedy: 'Write the file again, with the secret.',
			});
		if (isOld || provision.isSpent) {
			await wipeMedium(source, text, provision, notices);
			continue;
		}
		const secret = await apply(provision, source.name, settingsFile, parts, notices);
		await writeDurably(recordFile, JSON.stringify(withTaken(record, text, source.name, parts.now)), 0o600);
		await wipeMedium(source, text, provision, notices);
		return { ...result, outcome: 'applied', from: source.name, names: provision.names, settingsFile, secret };
	}
	return { ...result, outcome: wasThere ? 'unchanged' : 'none' };
}

/** An image was made with the state of a device in it: the person who provisions is the first who can hear of that. */
async function identityNow({ paths, readFacts }: ProvisionParts): Promise<IdentityChoice> {
	const { state } = await lookAtState(paths.stateDir);
	const { settings } = await loadSettings({ paths, env: {}, sets: [] });
	return chooseIdentity(await readFacts(), settings, state.identity, keptId(state));
}

async function apply(
	provision: Provision,
	where: string,
	settingsFile: string,
	parts: ProvisionParts,
	notices: Failure[],
): Promise<ProvisionResult['secret']> {
	const { state } = await lookAtState(parts.paths.stateDir);
	const refusal = mayProvision(provision, state, where, await identityNow(parts));
	if (refusal) throw asError(refusal);
	// With any name for the secret's file: whether it fits the other settings does not depend on it.
	const isFirst = state.lastSettings === null;
	const tried = provisionedSettings(provision, NO_FILE_YET);
	notices.push(...(await checkTogether(tried, where, settingsFile, isFirst, parts)));
	const { secret } = provision;
	if (secret) notices.push(...endOf(secret, where, parts.now));
	const kept = secret ? await registerSecret(secret, parts, notices) : null;
	const settings = provisionedSettings(provision, kept?.readAs ?? null);
	// After the secret: who reads these settings looks for it at once.
	await writeDurably(settingsFile, `${JSON.stringify(settings, null, '\t')}\n`, 0o644);
	return kept && { file: kept.file, encrypted: kept.encrypted };
}

/**
 * Checks these beside the other settings.
 * @returns notices of what they bring with them, of what takes precedence, and of a device that stays open to the first comer.
 * @throws AgentError `provision-invalid` when they do not go together: a device must not be stranded by its provisioning.
 */
async function checkTogether(
	document: Readonly<Record<string, unknown>>,
	where: string,
	settingsFile: string,
	isFirst: boolean,
	{ paths, check }: ProvisionParts,
): Promise<Failure[]> {
	const load = (document: Readonly<Record<string, unknown>>) =>
		loadSettings({ paths, env: {}, sets: [], instead: { where: settingsFile, document } });
	const loaded = await load(document);
	const [before, after] = [await check(await load({})), await check(loaded)];
	const isNew = (old: readonly Failure[]) => (one: Failure) =>
		one.params?.['path'] !== NO_FILE_YET && !old.some(({ message }) => message === one.message);
	// Before there were valid settings the agent does not start with any fault, such as a file beside it that is broken.
	const faulty = after.problems.filter(isNew(isFirst ? [] : before.problems));
	// A directory that cannot be read has no path: that it cannot be written either is told when it is written.
	const fresh = faulty.filter(({ code, params }) => code !== 'settings-unreadable' || params);
	if (fresh.length > 0) {
		const faults = fresh.map(({ message }) => message).join(' ');
		const message = `${where} does not go together with the other settings of this device: ${faults}`;
		throw new AgentError('provision-invalid', message);
	}
	const overruled = pathsOf(document).flatMap((path) => {
		const winner = loaded.origins.get(path)?.where ?? settingsFile;
		if (winner === settingsFile) return [];
		const remedy = 'Remove it there if the provisioning should decide.';
		const message = `${path} is set by ${winner} as well, which takes precedence.`;
		return [failure('settings-invalid', message, { remedy })];
	});
	const open = openToFirstComer(loaded.settings);
	return [...after.notices.filter(isNew(before.notices)), ...overruled, ...(open ? [open] : [])];
}

/** The secret is written after the check. */
const NO_FILE_YET = '/';

/** That the secret has ended, or ends soon. */
function endOf({ kind, value }: ProvisionedSecret, path: string, now: string): Failure[] {
	const { notBeforeSeconds, expiresAtSeconds } = readTokenTimes(value);
	const [fromMs, atMs] = [notBeforeSeconds, expiresAtSeconds].map((at) => at && at * 1000);
	const what = kind === 'api-key' ? 'The API key' : 'The Connection';
	return tellEnds([{ what, path, fromMs, atMs }], Date.parse(now));
}

function pathsOf(document: object): string[] {
	return Object.entries(document).flatMap(([key, value]) =>
		isObject(value) ? Object.keys(value).map((inner) => `${key}.${inner}`) : [key],
	);
}

async function registerSecret(
	{ kind, value }: ProvisionedSecret,
	{ credstore, credentialsDirectory, seal, paths }: ProvisionParts,
	notices: Failure[],
): Promise<{ file: string; encrypted: boolean; readAs: string }> {
	const name = `idv-agent.${kind}`;
	const sealed = await seal(name, value);
	if (sealed) {
		const file = join(credstore, name);
		await writeDurably(file, sealed, 0o600);
		return { file, encrypted: true, readAs: join(credentialsDirectory, name) };
	}
	const file = join(paths.stateDir, `provisioned.${kind}`);
	// The owner of the state is the user of the agent.
	const owner = await stat(paths.stateDir).catch(() => undefined);
	await writeDurably(file, `${value}\n`, 0o600, owner);
	const message = `systemd-creds cannot encrypt here: the secret is in ${file}, readable for the agent.`;
	notices.push(failure('provision-failed', message, { remedy: 'Nothing to do if that is good enough.' }));
	return { file, encrypted: false, readAs: file };
}

/** A secret that stays where it was brought is told, and keeps nothing from working. */
async function wipeMedium(
	{ name, text, isMedium = text === undefined }: ProvisionSource,
	brought: string,
	{ secret }: Provision,
	notices: Failure[],
): Promise<void> {
	if (!isMedium) return;
	try {
		await wipe(name, withoutSecrets(brought));
	} catch (error) {
		if (secret) notices.push(toFailure(error));
	}
}
