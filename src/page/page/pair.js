/* Pairing on the page: takes a code, shows where it leads, asks once, and asks the agent to pair. Keeps no code longer than needed. */
import { ReadingFailed, readFromCamera, readPictureFile } from './codes.js';
import { at, fitScreen, passedMs, setText } from './elements.js';
import { isByCode, notACode, sentenceOf, unasked } from './refusals.js';
import { post } from './requests.js';
import { cut, fill, problemWords, text, words } from './words.js';

/** @import { Params } from '../../base/errors.ts' */
/** @import { PageView, Shown } from '../view.ts' */
/** @import { Found, Reason } from './codes.js' */
/** @import { Problem } from './refusals.js' */
/** @import { Answer } from './requests.js' */

/** How long a success stands beside the state, in milliseconds. */
const NOTE_MS = 30_000;
/** And a refusal under the details. */
const REFUSAL_MS = 3_600_000;
/** Of a code, in characters, as the agent has it. A field that cuts what is pasted would make another token of it. */
const LONGEST = 4296;
/** Until a code before the camera is asked about again after no answer. */
const AGAIN_MS = 3_000;
/** A scan is over after this, in milliseconds, and its keys follow each other faster than {@link KEY_MS}. */
const SCAN_MS = 500;
const KEY_MS = 100;
/** Of a code, in characters. */
const SHORTEST = 16;

/**
 * The dialog: `render` shows it, and what is typed is in its fields.
 * `code`: what was typed or seen here and is being confirmed; of a scanned code there is its number in the agent, `proposal`, else 0.
 * `shown`: where the code leads, from then on. `workflows`: the service lists them to choose from; `isCut`: there are more. `answer`: what is said of it all.
 * @typedef {{
 * 	code: string, proposal: number, shown: Shown | null, workflows: readonly { id: string, name: string }[] | null,
 * 	isCut: boolean, isPairing: boolean, answer: () => string,
 * }} Dialog
 */
/** @type {Omit<Dialog, 'isPairing'>} */
const EMPTY = { code: '', proposal: 0, shown: null, workflows: null, isCut: false, answer: () => '' };
/** @type {Dialog} */
let dialog = { ...EMPTY, isPairing: false };
/** @type {PageView | null} */
let view = null;
/** Whether what is asked is about a first pairing. */
let isFirst = true;
/** A scanned code that was refused here is not shown again. */
let handled = 0;
/** @type {AbortController | null} */
let camera = null;
let noteUntil = 0;
/** Until then, keys beside the question for the PIN are those of one scan. */
let scanUntil = 0;
/** When the newest character was typed. */
let keyMs = 0;
/** @type {{ code: string, message: string, untilMs: number } | null} */
let refused = null;
/** Whether the agent does not answer now: it may have been stopped, or only be slow. */
let isSilent = false;
/** Counts what the dialog was opened, left or asked for: an answer that comes for an earlier one changes nothing. */
let visit = 0;

/** Says that pairing has worked, for a while. */
export function pairedNote() {
	return passedMs() < noteUntil ? text('paired') : '';
}

/** The words of the agent about the code that was refused last, for support: gone after a pairing, and after an hour. */
export function lastRefusal() {
	return refused !== null && passedMs() < refused.untilMs ? refused : null;
}

/** Follows a change that the agent reports: a scanned code may have come, or this device may take codes no longer. @param {PageView} next */
export function followPairing(next) {
	// The agent answers again.
	if (next !== view && dialog.answer === unasked) change({ answer: () => text('codeValid') });
	view = next;
	const isShut = view.standing === 'paired' || view.pinNeed === 'setting' || view.pinNeed === 'longerPin';
	const { proposal: waiting } = view;
	const isGone = dialog.proposal !== 0 && waiting?.id !== dialog.proposal;
	if ((isShut || isGone) && !dialog.isPairing) close();
	if (!isShut && waiting && waiting.id !== handled && dialog.shown === null) ask({ proposal: waiting.id }, waiting);
	render();
}

/** What waits for an answer says so while there is none; an answer that comes later is told. @param {boolean} isSilentNow */
export function followSilence(isSilentNow) {
	if (isSilent === isSilentNow) return;
	isSilent = isSilentNow;
	render();
}

export function openPairing() {
	open();
	forget();
	at('code').focus();
}

/** The person has left. A pairing that is under way goes on. */
export function leavePairing() {
	if (at('pairing').open && !dialog.isPairing) close();
}

/** The code is a secret: it goes as soon as it is of no more use, and so does what was typed. */
function close() {
	camera?.abort();
	at('pairing').close();
	forget();
}

/** Back to where a code comes in. @param {() => string} answer */
function forget(answer = EMPTY.answer) {
	visit += 1;
	known.clear();
	showCode(false);
	for (const field of [at('code'), at('workflow'), at('pin')]) field.value = '';
	change({ ...EMPTY, answer });
}

function open() {
	if (!at('pairing').open) at('pairing').showModal();
}

/** @param {Partial<Dialog>} some */
function change(some) {
	dialog = { ...dialog, ...some };
	render();
}

function render() {
	if (words.tag === undefined) return;
	const { shown, workflows, isCut, isPairing, answer } = dialog;
	// While it pairs, the device becomes one that was paired before: what was asked stays.
	if (!isPairing) isFirst = view?.standing === 'first';
	const question = isFirst ? text('belongs') : text('again');
	setText(at('pairing-title'), shown === null ? text('pairTitle') : question);
	setText(at('answer'), answer());
	at('enter').hidden = shown !== null;
	at('camera').hidden = camera === null;
	at('pairing').toggleAttribute('data-camera', camera !== null);
	at('confirm').hidden = shown === null;
	setText(at('host'), shown?.host ?? '');
	setText(at('host-elsewhere'), shown?.hostInUnicode ? text('elsewhere', { host: shown.hostInUnicode }) : '');
	const { workflowId } = shown ?? {};
	setText(at('workflow-line'), workflowId ? fill(words.named, { name: text('workflow'), value: workflowId }) : '');
	// Left empty, the service takes the only one, or lists those to choose from.
	at('workflow-field').hidden = workflows === null ? shown?.workflowId !== null : !isCut;
	at('workflow-choice').hidden = workflows === null;
	at('pin-field').hidden = view?.pinNeed !== 'pin';
	// What is under way is not cancelled.
	for (const id of /** @type {const} */ (['yes', 'no'])) at(id).disabled = isPairing;
	fitScreen();
}

/** @param {() => string} told while the agent answers. */
function waiting(told) {
	return () => (isSilent ? [text('silent'), text('silentDo')].join(' ') : told());
}

/** @param {() => string} answer in the language of the moment. */
function say(answer) {
	change({ answer });
	if (answer() !== '') at('answer').scrollIntoView({ block: 'nearest' });
}

// ---- A code comes in ----

at('code-form').addEventListener('submit', (event) => {
	event.preventDefault();
	const typed = { text: at('code').value, format: '' };
	if (typed.text.length > LONGEST) return say(() => notACode(typed));
	take([typed]).catch(sayUnasked);
});

at('show-code').addEventListener('click', () => showCode(at('code').type !== 'text'));

/** @param {boolean} isShown */
function showCode(isShown) {
	at('code').type = isShown ? 'text' : 'password';
	at('show-code').setAttribute('aria-pressed', String(isShown));
}

// A scanner types wherever the focus is, as on the list of languages: keys for no other field go into the field for codes.
document.addEventListener('keydown', (event) => {
	if (event.ctrlKey || event.metaKey || event.altKey || isScanForPin(event) || isEndOfScan(event)) return;
	const { key, target } = event;
	if (key.length !== 1 || !(target instanceof Element) || target.closest('input, textarea')) return;
	// Digits beside the question are for the PIN.
	if (dialog.shown !== null && !at('pin-field').hidden && /^\d$/.test(key)) at('pin').focus();
	if (at('start').hidden || dialog.shown !== null) return;
	// The space bar presses buttons.
	if (key === ' ' && target.closest('button, a, label, summary, select')) return;
	open();
	at('code').focus();
});

/** Some scanners end with Tab: after a code that came as quickly as no person types, it is taken as Enter. @param {KeyboardEvent} event */
function isEndOfScan(event) {
	const isQuick = passedMs() - keyMs < KEY_MS;
	if (event.key.length === 1) keyMs = passedMs();
	const isEnd = isQuick && event.key === 'Tab' && event.target === at('code') && at('code').value.length >= SHORTEST;
	if (!isEnd) return false;
	event.preventDefault();
	at('code-form').requestSubmit();
	return true;
}

/** A code that is scanned while the PIN is asked for is none: nothing of it stays in the field, and its Enter presses nothing. @param {KeyboardEvent} event */
function isScanForPin(event) {
	const { key, target } = event;
	if (dialog.shown === null || at('pin-field').hidden || !(target instanceof Element)) return false;
	if (target !== at('pin') && target.closest('input, textarea, select')) return false;
	const isScanning = passedMs() < scanUntil;
	// The space bar and Enter press buttons.
	const isPress = key === ' ' && target.closest('button, a') !== null;
	const isNoPin = key.length === 1 && /\D/.test(key) && (isScanning || !isPress);
	if (!isNoPin && !(isScanning && (key.length === 1 || key === 'Enter' || key === 'Tab'))) return false;
	scanUntil = passedMs() + SCAN_MS;
	event.preventDefault();
	// While it pairs, the PIN is on its way already.
	if (isNoPin && !dialog.isPairing) {
		at('pin').value = '';
		say(() => text('pinMissing'));
	}
	return true;
}

at('picture').addEventListener('change', async () => {
	const file = at('picture').files?.[0];
	at('picture').value = '';
	if (!file) return;
	say(() => text('searching'));
	const mine = visit;
	try {
		const found = await readPictureFile(file);
		if (mine === visit) await take(found);
	} catch (error) {
		if (mine === visit) sayReading(error);
	}
});

at('camera-start').addEventListener('click', async () => {
	camera?.abort();
	const mine = new AbortController();
	camera = mine;
	say(EMPTY.answer);
	try {
		await readFromCamera(at('video'), mine.signal, {
			onSeen: () => at('camera-stop').scrollIntoView({ block: 'nearest' }),
			take,
		});
	} catch (error) {
		if (!mine.signal.aborted) sayReading(error);
	} finally {
		if (camera === mine) camera = null;
		render();
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
	const read = () => ('key' in reason ? text(reason.key) : problemWords(reason.code).join(' '));
	if (!('key' in reason) || reason.key !== 'readerFailed') return say(read);
	// The program that reads codes comes from the agent, too.
	const mine = visit;
	fetch('/', { method: 'HEAD', cache: 'no-store' }).then(
		() => mine === visit && say(read),
		() => mine === visit && sayUnasked(),
	);
}

/** Texts that were looked at while the camera is on. @type {Map<string, Answer<'/api/inspect'>>} */
const known = new Map();

/**
 * Of the codes in one picture, the one that is a pairing code is used: host and workflow are confirmed anyway. The agent says
 * which it is; nothing is spent by that.
 * @param {Found[]} found @returns whether there was one; else the camera goes on.
 */
async function take(found) {
	const mine = visit;
	const looked = [];
	for (const one of found) {
		let answer = camera === null ? undefined : known.get(one.text);
		if (answer === undefined) {
			if (camera === null) say(waiting(() => text('looking')));
			answer = await post('/api/inspect', { code: one.text });
			if (mine !== visit) return true;
			// What was typed is not typed again because no answer came.
			if (answer.came && at('code').value === one.text) at('code').value = '';
			known.set(one.text, answer);
			if (!answer.came) setTimeout(() => known.delete(one.text), AGAIN_MS);
		}
		looked.push({ one, answer });
	}
	if (camera === null) known.clear();
	const codes = looked.filter(({ answer }) => isPairingCode(answer));
	if (codes.length > 1) {
		sayUnsent({ code: 'picture-with-several-codes' });
		return false;
	}
	const first = codes[0] ?? looked[0];
	if (first === undefined) return false;
	const { one, answer } = first;
	if (!answer.ok) {
		sayUnsent(answer.body);
		return false;
	}
	const { problem } = answer.body;
	if (problem?.code === 'not-a-pairing-code') {
		const { params } = problem;
		say(() => notACode(one, params));
		return false;
	}
	if (problem !== null && problem.code !== 'origin-unconfirmed' && problem.code !== 'workflow-missing') {
		sayUnsent(problem);
		return true;
	}
	camera?.abort();
	known.clear();
	ask({ code: one.text }, answer.body);
	return true;
}

/** @param {Answer<'/api/inspect'>} answer */
function isPairingCode({ ok, body }) {
	return ok && body.problem?.code !== 'not-a-pairing-code';
}

// ---- One confirmation ----

/** Shows where the code leads, and what is still needed. @param {Partial<Dialog>} which @param {Shown} shown */
function ask(which, shown) {
	visit += 1;
	open();
	change({ ...EMPTY, ...which, shown });
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
	dismiss();
	forget(() => [text('cancelled'), text('codeUnused')].join(' '));
	at('code').focus();
});

at('close').addEventListener('click', close);
at('pairing').addEventListener('cancel', (event) => {
	if (dialog.isPairing) return event.preventDefault();
	dismiss();
	close();
});

function dismiss() {
	const { proposal } = dialog;
	if (proposal !== 0) void post('/api/dismiss', { proposal });
	handled = Math.max(handled, proposal);
}

at('confirm').addEventListener('submit', (event) => {
	event.preventDefault();
	pairNow().catch(sayNoAnswer);
});

async function pairNow() {
	const { code, proposal, shown, workflows } = dialog;
	const pin = at('pin').value;
	if (!at('pin-field').hidden && pin === '') {
		say(() => text('pinMissing'));
		at('pin').focus();
		return;
	}
	change({ isPairing: true, answer: waiting(() => text('pairing')) });
	const workflowId = at('workflow').value.trim() || (workflows === null ? '' : at('workflow-list').value);
	const origin = view?.standing === 'first' && shown?.baseUrl ? new URL(shown.baseUrl).origin : null;
	const what = proposal === 0 ? { code, ...(origin && { trustOrigin: origin }) } : { proposal };
	// Tells the agent that these are tries at the kiosk, and none of another program.
	const opening = location.hash.slice(1);
	const proof = { ...(pin && { pin }), ...(opening && { opening }) };
	const { ok, body } = await post('/api/pair', { ...what, ...(workflowId && { workflowId }), ...proof });
	change({ isPairing: false });
	// The code is still good, and nothing is typed twice.
	if (!ok && body.params?.workflows) return choose(body.params);
	if (!ok && body.code === 'workflow-missing' && body.params?.pairingCode !== 'used') {
		sayProblem(body);
		at('workflow').focus();
		return;
	}
	at('pin').value = '';
	const isWrongPin = !ok && body.code === 'access-denied';
	if (!isWrongPin) {
		refused = ok ? null : { code: body.code ?? '', message: body.detail ?? '', untilMs: passedMs() + REFUSAL_MS };
		if (ok) noteUntil = passedMs() + NOTE_MS;
		document.dispatchEvent(new Event('answered'));
	}
	if (ok) {
		close();
		// Success is in view, and read aloud.
		at('status').scrollIntoView({ block: 'nearest' });
		at('status').focus();
		return;
	}
	// A wrong PIN costs nothing; anything else may have cost the code.
	if (!isWrongPin) {
		handled = Math.max(handled, proposal);
		forget();
		const worth = body.code === undefined ? 'uncertain' : body.params?.pairingCode;
		// What was cut would be refused again.
		if ((worth === 'valid' || worth === 'uncertain') && !isByCode(body)) at('code').value = code;
	}
	if (body.code === undefined) say(() => [text('noAnswer'), text('codeUncertain')].join(' '));
	else sayProblem(body);
	const field = at(isWrongPin ? 'pin' : 'code');
	field.focus();
	// The next scan takes the place of a code that is kept.
	field.select();
}

/** @param {Params} params */
function choose({ workflows: list, moreWorkflows }) {
	/** @type {{ id: string, name: string }[]} */
	const workflows = JSON.parse(String(list));
	const options = workflows.map(({ id, name }) => {
		const option = document.createElement('option');
		option.value = id;
		option.textContent = name === id ? cut(id) : `${cut(name)} (${cut(id)})`;
		return option;
	});
	at('workflow-list').replaceChildren(...options);
	at('workflow').value = '';
	const isCut = moreWorkflows !== undefined;
	change({ workflows, isCut });
	say(() => (isCut ? `${text('chooseWorkflow')} ${text('moreWorkflows')}` : text('chooseWorkflow')));
	at('workflow-list').focus();
}

/** @param {Problem} problem */
function sayProblem(problem) {
	say(() => sentenceOf(problem));
}

/** Said of a code that was only looked at. @param {Problem} problem */
function sayUnsent(problem) {
	if (problem.code === undefined) return sayUnasked();
	sayProblem({ ...problem, params: { ...problem.params, pairingCode: 'valid' } });
}

function sayUnasked() {
	say(unasked);
}

function sayNoAnswer() {
	say(() => text('noAnswer'));
}
