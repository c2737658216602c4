/** Whether the Connections that `service.nextConnection` names open channels, and what is told where they do not. */
import { type Failure, failure } from '../base/errors.ts';

/** One alone may have ended while the device was offline. */
const TOLD_AFTER = 2;

/** A secret is kept, and never told. */
export function watchNextConnections() {
	let taken: string | null = null;
	let from: string | null = null;
	let refused = 0;

	return {
		/** A message or an answer has named one. @param place as `service.nextConnection` has it. */
		taken(token: string, place: string | null): void {
			if (place !== from) refused = 0;
			[taken, from] = [token, place];
		},
		/** The service has refused a channel. @param token that it was asked for with. */
		refused(token: string | undefined): void {
			if (token !== undefined && token === taken) refused += 1;
		},
		/** A channel counts. @param token that it was opened with. */
		proven(token: string): void {
			if (token === taken) refused = 0;
		},
		/** @param place as `service.nextConnection` has it now. */
		told(place: string | null): Failure | null {
			if (place === null || place !== from || refused < TOLD_AFTER) return null;
			const message = `service.nextConnection: what ${place} names has opened no channel the last times: the service refused it, and the device went on with the Connection from before, or registered again.`;
			const remedy =
				'Correct service.nextConnection, or take it out where a Connection is good for more than one channel.';
			return failure('settings-invalid', message, { remedy });
		},
	};
}
