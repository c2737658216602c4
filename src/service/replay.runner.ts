/** A service that answers as a transcript says; what has only a shape there is made up again. Checks no credential. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { type WebSocket, WebSocketServer } from 'ws';
import { type Kind, SHAPE } from '../base/shapes.ts';
import { formOf, type TranscriptLine } from '../base/transcript.ts';
import { type Answer, responseFor, sendAnswer } from './http-answer.runner.ts';
import { describeRequest } from './http-call.runner.ts';
import { urlOf } from './options.runner.ts';
import { randomText } from './tokens.runner.ts';

interface Exchange {
	readonly place: string;
	readonly form: string;
	readonly lines: readonly TranscriptLine[];
	isUsed: boolean;
}

/** A number in JSON stands in quotes while it has only a shape. */
const LISTED_NUMBER = /"(\[number-\d{1,8}-[0-9a-f]{6}\])"/g;
const placeOf = ({ method, path }: Readonly<Record<'method' | 'path', string>>) => `${method} ${path}`;
/** Longest wait between two messages, in milliseconds: an idle minute of the transcript is not waited for. */
const MAX_GAP_MS = 60_000;
const YEAR_SECONDS = 31_536_000;
/** Set by whatever sends the answer. */
const OWN_HEADERS =
	/^(?:connection|date|content-length|content-encoding|transfer-encoding|trailer|upgrade|sec-websocket-.*)$/;

function exchangesIn(lines: readonly TranscriptLine[]): Exchange[] {
	const belonging = Map.groupBy(lines, ({ exchange }) => exchange);
	const requests = lines.filter((line) => line.kind === 'request');
	return requests.map((request) => {
		const others = belonging.get(request.exchange)?.filter((line) => line !== request) ?? [];
		return { place: placeOf(request), form: formOf(request), lines: others, isUsed: false };
	});
}

/** @throws the system's error when the port cannot be had. */
export async function startReplay(
	lines: readonly TranscriptLine[],
	{ host, port }: { readonly host: string; readonly port: number },
) {
	const exchanges = exchangesIn(lines);
	const made = new Map<string, string>();
	const unmask = (text: string) =>
		text.replaceAll(LISTED_NUMBER, '$1').replaceAll(SHAPE, (shape, kind: Kind, length: string) => {
			const value = made.get(shape) ?? madeUp(kind, Number(length));
			made.set(shape, value);
			return value;
		});

	/** The first of the alike ones that was not used yet, else the last of them; by path alone where none is alike. */
	function find(request: IncomingMessage): Exchange | null {
		const asked = describeRequest(request);
		const here = exchanges.filter(({ place }) => place === placeOf(asked));
		const form = formOf(asked);
		const alike = here.filter((one) => one.form === form);
		// Another way in than those of the transcript is not let in.
		const usable = alike.length > 0 ? alike : here.filter(({ lines }) => !lines.some(({ kind }) => kind === 'open'));
		const found = usable.find(({ isUsed }) => !isUsed) ?? usable.at(-1) ?? null;
		if (found) found.isUsed = true;
		return found;
	}

	function answerOf(found: Exchange | null): Answer {
		const line = found?.lines.find((one) => one.kind === 'answer' && one.status > 0);
		if (line?.kind !== 'answer') return { status: 404, headers: {}, body: '' };
		const headers = Object.entries(line.headers).filter(([name]) => !OWN_HEADERS.test(name));
		return {
			status: line.status,
			headers: Object.fromEntries(headers.map((pair) => pair.map(unmask))),
			body: unmask(line.body),
		};
	}

	const server = createServer((request, response) => {
		request.resume();
		sendAnswer(response, answerOf(find(request)));
	});
	const open = new Set<WebSocket>();
	server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
		socket.on('error', () => socket.destroy());
		const found = find(request);
		const opened = found?.lines.find(({ kind }) => kind === 'open');
		if (!found || opened?.kind !== 'open') return sendAnswer(responseFor(request, socket as never), answerOf(found));
		const { subprotocol } = opened;
		const frames = found.lines.filter((line) => line.kind === 'frame');
		const pongs = frames.some(({ frame, direction }) => frame === 'pong' && direction === 'toDevice');
		const upgrader = new WebSocketServer({
			...{ noServer: true, autoPong: pongs || !frames.some(({ frame }) => frame === 'ping'), perMessageDeflate: false },
			...(subprotocol !== '' && { handleProtocols: () => subprotocol }),
		});
		upgrader.handleUpgrade(request, socket, head, (channel) => {
			open.add(channel);
			channel.on('error', () => {});
			channel.once('close', () => open.delete(channel));
			play(channel, found.lines, unmask);
		});
	});
	await once(server.listen(port, host), 'listening');
	return {
		url: urlOf(host, (server.address() as AddressInfo).port, false),
		async close() {
			for (const channel of open) channel.terminate();
			server.closeAllConnections();
			await new Promise((resolve) => server.close(resolve));
		},
	};
}

/**
 * Says each message when as many frames of the device have come as before it in the transcript, and as late as then. A device
 * that has said more than the one of the transcript is not told off for what that one left out: its channel stays open.
 */
function play(channel: WebSocket, lines: readonly TranscriptLine[], unmask: (text: string) => string): void {
	const script = lines.filter((line) => line.kind === 'open' || isHeard(line) || isSaid(line));
	let at = 1;
	let passed = 0;
	let heard = 0;
	let timer: NodeJS.Timeout | undefined;
	const say = (line: TranscriptLine) => {
		if (line.kind === 'frame') channel.send(unmask(line.body));
		else if (line.kind === 'close' && heard > passed) return;
		else if (line.kind !== 'close' || line.code === null) channel.terminate();
		else close(channel, line.code, unmask(line.reason));
	};
	const go = () => {
		clearTimeout(timer);
		const line = script[at];
		if (!line || channel.readyState !== channel.OPEN) return;
		if (isHeard(line)) {
			if (heard <= passed) return;
			passed += 1;
			at += 1;
			go();
			return;
		}
		const waitMs = Math.min(MAX_GAP_MS, Math.max(0, line.at - (script[at - 1]?.at ?? line.at)));
		timer = setTimeout(() => {
			at += 1;
			say(line);
			go();
		}, waitMs).unref();
	};
	channel.on('message', () => {
		heard += 1;
		const next = script[at];
		if (next && isHeard(next)) go();
	});
	channel.once('close', () => clearTimeout(timer));
	go();
}

/** A code that no close frame may have (RFC 6455, 7.4), or a reason that is too long for one, is a cut. */
function close(channel: WebSocket, code: number, reason: string): void {
	try {
		channel.close(code, reason);
	} catch {
		channel.terminate();
	}
}

/** Frames of the device, but for WebSocket pings. */
function isHeard(line: TranscriptLine): boolean {
	return line.kind === 'frame' && line.direction === 'toService' && (line.frame === 'text' || line.frame === 'binary');
}

function isSaid(line: TranscriptLine): boolean {
	if (line.kind === 'frame') return line.direction === 'toDevice' && line.frame === 'text';
	return line.kind === 'close' && line.direction === 'toDevice';
}

/** A text of this kind and length that means nothing. */
function madeUp(kind: Kind, length: number): string {
	const letters = (count: number) => randomText(count).replaceAll(/\d/g, 'x');
	const digits = (count: number) => Array.from({ length: count }, () => randomInt(1, 10)).join('');
	const third = Math.max(4, Math.floor((length - 2) / 3));
	switch (kind) {
		case 'jwt':
			return madeUpJwt();
		case 'dotted':
			return [third, third, third].map(letters).join('.');
		case 'token':
			return `${randomText(length - 1)}7`;
		case 'digits':
		case 'number':
			return digits(length);
		case 'page':
			return `<html>${letters(length)}</html>`;
		case 'text':
			return `${letters(Math.max(0, length - 6))} ${letters(5)}`;
		case 'word':
			return letters(length);
	}
}

/** Nothing checks its signature; it says of itself that it is good for a year. */
function madeUpJwt(): string {
	const nowSeconds = Math.floor(Date.now() / 1000);
	const part = (content: object) => Buffer.from(JSON.stringify(content)).toString('base64url');
	return `${part({ alg: 'none' })}.${part({ iat: nowSeconds, exp: nowSeconds + YEAR_SECONDS })}.${randomText(24)}`;
}
