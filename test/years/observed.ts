/** Everything that can be seen of a simulated life from outside of the agent, as it happens. Times are true milliseconds. */
import type { Status } from '../../src/protocol/local-api.ts';
import type { DeviceState } from '../../src/state/device-state.ts';
import type { PublishedPlan } from './service.ts';

export type Observed =
	| { type: 'fault'; kind: string; atMs: number }
	| { type: 'calm'; atMs: number }
	/** 0.1.0 has run, and received these. */
	| { type: 'leftByOlder'; texts: readonly string[] }
	| { type: 'boot'; atMs: number; serial: string; state: DeviceState; lastSaved: string | null; wasCutInSave: boolean }
	| { type: 'off'; atMs: number }
	| { type: 'stopped'; withinMs: number; timersLeft: number; socketsLeft: number }
	| {
			type: 'registration';
			scheme: string;
			credential: string;
			deviceId: string;
			workflowId: string | null;
			atMs: number;
	  }
	| { type: 'planPublished'; plan: PublishedPlan }
	| { type: 'issued'; token: string; workflowId: string; atMs: number }
	| { type: 'codeSent'; times: number }
	| { type: 'socket'; atMs: number; open: number }
	| { type: 'opened'; atMs: number; open: number; session: number; deviceId: string; workflowId: string; token: string }
	| { type: 'socketGone'; atMs: number; open: number; session: number | null }
	| { type: 'sessionExpired'; atMs: number; session: number }
	| {
			type: 'heartbeat';
			atMs: number;
			session: number;
			text: string;
			workflowId: string;
			cadenceMs: number;
			openedAtMs: number;
	  }
	| { type: 'notificationSent'; number: number; atMs: number; session: number | null }
	| {
			type: 'entry';
			atMs: number;
			appendedAtMs: number;
			id: string;
			number: number;
			kind: string;
			text: string;
			again: boolean;
			/** Either of the two that have this id. */
			isGap: boolean;
	  }
	/** By an application that was away. `before`: the number that it read before this one; `null` for the first, or when it was told of a gap. */
	| { type: 'readLate'; number: number; before: number | null; kind: string; text: string }
	| { type: 'readerDone'; pages: number }
	/** Where a new process would have the consumer go on, and what it had acknowledged before. */
	| { type: 'resumed'; from: number; acknowledged: number }
	| { type: 'saved'; atMs: number; text: string; state: DeviceState; bytes: number }
	| { type: 'planAsked'; atMs: number }
	| { type: 'line'; text: string }
	| { type: 'hook'; hook: string; input: string; atMs: number }
	| { type: 'status'; status: Status; atMs: number }
	| { type: 'paired'; atMs: number; outcome: string; withinMs: number }
	| { type: 'workflowAsked'; workflowId: string }
	| { type: 'unpaired' }
	| { type: 'shortTrouble'; kind: string; status: Status }
	/** An application holds a lease in a quiet time, while another workflow is asked for. */
	| { type: 'leased'; phase: 'asked' | 'held' | 'over'; workflowId: string; status: Status }
	/** What the life holds in memory at its end, beyond what there was before. Not the same in every run. */
	| { type: 'memory'; bytes: number }
	| { type: 'error'; text: string }
	/** The device has had time to recover, and time to be still. */
	| { type: 'judged'; atMs: number; quiet: Quiet };

/** What is found at the end of a time without faults. */
export interface Quiet {
	readonly status: Status;
	/** When the device was online again after the faults stopped; `null` if it is not. */
	readonly backAfterMs: number | null;
	readonly helpedByPerson: boolean;
	readonly hasSession: boolean;
	/** Only a person can help: nothing that the device has saved is of use to the service. */
	readonly holdsNothing: boolean;
	/** The workflow that settings or the published plan demand now; `null` where neither says so for certain. */
	readonly demanded: string | null;
	readonly timers: number;
	readonly eventsLeft: number;
	readonly files: number;
	readonly bytes: number;
	/** Writes to the disk in the still part, and what may have caused some. */
	readonly stillWrites: number;
	readonly stillRegistrations: number;
	readonly stillOutages: number;
	/** How often the device was offline then. */
	readonly stillOfflines: number;
	readonly stillEvents: number;
	/** Numbers of notifications that were sent and are neither with the consumer nor in a gap. */
	readonly lastSent: number;
	readonly lastConsumed: number;
}

export type Observe = (observed: Observed) => void;
