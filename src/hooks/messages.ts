/** The words between the agent and the helper unit, a line of JSON each. A request names a hook and never a command: the helper's settings do. */
import * as z from 'zod';
import { MAX_FRAME_BYTES } from '../protocol/channel.ts';
import { parseJson } from '../protocol/json.ts';
import { SETTINGS, type Settings } from '../settings/table.ts';

/** A setting that holds a command. */
export type HookName = Exclude<keyof Settings['hooks'], 'helper'>;
const HOOK_NAMES = Object.keys(SETTINGS.hooks).filter((name) => name !== 'helper') as HookName[];

/** Longest request, in bytes: the largest message of a service and what stands around it. */
export const MAX_REQUEST_BYTES = MAX_FRAME_BYTES + 65_536;
export const MAX_ANSWER_BYTES = 16_384;

/** `input` becomes one line of JSON on the standard input of the command. */
export const helperRequest = z.strictObject({ hook: z.enum(HOOK_NAMES), input: z.unknown() });

/** How a command ended. */
export const helperAnswer = z.object({
	/**
	 * `dropped`: too many were waiting, or the agent stops. `killed`: by a signal that was not ours. `notStarted`: also for a
	 * request that was refused.
	 */
	outcome: z.discriminatedUnion('kind', [
		z.object({ kind: z.literal('exited'), exitStatus: z.int() }),
		z.object({ kind: z.literal('killed'), signal: z.string().max(20) }),
		z.object({ kind: z.enum(['timedOut', 'dropped']) }),
		z.object({ kind: z.literal('notStarted'), reason: z.string().max(2000) }),
	]),
	/** The beginning of its standard error on one line, without control characters. It may hold anything: scrub it. */
	stderr: z.string().max(2000),
});
export type HelperAnswer = z.infer<typeof helperAnswer>;

/** The message of that schema in a line. @returns `null` for any other line. */
export function readMessage<Message>(line: string, schema: z.ZodType<Message>): Message | null {
	return schema.safeParse(parseJson(line)).data ?? null;
}
