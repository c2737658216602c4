/** `idv-agent scanner`: where codes can come from, what keeps the agent from reading them, what one reads. */
import { systemClock } from '../base/clock.edge.ts';
import { AgentError, asError } from '../base/errors.ts';
import { joinSentences, sentenceOf } from '../base/sentences.ts';
import { notACode, whyNotScanned } from '../pairing/rules.ts';
import { endsWithToken, readScannedText, type Typed } from '../pairing/scanned-text.ts';
import { LOCAL_ROUTES, type PairPreview, type ScannerReport } from '../protocol/local-api.ts';
import { chooseScanners, type ScannerChoice } from '../scanning/choose-scanner.ts';
import { findScanners } from '../scanning/devices.edge.ts';
import type { Scan } from '../scanning/lines.ts';
import { readScans } from '../scanning/scan-reader.runner.ts';
import type { OpenScanner, ScannerListener } from '../scanning/scanner.ts';
import { loadSettings } from '../settings/load.runner.ts';

import type { Settings } from '../settings/table.ts';
import { type AskFlags, clientFor, nullIfAway, sourcesOf } from './local-agent.runner.ts';
import type { Shell } from './output.runner.ts';

type Device = ScannerReport['devices'][number];

export async function listScanners(shell: Shell, flags: AskFlags): Promise<void> {
	const settings = await (await readSettings(shell, flags)).scanner;
	const seen = await lookOurselves(settings);
	const agent = await askAgent(shell, flags);
	if (shell.isJson) return shell.json({ agentRunning: agent !== null, ...(agent ?? seen), seenHere: seen.devices });
	shell.line(agent ? agent.sentence : 'The agent is not running; this is what it would find on this machine now.');
	if (settings.device !== null && !seen.devices.some(({ chosen }) => chosen) && settings.kind !== 'off')
		shell.warn(`There is no scanner at ${settings.device}, which scanner.device names.`);
	const devices = agent && agent.devices.length > 0 ? agent.devices : seen.devices;
	if (devices.length === 0)
		return shell.line(
			'\nNo serial device and no USB keyboard was found. Plug the scanner in, and set it to USB serial or keyboard.',
		);
	shell.line();
	shell.table(devices.map((device) => [device.open ? '>' : ' ', device.kind, device.path, explain(device)]));
	for (const device of devices) for (const remark of remarksOn(device)) shell.warn(remark);
	for (const device of seen.devices)
		if (agent && device.chosen && !agent.devices.some(({ node }) => node === device.node)) shell.warn(unseen(device));
}

function explain({ open, chosen, why }: Device): string {
	return `${open ? 'is listened to' : chosen ? 'would be listened to' : 'not used'}: ${why}`;
}

function remarksOn({ kind, path, chosen, problem, hidden, usb }: Device): string[] {
	const isShown = kind === 'keyboard' && chosen && hidden !== true;
	const shown = `The input of ${path} also reaches the desktop: the udev rule that hides it is not in force. Put this line into /etc/udev/rules.d/70-idv-agent-scanner.rules, then run udevadm control --reload and plug the scanner in again: ${udevRule(usb)}`;
	return [...(problem ? [sentenceOf(problem, 'ongoing')] : []), ...(isShown ? [shown] : [])];
}

function udevRule(usb: Device['usb']): string {
	const { vendorId, modelId } = usb ?? { vendorId: 'VENDOR', modelId: 'MODEL' };
	return `SUBSYSTEM=="input", KERNEL=="event*", ENV{ID_VENDOR_ID}=="${vendorId}", ENV{ID_MODEL_ID}=="${modelId}", GROUP="idv-agent", MODE="0640", ENV{LIBINPUT_IGNORE_DEVICE}="1", SYMLINK+="input/idv-scanner"`;
}

function unseen({ kind, path }: Device): string {
	return `The running agent does not see ${path}: systemd hides devices from it. Run: mkdir -p /etc/systemd/system/idv-agent.service.d && ln -sf /usr/lib/idv-agent/drop-ins/${kind}-scanner.conf /etc/systemd/system/idv-agent.service.d/ && systemctl daemon-reload && systemctl restart idv-agent`;
}

async function askAgent(shell: Shell, flags: AskFlags): Promise<ScannerReport | null> {
	const asked = clientFor(shell, flags).request('agent', 'GET', LOCAL_ROUTES.scanners).catch(nullIfAway);
	return (await asked) as ScannerReport | null;
}

async function lookOurselves(settings: Settings['scanner']): Promise<ScannerReport> {
	const choices = chooseScanners(await findScanners({ device: settings.device }), settings);
	return { listening: false, sentence: 'The agent is not running.', devices: choices.map(toDevice) };
}

function toDevice({ device, chosen, why }: ScannerChoice): Device {
	const { kind, path, node, hidden, usb, readable } = device;
	const denied = new AgentError('scanner-denied', `This user may not read ${path}.`).failure;
	return { kind, path, node, chosen, why, open: false, hidden, usb, problem: readable ? null : denied };
}

type TestFlags = AskFlags & { readonly device?: string; readonly count?: number };

/** Shows each scan until the scanner is gone, `--count` is reached or Ctrl-C. @param source `-` for standard input. */
export async function testScanner(shell: Shell, flags: TestFlags, source?: string): Promise<void> {
	if (source !== undefined && source !== '-')
		throw new AgentError('usage', 'Name a scanner with --device; the only argument is -, for standard input.');
	const own = flags.device === undefined ? [] : [`scanner.device=${flags.device}`];
	const { scanner: settings, pairing } = await readSettings(shell, { ...flags, set: [...(flags.set ?? []), ...own] });
	const { promise: over, resolve: end, reject } = Promise.withResolvers<void>();
	let scans = 0;
	let shown = Promise.resolve();
	const reader = readScans(systemClock, settings.suffix, (scan) => {
		if (scans === flags.count) return;
		scans += 1;
		shown = shown.then(() => show(shell, scan, { ...flags, pairing }));
		if (scans === flags.count) end();
	});
	const listener: ScannerListener = {
		characters: reader.characters,
		ended: (why) => (source === '-' ? reader.flush(end) : reject(asError(why))),
	};
	const scanner = await open(shell, source, settings, listener, flags);
	process.once('SIGINT', end);
	try {
		await over;
	} finally {
		reader.close();
		await scanner.close();
		await shown;
	}
}

async function open(
	shell: Shell,
	source: string | undefined,
	settings: Settings['scanner'],
	listener: ScannerListener,
	flags: TestFlags,
): Promise<OpenScanner> {
	if (source === '-') {
		const { openStandardInput } = await import('../scanning/open.edge.ts');
		return openStandardInput(listener, shell.caller.stdin);
	}
	const choices = chooseScanners(await findScanners({ device: settings.device }), settings);
	const device = choices.find(({ chosen }) => chosen)?.device;
	if (!device)
		throw new AgentError(
			'scanner-failed',
			settings.device === null ? 'No scanner was found.' : `There is no scanner at ${settings.device}.`,
			{ remedy: 'Plug it in; idv-agent scanner list shows every device and why it is not used.' },
		);
	// Two readers would both act on a code: a keyboard scanner can be open twice, and the agent would spend the code.
	if ((await askAgent(shell, flags))?.devices.some(({ open: isOpen, node }) => isOpen && node === device.node))
		throw new AgentError('scanner-failed', `The agent itself listens to ${device.path}: it would use a scanned code.`, {
			remedy:
				'Scan the code and look at the result in idv-agent status, or stop the agent for the test (systemctl stop idv-agent).',
		});
	const { openScanner } = await import('../scanning/open.edge.ts');
	const opened = await openScanner(device, settings, listener);
	if (!shell.isJson) shell.line(`Reading ${device.path}. Scan something; Ctrl-C ends.`);
	return opened;
}

/** A token with so many characters gives away nothing by its last one, which a scanner may have added. */
const SHOWS_LAST = 16;

/** Prints the text that was read, with secrets masked. */
async function show(
	shell: Shell,
	scan: Scan,
	{ pairing, ...flags }: TestFlags & Pick<Settings, 'pairing'>,
): Promise<void> {
	const text = scan.kind === 'text' ? scan.text : '';
	const length = scan.kind === 'text' ? text.length : null;
	const read = scan.kind === 'text' ? readScannedText(text) : ({ code: null, reason: 'tooLong' } as const);
	if (read.code) {
		const preview = await inspect(shell, text, flags);
		const { code, typed } = read;
		const { form, baseUrl, workflowId, sessionId } = code;
		const named = { form, baseUrl, workflowId, sessionId };
		const refused = whyNotScanned(baseUrl, pairing);
		if (shell.isJson) return shell.json({ scan: 'pairingCode', characters: length, ...named, typed, refused, preview });
		const parts = [`a pairing code for ${baseUrl ?? 'the configured service'}`, 'Short Token (one use)'];
		if (workflowId !== null) parts.push(`workflow ${workflowId}`);
		if (sessionId !== null) parts.push(`session ${sessionId}`);
		const last =
			code.token.length >= SHOWS_LAST && endsWithToken(text, code) ? `, the last one is ${code.token.at(-1)}` : '';
		shell.line(`${parts.join(', ')}; its token is masked (${length} characters${last})`);
		if (typed) shell.line(`  ${describeTyped(typed)}`);
		if (refused) shell.line(`  A scanner may not pair with it: ${sentenceOf(refused, 'over')}`);
		if (preview && preview.changes.length > 0) shell.line(`  here it ${preview.changes.join(', ')}`);
		if (preview?.problem && preview.problem.message !== refused?.message)
			shell.line(`  ${sentenceOf(preview.problem, 'over')}`);
		return;
	}
	const { reason } = read;
	const problem = notACode(reason, scan.kind === 'text' ? scan.text : undefined);
	const kind = problem.params?.['kind'];
	if (shell.isJson)
		return shell.json({ scan: 'other', characters: length, reason, ...(kind !== undefined && { kind }) });
	shell.line(`no pairing code (${scan.kind === 'text' ? `${length} characters): ${masked(scan.text)}` : 'too long)'}`);
	shell.line(`  ${sentenceOf(problem, 'over')}`);
}

function describeTyped({ scanner, device, capsLock }: Typed): string {
	const as = scanner === null ? 'for another keyboard layout' : `as a ${scanner} keyboard`;
	const layouts = scanner === device ? '' : `The scanner types ${as}, and its keys are read as ${device} ones.`;
	const capitals = capsLock ? 'Capitals and small letters are exchanged: Caps Lock is on.' : '';
	return joinSentences(layouts, capitals, 'The agent reads it nevertheless.');
}

/** The effect of the code on this device, as a running agent sees it; spends nothing. `null` without one, or without the right to ask. */
async function inspect(shell: Shell, code: string, flags: TestFlags): Promise<PairPreview | null> {
	try {
		return (await clientFor(shell, flags).request('admin', 'POST', LOCAL_ROUTES.pairInspect, { code })) as PairPreview;
	} catch {
		return null;
	}
}

/** Enough of a text to know it again: it may be a password, typed on the wrong keyboard. */
function masked(text: string): string {
	const shown = text.replaceAll(/[^\x20-\x7e]/g, '?');
	return shown.length < 10 ? '…' : `${shown.slice(0, 3)}…${shown.slice(-1)}`;
}

async function readSettings(shell: Shell, flags: AskFlags): Promise<Settings> {
	const { settings, problems } = await loadSettings(sourcesOf(shell, flags));
	const [problem] = problems.filter(({ message }) => message.includes('scanner'));
	if (problem) throw asError(problem);
	return settings;
}
