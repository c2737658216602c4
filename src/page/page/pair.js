/* Pairing on the page: takes a code, shows where it leads, asks once, and asks the agent to pair. Keeps no code longer than needed. */
import { kindOf, ReadingFailed, readFromCamera, readPictureFile } from './codes.js';
import { at, setText } from './elements.js';
import { duration, fill, problemWords, text, words } from './words.js';

/** @import { Params } from '../../base/errors.ts' */
/** @import { ProblemDocument } from '../../protocol/problem.ts' */
/** @import { PageRequests, PageView, Shown } from '../view.ts' */
/** @import { Found, Reason } from './codes.js' */
/** @import { TextKey } from './words.js' */
/**
 * @template {keyof PageRequests} Path
 * @typedef {{ came: true, ok: true, body: PageRequests[Path]['answer'] }
 * 	| { came: boolean, ok: false, body: Partial<ProblemDocument> }} Answer What did not come has no code.
 */

/** How long a success stands beside the state, in milliseconds. */
const NOTE_MS = 30_000;
/** Longest wait for an answer of the agent: pairing takes it to the service. */
const ANSWER_MS = 120_000;
/** Until a code before the camera is asked about again after no answer. */
const AGAIN_MS = 3_000;

/** @type {PageView | null} */
let view = null;
let code = '';
/** The scanned code that is being confirmed, as the agent names it; 0 for one of this page. */
let proposal = 0;
/** A scanned code that was refused here is not shown again. */
let handled = 0;
/** @type {string | null} */
let origin = null;
/** @type {AbortController | null} */
let camera = null;
let noteUntil = 0;

/** Says that pairing has worked, for a while. */
export function pairedNote() {
	return Date.now() < noteUntil ? text('paired') : '';
}

/** Follows a change that the agent reports: a scanned code may have come, or this device may take codes no longer. @param {PageView} next */
export function followPairing(next) {
	view = next;
	const shut = view.standing === 'paired' || view.pinNeed === 'setting' || view.pinNeed === 'longerPin';
	if (shut && !at('yes').disabled) return close();
	const { proposal: waiting } = view;
	if (proposal !== 0 && waiting?.id !== proposal && !at('yes').disabled) {
		close();
		if (!waiting) return;
	}
	if (!shut && waiting && waiting.id !== handled && proposal === 0 && code === '') {
		open();
		proposal = waiting.id;
		ask(waiting);
	}
	setText(at('pairing-title'), at('confirm').hidden ? text('pairTitle') : question());
}

export function openPairing() {
	open();
	forget();
	say('');
	at('code').focus();
}

/** The person has left. A pairing that is under way goes on. */
export function leavePairing() {
	if (at('pairing').open && !at('yes').disabled) close();
}

function open() {
	if (at('pairing').open) return;
	at('pairing').showModal();
	setText(at('pairing-title'), text('pairTitle'));
}

function close() {
	camera?.abort();
	forget();
	say('');
	if (at('pairing').open) at('pairing').close();
}

// ---- A code comes in ----

at('code-form').addEventListener('submit', (event) => {
	event.preventDefault();
	const typed = at('code').value;
	at('code').value = '';
	take([{ text: typed, format: '' }]).catch(sayNoAnswer);
});

at('show-code').addEventListener('click', () => {
	const isShown = at('code').type === 'text';
	at('code').type = isShown ? 'password' : 'text';
	at('show-code').setAttribute('aria-pressed', String(!isShown));
});

// A scanner types wherever the focus is: keys for no other field go into the field for codes.
document.addEventListener('keydown', (event) => {
	if (at('start').hidden || !at('confirm').hidden || event.ctrlKey || event.metaKey || event.altKey) return;
	const { key, target } = event;
	if (key.length !== 1 || !(target instanceof Element) || target.closest('input, textarea, select')) return;
	// The space bar presses buttons.
	if (key === ' ' && target.closest('button, a, label, summary')) return;
	open();
	at('code').focus();
});

at('picture').addEventListener('change', async () => {
	const file = at('picture').files?.[0];
	at('picture').value = '';
	if (!file) return;
	say(text('searching'));
	try {
		await take(await readPictureFile(file));
	} catch (error) {
		sayReading(error);
	}
});

at('camera-start').addEventListener('click', async () => {
	camera?.abort();
	const mine = new AbortController();
	camera = mine;
	at('camera').hidden = false;
	at('pairing').dataset.camera = '';
	say('');
	try {
		await readFromCamera(at('video'), mine.signal, {
			onSeen: () => at('camera-stop').scrollIntoView({ block: 'nearest' }),
			take,
		});
	} catch (error) {
		sayReading(error);
	} finally {
		if (camera === mine) {
			at('camera').hidden = true;
			delete at('pairing').dataset.camera;
			camera = null;
		}
	}
});

at('camera-stop').addEventListener('click', () => {
	camera?.abort();
	at('camera-start').focus();
});

/** @param {unknown} error */
function sayReading(error) {
	/** @type {Reason} */
	const reason = error instanceof ReadingFailed ? error.reason : { key: 'readerFailed' };
	say('key' in reason ? text(reason.key) : problemWords(reason.code).join(' '));
}

/** Texts that were looked at while the camera is on. @type {Map<string, Answer<'/api/inspect'>>} */
const known = new Map();

/**
 * Of the codes in one picture, the one that is a pairing code is used: host and workflow are confirmed anyway. The agent says
 * which it is; nothing is spent by that.
 * @param {Found[]} found @returns whether there was one; else the camera goes on.
 */
async function take(found) {
	const looked = [];
	for (const one of found) {
		let answer = camera === null ? undefined : known.get(one.text);
		if (answer === undefined) {
			if (camera === null) say(text('looking'));
			answer = await post('/api/inspect', { code: one.text });
			known.set(one.text, answer);
			if (!answer.came) setTimeout(() => known.delete(one.text), AGAIN_MS);
		}
		looked.push({ one, answer });
	}
	if (camera === null) known.clear();
	const codes = looked.filter(({ answer }) => isPairingCode(answer));
	if (codes.length > 1) {
		say(problemWords('picture-with-several-codes').join(' '));
		return false;
	}
	const first = codes[0] ?? looked[0];
	if (first === undefined) return false;
	const { one, answer } = first;
	if (!answer.ok) {
		sayProblem(answer.body);
		return false;
	}
	const { problem } = answer.body;
	if (problem?.code === 'not-a-pairing-code') {
		sayNotACode(one, problem.params?.reason);
		return false;
	}
	if (problem !== null && problem.code !== 'origin-unconfirmed' && problem.code !== 'workflow-missing') {
		sayProblem(problem);
		return true;
	}
	camera?.abort();
	known.clear();
	code = one.text;
	ask(answer.body);
	return true;
}

/** @param {Answer<'/api/inspect'>} answer */
function isPairingCode({ ok, body }) {
	return ok && body.problem?.code !== 'not-a-pairing-code';
}

/** @param {Found} one @param {string | number | undefined} reason */
function sayNotACode(one, reason) {
	if (reason === 'otherLayout') return say(text('otherLayout'));
	if (reason === 'capitals') return say(text('capitals'));
	const kind = kindOf(one);
	const [what, todo] = problemWords('not-a-pairing-code');
	say([kind === null ? what : fill(words.kinds[kind], { kind: one.format }), todo].join(' '));
}

// ---- One confirmation ----

function question() {
	return view?.standing === 'first' ? text('belongs') : text('again');
}

/** Shows where the code leads, and what is still needed. @param {Shown} shown */
function ask({ host, hostInUnicode, baseUrl, workflowId }) {
	origin = baseUrl === null ? null : new URL(baseUrl).origin;
	say('');
	setText(at('host'), host ?? '');
	setText(at('host-elsewhere'), hostInUnicode === undefined ? '' : text('elsewhere', { host: hostInUnicode }));
	setText(at('workflow-line'), workflowId === null ? '' : `${text('workflow')}: \u2068${workflowId}\u2069`);
	// Left empty, the service takes the only one, or lists those to choose from.
	at('workflow-field').hidden = workflowId !== null;
	at('workflow-choice').hidden = true;
	at('pin-field').hidden = view?.pinNeed !== 'pin';
	at('enter').hidden = true;
	at('confirm').hidden = false;
	setText(at('pairing-title'), question());
	at('pairing-title').focus();
}

for (const key of ['1', '2', '3', '4', '5', '6', '7', '8', '9', '', '0', 'delete']) {
	const button = document.createElement('button');
	button.type = 'button';
	button.textContent = key;
	if (key === 'delete') {
		button.id = 'delete-digit';
		button.dataset.label = 'deleteDigit';
		button.textContent = '⌫';
	}
	button.addEventListener('click', () => {
		const { value } = at('pin');
		at('pin').value = key === 'delete' ? value.slice(0, -1) : value + key;
	});
	at('pad').append(key === '' ? document.createElement('span') : button);
}

at('no').addEventListener('click', () => {
	if (proposal !== 0) void post('/api/dismiss', { proposal });
	handled = Math.max(handled, proposal);
	forget();
	say(text('cancelled'));
	at('code').focus();
});

at('close').addEventListener('click', close);
at('pairing').addEventListener('cancel', () => {
	if (proposal !== 0) void post('/api/dismiss', { proposal });
	handled = Math.max(handled, proposal);
	close();
});

at('confirm').addEventListener('submit', (event) => {
	event.preventDefault();
	pairNow().catch(sayNoAnswer);
});

async function pairNow() {
	const pin = at('pin').value;
	if (!at('pin-field').hidden && pin === '') {
		say(text('pinMissing'));
		at('pin').focus();
		return;
	}
	say(text('pairing'));
	at('yes').disabled = true;
	const workflowId = at(at('workflow-choice').hidden ? 'workflow' : 'workflow-list').value.trim();
	const what =
		proposal === 0 ? { code, ...(view?.standing === 'first' && origin && { trustOrigin: origin }) } : { proposal };
	const { ok, body } = await post('/api/pair', { ...what, ...(workflowId && { workflowId }), ...(pin && { pin }) });
	at('yes').disabled = false;
	// The code is still good, and nothing is typed twice.
	if (!ok && body.params?.workflows) return choose(JSON.parse(String(body.params.workflows)));
	if (!ok && body.code === 'workflow-missing') {
		sayProblem(body);
		at('workflow').focus();
		return;
	}
	at('pin').value = '';
	if (ok) {
		noteUntil = Date.now() + NOTE_MS;
		close();
		document.dispatchEvent(new Event('paired'));
		// Success is in view, and read aloud.
		at('status').scrollIntoView({ block: 'nearest' });
		at('status').focus();
		return;
	}
	if (body.code === undefined) say([text('noAnswer'), text('codeUncertain')].join(' '));
	else sayProblem(body);
	// A wrong PIN costs nothing; anything else may have cost the code.
	if (body.code === 'access-denied') at('pin').focus();
	else {
		handled = Math.max(handled, proposal);
		forget();
		at('code').focus();
	}
}

/** The service lists the workflows to choose from. @param {{ id: string, name: string }[]} workflows */
function choose(workflows) {
	const options = workflows.map(({ id, name }) => new Option(name === id ? id : `${name} (${id})`, id));
	at('workflow-list').replaceChildren(...options);
	at('workflow-field').hidden = true;
	at('workflow-choice').hidden = false;
	say(text('chooseWorkflow'));
	at('workflow-list').focus();
}

/** The code is a secret: it goes as soon as it is of no more use. */
function forget() {
	code = '';
	proposal = 0;
	origin = null;
	known.clear();
	for (const field of [at('code'), at('workflow'), at('pin')]) field.value = '';
	at('confirm').hidden = true;
	at('enter').hidden = false;
	if (words.tag !== undefined) setText(at('pairing-title'), text('pairTitle'));
}

/** @param {{ code?: string, params?: Params | undefined }} problem */
function sayProblem({ code: named, params = {} }) {
	if (named === undefined) return sayNoAnswer();
	if (named === 'access-denied') {
		/** @type {Partial<Record<string, TextKey>>} */
		const keys = {
			wrong: 'pinWrong',
			missing: 'pinMissing',
			pause: 'pinPause',
			longerPin: 'pinShort',
			setting: 'pinSetting',
		};
		return say(text(keys[params.reason ?? ''] ?? 'pinWrong', { duration: duration(Number(params.seconds ?? 0)) }));
	}
	if (named === 'pairing-unconfirmed' && params.reason === 'gone') return say(text('gone'));
	const [what, todo] = problemWords(named);
	/** @type {Partial<Record<string, string>>} */
	const worths = { valid: text('codeValid'), used: text('codeUsed'), uncertain: text('codeUncertain') };
	const worth = worths[named === 'code-expired-or-used' ? '' : (params.pairingCode ?? '')];
	say([what, worth, worth === text('codeUsed') ? '' : todo].filter(Boolean).join(' '));
}

/**
 * @template {keyof PageRequests} Path @param {Path} path @param {PageRequests[Path]['body']} body
 * @returns {Promise<Answer<Path>>}
 */
async function post(path, body) {
	try {
		const response = await fetch(path, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify(body),
			cache: 'no-store',
			signal: AbortSignal.timeout(ANSWER_MS),
		});
		return { came: true, ok: response.ok, body: await response.json() };
	} catch {
		return { came: false, ok: false, body: {} };
	}
}

function sayNoAnswer() {
	say(text('noAnswer'));
}

/** @param {string} sentence */
function say(sentence) {
	setText(at('answer'), sentence);
	if (sentence !== '') at('answer').scrollIntoView({ block: 'nearest' });
}
