/** `idv device connect`: registers a device in its place, and hands the Connection on for provisioning. */
import { AgentError } from '../base/errors.ts';
import { printJson, printLine, printTable, untilTime } from '../cli/output.ts';
import { type DeviceConnectionRequest, deviceConnectionRequestSchema } from '../protocol/device-connection.ts';
import { checkPlaceForSecret, reserveSecretFile } from './secret-output.ts';
import { inOperatorsWords, type Purpose, withClient } from './service-call.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.ts';

export interface DeviceFlags extends TargetFlags {
	readonly deviceId: string;
	readonly workflow: string;
	readonly serial?: string | undefined;
	readonly mac?: string | undefined;
	readonly type?: string | undefined;
	/** Seconds. */
	readonly heartbeat?: number | undefined;
	/** RFC 6901 pointer to the Connection in the answer. */
	readonly tokenPointer?: string | undefined;
	readonly out?: string | undefined;
}

const PURPOSE: Purpose = {
	creates: 'a Connection',
	needs: 'Basic, Bearer, an API key with ephemeral_device:write, or a Short Token',
};

export async function connectDevice(flags: DeviceFlags): Promise<void> {
	const request = checkRequest(flags);
	checkPlaceForSecret('The Connection', { json: flags.json, out: flags.out });
	const target = await resolveTarget(flags, process.env);
	const file = flags.out === undefined ? null : await reserveSecretFile(flags.out);
	const { token, expiresAt } = await register(target, request, flags.tokenPointer).catch(async (error: unknown) => {
		await file?.discard();
		throw error;
	});
	await file?.write(`Connection ${token}\n`);

	const { deviceId, workflowId } = request;
	const told = { baseUrl: target.baseUrl, deviceId, workflowId, expiresAt };
	if (flags.json) return printJson({ ...told, ...(file ? { file: file.path } : { connection: token }) });
	printLine(`Registered ${deviceId} for workflow ${workflowId}.\n`);
	printTable([
		file ? ['Saved', file.path] : ['Connection', token],
		['Expires', expiresAt === null ? 'it does not say' : untilTime(expiresAt)],
	]);
	printLine(
		`\nOn the device set baseUrl ${target.baseUrl}, deviceId ${deviceId}, workflowId ${workflowId}, and name the file with the Connection in credential.connectionFile.`,
	);
}

/** The field of the body behind each flag. */
const FLAGS: Readonly<Record<keyof DeviceConnectionRequest, string>> = {
	deviceId: '--device-id',
	workflowId: '--workflow',
	serial: '--serial',
	macAddress: '--mac',
	deviceType: '--type',
	heartbeatCadence: '--heartbeat',
};

/** @throws AgentError `usage` naming the flag. */
function checkRequest(flags: DeviceFlags): DeviceConnectionRequest {
	const { deviceId, workflow, serial, mac, type, heartbeat } = flags;
	const given = {
		deviceId,
		workflowId: workflow,
		...(serial === undefined ? {} : { serial }),
		...(mac === undefined ? {} : { macAddress: mac }),
		...(type === undefined ? {} : { deviceType: type }),
		...(heartbeat === undefined ? {} : { heartbeatCadence: heartbeat }),
	};
	const read = deviceConnectionRequestSchema.safeParse(given);
	if (read.success) return read.data;
	const [issue] = read.error.issues;
	const flag = FLAGS[issue?.path[0] as keyof DeviceConnectionRequest];
	throw new AgentError('usage', `${flag} ${issue?.message}.`, { remedy: 'See "idv device connect --help".' });
}

async function register(
	target: Target,
	request: DeviceConnectionRequest,
	tokenPointer: string | undefined,
): Promise<{ token: string; expiresAt: string | null }> {
	return withClient(target, async (client) => {
		const { baseUrl, authorization } = target;
		const result = await client.registerDevice({ baseUrl, authorization, request, tokenPointer });
		if (result.ok)
			return {
				token: result.token,
				expiresAt: result.life ? new Date(result.life.expiresAtSeconds * 1000).toISOString() : null,
			};
		const { code, message, remedy } = result.failure;
		const refused = new AgentError(code, message, { remedy });
		throw inOperatorsWords(refused, PURPOSE, result.sent === 'perhaps' ? 'perhaps' : 'nothing');
	});
}
