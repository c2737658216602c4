/** What the store of events says of its files when they are damaged or cannot be written. Pure. */
import { AgentError, type Failure, failure } from '../base/errors.ts';

/** More are not named. */
const NAMED = 8;

/** @param damages the files, and of each what is wrong. */
export function damagedEvents(damages: readonly { readonly file: string; readonly fault: string }[]): Failure | null {
	const [first] = damages;
	if (!first) return null;
	const others = Array.from(new Set(damages.map(({ file }) => file))).filter((file) => file !== first.file);
	const more = others.length > 0 ? ` Also damaged: ${others.slice(0, NAMED).join(', ')}.` : '';
	const message = `Stored events are damaged in ${first.file}: ${first.fault}.${more} Where one is missing, applications get a gap.`;
	const remedy = 'Ask the service for what applications may have missed; check the disk if it happens again.';
	return failure('state-corrupt', message, { remedy });
}

export const unwritableEvents = (directory: string, fault: string): Failure =>
	failure(
		'state-unwritable',
		`Events cannot be stored in ${directory}: ${fault}. Meanwhile they are kept in memory and would be lost with the agent.`,
	);

/** @param erased how many no application gets any more. */
export function unerasableEvents(directory: string, fault: string, cause: unknown, erased: number): AgentError {
	const message = `Events cannot be erased in ${directory}: ${fault}.`;
	const gone = erased === 0 ? '' : ` No application gets the ${erased} that were meant; on the disk they may still be.`;
	return new AgentError('state-unwritable', message + gone, {
		cause,
		params: { erased },
		remedy: 'Make the disk writable, then erase them again.',
	});
}
