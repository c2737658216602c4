/** Messages between agent and page. The type check of the page reads them: nothing here needs Node.js. */
import * as z from 'zod';
import type { Entry } from '../events/event.ts';
import type { Standing } from '../pairing/rescue.ts';
import { type PairPreview, type PairResult, pairRequestSchema, type Status } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import type { PinNeed } from './pin.ts';
import type { TimelineSegment } from './timeline.ts';

/** The part of a notification that the page shows. */
export interface PageEvent extends Pick<Entry, 'id' | 'at' | 'kind'> {
	/** Only where a site wants contents on a screen that is open to all. */
	readonly content?: string;
}

/** The message to an open page, at first and after every change. */
export interface PageView {
	readonly nowMs: number;
	readonly language: Settings['page']['language'];
	readonly support: string | null;
	readonly status: Pick<
		Status,
		| 'state'
		| 'summary'
		| 'pairedAt'
		| 'pairedAtBy'
		| 'agentVersion'
		| 'startedAt'
		| 'deviceId'
		| 'deviceType'
		| 'serial'
		| 'macAddress'
		| 'baseUrl'
		| 'workflow'
		| 'problem'
		| 'warnings'
	>;
	readonly lastHeartbeatAt: string | null;
	readonly events: readonly PageEvent[];
	readonly timeline: readonly TimelineSegment[];
	readonly standing: Standing;
	readonly pinNeed: PinNeed;
	/** The scanned code that waits for a confirmation, without its token. */
	readonly proposal: (Shown & { readonly id: number }) | null;
}

/** The part of a preview that the page shows. */
export type Shown = Pick<PairPreview, 'host' | 'hostInUnicode' | 'baseUrl' | 'workflowId'>;

/** Without `replace`: a person in front of the screen cannot move a device. */
export const inspectSchema = pairRequestSchema.omit({ replace: true, keepEvents: true });
/** `opening`: the secret with which the kiosk's browser opened the page. */
const given = { pin: z.string().max(64).optional(), opening: z.string().max(64).optional() };
/** A code that was typed or seen here, or the one that was scanned. */
export const pairSchema = z.union([
	inspectSchema.extend(given),
	inspectSchema.omit({ code: true }).extend({ ...given, proposal: z.int() }),
]);
export const dismissSchema = z.strictObject({ proposal: z.int() });

/** Requests of the page with POST, and the answer of success, by path. */
export interface PageRequests {
	'/api/inspect': { readonly body: z.input<typeof inspectSchema>; readonly answer: PairPreview };
	'/api/pair': { readonly body: z.input<typeof pairSchema>; readonly answer: PairResult };
	'/api/dismiss': { readonly body: z.input<typeof dismissSchema>; readonly answer: object };
}
