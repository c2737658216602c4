/** The other end of trial-service.ts: starts it in a machine's network, and waits for what happens there. */
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

export interface ServiceEvent {
	readonly event: 'listening' | 'code' | 'registered' | 'device-online' | 'device-offline';
	readonly deviceId?: string;
	readonly workflowId?: string;
	readonly link?: string;
}

export interface TrialService {
	/** The first event of this kind after now, or after `from` of them (see `seen`). */
	next(event: ServiceEvent['event'], from?: number): Promise<ServiceEvent>;
	/** How many events of this kind there were. */
	seen(event: ServiceEvent['event']): number;
	makeCode(workflowId: string): Promise<string>;
	/** Sends it to the devices that are online. */
	notify(message: object): void;
	stop(): Promise<void>;
}

export async function startTrialService(network: string, port: number, apiKey: string): Promise<TrialService> {
	const program = join(import.meta.dirname, 'trial-service.ts');
	const child = spawn('ip', ['netns', 'exec', network, process.execPath, program, String(port), apiKey], {
		stdio: ['pipe', 'pipe', 'inherit'],
	});
	const events: ServiceEvent[] = [];
	const waiting = new Set<() => void>();
	const tell = () => {
		for (const look of waiting) look();
	};
	createInterface({ input: child.stdout }).on('line', (line) => {
		events.push(JSON.parse(line) as ServiceEvent);
		tell();
	});
	let isGone = false;
	const gone = new Promise<void>((resolve) =>
		child.once('close', () => {
			isGone = true;
			tell();
			resolve();
		}),
	);
	const all = (kind: string) => events.filter(({ event }) => event === kind);
	const service: TrialService = {
		seen: (kind) => all(kind).length,
		next: (kind, from = all(kind).length) =>
			new Promise((resolve, reject) => {
				const look = () => {
					const found = all(kind)[from];
					if (!found && !isGone) return;
					waiting.delete(look);
					if (found) resolve(found);
					else reject(new Error('The service has ended.'));
				};
				waiting.add(look);
				look();
			}),
		notify: (message) => void child.stdin.write(`${JSON.stringify(message)}\n`),
		async makeCode(workflowId) {
			const made = service.next('code');
			child.stdin.write(`${workflowId}\n`);
			return (await made).link ?? '';
		},
		async stop() {
			child.stdin.end();
			await gone;
		},
	};
	await service.next('listening', 0);
	return service;
}
