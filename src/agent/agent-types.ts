/** What the running agent is given and what it offers. Types only. */

import type { Clock } from '../base/clock.edge.ts';
import type { Counters } from '../base/counters.ts';
import type { Failure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import type { Channel, ChannelEvent, ChannelOptions } from '../connection/channel.edge.ts';
import type { LineStore } from '../connection/line-rhythm.ts';
import type { Runtime } from '../connection/runtime.runner.ts';
import type { supervise } from '../connection/supervisor.ts';
import type { EventsFeed } from '../events/feed.runner.ts';
import type { EventStore } from '../events/store.edge.ts';
import type { IdentityFacts } from '../identity/identity.ts';
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
	readonly device: DeviceState;
	readonly facts: IdentityFacts;
	/** A new id for a device that has nothing of its own to be known by. */
	readonly newDeviceId: () => string;
	readonly counters: Counters;
	/** Opens the kept events. @param warn shows a warning on a topic until it is withdrawn with `null`. */
	readonly openEvents: (warn: (topic: string, warning: Failure | null) => void) => EventStore;
	/** Where what is learned of the line outlives a restart; left out, it does not. */
	readonly lineStore?: LineStore;
	readonly openChannel: (options: ChannelOptions, listener: (event: ChannelEvent) => void) => Channel;
	/** What decides; default the product's own. A benchmark measures other policies beside it. */
	readonly supervise?: typeof supervise;
	readonly log: Log;
	/** Told every secret that the agent comes to hold, so that it is never printed. */
	readonly registerSecret: (secret: string) => void;
}

export interface Agent {
	readonly events: EventsFeed;
	/** What makes a workflow change wait. */
	readonly leases: Pick<WorkflowLeases, 'hold' | 'release' | 'list'>;
	/** The service and the Connection by which it is asked now; a secret, for forwarding only. `null` while there is none. */
	access(): { readonly baseUrl: string; readonly token: string } | null;
	status(): Status;
	/** Calls back after every change of the status until the returned function is called. */
	onStatus(listener: () => void): () => void;
	identity(): IdentityReport;
	/** Takes the machine as it is now for the device that was paired, after a repair; registers anew if that shows. */
	acceptIdentity(): Promise<IdentityReport>;
	/** What a code would do. Spends nothing, touches no network. */
	inspectPairing(asked: PairRequest): PairPreview;
	/**
	 * Spends a code. Resolves when the device is online, or after 10 s with what the status says then. Like everything that
	 * moves the device it throws `agent-not-running` once the agent stops: then nothing is spent.
	 */
	pair(asked: PairRequest): Promise<PairResult>;
	/** Whether a code is being spent: its answer comes once. */
	isPairing(): boolean;
	/** Forgets the pairing and its secrets. */
	unpair(): Promise<void>;
	/** Assigns a workflow; refused when the settings name one. */
	setWorkflow(workflowId: string): Promise<void>;
	/** Tries again now, whatever it was waiting for. */
	reconnect(): void;
	/** Takes changed settings into use; links that no longer fit are replaced make before break. */
	applyRuntime(runtime: Runtime): void;
	/** Shows a warning in the status until it is withdrawn with `null`. */
	warn(topic: string, warning: Failure | null): void;
	/** Closes the channels with 1001, waits for a code that is being spent, and stops everything. */
	stop(): Promise<void>;
}
