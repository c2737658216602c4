/** The sentence of the status as data, so that it can be said in any language, and in English. Pure. */
import { plainDuration } from '../base/durations.ts';
import { type Failure, failure, type Params } from '../base/errors.ts';
import { joinSentences, sentenceOf } from '../base/sentences.ts';
import type { Link } from '../connection/supervisor.ts';
import type { Status } from '../protocol/local-api.ts';
import type { DeviceState } from '../state/device-state.ts';

type Summary = Status['summary'];
/** What a link is opened for while another is online. */
type PurposeCode = 'online-renewing' | 'online-moving-service' | 'online-registering' | 'online-moving';

const PURPOSES: Readonly<Record<PurposeCode, (params: Params) => string>> = {
	'online-renewing': () => 'renewing the Connection',
	'online-moving-service': ({ nextHost, nextWorkflowId }) => `moving to ${nextHost}, workflow ${nextWorkflowId}`,
	'online-registering': () => 'registering again',
	'online-moving': ({ nextWorkflowId }) => `moving to workflow ${nextWorkflowId}`,
};

const online = ({ host, workflowId }: Params) => `Online with ${host}, workflow ${workflowId}`;
const span = ({ seconds }: Params) => plainDuration(Number(seconds) * 1000);
const moving = (code: PurposeCode) => (params: Params, problem: string) =>
	`${online(params)}; ${PURPOSES[code](params)}${problem && ` does not succeed: ${problem}`}`;

/** The words on a code that was sent and whose answer was lost, by the status and the doctor alike. */
export function lostAnswer({ host, refusal, status, detail }: Params): Failure {
	if (refusal === undefined)
		return failure(
			'pairing-uncertain',
			`${host} gave no usable answer to the last pairing code, so it may have been used.`,
			{
				remedy:
					'Scan the same code again; if it is refused, check whether the device is listed in the service, and scan a new code.',
			},
		);
	const said = `${host} answered ${status}${detail === undefined ? '' : `: ${detail}`}`;
	return failure(
		'pairing-uncertain',
		`The last pairing code was refused, and may have been used: ${joinSentences(said)}`,
		{
			remedy: 'See to what the service says, then scan the same code again; if it is refused again, scan a new code.',
		},
	);
}

/** The same as data. @param attempt of the state. */
export function lostParams(attempt: DeviceState['attempt']): Params {
	const host = attempt?.host ?? '';
	if (!attempt?.refusal) return { host };
	const { code: refusal, status, detail } = attempt.refusal;
	return { host, refusal, status, ...(detail !== undefined && { detail }) };
}

/** In English; `problem` is empty where nothing is wrong. The end is added where it is missing. */
const WORDS: Readonly<Record<Summary['code'], (params: Params, problem: string) => string>> = {
	unpaired: (_params, problem) => `Not paired: ${problem || 'scan a pairing code, or run idv-agent pair'}`,
	'unpaired-uncertain': (params) => `Not paired: ${sentenceOf(lostAnswer(params), 'over')}`,
	connecting: ({ host }, problem) => (problem ? `Not online yet: ${problem}` : `Connecting to ${host}`),
	online,
	'online-wanted': (params) => `${online(params)}; ${params['nextWorkflowId']} is wanted`,
	'online-waiting': (params) =>
		`${online(params)}; ${params['nextWorkflowId']} waits for an application, at most ${span(params)}`,
	'online-renewing': moving('online-renewing'),
	'online-moving-service': moving('online-moving-service'),
	'online-registering': moving('online-registering'),
	'online-moving': moving('online-moving'),
	offline: (params, problem) => `Offline for ${span(params)}: ${problem || `connecting to ${params['host']} again`}`,
	blocked: (_params, problem) => (problem ? `Not online: ${problem}` : 'Not online'),
};

/** The whole sentence, from the fields beside it; on an unpaired device nothing is tried again. */
export function statusSentence({
	summary,
	problem,
	warnings,
}: Pick<Status, 'summary' | 'problem' | 'warnings'>): string {
	const { code, params } = summary;
	const named = [problem, ...warnings].find((one) => one !== null && one.code === params['problem']);
	const told = named ? sentenceOf(named, code === 'unpaired' ? 'over' : 'ongoing') : '';
	const text = WORDS[code](params, told);
	const whole = joinSentences(text);
	const clock = warnings.find(({ code }) => code === 'clock-wrong');
	return clock && clock !== named ? `${whole} ${clock.message} Times that it shows are wrong.` : whole;
}

export function purposeOf(next: Link, current: Link | null): { readonly code: PurposeCode; readonly params: Params } {
	const { workflowId: nextWorkflowId } = next.registration.request;
	const nextHost = hostOf(next);
	const params = { nextHost, nextWorkflowId };
	if (next.reason === 'renewal') return { code: 'online-renewing', params };
	if (nextHost !== hostOf(current)) return { code: 'online-moving-service', params };
	return nextWorkflowId === current?.registration.request.workflowId
		? { code: 'online-registering', params }
		: { code: 'online-moving', params };
}

/** The same in words that `does not succeed` may follow. */
export function purposeWords(next: Link, current: Link | null): string {
	const { code, params } = purposeOf(next, current);
	return PURPOSES[code](params);
}

export function hostOf(link: Link | null): string {
	return link ? new URL(link.registration.baseUrl).host : 'the service';
}
