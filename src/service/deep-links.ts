/**
 * Links that carry a Short Token: pairing codes and hand-off URLs. Owns their form and issues their tokens.
 * Source: service-interface, Handoff URL record and Endpoints 1; the workflow in a pairing code is assumed.
 */
import { DEEP_LINK_PATH, endpointUrl } from '../protocol/endpoints.ts';
import type { Grant } from './access.ts';
import type { ShortTokens } from './short-tokens.ts';

export interface PairingLink {
	readonly url: string;
	readonly token: string;
	/** ISO 8601. */
	readonly expiresAt: string;
	readonly workflowId: string | null;
}

export interface DeepLinkRequest {
	readonly workflowIds: readonly string[] | null;
	readonly sessionId: string | null;
	readonly ttlSeconds: number;
	readonly issuerGrant: Grant;
}

export interface DeepLink {
	readonly url: string;
	readonly token: string;
	readonly createdAt: string;
	readonly expiresAt: string;
}

/**
 * Issues a token and builds the link around it. A hand-off names its session, a pairing code its workflow if it has one.
 * @throws Refusal 503 `service-full`.
 */
export function issueDeepLink(
	shortTokens: ShortTokens,
	baseUrl: string,
	nowMs: number,
	{ workflowIds, sessionId, ttlSeconds, issuerGrant }: DeepLinkRequest,
): DeepLink {
	const expiresAtMs = nowMs + ttlSeconds * 1000;
	const token = shortTokens.issue({ workflowIds, sessionId, expiresAtMs, issuerGrant });
	// URLSearchParams would write the space as `+`; the published form has `%20`.
	const parts = [`authorization=Token%20${token}`];
	const workflowId = workflowIds?.[0];
	if (sessionId !== null) parts.push(`sessionId=${sessionId}`);
	else if (workflowId !== undefined) parts.push(`workflowId=${encodeURIComponent(workflowId)}`);
	return {
		url: `${endpointUrl(baseUrl, DEEP_LINK_PATH).href}?${parts.join('&')}`,
		token,
		createdAt: new Date(nowMs).toISOString(),
		expiresAt: new Date(expiresAtMs).toISOString(),
	};
}
