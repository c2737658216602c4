/** `idv-agent service`: the embedded service in the foreground, and sending devices a message by hand. */
import { randomBytes } from 'node:crypto';
import { openSync, writeSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import * as z from 'zod';
import { AgentError } from '../base/errors.ts';
import { inWords, readText } from '../base/files.edge.ts';
import { openShaper } from '../base/shapes.edge.ts';
import { createTranscript, readTranscript, type Transcript, type TranscriptLine } from '../base/transcript.ts';
import { parseAuthorization } from '../protocol/authorization.ts';
import { parseJson } from '../protocol/json.ts';
import { notifyEmbeddedService, runServiceCommand } from '../service/command.runner.ts';
import { type ServiceEventName, type ServiceOptions, startService } from '../service/embedded-service.runner.ts';
import { isWildcard } from '../service/options.runner.ts';
import { startReplay } from '../service/replay.runner.ts';
import { counted, type Shell } from './output.runner.ts';

/** A recording of a day; it is kept as a whole, and costs many times its size. */
const MAX_TRANSCRIPT_BYTES = 16 * 1024 * 1024;
/** Of the file of a trial's credentials, and of that of a key. */
const MAX_CREDENTIAL_BYTES = 64 * 1024;

type SameOptions = 'allowNonLoopback' | 'workflows' | 'selfRegistration' | 'shortTokenKeys' | 'publicUrl';

/** As the help of each flag says; times are in seconds. */
export interface ServiceFlags extends Pick<ServiceOptions, SameOptions> {
	readonly port: number;
	readonly host: string;
	readonly credentials?: string | undefined;
	readonly connectionTtl?: number | undefined;
	readonly shortTokenTtl?: number | undefined;
	readonly signingKeyFile?: string | undefined;
	/** File that gets what is said on the wire. */
	readonly transcript?: string | undefined;
	/** Transcript that is answered from. */
	readonly replay?: string | undefined;
	readonly quiet?: boolean | undefined;
}

export async function runService(shell: Shell, flags: ServiceFlags): Promise<void> {
	if (flags.replay !== undefined) return replayService(shell, flags, flags.replay);
	const { port, host, allowNonLoopback, workflows, selfRegistration, shortTokenKeys, publicUrl } = flags;
	const options: ServiceOptions = {
		...{ port, host, allowNonLoopback, workflows, selfRegistration, shortTokenKeys, publicUrl },
		connectionTtlSeconds: flags.connectionTtl,
		shortTokenTtlSeconds: flags.shortTokenTtl,
		signingKey: flags.signingKeyFile === undefined ? undefined : await readSigningKey(flags.signingKeyFile),
		...(flags.transcript !== undefined && { transcript: openTranscript(flags.transcript) }),
		...(flags.credentials === undefined ? {} : await readCredentials(flags.credentials)),
	};
	const more = { quiet: flags.quiet ?? false, warnings: warningsOf(flags) };
	const starting = shell.isJson
		? runInJson(shell, options, more)
		: runServiceCommand(options, shell.caller.stdout, more);
	const service = await starting.catch((error: unknown) => {
		throw cannotStart(error, flags);
	});
	endWith(service);
}

function endWith(service: { close(): Promise<void> }): void {
	const stop = () => void service.close().then(() => process.exit(0));
	process.once('SIGINT', stop);
	process.once('SIGTERM', stop);
}

/** Each line is in the file when it was said: a service that is killed has lost none. @throws AgentError `state-unwritable`. */
function openTranscript(file: string): Transcript {
	let descriptor: number;
	try {
		descriptor = openSync(file, 'a', 0o600);
	} catch (cause) {
		throw new AgentError('state-unwritable', `The transcript ${file} cannot be written.`, {
			remedy: 'Name a file in a directory that this user may write to.',
			cause,
		});
	}
	return createTranscript((line) => void writeSync(descriptor, `${line}\n`), Date.now, openShaper);
}

/** Answers from a transcript until it is told to end. @throws AgentError `body-invalid` for a file that is none. */
async function replayService(shell: Shell, flags: ServiceFlags, file: string): Promise<void> {
	let lines: TranscriptLine[];
	try {
		lines = readTranscript(await readText(file, MAX_TRANSCRIPT_BYTES));
	} catch (cause) {
		throw new AgentError('body-invalid', `${file} cannot be replayed: ${inWords(cause)}`, {
			remedy: 'Name a file that idv probe --transcript or idv-agent service --transcript wrote.',
			cause,
		});
	}
	const replay = await startReplay(lines, flags).catch((error: unknown) => {
		throw cannotStart(error, flags);
	});
	if (shell.isJson) shell.json({ event: 'listening', at: new Date().toISOString(), url: replay.url });
	else shell.line(`Answers from ${file} at ${replay.url}; any credential is accepted.`);
	endWith(replay);
}

const EVENTS: readonly ServiceEventName[] = [
	'request',
	'registered',
	'device-online',
	'device-offline',
	'channel-closed',
	'heartbeat',
	'notified',
];

/** The consequences of the flags that would surprise later. */
function warningsOf({ host, publicUrl, signingKeyFile }: ServiceFlags): string[] {
	const isPlain = publicUrl === undefined || publicUrl.startsWith('http:');
	return [
		...(isWildcard(host) ? [OPEN + (isPlain ? UNENCRYPTED : '')] : []),
		...(signingKeyFile === undefined ? [FORGETFUL] : []),
	];
}

const OPEN = 'Every machine that can reach this one can use this service.';
const UNENCRYPTED =
	' Its traffic is not encrypted, and devices refuse plain http from another machine: put a proxy with https in front and name it with --public-url.';
const FORGETFUL =
	'After a restart every paired device must be paired again; --signing-key-file FILE keeps their Connections valid.';

async function runInJson(shell: Shell, options: ServiceOptions, more: { quiet: boolean; warnings: string[] }) {
	const service = await startService(options);
	const print = (event: string, at: number, fields: object) =>
		shell.line(JSON.stringify({ event, at: new Date(at).toISOString(), ...fields }));
	print('listening', Date.now(), { url: service.url, credentials: service.credentials, warnings: more.warnings });
	for (const name of more.quiet ? [] : EVENTS) service.on(name, ({ at, ...fields }) => print(name, at, fields));
	return service;
}

function cannotStart(error: unknown, { host, port }: ServiceFlags): AgentError {
	const code = (error as NodeJS.ErrnoException | null)?.code;
	const said = error instanceof Error ? error.message : String(error);
	const more = { remedy: 'Choose another --port (0 takes any free one) or --host.', cause: error };
	if (code === 'EADDRINUSE')
		return new AgentError('service-unreachable', `Port ${port} of ${host} is in use by another program.`, more);
	if (code === 'EACCES') return new AgentError('access-denied', `This user may not listen on port ${port}.`, more);
	if (code !== undefined) return new AgentError('service-unreachable', `Cannot listen on ${host}: ${code}.`, more);
	const remedy = 'Correct the flag; --allow-non-loopback opens the service to a network.';
	return new AgentError('usage', said, { remedy, cause: error });
}

/** The key in a file, made with mode 0600 if it is missing: 64 hexadecimal digits. */
async function readSigningKey(file: string): Promise<Uint8Array> {
	const unusable = (reason: string, cause?: unknown) =>
		new AgentError('credential-unreadable', `The signing key ${file} cannot be used: ${reason}.`, {
			remedy: 'Name a file that this user may read and write, or delete it: a new key is made, and devices pair again.',
			cause,
		});
	const made = randomBytes(32).toString('hex');
	// Exclusive: a key that exists is never overwritten.
	await writeFile(file, `${made}\n`, { flag: 'wx', mode: 0o600, flush: true }).catch((error: NodeJS.ErrnoException) => {
		if (error.code !== 'EEXIST') throw unusable(`it cannot be made (${error.code})`, error);
	});
	const read = await readText(file, MAX_CREDENTIAL_BYTES).catch((error: unknown) => {
		throw unusable(`it cannot be read: ${inWords(error)}`, error);
	});
	const text = read.trim();
	if (!/^[0-9a-f]{64}$/i.test(text)) throw unusable('it does not hold 64 hexadecimal digits');
	return Buffer.from(text, 'hex');
}

const credential = z.string().regex(/^[\x21-\x7e]{8,}$/, 'must have at least 8 visible ASCII characters');
const credentialsSchema = z.strictObject({
	basic: z
		.string()
		.regex(/^[^:]+:.+$/, 'must have the form user:password')
		.optional(),
	bearer: credential.optional(),
	apiKey: credential.optional(),
});

/** The trial's credentials; the API key gets every known permission. @throws AgentError `credential-unreadable`. */
async function readCredentials(file: string): Promise<ServiceOptions> {
	const unusable = (reason: string) =>
		new AgentError('credential-unreadable', `The credentials of ${file} cannot be used: ${reason}.`, {
			remedy: 'Write {"basic":"user:password","bearer":"…","apiKey":"…"}; missing fields are generated.',
		});
	const text = await readText(file, MAX_CREDENTIAL_BYTES).catch((error: unknown) => {
		throw unusable(`the file cannot be read: ${inWords(error)}`);
	});
	const document = parseJson(text);
	if (document === undefined) throw unusable('the file is not JSON');
	const read = credentialsSchema.safeParse(document);
	if (!read.success) {
		const [issue] = read.error.issues;
		throw unusable([issue?.path.join('.'), issue?.message].filter(Boolean).join(' '));
	}
	const { basic, bearer, apiKey } = read.data;
	const colon = basic?.indexOf(':') ?? 0;
	return {
		...(basic && { basicUsers: [{ username: basic.slice(0, colon), password: basic.slice(colon + 1) }] }),
		...(bearer && { bearerToken: bearer }),
		...(apiKey && { trialApiKey: apiKey }),
	};
}

/** The credential comes from `IDV_AUTHORIZATION`, such as `Bearer …`: a trial's own, printed when it started. */
export async function notifyDevices(
	shell: Shell,
	flags: { readonly url: string; readonly device?: string; readonly workflow?: string },
	text: string,
): Promise<void> {
	const authorization = parseAuthorization(shell.env['IDV_AUTHORIZATION']);
	if (!authorization)
		throw new AgentError('usage', 'IDV_AUTHORIZATION holds no credential.', {
			remedy: 'Set it to the Bearer or Basic credential that the embedded service printed, such as "Bearer …".',
		});
	if (!URL.canParse(flags.url))
		throw new AgentError('usage', '--url is not an address.', { remedy: 'Use the one that the service printed.' });
	const message = parseJson(text);
	if (message === undefined)
		throw new AgentError('body-invalid', 'The message is not JSON.', {
			remedy: `Quote it for the shell: '{"type":"hello"}'.`,
		});
	const { url, device: deviceId, workflow: workflowId } = flags;
	const reached = await notifyEmbeddedService({ url, authorization }, { message, text, deviceId, workflowId });
	shell.answer({ reached }, `Sent to ${counted(reached, 'device')}.`);
}
