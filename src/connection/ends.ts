/** When the means by which the service lets a device in begin and end. Pure. */
import { readTokenLife } from '../protocol/token-life.ts';
import { connectionOf } from './link.ts';
import type { LinkState } from './link-state.ts';

/** Milliseconds since 1970; `null` while that is not known. */
export interface Ends {
	readonly connectionStartMs: number | null;
	readonly connectionEndMs: number | null;
	readonly keyEndMs: number | null;
	readonly certificateEndMs: number | null;
}

export interface HasEnds {
	ends(): Ends;
}

export function endsOf(
	current: { readonly state: LinkState } | null,
	{
		credentials: { reusable },
		network,
	}: {
		readonly credentials: { readonly reusable: { readonly scheme: string; readonly credential?: string } | null };
		readonly network: { readonly certificateEndMs?: number | undefined };
	},
	clock: { wallMs(): number; monotonicMs(): number },
): Ends {
	const connection = current && connectionOf(current.state);
	const startMs = connection ? clock.wallMs() - (clock.monotonicMs() - connection.obtainedAtMs) : null;
	const keyLife = reusable?.scheme === 'ApiKey' ? readTokenLife(reusable.credential ?? '') : null;
	return {
		connectionStartMs: startMs,
		connectionEndMs: startMs === null || !connection?.lifeMs ? null : startMs + connection.lifeMs,
		keyEndMs: keyLife && keyLife.expiresAtSeconds * 1000,
		certificateEndMs: network.certificateEndMs ?? null,
	};
}
