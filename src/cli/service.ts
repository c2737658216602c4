/** `idv-agent service`: the embedded service in the foreground, and sending devices a message by hand. */

import { AgentError } from '../core/errors.ts';
import { parseAuthorization } from '../protocol/authorization.ts';
import { notifyEmbeddedService, runServiceCommand } from '../service/command.ts';
import { type OutputFlags, printJson, printLine } from './output.ts';

export interface ServiceFlags extends OutputFlags {
	readonly port: number;
	readonly host: string;
	readonly allowNonLoopback?: boolean | undefined;
	readonly workflows?: readonly string[] | undefined;
	readonly connectionTtl?: number | undefined;
	readonly shortTokenTtl?: number | undefined;
}

export async function runService(flags: ServiceFlags): Promise<void> {
	const service = await runServiceCommand(
		{
			port: flags.port,
			host: flags.host,
			allowNonLoopback: flags.allowNonLoopback,
			workflows: flags.workflows,
			connectionTtlSeconds: flags.connectionTtl,
			shortTokenTtlSeconds: flags.shortTokenTtl,
		},
		process.stdout,
	).catch((error: unknown) => {
		const said = error instanceof Error ? error.message : String(error);
		throw new AgentError('service-unreachable', `The embedded service cannot start: ${said}.`, {
			remedy: 'Choose another --port (0 takes any free one) or correct the flag that is named.',
			cause: error,
		});
	});
	const stop = () => void service.close().then(() => process.exit(0));
	process.once('SIGINT', stop);
	process.once('SIGTERM', stop);
}

export interface NotifyFlags extends OutputFlags {
	readonly url: string;
	readonly device?: string | undefined;
	readonly workflow?: string | undefined;
}

/** The credential comes from `IDV_AUTHORIZATION`, such as `Bearer …`: a trial's own, printed when it started. */
export async function notifyDevices(text: string, flags: NotifyFlags): Promise<void> {
	const authorization = parseAuthorization(process.env['IDV_AUTHORIZATION']);
	if (!authorization)
		throw new AgentError('usage', 'IDV_AUTHORIZATION holds no credential.', {
			remedy: 'Set it to the Bearer or Basic credential that the embedded service printed, such as "Bearer …".',
		});
	const message = parseMessage(text);
	const reached = await notifyEmbeddedService(
		{ url: flags.url, authorization },
		{ message, deviceId: flags.device, workflowId: flags.workflow },
	).catch((error: unknown) => {
		throw new AgentError('service-failed', error instanceof Error ? error.message : String(error), {
			remedy: 'Check --url and IDV_AUTHORIZATION against what the embedded service printed when it started.',
		});
	});
	if (flags.json) printJson({ reached });
	else printLine(`Sent to ${reached} ${reached === 1 ? 'device' : 'devices'}.`);
}

function parseMessage(text: string): unknown {
	try {
		return JSON.parse(text);
	} catch {
		throw new AgentError('body-invalid', 'The message is not JSON.', {
			remedy: `Quote it for the shell: '{"type":"hello"}'.`,
		});
	}
}
