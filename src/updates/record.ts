/** An update under way and the versions that were taken back, as root keeps them. Pure. Other versions read them: fields are only added. */
import * as z from 'zod';
import { later } from '../protocol/later.ts';

/** As dpkg names one that is installed: more than what a plan may order, and nothing that breaks a line of apt's preferences. */
export const versionSchema = later(() =>
	z.string('must be a text').regex(/^\d[A-Za-z0-9.+~:-]{0,255}$/, 'must be a version such as 0.3.0'),
);

export const trialSchema = later(() =>
	z.looseObject({
		schemaVersion: z.literal(1),
		/** `standsIn`: the kept program runs until dpkg can be asked to go back. `goingBack` is written before the old version is installed,
		 * `goneBack` when it is: the next judge goes on there. */
		phase: z.enum(['prepared', 'judging', 'standsIn', 'goingBack', 'goneBack']),
		from: versionSchema,
		/** A digest of its files, which tells it from another build under the same version. */
		fromBuild: z.string().nullable().default(null),
		to: versionSchema,
		toBuild: z.string().nullable().default(null),
		startedAt: z.string(),
		before: z.enum(['online', 'offline', 'stopped']),
		/** Whether a boot started the agent before; a script of the new version may end that. */
		wasEnabled: z.boolean().default(false),
		/** Whether the new version has started since dpkg was done with it: then only a person stops it. */
		wasReady: z.boolean().default(false),
		/** Of the machine, in a row, in which the new version has not stood its time. */
		boots: z.int(),
		/** The newest of them; `readBootId` gives it. */
		bootId: z.string().nullable(),
		/** Which run of the unit was the old version's, as systemd names it. */
		oldRun: z.string().nullable(),
		/** How often the new version died, over all boots. */
		restarts: z.int(),
		/** The count of systemd when it was last asked in this boot. */
		unitRestarts: z.int(),
		/** How long the service was waited for, in milliseconds. */
		waitedMs: z.number(),
		wasFinished: z.boolean(),
		fault: z.string().nullable(),
	}),
);

export type Trial = z.infer<typeof trialSchema>;

/** Whether the version before takes its place again, and was not online since: no order begins meanwhile. */
export const isGoingBack = (trial: Trial | null): boolean =>
	trial !== null && (trial.phase === 'goingBack' || trial.phase === 'goneBack');

export const takenBackSchema = later(() =>
	z.looseObject({
		version: versionSchema,
		/** The version that took its place. */
		by: versionSchema,
		at: z.string(),
		fault: z.string(),
		/** The last lines of its log, without secrets. */
		log: z.array(z.string()),
	}),
);

export type TakenBack = z.infer<typeof takenBackSchema>;

export const outcomesSchema = later(() =>
	z.looseObject({
		schemaVersion: z.literal(1),
		takenBack: z.array(takenBackSchema),
		/** The newest version that was judged good, as a floor: a plan never leads below it. */
		kept: versionSchema.nullable(),
		/** Why the order of the newest plan was not carried out, and its version where it was read; `null` since one was, or there was nothing to do. */
		failed: z
			.looseObject({ code: z.string(), message: z.string(), at: z.string(), version: z.string().nullable().optional() })
			.nullable(),
		/** The newest plan by which this device was updated: an older one orders nothing. */
		plan: z.looseObject({ epoch: z.int(), revision: z.int() }).nullable(),
	}),
);

export type Outcomes = z.infer<typeof outcomesSchema>;

/** What root has written of updates. */
export interface Records {
	readonly trial: Trial | null;
	readonly outcomes: Outcomes;
}

export const NO_OUTCOMES: Outcomes = { schemaVersion: 1, takenBack: [], kept: null, failed: null, plan: null };
export const NO_RECORDS: Records = { trial: null, outcomes: NO_OUTCOMES };
/** Versions that are remembered; the oldest is forgotten. */
export const MAX_TAKEN_BACK = 8;
export const MAX_LOG_LINES = 100;

export function withTakenBack(outcomes: Outcomes, one: TakenBack): Outcomes {
	const others = outcomes.takenBack.filter(({ version }) => version !== one.version);
	return { ...outcomes, takenBack: [...others, { ...one, log: one.log.slice(-MAX_LOG_LINES) }].slice(-MAX_TAKEN_BACK) };
}

/** A file of /etc/apt/preferences.d that keeps apt from versions that did not work here; `null` for none. */
export function pinning({ takenBack }: Outcomes): string | null {
	if (takenBack.length === 0) return null;
	const stanzas = takenBack.map(
		({ version, at }) => `# Taken back on ${at}.\nPackage: idv-agent\nPin: version ${version}\nPin-Priority: -1\n`,
	);
	return `# Written by idv-agent: these versions did not work on this device. idv-agent update forget takes them out.\n\n${stanzas.join('\n')}`;
}
