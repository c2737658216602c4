/** What the running agent is given and what it offers. Types only. */

import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import type { Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../connection/channel.edge.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { supervise } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import type { EventStore } from '../events/store.edge.ts';
import type { IdentityFacts } from '../identity/identity.ts';
import type { PairingOutcome } from '../pairing/pairing.runner.ts';
import type { Standing } from '../pairing/rescue.ts';
import type { BroughtBy } from '../pairing/rules.ts';
import type { IdentityReport, PairPreview, PairRequest, PairResult, Status } from '../protocol/local-api.ts';
import type { DeviceState } from '../state/device-state.ts';
import type { StateStore } from '../state/store.edge.ts';
import type { WorkflowLeases } from '../workflow/leases.runner.ts';

export interface AgentOptions {
	readonly clock: Clock;
	readonly random: () => number;
	readonly version: string;
	readonly runtime: Runtime;
	readonly store: StateStore;
	readonly state: DeviceState;
	readonly facts: IdentityFacts;
	/** A new id for a device that has nothing of its own to be known by. */
	readonly newDeviceId: () => string;
	readonly counters: Counters;
	/** Opens the kept events. @param warn shows a warning on a topic until it is withdrawn with `null`. */
	readonly openEvents: (warn: (topic: string, warning: Failure | null) => void) => EventStore;
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	/** The policy for links; default the product's own. A benchmark measures others beside it. */
	readonly supervise?: typeof supervise;
	readonly log: Log;
	/** Called with every secret that the agent comes to hold, so that it is never printed. */
	readonly registerSecret: (secret: string) => void;
}

export interface Agent {
	readonly events: EventsFeed;
	/** The leases that make a workflow change wait. */
	readonly leases: Pick<WorkflowLeases, 'hold' | 'release' | 'list'>;
	/** The service and the Connection in use; a secret, for forwarding only. `null` while there is none. */
	access(): { readonly baseUrl: string; readonly token: string } | null;
	status(): Status;
	/** Which codes it takes without `replace`. */
	standing(): Standing;
	/** Calls back after every change of the status until the returned function is called. */
	onStatus(listener: () => void): () => void;
	identity(): IdentityReport;
	/** Accepts the machine as it is now as the device that was paired, after a repair; registers again if that shows. */
	acceptIdentity(): Promise<IdentityReport>;
	/** What a code would do. Redeems nothing, touches no network. */
	inspectPairing(asked: PairRequest, by?: BroughtBy): PairPreview;
	/**
	 * Redeems a code. Resolves when the device is online, or after 10 s with what the status says then; callers that bring the
	 * same code meanwhile have the same answer. Like everything that moves the device it throws `agent-not-running` once the
	 * agent stops: then no code is used up.
	 */
	pair(asked: PairRequest, by?: BroughtBy): Promise<PairResult>;
	/** Calls back with the outcome of every pairing until the returned function is called. */
	onPairing(listener: (outcome: PairingOutcome) => void): () => void;
	/** Whether a code is being redeemed: its answer comes once. */
	isPairing(): boolean;
	/** Forgets the pairing and its secrets. */
	unpair(): Promise<void>;
	/** Assigns a workflow; refused when the settings name one. */
	setWorkflow(workflowId: string): Promise<void>;
	/** Tries again now, without the rest of the wait. */
	reconnect(): void;
	/** Applies changed settings; links that no longer fit are replaced make before break. */
	applyRuntime(runtime: Runtime): void;
	/** Shows a warning in the status until it is withdrawn with `null`. */
	warn(topic: string, warning: Failure | null): void;
	/** Closes the channels with 1001, waits for a code that is being redeemed, and stops everything. */
	stop(): Promise<void>;
}
