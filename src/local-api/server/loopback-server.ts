/**
 * A route table on a TCP port of 127.0.0.1: for applications that live in a browser, for health and metrics, which a scraper
 * cannot ask for on a Unix socket, or for the agent's own page. Must never listen anywhere else, nor answer an unknown page.
 */
import { AgentError } from '../../base/errors.ts';
import type { BrowserApplication } from './browser-applications.ts';
import { type Authorize, createContext, shutDown } from './context.ts';
import { authorizeBrowsers, authorizePage, authorizeProbes } from './loopback-callers.ts';
import { createServer } from './requests.ts';
import { untilListening } from './sockets.ts';
import type { ReplyHeaders, ServingOptions } from './types.ts';

export { type BrowserApplication, readBrowserApplications } from './browser-applications.ts';
export { isSameSecret } from './loopback-callers.ts';

export type LoopbackServerOptions = ServingOptions & {
	/** 1 to 65,535; 0 takes a free one. */
	readonly port: number;
} & (
		| {
				/** Routes with `browser` among their `listeners`, for the pages of these applications only. */
				readonly listener: 'browser';
				/** As they are now: asked for each request. */
				readonly applications: () => readonly BrowserApplication[];
		  }
		| {
				/** Routes with `probe` among their `listeners`, for every program on this device, but no page in a browser. */
				readonly listener: 'probe';
		  }
		| {
				/** Routes with `page` among their `listeners`, for the page that they serve. */
				readonly listener: 'page';
				/** On every answer. */
				readonly headers: ReplyHeaders;
		  }
	);

export interface LoopbackServer {
	/** The one it listens on. */
	readonly port: number;
	/** Ends streams as `stopping`, gives requests under way a second. */
	close(): Promise<void>;
}

/**
 * Listens on 127.0.0.1.
 * @throws AgentError `socket-failed` when the port is taken or may not be used.
 */
export async function openLoopbackServer(options: LoopbackServerOptions): Promise<LoopbackServer> {
	const context = createContext(options, { runDir: null, authorize: authorizeFor(options) });
	const server = createServer(context, options.listener);
	try {
		await untilListening(server, () => server.listen({ host: '127.0.0.1', port: options.port }));
	} catch (error) {
		const reason = (error as NodeJS.ErrnoException).code ?? String(error);
		throw new AgentError('socket-failed', `Cannot listen on 127.0.0.1:${options.port} (${reason}).`, {
			remedy: 'Choose another port, or stop the program that uses it.',
			cause: error,
		});
	}
	const address = server.address();
	let closed: Promise<void> | null = null;
	return {
		port: typeof address === 'object' && address ? address.port : options.port,
		close() {
			closed ??= shutDown(context, [server]);
			return closed;
		},
	};
}

function authorizeFor(options: LoopbackServerOptions): Authorize {
	if (options.listener === 'browser') return authorizeBrowsers(options.applications);
	return options.listener === 'page' ? authorizePage(options.headers) : authorizeProbes;
}
