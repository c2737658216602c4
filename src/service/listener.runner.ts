/** The listening socket and its two ways in, requests and upgrades: injected faults, log, stop and listen again. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { EventLog, RequestEntry } from './event-log.runner.ts';
import type { FaultAction, Faults } from './faults.ts';
import {
	type Answer,
	failedAnswer,
	problemAnswer,
	responseFor,
	sendAnswer,
	sendHalfAnswer,
	sendUnparsed,
} from './http-answer.runner.ts';
import { type Call, readCall } from './http-call.runner.ts';
import { reachableHost, type ServiceSettings, urlOf } from './options.runner.ts';
import { ProblemResponse } from './problems.ts';

export interface ListenerHandlers {
	/** Never rejects on purpose: a {@link ProblemResponse} becomes a problem document. */
	answer(call: Call): Promise<Answer>;
	/** Opens a channel; `false` when the peer was gone before. @throws ProblemResponse */
	upgrade(call: Call, socket: Duplex, head: Buffer): Promise<boolean>;
	/** For a transcript. */
	onAnswer(request: IncomingMessage, answer: Answer): void;
}

/** A request must have arrived in full after this time. */
const REQUEST_TIMEOUT_MS = 30_000;

function createHttpServer({ tls, maxDevices }: ServiceSettings) {
	const sockets = new Set<Socket>();
	const options = { requestTimeout: REQUEST_TIMEOUT_MS };
	const server: Server = tls ? createTlsServer({ ...tls, ...options }) : createServer(options);
	server.maxConnections = 2 * maxDevices + 1000;
	// Over TLS this is the raw socket under the secure one; destroying it ends both.
	server.on('connection', (socket) => {
		sockets.add(socket);
		socket.on('close', () => sockets.delete(socket));
	});
	server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
		if (!socket.writable) return void socket.destroy();
		const refusal =
			error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
				? new ProblemResponse('request-timeout', 'The request did not arrive in time.')
				: new ProblemResponse('request-malformed', 'This is not an HTTP/1.1 request.');
		sendUnparsed(socket as Socket, problemAnswer(refusal));
	});

	// Running out of file descriptors costs a connection, not the service.
	server.on('error', () => {});
	return { server, sockets };
}

function entryOf({ method, path, request, presented }: Call, status: number | null, at: number): RequestEntry {
	const authorizationScheme = typeof presented === 'string' ? null : presented.scheme;
	return { method, path: (path ?? request.url?.split('?')[0] ?? '').slice(0, 256), status, authorizationScheme, at };
}

/** The fate of one request or upgrade, by the faults and the handlers. */
function answering(settings: ServiceSettings, faults: Faults, eventLog: EventLog, handlers: ListenerHandlers) {
	const log = (call: Call, status: number | null) => eventLog.emit('request', entryOf(call, status, settings.now()));

	/** Once nothing holds it any more. */
	async function take(request: IncomingMessage) {
		const call = readCall(request, settings);
		const { held, action } = faults.matchFault(call.method, call.path ?? '');
		await held;
		return { call, action };
	}

	async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
		const { call, action } = await take(request);
		if (request.socket.destroyed) return log(call, null);
		const answer = action.kind === 'fail' ? failedAnswer(action.answer) : await handlers.answer(call);
		handlers.onAnswer(request, answer);
		if (action.kind === 'dropBeforeReply') request.socket.destroy();
		if (request.socket.destroyed) return log(call, null);
		send(response, answer, action);
		log(call, answer.status);
	}

	/** The service has one clock: devices read it off every answer. */
	function send(response: ServerResponse, answer: Answer, { kind }: FaultAction): void {
		response.setHeader('Date', new Date(settings.now()).toUTCString());
		if (kind === 'replyThenDrop') sendHalfAnswer(response, answer);
		else sendAnswer(response, answer);
	}

	async function serveUpgrade(request: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
		// The request has left HTTP: until a channel takes over, only this listens for a broken line.
		socket.on('error', () => socket.destroy());
		const { call, action } = await take(request);
		if (action.kind === 'dropBeforeReply') socket.destroy();
		if (socket.destroyed) return log(call, null);
		const refuse = (answer: Answer) => {
			handlers.onAnswer(request, answer);
			send(responseFor(request, socket), answer, action);
			log(call, answer.status);
		};
		if (action.kind === 'fail') return refuse(failedAnswer(action.answer));
		try {
			const accepted = await handlers.upgrade(call, socket, head);
			// Some services accept and then close: the answer goes out, the channel does not live.
			if (action.kind === 'replyThenDrop') socket.destroySoon();
			log(call, accepted ? 101 : null);
		} catch (error) {
			if (socket.destroyed) log(call, null);
			else refuse(problemAnswer(error));
		}
	}

	return { serve, serveUpgrade };
}

export async function startListener(
	settings: ServiceSettings,
	faults: Faults,
	eventLog: EventLog,
	handlers: ListenerHandlers,
) {
	const { server, sockets } = createHttpServer(settings);
	const { serve, serveUpgrade } = answering(settings, faults, eventLog, handlers);
	server.on('request', (request, response) => void serve(request, response));
	server.on('upgrade', (request, socket, head) => void serveUpgrade(request, socket as Socket, head));
	let port = settings.port;
	await listen();
	port = (server.address() as AddressInfo).port;

	async function listen(): Promise<void> {
		// Rejects with the error of a port that cannot be had.
		await once(server.listen(port, settings.host), 'listening');
	}

	/** Destroys every TCP socket; continues to listen. */
	function dropSockets(): void {
		for (const socket of sockets) socket.destroy();
	}

	return {
		get url() {
			return `${urlOf(reachableHost(settings.host), port, settings.tls !== undefined)}${settings.basePath}`;
		},
		get port() {
			return port;
		},
		dropSockets,
		/** Stops listening, waits for `drain`, then destroys every socket. */
		async stop(drain?: () => Promise<void>): Promise<void> {
			if (!server.listening) return;
			const closed = new Promise<void>((resolve) => server.close(() => resolve()));
			if (drain) await drain();
			dropSockets();
			await closed;
		},
		/** Listens again on the same port. */
		start: listen,
	};
}
