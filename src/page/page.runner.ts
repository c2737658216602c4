/**
 * The page on the device's own screen, if the settings ask for one: what it shows of the agent and what it may ask of it.
 * Loaded only then. The page's own rules (who may ask, the PIN, limits) are the edge's.
 */

import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import type { Entry } from '../events/event.ts';
import type { Settings } from '../settings/table.ts';
import type { PageEvent, PageServer } from './server.edge.ts';

/** Of a content, in characters. */
const SHOWN_LENGTH = 200;

/**
 * @param settings as they are now: the PIN and whether contents are shown. The port is taken once.
 * @throws AgentError `socket-failed`.
 */
export async function openPage(parts: {
	readonly port: number;
	readonly agent: Pick<Agent, 'status' | 'onStatus' | 'events' | 'inspectPairing' | 'pair'>;
	readonly clock: Pick<Clock, 'wallMs'>;
	readonly settings: () => Settings['page'];
	readonly pin: () => string | null;
	readonly onFault: (error: unknown) => void;
}): Promise<PageServer> {
	const { agent, clock } = parts;
	const { openPageServer, SHOWN_EVENTS } = await import('./server.edge.ts');
	let shown: readonly Entry[] = [];
	const show = (entries: readonly Entry[]) => {
		const added = entries.filter(({ type }) => type === 'notification').slice(-SHOWN_EVENTS);
		if (added.length > 0) shown = [...shown, ...added].slice(-SHOWN_EVENTS);
	};
	const forget = agent.events.subscribe(show);
	const server = await openPageServer({
		port: parts.port,
		status: agent.status,
		onStatus: agent.onStatus,
		recentEvents: () => shown.map((entry) => toPageEvent(entry, parts.settings().contents)),
		inspect: agent.inspectPairing,
		pair: agent.pair,
		pin: parts.pin,
		onFault: parts.onFault,
		wallMs: clock.wallMs,
	});
	return {
		url: server.url,
		close() {
			forget();
			return server.close();
		},
	};
}

function toPageEvent({ id, at, kind, content }: Entry, withContent: boolean): PageEvent {
	return { id, at, kind, ...(withContent ? { content: content.slice(0, SHOWN_LENGTH) } : {}) };
}
