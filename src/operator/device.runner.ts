/** `idv device connect`: registers a device in its place, and hands the Connection on for provisioning. */
import { AgentError } from '../base/errors.ts';
import { onOneLine } from '../base/printed.ts';
import { type Shell, untilTime } from '../cli/output.runner.ts';
import { type DeviceConnectionRequest, deviceConnectionRequestSchema } from '../protocol/device-connection.ts';
import { checkPlaceForSecret, saveSecret } from './secret-output.runner.ts';
import { inOperatorsWords, type Purpose, withClient } from './service-call.runner.ts';
import { resolveTarget, type Target, type TargetFlags } from './service-target.runner.ts';

export interface DeviceFlags extends TargetFlags {
	readonly deviceId: string;
	readonly workflow: string;
	readonly serial?: string | undefined;
	readonly mac?: string | undefined;
	readonly type?: string | undefined;
	readonly heartbeat?: number | undefined;
	readonly tokenPointer?: string | undefined;
	readonly out?: string | undefined;
}

const PURPOSE: Purpose = {
	creates: 'a Connection',
	needs: 'Basic, Bearer, an API key with ephemeral_device:write, or a Short Token',
};

export async function connectDevice(shell: Shell, flags: DeviceFlags): Promise<void> {
	const request = checkRequest(flags);
	checkPlaceForSecret(shell, 'The Connection', { out: flags.out });
	const target = await resolveTarget(shell, flags);
	const { made, path } = await saveSecret(
		shell,
		flags.out,
		() => register(target, request, flags.tokenPointer),
		({ token }) => `Connection ${token}\n`,
		() => `The Connection of ${request.deviceId}`,
	);
	const { token, expiresAt } = made;
	const { deviceId, workflowId } = request;
	const told = { baseUrl: target.baseUrl, deviceId, workflowId, expiresAt };
	if (shell.isJson) return shell.json({ ...told, ...(path === null ? { connection: token } : { file: path }) });
	shell.line(`Registered ${onOneLine(deviceId)} for workflow ${onOneLine(workflowId)}.\n`);
	shell.table([
		path === null ? ['Connection', token] : ['Saved', path],
		['Expires', expiresAt === null ? 'it does not say' : untilTime(expiresAt)],
	]);
	shell.line(
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
	const { deviceId, workflow: workflowId, serial, mac: macAddress, type: deviceType, heartbeat } = flags;
	const ids = { deviceId, workflowId, serial, macAddress, deviceType };
	const read = deviceConnectionRequestSchema.safeParse({ ...ids, heartbeatCadence: heartbeat });
	if (read.success) return read.data;
	const [issue] = read.error.issues;
	const flag = FLAGS[issue?.path[0] as keyof DeviceConnectionRequest];
	throw new AgentError('usage', `${flag} ${issue?.message}.`, { remedy: 'See "idv device connect --help".' });
}

async function register(target: Target, request: DeviceConnectionRequest, tokenPointer: string | undefined) {
	return withClient(target, async (client) => {
		const { baseUrl, authorization } = target;
		const result = await client.registerDevice({ baseUrl, authorization, request, tokenPointer });
		if (result.ok)
			return {
				token: result.token,
				expiresAt: result.life ? new Date(result.life.expiresAtSeconds * 1000).toISOString() : null,
			};
		throw inOperatorsWords(result.failure, PURPOSE, result.sent === 'perhaps');
	});
}
