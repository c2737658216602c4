/** Whether a scanned code may be used on this device, decided without the network before anything is spent. Pure. */
import { type Failure, failure } from '../base/errors.ts';
import { joinSentences } from '../base/sentences.ts';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import type { PairPreview } from '../protocol/local-api.ts';
import { KIND_SENTENCES } from '../protocol/other-texts.ts';
import { NO_ORIGIN } from '../settings/restrictions.ts';
import type { Settings } from '../settings/table.ts';
import { type DeviceState, lastWorkflow } from '../state/device-state.ts';
import { type DesiredWorkflow, describeSource } from '../workflow/precedence.ts';
import { NOT_SENT, type SentCode } from './code-worth.ts';
import { namesTenant, type Standing, takesRescue, whyNoRescue } from './rescue.ts';
import { endsWithToken, otherKind, readScannedText, type UnreadReason } from './scanned-text.ts';

/** A code that the device's own scanner has read proves nothing; a person at the screen or at a terminal has seen the host. */
export type BroughtBy = 'scanner' | 'person';

/** The warning about a device that the first person with any code could take: its settings name no service. `null` for another. */
export function openToFirstComer({ baseUrl, pairing }: Pick<Settings, 'baseUrl' | 'pairing'>): Failure | null {
	if (baseUrl !== null || pairing.trustedOrigins.length > 0) return null;
	const message =
		'This device is open to the first comer: no setting says which service it is for, so it takes the first code that a person confirms.';
	return failure('open-to-first-comer', message);
}

export interface PairingContext {
	readonly settings: Pick<Settings, 'baseUrl' | 'pairing'>;
	/** The workflow that the settings or the fleet plan fix, or `null`. */
	readonly configured: DesiredWorkflow | null;
	readonly state: DeviceState;
	/** The service that this device belongs to now, or `null`. */
	readonly pairedWith: string | null;
	/** Which codes the device takes without `replace`. */
	readonly standing: Standing;
}

export interface PairingAsked {
	/** The text that was scanned, typed or photographed. */
	readonly code: string;
	readonly workflowId?: string | undefined;
	readonly replace: boolean;
	/** Whether the events of the service that the device leaves stay. Default `false`. */
	readonly keepEvents?: boolean | undefined;
	readonly by: BroughtBy;
	/** The origin that a person has confirmed. */
	readonly trustOrigin?: string | undefined;
}

/** Everything that is needed to spend the code. */
export interface PairingPlan {
	readonly baseUrl: string;
	/** Secret, works once. */
	readonly token: string;
	readonly workflowId: string;
	/** Whether the workflow is this pairing's to assign (not when the settings fix it). */
	readonly assignsWorkflow: boolean;
	readonly sessionId: string | null;
	/** The origin to remember because a person has confirmed it now, or `null`. */
	readonly confirmsOrigin: string | null;
	/** Whether the device keeps its service, its workflow and its tenant. */
	readonly isRescue: boolean;
	readonly sent: SentCode;
}

export interface PairingDecision {
	readonly preview: PairPreview;
	/** `null` when the code may not be used: then the preview's problem says why. */
	readonly plan: PairingPlan | null;
	/** What the code would do if its workflow were known: nothing else keeps it from being used. */
	readonly incomplete?: Omit<PairingPlan, 'workflowId'>;
}

const NOT_A_CODE: Readonly<Record<UnreadReason, string>> = {
	empty: 'Nothing was read.',
	tooLong: 'This text is longer than any pairing code.',
	controlCharacters: 'This text has control characters in it, so it is not a pairing code.',
	otherText: 'This is some other text, not a pairing code.',
	linkWithoutToken: 'This is some other text, not a pairing code.',
	otherScheme: 'This link carries another kind of credential, not a one-time pairing token.',
	badBaseUrl: 'The address in this code is not one of a service.',
	badToken: 'The token in this code is damaged.',
	badWorkflow: 'The workflow in this code is not a valid name.',
	damaged: 'This pairing code is not whole, or signs of it were changed on the way.',
	several: 'These are several pairing codes at once.',
	otherLayout:
		'This looks like a pairing code, but the keyboard layout of the scanner is not that of this computer; it cannot be read for certain.',
	capitals:
		'This looks like a pairing code in which the scanner has changed capitals and small letters; it cannot be read for certain.',
};
/** Nothing of these is a pairing code, not even of another make. */
const OTHER_TEXTS: readonly UnreadReason[] = ['empty', 'tooLong', 'otherText', 'linkWithoutToken'];
const WHOLE = 'Scan or type the whole code once more; if that does not help, ask for a new one.';
/** The one thing to do where the code is good, and what was read of it is not. */
const REMEDIES: Partial<Record<UnreadReason, string>> = {
	damaged: WHOLE,
	badToken: WHOLE,
	badWorkflow: WHOLE,
	several: 'Scan or type one of them alone.',
	otherLayout:
		'Set both to the same keyboard layout (US English where the agent itself reads the scanner; its manual has a code for it), then scan the code again.',
	capitals: 'Switch Caps Lock off, and the change of capitals in the scanner, then scan the code again.',
};

/** The refusal of a text that cannot be read as a pairing code: of the text it tells the shape, since it may be a secret. */
export function notACode(reason: UnreadReason, text?: string): Failure {
	const isOther = OTHER_TEXTS.includes(reason);
	const remedy = REMEDIES[reason];
	const worth = isOther ? 'Nothing was sent.' : NOT_SENT;
	const found = isOther && text ? otherKind(text) : null;
	// Of a link that is not read nothing is known but its length.
	const kind = found === 'link' && reason === 'tooLong' ? null : found;
	const what = kind === null ? NOT_A_CODE[reason] : KIND_SENTENCES[kind];
	const form = text && { form: formOf(text), characters: text.length, ...(kind !== null && { kind }) };
	return failure('not-a-pairing-code', joinSentences(what, worth), {
		params: { reason, ...form, pairingCode: 'valid' },
		...(remedy && { remedy }),
	});
}

function formOf(text: string): 'link' | 'json' | 'digits' | 'word' | 'text' {
	const trimmed = text.trim();
	if (/^[a-z][a-z0-9+.-]*:/i.test(trimmed)) return 'link';
	if (trimmed.startsWith('{')) return 'json';
	return /^\d+$/.test(trimmed) ? 'digits' : /^\S+$/.test(trimmed) ? 'word' : 'text';
}

/** Looks at a code and says what it would do and whether it may. */
export function decidePairing(asked: PairingAsked, context: PairingContext): PairingDecision {
	const read = readScannedText(asked.code);
	if (read.code === null) return refusedUnread(notACode(read.reason, asked.code));
	const { code } = read;
	const { settings, configured, state, pairedWith } = context;
	const named = ownAddress(code.baseUrl, settings.baseUrl) ?? pairedWith;
	const workflow = chooseWorkflow(asked, code.workflowId, context, named);
	const seen = {
		baseUrl: named,
		host: named === null ? null : new URL(named).host,
		workflowId: workflow.workflowId,
		workflowSource: workflow.source,
		sessionId: code.sessionId,
		tokenKind: 'Short Token (one use)',
	};
	const refused = (problem: Failure, changes: string[] = []): PairingDecision => ({
		preview: { ...seen, ready: false, changes, problem: problem },
		plan: null,
	});
	if (named === null)
		return refused(failure('code-incomplete', 'This code is a bare token: it does not say which service it is for.'));
	const origin = new URL(named).origin;
	// No person is asked whether a device belongs to the host of a link that pairs nothing here.
	if (pairedWith !== null && !asked.replace && code.sessionId !== null) return refused(sessionLink(pairedWith, origin));
	const unscanned = asked.by === 'scanner' ? whyNotScanned(code.baseUrl, settings.pairing) : null;
	if (unscanned) return refused(unscanned);
	const stranger = checkOrigin(named, origin, asked, context);
	if (stranger && stranger.code !== 'origin-unconfirmed') return refused(stranger);
	const workflowId = workflow.workflowId ?? '';
	const changes = workflow.problem
		? []
		: describeChanges(named, workflowId, code.sessionId, context, asked.keepEvents ?? false);
	const isRescue = pairedWith !== null && !asked.replace;
	if (isRescue) {
		const { standing } = context;
		if (!takesRescue(standing, asked.by)) return refused(alreadyPaired(pairedWith, origin), changes);
		const current = configured?.workflowId ?? lastWorkflow(state, pairedWith);
		const chosen = { workflowId: workflow.workflowId, currentWorkflowId: current };
		const unfit = workflow.problem ?? whyNoRescue({ code, named, pairedWith, ...chosen });
		if (unfit) return refused(unfit, changes);
		if (asked.by === 'scanner' && standing === 'copy') return refused(scannedOnCopy(), changes);
		const isAttested = namesTenant(state.connections.at(-1)?.token ?? '');
		if (asked.by === 'scanner' && !(settings.pairing.rescueByScanner && isAttested))
			return refused(unconfirmedRescue(pairedWith), changes);
	} else if (stranger) return refused(stranger, changes);
	const known =
		state.confirmedOrigins.includes(origin) || settings.baseUrl !== null || settings.pairing.trustedOrigins.length > 0;
	const incomplete = {
		baseUrl: named,
		token: code.token,
		// A plan may end one day: then the pairing's workflow is what is left.
		assignsWorkflow: configured === null || configured.source === 'plan',
		sessionId: code.sessionId,
		confirmsOrigin: known || isRescue ? null : origin,
		isRescue,
		sent: { endsWithToken: endsWithToken(asked.code, code), namesWorkflow: code.workflowId !== null },
	};
	if (workflow.problem?.code === 'workflow-missing') return { ...refused(workflow.problem), incomplete };
	if (workflow.problem) return refused(workflow.problem);
	return {
		preview: {
			...seen,
			ready: true,
			changes,
			problem: null,
		},
		plan: { ...incomplete, workflowId },
	};
}

/** For the same origin the configured address takes precedence: the path in the code may differ from the site's. */
function ownAddress(inCode: string | null, configured: string | null): string | null {
	if (inCode === null || configured === null) return inCode ?? configured;
	return new URL(inCode).origin === new URL(configured).origin ? configured : inCode;
}

/** Why no scanner may bring a code of this address; `null` for one that it may bring. */
export function whyNotScanned(
	baseUrl: string | null,
	{ loopbackByScanner }: Pick<Settings['pairing'], 'loopbackByScanner'>,
): Failure | null {
	if (baseUrl === null) return null;
	const { origin } = new URL(baseUrl);
	if (isLoopback(baseUrl)) return loopbackByScanner ? null : loopbackCode(origin);
	return baseUrl.startsWith('http:') ? unencrypted(origin) : null;
}

const unencrypted = (origin: string) =>
	failure('insecure-origin', `This code leads to ${origin} without encryption.`, { params: { origin } });

function checkOrigin(named: string, origin: string, asked: PairingAsked, context: PairingContext): Failure | null {
	const { settings, state, pairedWith } = context;
	if (named.startsWith('http:') && !isLoopback(named)) return unencrypted(origin);
	if (settings.baseUrl !== null) {
		const own = new URL(settings.baseUrl).origin;
		return own === origin
			? null
			: failure('code-for-other-origin', `This code is for ${origin}, but this device is configured for ${own}.`, {
					params: { origin, ownOrigin: own },
					remedy: 'Use a code of the configured service, or change baseUrl if the device is meant to move.',
				});
	}
	const { trustedOrigins } = settings.pairing;
	if (trustedOrigins.length > 0)
		return trustedOrigins.includes(origin) ||
			trustedOrigins.includes(named) ||
			(trustedOrigins.includes(NO_ORIGIN) && pairedWith !== null && new URL(pairedWith).origin === origin)
			? null
			: failure(
					'code-for-other-origin',
					`This code is for ${origin}, which is not among the origins that this device trusts.`,
					{
						params: { origin },
						remedy: 'Use a code of one of them, or add this one to pairing.trustedOrigins if it is meant.',
					},
				);
	// Only its origin is ever repeated: a person may have put the whole code there.
	const trusted = asked.trustOrigin === undefined ? null : normalizeBaseUrl(asked.trustOrigin);
	const trustedOrigin = trusted && new URL(trusted).origin;
	// A scanner alone pairs only where the settings name the service: an origin that was confirmed once may be history.
	const confirmed = asked.by === 'person' && state.confirmedOrigins.includes(origin);
	if (confirmed || trustedOrigin === origin) return null;
	if (asked.trustOrigin !== undefined) {
		const other = trustedOrigin ?? 'what was confirmed, which is not an address';
		return failure('code-for-other-origin', `This code is for ${origin}, not for ${other}.`, {
			params: { origin, ownOrigin: other },
			remedy: 'Use a code of the right service, or look at the host again and confirm it.',
		});
	}
	return failure(
		'origin-unconfirmed',
		`This code is for ${origin}, and it is not confirmed yet that this device belongs there.`,
		{ params: { origin } },
	);
}

function sessionLink(pairedWith: string, origin: string): Failure {
	const own = new URL(pairedWith).host;
	const other = new URL(origin).host;
	return failure(
		'already-paired',
		`This is a link to a session at ${other}, not a pairing code; this device is paired with ${own} already.`,
		{
			params: { ownHost: own, host: other },
			remedy: 'Open the link on the phone or kiosk page it is meant for; no code was used.',
		},
	);
}

/** A local program could be waiting there for the code. */
function loopbackCode(origin: string): Failure {
	return failure('insecure-origin', `This code leads to ${origin}, which is this machine itself.`, {
		params: { origin },
		remedy: 'Use a code of the service, or set pairing.loopbackByScanner for a trial.',
	});
}

function scannedOnCopy(): Failure {
	return failure('identity-changed', 'This disk was made for another machine, and a scanner alone cannot pair it.', {
		remedy: 'Pair on the screen of this device, or with idv-agent pair.',
	});
}

function unconfirmedRescue(pairedWith: string): Failure {
	const { host } = new URL(pairedWith);
	return failure(
		'pairing-unconfirmed',
		`This code is for ${host}, where this device belongs, and waits for a confirmation.`,
		{
			params: { host },
		},
	);
}

function alreadyPaired(pairedWith: string, origin: string): Failure {
	const own = new URL(pairedWith).host;
	const other = new URL(origin).host;
	return own === other
		? failure('already-paired', `This device is paired with ${own} already.`, { params: { ownHost: own } })
		: failure('already-paired', `This device is paired with ${own}; the code would move it to ${other}.`, {
				params: { ownHost: own, host: other },
			});
}

interface ChosenWorkflow {
	readonly workflowId: string | null;
	readonly source: string | null;
	readonly problem?: Failure;
}

function chooseWorkflow(
	asked: PairingAsked,
	inCode: string | null,
	{ configured, state, pairedWith }: PairingContext,
	baseUrl: string | null,
): ChosenWorkflow {
	if (configured) {
		const chosen = { workflowId: configured.workflowId, source: describeSource(configured) };
		const other = [inCode, asked.workflowId].find((id) => id && id !== configured.workflowId);
		if (!other) return chosen;
		const by = other === inCode ? 'the code' : '--workflow';
		const message = `Workflow ${configured.workflowId} is set by ${describeSource(configured)}, but ${by} names ${other}.`;
		return {
			...chosen,
			problem: failure('workflow-fixed', message, {
				params: { workflowId: configured.workflowId, otherWorkflowId: other },
			}),
		};
	}
	if (asked.workflowId && inCode && asked.workflowId !== inCode)
		return {
			workflowId: inCode,
			source: 'the code',
			problem: failure(
				'workflow-conflict',
				`The code is for workflow ${inCode}, but --workflow names ${asked.workflowId}.`,
				{ params: { workflowId: inCode, otherWorkflowId: asked.workflowId } },
			),
		};
	if (inCode) return { workflowId: inCode, source: 'the code' };
	if (asked.workflowId) return { workflowId: asked.workflowId, source: '--workflow' };
	// Paired again with the same service, a device continues with its workflow.
	const before = pairedWith !== null && pairedWith === baseUrl ? lastWorkflow(state, pairedWith) : null;
	if (before !== null) {
		const { source, workflowId } = state.assignedWorkflow ?? {};
		return { workflowId: before, source: workflowId === before ? `${source}, as before` : 'as before' };
	}
	return {
		workflowId: null,
		source: null,
		problem: failure('workflow-missing', 'This code names no workflow, and neither do the settings.'),
	};
}

function describeChanges(
	baseUrl: string,
	workflowId: string,
	sessionId: string | null,
	{ pairedWith, state, configured }: PairingContext,
	keepEvents: boolean,
): string[] {
	const changes: string[] = [];
	const { host } = new URL(baseUrl);
	const isSameHost = pairedWith !== null && new URL(pairedWith).host === host;
	const [from, to] = isSameHost ? [pairedWith, baseUrl] : [pairedWith && new URL(pairedWith).host, host];
	if (pairedWith === null) changes.push(`pairs this device with ${host}`);
	else if (pairedWith === baseUrl) changes.push(`gives this device a new Connection to ${host}`);
	else changes.push(`moves this device from ${from} to ${to}`);
	const before = pairedWith === null ? undefined : (configured ?? state.assignedWorkflow)?.workflowId;
	if (before !== workflowId)
		changes.push(before ? `changes the workflow from ${before} to ${workflowId}` : `runs workflow ${workflowId}`);
	if (pairedWith !== null && pairedWith !== baseUrl)
		changes.push(`forgets what came from ${from}${keepEvents ? ' but its events' : ', events included'}`);
	if (sessionId !== null) changes.push(`notes session ${sessionId}`);
	return changes;
}

function refusedUnread(problem: Failure): PairingDecision {
	return {
		preview: {
			ready: false,
			baseUrl: null,
			host: null,
			workflowId: null,
			workflowSource: null,
			sessionId: null,
			tokenKind: 'none',
			changes: [],
			problem: problem,
		},
		plan: null,
	};
}
