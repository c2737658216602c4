/** The hosts, ids, kinds and paths of files of a device that what it writes may show: of its settings, its identity and the services that it is paired with. Pure. */
import { OPAQUE } from '../base/shapes.ts';
import type { ResolvedSettings } from '../settings/resolve.ts';
import { listSettings, type Settings, valueAt } from '../settings/table.ts';
import { type DeviceState, EMPTY_STATE } from '../state/device-state.ts';

const SHOWN =
	/^(?:deviceId|serial|macAddress|workflowId|fleet\.name|scanner\.device|service\.(?:subprotocol|confirmKind|pingKind)|.*File)$/;

export function ownTexts(
	settings: Settings,
	{ identity, registeredOn, generatedId, connections, pairing, assignedWorkflow, plan }: DeviceState,
	more: readonly (string | null | undefined)[] = [],
): string[] {
	const paths = [...listSettings().keys()];
	const ids = paths.filter((path) => SHOWN.test(path)).map((path) => valueAt(settings, path));
	// Some gateways take their key as a subprotocol.
	const isSecret = (text: unknown) => text === settings.service.subprotocol && OPAQUE.test(String(text));
	const urls = paths.flatMap((path) => valueAt(settings, path));
	// A workflow that a person or a plan has set; a message of the service may say anything.
	const set = assignedWorkflow?.source === 'service message' ? null : assignedWorkflow?.workflowId;
	const saved = connections.flatMap(({ request: { deviceId, serial, macAddress } }) => [deviceId, serial, macAddress]);
	const hosts = [...urls, pairing?.baseUrl, ...connections.map(({ baseUrl }) => baseUrl)].flatMap((url) => {
		const parsed = typeof url === 'string' && url.includes('://') ? URL.parse(url) : null;
		return parsed ? [parsed.host, parsed.hostname] : [];
	});
	return [
		...more,
		...ids.filter((one) => !isSecret(one)),
		set,
		plan?.taken?.base.workflowId,
		plan?.taken?.move?.to.workflowId,
		generatedId,
		...Object.values(identity ?? {}),
		registeredOn?.serial,
		registeredOn?.macAddress,
		...saved,
		...hosts,
	].filter((text): text is string => typeof text === 'string' && text.length > 1);
}

/** Texts of the device in its settings files, the names of these files and their directories, and those of all settings. */
export function textsOfFiles({ settings, documents, problems }: ResolvedSettings): string[] {
	const bad = problems.map(({ params, message }) => params?.['path'] ?? /^(\/\S+?):? /.exec(message)?.[1]);
	const files = [...documents.map(({ where }) => where), ...bad].filter((file) => typeof file === 'string');
	return [
		...ownTexts(settings, EMPTY_STATE),
		...files,
		...files.map((file) => file.replace(/\/[^/]*$/, '')),
		...listSettings().keys(),
	];
}
