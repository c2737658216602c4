/**
 * The events of the embedded service, for tests and for the command line: typed events, a wait for the next one, and a
 * bounded list of requests. Never holds a credential, a query string or a body.
 */
import { EventEmitter } from 'node:events';
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

export interface EventLog {
	readonly requests: readonly RequestEntry[];
	emit<Name extends ServiceEventName>(name: Name, event: ServiceEvents[Name]): void;
	/** @returns what takes the listener off again. */
	on<Name extends ServiceEventName>(name: Name, listener: (event: ServiceEvents[Name]) => void): () => void;
	/**
	 * The next event that satisfies the predicate; events of the past do not count, so ask before causing it.
	 * @param timeoutMs default 10,000.
	 * @throws Error after the time, and when the service closes first.
	 */
	waitFor<Name extends ServiceEventName>(
		name: Name,
		predicate?: (event: ServiceEvents[Name]) => boolean,
		timeoutMs?: number,
	): Promise<ServiceEvents[Name]>;
	close(): void;
}

/** @param maxRequests newest requests that are kept. */
export function createEventLog(maxRequests: number): EventLog {
	const emitter = new EventEmitter().setMaxListeners(0);
	const requests: RequestEntry[] = [];
	const giveUp = new Set<(error: Error) => void>();

	function on<Name extends ServiceEventName>(name: Name, listener: (event: ServiceEvents[Name]) => void): () => void {
		emitter.on(name, listener);
		return () => void emitter.off(name, listener);
	}

	return {
		requests,
		on,
		emit(name, event) {
			if (name === 'request') {
				requests.push(event as RequestEntry);
				if (requests.length > maxRequests) requests.shift();
			}
			emitter.emit(name, event);
		},
		waitFor(name, predicate = () => true, timeoutMs = 10_000) {
			return new Promise((resolve, reject) => {
				const finish = () => {
					clearTimeout(timer);
					giveUp.delete(fail);
					off();
				};
				const fail = (error: Error) => {
					finish();
					reject(error);
				};
				const off = on(name, (event) => {
					if (!predicate(event)) return;
					finish();
					resolve(event);
				});
				const timer = setTimeout(() => fail(new Error(`No such "${name}" event within ${timeoutMs} ms.`)), timeoutMs);
				giveUp.add(fail);
			});
		},
		close() {
			for (const fail of [...giveUp]) fail(new Error('The embedded service closed before the event came.'));
			emitter.removeAllListeners();
		},
	};
}
