/** Whether commands of hooks can run, and what they cannot do since they do not run as the agent. Pure. */
import { failure } from '../base/errors.ts';
import { type Finding, notApplicable, ok, warning } from './checks.ts';

export const HOOKS_UNIT = 'idv-agent-hooks.service';
/** What drop-ins of a unit add to its rights. */
export const RIGHTS = ['ReadWritePaths', 'SupplementaryGroups'] as const;
export const HOOKS_UNIT_PROPERTIES: readonly string[] = [...RIGHTS, 'LoadState', 'ActiveState', 'Environment'];

type Properties = Readonly<Record<string, string>>;

/** Of idv-agent.service as shipped, and by the drop-ins for scanners. */
const OWN_OF_THE_AGENT = ['/run/idv-agent', 'dialout'];

/** @param unit `null` where systemd does not run this machine. */
export function assessHooks(found: {
	/** The hooks that are set, each with the place where that stands. */
	readonly set: readonly { readonly name: string; readonly source: string; readonly where: string | null }[];
	readonly agentUnit: Properties | null;
	readonly unit: Properties | null;
	/** Programs and files in commands that a user in the group of the agent may not run or read. */
	readonly closed: readonly string[];
}): Finding {
	const { set, agentUnit, unit, closed } = found;
	if (set.length === 0) return notApplicable('No hook is set (hooks.*).');
	const names = set.map(({ name }) => `hooks.${name}`).join(', ');
	if (!unit || !agentUnit) return ok(`${names}: idv-agent hooks runs the commands beside the agent, as its user.`);
	if (unit['LoadState'] !== 'loaded' || unit['ActiveState'] !== 'active') {
		const state = unit['LoadState'] === 'loaded' ? unit['ActiveState'] : unit['LoadState'];
		const remedy = `Look at it: systemctl status ${HOOKS_UNIT}; it starts with the agent.`;
		return warning(
			failure('unit-not-ready', `${HOOKS_UNIT} does not run (${state}), and no command of ${names}.`, { remedy }),
		);
	}
	const words = (properties: Properties, name: string) => properties[name]?.split(' ').filter(Boolean) ?? [];
	const lost = RIGHTS.flatMap((right) => {
		const kept = [...OWN_OF_THE_AGENT, ...words(unit, right)];
		const gone = words(agentUnit, right).filter((word) => !kept.includes(word));
		return gone.length === 0 ? [] : [`${right}=${gone.join(' ')} of idv-agent.service`];
	});
	const unread = set.filter(({ source, where }) => {
		return source === 'flag' || (source === 'environment' && !unit['Environment']?.includes(`${where}=`));
	});
	for (const { where } of unread) lost.push(`${where} of idv-agent.service`);
	for (const path of closed) lost.push(path);
	if (lost.length > 0) {
		const remedy = `If a command needs one: for a line of a unit, systemctl edit ${HOOKS_UNIT}; a file for everyone, or for the group idv-agent, has mode 0644 or 0640, a program 0755, and no directory above is closed.`;
		const message = `Commands of hooks.* run in ${HOOKS_UNIT}, without the rights of the agent. They lack: ${lost.join('; ')}.`;
		return warning(failure('access-denied', message, { remedy }));
	}
	return ok(
		`${names}: commands run in ${HOOKS_UNIT}, without the agent's user. They read neither its state nor its credentials.`,
	);
}
