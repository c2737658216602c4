/** Event streams: one bounded queue for each consumer, one timer for all of them. Never waits for a slow consumer. */
import type http from 'node:http';
import { leaveIfStuck, untilDrained } from './answers.ts';
import type { Context, OpenStream } from './context.ts';
import type { EventSink, StreamEnd, StreamEvent } from './types.ts';

const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

export function openStream(
	context: Context,
	response: http.ServerResponse,
	start: (sink: EventSink) => () => void,
): void {
	let over = false;
	/** Whether it has taken everything at some time since the last beat. */
	let tookAll = true;
	let cleanUp: (() => void) | null = null;

	const finish = () => {
		if (over) return false;
		over = true;
		context.streams.delete(stream);
		runCleanUp();
		return true;
	};
	const runCleanUp = () => {
		const once = cleanUp;
		cleanUp = null;
		try {
			once?.();
		} catch (error) {
			context.fault(error);
		}
	};
	const end = (reason: StreamEnd) => {
		if (!finish() || response.destroyed) return;
		response.end(formatEvent({ event: 'closed', data: JSON.stringify({ reason }) }));
		leaveIfStuck(context, response);
	};
	const write = (bytes: Buffer) => {
		if (over || response.destroyed) return false;
		const queued = response.writableLength;
		if (queued === 0) tookAll = true;
		if (queued > 0 && queued + bytes.length > context.limits.streamQueueBytes) {
			end('slow');
			return false;
		}
		response.write(bytes);
		return true;
	};
	const stream: OpenStream = {
		end,
		beat() {
			if (response.writableLength === 0) write(KEEP_ALIVE);
			else if (tookAll) tookAll = false;
			else end('slow');
		},
	};

	response.setHeader('Content-Type', 'text/event-stream');
	response.setHeader('Cache-Control', 'no-store');
	response.setHeader('Connection', 'close');
	response.once('close', finish);
	response.on('timeout', () => end('slow'));
	response.on('drain', () => {
		tookAll = true;
	});
	context.streams.add(stream);
	try {
		cleanUp = start({
			send: (event) => write(Buffer.from(formatEvent(event))),
			sendAll: write,
			comment: (text) => void write(Buffer.from(`${text.replace(/^/gm, ': ')}\n\n`)),
			close: (reason = 'finished') => end(reason),
			get isBehind() {
				return response.writableLength > context.limits.streamQueueBytes / 2;
			},
			async drained() {
				if (!response.writableNeedDrain) return;
				response.setTimeout(context.limits.requestMs);
				await untilDrained(response);
				if (!over) response.setTimeout(0);
			},
		});
	} catch (error) {
		finish();
		throw error;
	}
	// It may have ended before there was anything to clean up.
	if (over) runCleanUp();
	else if (context.stopping) end('stopping');
	else response.flushHeaders();
}

/** Events as they travel in a stream. */
export function formatEvents(events: Iterable<StreamEvent>): Buffer {
	let frames = '';
	for (const event of events) frames += formatEvent(event);
	return Buffer.from(frames);
}

function formatEvent({ id, event, data }: StreamEvent): string {
	const oneLine = (text: string) => text.replaceAll(/[\r\n\0]/g, '');
	const idLine = id === undefined ? '' : `id: ${oneLine(id)}\n`;
	const eventLine = event === undefined ? '' : `event: ${oneLine(event)}\n`;
	return `${idLine}${eventLine}data: ${data.replaceAll(/\r\n|[\r\n]/g, '\ndata: ')}\n\n`;
}
