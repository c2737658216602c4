/**
 * Listens to the device's own scanners while it waits for a pairing code, and lets them go once it is paired. Opens what
 * `scanning/choose-scanner.ts` chooses, hands each code to pairing, and keeps the one that a person has to confirm; decides
 * nothing about a code and spends none itself.
 */
import type { Agent } from '../agent/agent.runner.ts';
import type { Clock } from '../base/clock.edge.ts';
import { asFailure, type Failure, failure, toFailure } from '../base/errors.ts';
import type { Log } from '../base/log.edge.ts';
import { notACode } from '../pairing/rules.ts';
import type { PairPreview, PairRequest, ScannerReport } from '../protocol/local-api.ts';
import type { Settings } from '../settings/table.ts';
import { chooseScanners, SCANNER_RETRY_MS, type ScannerChoice, type ScannerFacts } from './choose-scanner.ts';
import type { Scan } from './lines.ts';
import { isStillSeen, isWorthTelling, type SeenScan, type ToldRefusal } from './repeated-scans.ts';
import { readScans, type ScanReader } from './scan-reader.runner.ts';
import { type OpenScanner, type ScannerListener, scannerGone } from './scanner.ts';

type ScannerSettings = Settings['scanner'];

export interface ScanningParts {
	readonly agent: Pick<Agent, 'standing' | 'onStatus' | 'inspectPairing' | 'pair' | 'warn'>;
	/** Notifies the site of a scan that was refused before pairing began. */
	readonly refused: (reason: Failure) => void;
	/** Notifies the site of a scanned code that a person has to confirm. */
	readonly unconfirmed: (preview: PairPreview, reason: Failure) => void;
	readonly settings: () => ScannerSettings;
	readonly find: (device: string | null) => Promise<ScannerFacts[]>;
	readonly watch: (device: string | null, onChange: () => void) => { close(): void };
	readonly open: (device: ScannerFacts, settings: ScannerSettings, listener: ScannerListener) => Promise<OpenScanner>;
	readonly clock: Clock;
	readonly log: Pick<Log, 'info' | 'debug'>;
}

export type Scanning = ReturnType<typeof listenForScans>;

/** A scanned code that a person has to confirm. */
export interface Proposal {
	/** Another scan is another proposal. */
	readonly id: number;
	/** Secret. */
	readonly code: string;
	readonly preview: PairPreview;
}

/** How long the last refusal stays in the status, in milliseconds. */
const SHOWN_MS = 120_000;

export function listenForScans(parts: ScanningParts) {
	const { agent } = parts;
	let listening: ReturnType<typeof listen> | null = null;
	let released: Promise<unknown> = Promise.resolve();
	let closed = false;
	const takeScan = assessScans(parts);

	function follow(): void {
		const settings = parts.settings();
		const standing = agent.standing();
		const isWanted = !closed && settings.kind !== 'off' && (standing === 'first' || standing === 'refused');
		if (listening && (!isWanted || JSON.stringify(settings) !== JSON.stringify(listening.settings))) {
			// First: what follows may change the status, and lead here again.
			const ending = listening;
			listening = null;
			released = ending.end();
			takeScan.forget();
		}
		if (isWanted && !listening) listening = listen(parts, settings, released, takeScan.scanned);
	}

	const forget = agent.onStatus(follow);
	follow();
	return {
		/** The scanners that were found, and which are listened to. */
		async report(): Promise<ScannerReport> {
			const settings = parts.settings();
			const choices = listening
				? await listening.choices()
				: chooseScanners(await parts.find(settings.device), settings);
			const open = choices.filter(({ device }) => listening?.isOpen(device)).length;
			const sentence = listening
				? open > 0
					? 'Listening: this device waits for a pairing code.'
					: 'This device waits for a pairing code, but there is no scanner to listen to.'
				: settings.kind === 'off'
					? 'Not listening: scanner.kind is off.'
					: 'Not listening: this device is paired.';
			return {
				listening: open > 0,
				sentence,
				devices: choices.map(({ device: { kind, path, node, hidden, usb }, device, chosen, why }) => {
					const problem = listening?.problemOf(device) ?? null;
					const isOpen = listening?.isOpen(device) ?? false;
					return { kind, path, node, chosen, why, open: isOpen, hidden, usb, problem };
				}),
			};
		},
		/** The scanned code that waits for a confirmation, for two minutes; `null` for none. */
		proposal: takeScan.proposal,
		/** A person does not want it. */
		dismiss: takeScan.forget,
		/** Lets every scanner go. */
		async close(): Promise<void> {
			closed = true;
			forget();
			follow();
			takeScan.forget();
			await released;
		},
	};
}

interface OpenOne {
	readonly path: string;
	readonly reader: ScanReader;
	readonly scanner: OpenScanner;
}

type OnScan = (scan: Scan) => void;

/** @param ready when the devices are free again that were open before. */
function listen(parts: ScanningParts, settings: ScannerSettings, ready: Promise<unknown>, onScan: OnScan) {
	const { agent, clock, log } = parts;
	const open = new Map<string, OpenOne>();
	const problems = new Map<string, Failure>();
	let choices: readonly ScannerChoice[] = [];
	let over = false;
	let cancelRetry = () => {};
	let work = ready;

	function look(): void {
		work = work.then(lookNow).catch((error: unknown) => agent.warn('scanner', toFailure(error)));
	}

	async function lookNow(): Promise<void> {
		if (over) return;
		cancelRetry();
		choices = chooseScanners(await parts.find(settings.device), settings);
		const chosen = choices.filter((choice) => choice.chosen).map(({ device }) => device);
		problems.clear();
		for (const [node, { path, scanner }] of open) {
			if (chosen.some((device) => device.node === node)) continue;
			// Some serial drivers don't tell their reader that the device is gone.
			log.info(scannerGone(path).message, { path });
			letGo(node);
			await scanner.close();
		}
		for (const device of chosen) if (!open.has(device.node)) await openOne(device);
		const [problem] = problems.values();
		agent.warn('scanner', problem ?? missingScanner(settings, chosen));
		if (problem && !over) cancelRetry = clock.schedule(SCANNER_RETRY_MS, look);
	}

	async function openOne(device: ScannerFacts): Promise<void> {
		const { node, path } = device;
		const reader = readScans(clock, settings.suffix, onScan);
		const characters = (text: string) => {
			if (!over) reader.characters(text);
		};
		const ended = ({ message }: Failure) => {
			if (open.get(node)?.reader !== reader) return;
			letGo(node);
			log.info(message, { path });
			// It may be back before its absence was noticed.
			look();
		};
		try {
			const scanner = await parts.open(device, settings, { characters, ended });
			open.set(node, { path, reader, scanner });
			log.info('listening for pairing codes', { path });
		} catch (error) {
			problems.set(node, toFailure(error));
		}
	}

	function letGo(node: string): void {
		open.get(node)?.reader.close();
		open.delete(node);
	}

	// Watched before the first look, so that nothing is missed in between.
	const watch = parts.watch(settings.device, look);
	look();
	return {
		settings,
		choices: (): Promise<readonly ScannerChoice[]> => work.then(() => choices),
		isOpen: ({ node }: ScannerFacts) => open.has(node),
		problemOf: ({ node }: ScannerFacts) => problems.get(node) ?? null,
		async end(): Promise<void> {
			over = true;
			cancelRetry();
			watch.close();
			await work;
			agent.warn('scanner', null);
			const left = [...open];
			for (const [node] of left) letGo(node);
			await Promise.all(left.map(([, { scanner }]) => scanner.close()));
		},
	};
}

function missingScanner({ device }: ScannerSettings, chosen: readonly ScannerFacts[]): Failure | null {
	if (device === null || chosen.length > 0) return null;
	return failure('scanner-failed', `There is no scanner at ${device}.`);
}

/** The result of a scan: pairing, a question, a refusal, or nothing because the scanner still sees the same code. */
function assessScans({ agent, refused, unconfirmed, clock, log }: ScanningParts) {
	let last: SeenScan | null = null;
	let proposal: Proposal | null = null;
	let proposals = 0;
	let told: ToldRefusal | null = null;
	let underWay = false;
	let cancelShown = () => {};

	function refuse(reason: Failure, tells = true): void {
		const nowMs = clock.monotonicMs();
		if (!isWorthTelling(told, reason, nowMs)) return;
		told = { code: reason.code, atMs: nowMs };
		if (tells) refused(reason);
		show(reason);
	}

	function show(reason: Failure | null): void {
		cancelShown();
		agent.warn('scan', reason);
		if (reason) cancelShown = clock.schedule(SHOWN_MS, forget);
	}

	/** After pairing, a dismissal or two minutes. */
	function forget(): void {
		proposal = null;
		show(null);
	}

	async function take(text: string): Promise<void> {
		const asked = { code: text };
		const preview = agent.inspectPairing(asked, 'scanner');
		const problem = preview.problem && asFailure(preview.problem);
		// A text that is not a code may come from a device that sends unasked.
		if (problem?.code === 'not-a-pairing-code') return refuse(problem);
		proposal = null;
		if (problem?.code === 'origin-unconfirmed' || problem?.code === 'pairing-unconfirmed') {
			proposals += 1;
			proposal = { id: proposals, code: text, preview };
			const shown = failure(problem.code, problem.message, {
				remedy: confirmRemedy(preview),
				params: { ...problem.params, host: preview.host ?? '' },
			});
			show(shown);
			log.info('a scanned code waits for a confirmation', { host: preview.host });
			return unconfirmed(preview, shown);
		}
		return spend(asked);
	}

	async function spend(asked: PairRequest): Promise<void> {
		underWay = true;
		show(null);
		try {
			await agent.pair(asked, 'scanner');
		} catch (error) {
			refuse(toFailure(error), false);
		} finally {
			underWay = false;
		}
	}

	return {
		scanned(scan: Scan) {
			const text = scan.kind === 'text' ? scan.text : '';
			const nowMs = clock.monotonicMs();
			const isOld = isStillSeen(last, text, nowMs);
			last = { text, atMs: nowMs };
			log.debug(isOld ? 'scanned again' : 'scanned');
			if (isOld) return;
			if (underWay)
				return refuse(failure('pairing-under-way', 'A pairing is under way on this device; this scan was ignored.'));
			if (scan.kind === 'tooLong') return refuse(notACode('tooLong'));
			void take(text).catch((error: unknown) => refuse(toFailure(error)));
		},
		proposal: (): Proposal | null => proposal,
		forget,
	};
}

function confirmRemedy({ host, hostInUnicode }: PairPreview): string {
	const shown = hostInUnicode === undefined ? host : `${host} (shown elsewhere as ${hostInUnicode})`;
	return `If ${shown} is right, confirm it on the screen of this device, or pair with idv-agent pair; otherwise ask for the origin of this code.`;
}
