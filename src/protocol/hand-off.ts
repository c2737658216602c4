/** Starting a session and handing its URL on. Source: service-interface, Handoff URL record and Endpoints 5. */
import * as z from 'zod';
import { workflowIdSchema } from './device-connection.ts';
import { later } from './later.ts';

/** Lifetime of the session and of the returned token, in seconds, when the body names none. */
export const DEFAULT_SESSION_TTL = 3600;

export const handOffRequestSchema = later(() =>
	z.object({
		metadata: z.record(z.string(), z.unknown()).default({}),
		locale: z.string().min(1).max(35).nullable().default(null),
		/** Seconds, 1 to 30 days. Source of the upper bound: assumed (hand-off-life). */
		ttl: z
			.int('must be a whole number of seconds')
			.min(1, 'must be at least 1 second')
			.max(2_592_000, 'must be at most 2592000 seconds (30 days)')
			.default(DEFAULT_SESSION_TTL),
	}),
);
export type HandOffRequest = z.input<typeof handOffRequestSchema>;

export const handOffRecordSchema = later(() =>
	z.object({
		url: z.url(),
		createdAt: z.string(),
		expiresAt: z.string(),
		workflowIds: z.array(z.string()),
	}),
);
export type HandOffRecord = z.infer<typeof handOffRecordSchema>;

export const workflowIdsSchema = later(() =>
	z.array(workflowIdSchema).min(1, 'must name at least one workflow').max(32),
);

/** Repeated `workflowId` parameters, commas inside accepted, each once. Source: assumed (hand-off-workflows). */
export function readWorkflowIds(query: URLSearchParams): string[] {
	const ids = query.getAll('workflowId').flatMap((value) => value.split(','));
	return [...new Set(ids.map((id) => id.trim()).filter(Boolean))];
}

/** The same workflows as a query: one parameter each. */
export function formatWorkflowIds(workflowIds: readonly string[]): URLSearchParams {
	return new URLSearchParams(workflowIds.map((id) => ['workflowId', id]));
}
