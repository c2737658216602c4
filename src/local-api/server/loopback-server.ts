/**
 * The route table on a TCP port of 127.0.0.1: for applications that live in a browser, or for health and metrics, which a
 * scraper cannot ask for on a Unix socket. Must never listen anywhere else, nor answer a page that nobody has named.
 */
import { AgentError } from '../../base/errors.ts';
import type { BrowserApplication } from './browser-applications.ts';
import { createContext, shutDown } from './context.ts';
import { authorizeBrowsers, authorizeProbes } from './loopback-callers.ts';
import { createServer } from './requests.ts';
import { untilListening } from './sockets.ts';
import type { ServingOptions } from './types.ts';

export { type BrowserApplication, readBrowserApplications } from './browser-applications.ts';

export type LoopbackServerOptions = ServingOptions & {
	/** 1 to 65,535; 0 takes a free one. */
	readonly port: number;
} & (
		| {
				/** Routes with `browser` among their `sockets`, for the pages of these applications only. */
				readonly listener: 'browser';
				/** As they are now: asked for each request. */
				readonly applications: () => readonly BrowserApplication[];
		  }
		| {
				/** Routes with `probe` among their `sockets`, for every program on this device, but no page in a browser. */
				readonly listener: 'probe';
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
	const authorize = options.listener === 'browser' ? authorizeBrowsers(options.applications) : authorizeProbes;
	const context = createContext(options, { runDir: null, authorize });
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
