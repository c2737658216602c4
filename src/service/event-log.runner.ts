/** The events of the embedded service, and a bounded list of requests without credential, query string or body. */
import { EventEmitter, on } from 'node:events';
import type { AuthorizationScheme } from '../protocol/authorization.ts';
import type { Heartbeat } from '../protocol/channel.ts';

/** One request or upgrade, when its fate is known. */
export interface RequestEntry {
	readonly method: string;
	/** Below the base path, without the query. */
	readonly path: string;
	/** 101 for an opened channel; `null` when no answer was given. */
	readonly status: number | null;
	/** The scheme it was presented with, right or wrong; `null` for none or an unreadable one. */
	readonly authorizationScheme: AuthorizationScheme | null;
	/** Milliseconds since 1970. */
	readonly at: number;
}

interface DeviceEvent {
	readonly deviceId: string;
	readonly workflowId: string;
	/** Milliseconds since 1970. */
	readonly at: number;
}

export interface ServiceEvents {
	request: RequestEntry;
	/** A device got its Connection. */
	registered: DeviceEvent;
	/** A channel opened, or a device that had fallen silent was heard again. One for each channel of an overlap. */
	'device-online': DeviceEvent;
	/** The device's last channel closed, or it fell silent for 2.5 heartbeats. */
	'device-offline': DeviceEvent & { readonly reason: 'closed' | 'silent' };
	/** `code` is 1006 where no close frame came. */
	'channel-closed': DeviceEvent & { readonly code: number };
	heartbeat: DeviceEvent & { readonly heartbeat: Heartbeat };
	/** A message went out; `reached` counts devices. */
	notified: { readonly kind: string; readonly reached: number; readonly at: number };
}

export type ServiceEventName = keyof ServiceEvents;

export type EventLog = ReturnType<typeof createEventLog>;

/** @param maxRequests newest requests that are kept. */
export function createEventLog(maxRequests: number) {
	const emitter = new EventEmitter().setMaxListeners(0);
	const requests: RequestEntry[] = [];
	const closing = new AbortController();
	return {
		requests: requests as readonly RequestEntry[],
		emit<Name extends ServiceEventName>(name: Name, event: ServiceEvents[Name]): void {
			if (name === 'request') {
				requests.push(event as RequestEntry);
				if (requests.length > maxRequests) requests.shift();
			}
			emitter.emit(name, event);
		},
		/** @returns what takes the listener off again. */
		on<Name extends ServiceEventName>(name: Name, listener: (event: ServiceEvents[Name]) => void): () => void {
			emitter.on(name, listener);
			return () => void emitter.off(name, listener);
		},
		/** The next such event; past ones don't count. @throws Error after the time, or when the service closes. */
		async waitFor<Name extends ServiceEventName>(
			name: Name,
			predicate: (event: ServiceEvents[Name]) => boolean = () => true,
			timeoutMs = 10_000,
		): Promise<ServiceEvents[Name]> {
			const late = AbortSignal.timeout(timeoutMs);
			const signal = AbortSignal.any([late, closing.signal]);
			try {
				for await (const [event] of on(emitter, name, { signal })) if (predicate(event)) return event;
			} catch (error) {
				if (!signal.aborted) throw error;
			}
			if (late.aborted) throw new Error(`No such "${name}" event within ${timeoutMs} ms.`);
			throw new Error('The embedded service closed before the event came.');
		},
		close(): void {
			closing.abort();
			emitter.removeAllListeners();
		},
	};
}
