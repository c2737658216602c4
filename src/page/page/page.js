/* The page: shows the agent's state, live, in the language of the people before it. Pairing is in pair.js. */
import { at, fitScreen, passedMs, setText } from './elements.js';
import { followPairing, followSilence, lastRefusal, leavePairing, openPairing, pairedNote } from './pair.js';
import { encode } from './qr.js';
import {
	ago,
	cut,
	duration,
	fill,
	interruptions,
	LANGUAGES,
	load,
	moment,
	ofBrowser,
	problemWords,
	speak,
	statusWords,
	text,
	warningsOf,
	words,
} from './words.js';

/** @import { PageEvent, PageView } from '../view.ts' */

const DAY_MS = 86_400_000;
/** Of a message for support, in characters. */
const MESSAGE = 500;
/** Without a touch, a key or a change of a field for so long, the next person finds the page as it was at first. */
const UNTOUCHED_MS = 3_600_000;
/** Until the agent is asked again where the browser does not do it. */
const AGAIN_MS = 3_000;
/** Between two looks at what moves on while nothing happens. */
const LOOK_MS = 30_000;
/** Between two looks at whether the agent still answers. */
const CHECK_MS = 2_000;
/** The agent tells its state every 5 seconds, also while it waits for the service: after this long it does not answer, even if the stream is open. */
const SILENCE_MS = 12_000;
/** A shape for each state, for people who do not see the colours. */
const SIGNS = {
	online: 'M12 1a11 11 0 1 0 0 22a11 11 0 0 0 0-22zM10.2 17.4 5.2 12.4 7.2 10.4 10.2 13.4 16.8 6.8 18.8 8.8z',
	connecting:
		'M12 1a11 11 0 1 0 0 22a11 11 0 0 0 0-22zM5.6 10.6h2.8v2.8H5.6zM10.6 10.6h2.8v2.8h-2.8zM15.6 10.6h2.8v2.8h-2.8z',
	offline: 'M12 2 23.5 22H.5zM10.7 9h2.6v6.2h-2.6zM10.7 17h2.6v2.6h-2.6z',
	blocked: 'M7.5 1h9L23 7.5v9L16.5 23h-9L1 16.5v-9zM10.7 5h2.6v9h-2.6zM10.7 16h2.6v2.6h-2.6z',
	unpaired: 'M12 .8 23.2 12 12 23.2.8 12zM10.8 7h2.4v3.8H17v2.4h-3.8V17h-2.4v-3.8H7v-2.4h3.8z',
	silent:
		'M3 3h18v18H3zM6.4 8.3 12 13.9 10.1 12 6.4 15.7 8.3 17.6 12 13.9 15.7 17.6 17.6 15.7 13.9 12 17.6 8.3 15.7 6.4 12 10.1 8.3 6.4z',
};
/** The parts that a view is shown in, in this order. @type {((view: PageView) => void)[]} */
const PARTS = [
	showState,
	showSteps,
	showIdentity,
	showWarnings,
	showDetails,
	showNotes,
	showTimeline,
	showEvents,
	followPairing,
];

/**
 * The page: `render` shows it. `view`: what the agent told last, and `toldMs` when. `isSilent`: it does not answer now.
 * `chosen`: the language that a person has chosen here, until the page is opened again. `awaited`: the one that is being loaded.
 * @type {{ view: PageView | null, toldMs: number, isSilent: boolean, chosen: string | null, awaited: string | null }}
 */
let page = { view: null, toldMs: 0, isSilent: false, chosen: null, awaited: null };
/** The stream in use, and when it said something last. @type {EventSource | null} */
let live = null;
let heardMs = 0;
let touchedMs = 0;

for (const [tag, name] of Object.entries(LANGUAGES)) {
	const option = make('option', name);
	option.value = tag;
	option.lang = tag;
	at('language').append(option);
}
at('language').addEventListener('change', () => {
	change({ chosen: at('language').value });
});
at('start').addEventListener('click', () => openPairing());
// The state shows the result.
at('retry').addEventListener('click', () => fetch('/api/retry', { method: 'POST' }).catch(() => {}));
document.addEventListener('answered', () => render());
// On a tall screen there is room for everything.
const isTall = () => matchMedia('(min-height: 60rem) and (max-aspect-ratio: 4/5)').matches;
at('details').open = isTall();
addEventListener('resize', fitScreen);
for (const kind of ['pointerdown', 'keydown', 'input'])
	addEventListener(kind, () => {
		touchedMs = passedMs();
	});
listen();
setInterval(look, LOOK_MS);
setInterval(check, CHECK_MS);
// A machine that wakes up shows the page first.
document.addEventListener('visibilitychange', look);
addEventListener('pageshow', look);

/** The timeline, "20 seconds ago" and "for 4 minutes" move on while nothing happens. */
function look() {
	check();
	if (passedMs() - touchedMs > UNTOUCHED_MS) beginAgain();
	render();
}

function check() {
	if (passedMs() - heardMs > SILENCE_MS) lose(live);
}

/** @param {Partial<typeof page>} some */
function change(some) {
	page = { ...page, ...some };
	render();
}

/** Language, dialog, half-typed code and details are those of a page that was just opened. */
function beginAgain() {
	touchedMs = passedMs();
	page.chosen = null;
	at('details').open = isTall();
	leavePairing();
	scrollTo(0, 0);
}

function listen() {
	const stream = new EventSource('/api/live');
	live = stream;
	heardMs = passedMs();
	stream.addEventListener('view', ({ data }) => {
		if (stream !== live) return;
		/** @type {PageView | null} */
		let view = null;
		try {
			view = JSON.parse(data);
		} catch {}
		if (!view?.status) return lose(stream);
		heardMs = passedMs();
		change({ view, toldMs: heardMs, isSilent: false });
	});
	stream.onerror = () => {
		// Browsers give up after an answer that is not a stream; some at any failure.
		if (stream.readyState === EventSource.CLOSED) return lose(stream);
		change({ isSilent: true });
	};
	// The agent makes room for newer windows.
	stream.addEventListener('closed', () => lose(stream, page.isSilent));
}

/** A stream is of no more use: another one takes its place. What is known stays in view. @param {EventSource | null} stream */
function lose(stream, isSilent = true) {
	if (stream === null || stream !== live) return;
	live = null;
	stream.close();
	setTimeout(listen, AGAIN_MS);
	change({ isSilent });
}

/** Shows what is known, in the language that is wanted as soon as it is there. */
function render() {
	void followLanguage();
	const { view, isSilent } = page;
	followSilence(isSilent);
	if (words.tag === undefined || (view === null && !isSilent)) return;
	for (const show of view === null ? [showState] : PARTS.map((part) => () => part(view))) {
		// A part that fails leaves the others in view, and is tried again with the next render.
		try {
			show();
		} catch (error) {
			console.error(error);
		}
	}
	fitScreen();
}

function wantedLanguage() {
	const { chosen, view } = page;
	return chosen ?? (view && view.language !== 'auto' ? view.language : ofBrowser());
}

/** Loads the language that is wanted; until it is there the page keeps the one that it has, or takes English. */
async function followLanguage() {
	const wanted = wantedLanguage();
	if (wanted === words.tag || wanted === page.awaited) return;
	page.awaited = wanted;
	try {
		await load(wanted, AGAIN_MS);
		if (wanted === wantedLanguage()) speak(wanted);
	} catch {
		speakAnyway();
		await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
	}
	if (wanted === page.awaited) page.awaited = null;
	at('language').value = wantedLanguage();
	render();
}

function speakAnyway() {
	if (words.tag !== undefined) return;
	speak('en');
	render();
}

/** By the agent's clock. */
const now = () => (page.view?.nowMs ?? 0) + passedMs() - page.toldMs;

function showState() {
	const { view, isSilent } = page;
	const state = isSilent || view === null ? 'silent' : view.status.state;
	document.body.dataset.state = state;
	at('sign').firstElementChild?.setAttribute('d', SIGNS[state]);
	setText(at('state-word'), words.states[state]);
	document.title = cut(fill(words.named, { name: words.states[state], value: view?.status.deviceId ?? '' }), 99);
	const { sentence, next } =
		isSilent || view === null ? { sentence: text('silent'), next: text('silentDo') } : statusWords(view);
	const note = state === 'online' ? pairedNote() : '';
	setText(at('note'), note);
	setText(at('sentence'), sentence);
	setText(at('next'), next);
	// Read aloud when something has changed, not because it has lasted for longer.
	const warned = isSilent || view === null ? [] : warningsOf(view).map((code) => problemWords(code).join(' '));
	const lasting = view === null || isSilent ? '' : String(view.status.summary.params.seconds ?? '');
	const key = [
		words.tag,
		state,
		next,
		note,
		warned,
		lasting === '' ? sentence : view?.status.summary.params.problem,
	].join();
	if (key === announced) return;
	announced = key;
	setText(at('announcement'), [note, `${words.states[state]}.`, sentence, next, ...warned].filter(Boolean).join(' '));
}

/** What the announcement was made of. */
let announced = '';

/** @param {PageView} view */
function showSteps({ status, standing, pinNeed }) {
	at('start').hidden = page.isSilent || standing === 'paired' || pinNeed === 'setting' || pinNeed === 'longerPin';
	// Where only a code helps, trying again does not; while the agent still tries automatically, it may be all that is needed.
	const { recovers, params } = status.problem ?? {};
	const isForCode = !at('start').hidden && !recovers && params?.shown !== 'fresh';
	at('retry').hidden = page.isSilent || isForCode || !['offline', 'blocked'].includes(status.state);
}

/** @param {PageView} view */
function showWarnings(view) {
	const told = warningsOf(view);
	at('warnings').hidden = told.length === 0 || page.isSilent;
	at('warnings').replaceChildren(...told.map((code) => make('li', problemWords(code).join(' '))));
}

/** @param {PageView} view */
function showDetails({ status, lastHeartbeatAt }) {
	showFacts(at('facts'), [
		[text('service'), status.baseUrl],
		[text('live'), status.workflow.live],
		[text('wanted'), status.workflow.wanted],
		[text('heartbeat'), lastHeartbeatAt && ago(lastHeartbeatAt, now())],
		[text('kind'), status.deviceType],
		[text('mac'), status.macAddress],
		[text('version'), status.agentVersion],
	]);
}

/** @param {PageView} view */
function showNotes({ status }) {
	const { refusal, detail } = status.summary.params;
	const kept = refusal === undefined || detail === undefined ? null : { code: refusal, message: detail };
	const notes = [lastRefusal() ?? kept, status.problem, ...status.warnings].filter((one) => one !== null);
	at('notes').hidden = notes.length === 0;
	at('notes-list').replaceChildren(
		...notes.map(({ code, message }) => make('li', cut(`${code}: ${message}`, MESSAGE))),
	);
}

/** @param {PageView} view */
function showEvents({ events }) {
	at('no-events').hidden = events.length > 0;
	at('events').replaceChildren(...events.toReversed().map(eventItem));
}

/** @param {PageView} view */
function showIdentity({ status, support }) {
	setText(at('name'), cut(status.deviceId ?? '…'));
	const serial = status.serial === status.deviceId ? null : status.serial;
	showFacts(at('who'), [[text('serial'), serial]]);
	at('hotline').hidden = !support;
	setText(at('support'), support ?? '');
	// Begins as no pairing code does: a scanner that is held before it reads a text.
	const lines = { Device: status.deviceId, Serial: status.serial, Help: support };
	drawIdentity(
		Object.entries(lines)
			.flatMap(([name, value]) => (value ? [`${name}: ${value}`] : []))
			.join('\n'),
	);
}

/** @type {string | null} */
let drawn = null;
/** @param {string} whole */
function drawIdentity(whole) {
	if (drawn === whole) return;
	let short = whole;
	// A larger code has modules too small for a phone in front of a small screen.
	while (new TextEncoder().encode(short).length > 213) short = short.slice(0, -1);
	const { data, size } = encode(short, { ecc: 'M', border: 4 });
	const path = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : []))).join('');
	at('qr-code').setAttribute('viewBox', `0 0 ${size} ${size}`);
	at('qr-code').firstElementChild?.setAttribute('d', path);
	drawn = whole;
}

/** @param {PageEvent} event */
function eventItem({ at: when, kind, content }) {
	const item = make('li');
	const time = make('time', moment(when, now()));
	time.dateTime = when;
	const what = make('bdi', content === undefined ? kind : `${kind}: ${content}`);
	item.append(time, ' ', what);
	return item;
}

/** @param {PageView} view */
function showTimeline({ timeline }) {
	const end = now();
	const since = end - DAY_MS;
	const stretches = timeline.map(({ fromMs, state }, index) => {
		const from = Math.min(end, Math.max(since, fromMs));
		const to = Math.min(end, Math.max(since, timeline[index + 1]?.fromMs ?? end));
		return { state, ms: Math.max(0, to - from) };
	});
	const sum = (/** @type {typeof stretches} */ some) => some.reduce((all, { ms }) => all + ms, 0);
	/** @type {typeof stretches} */
	const bars = [{ state: 'none', ms: DAY_MS - sum(stretches) }, ...stretches];
	// As long as something is known of, gaps included.
	const knownMs = sum(stretches.slice(stretches.findIndex(({ state, ms }) => state !== 'none' && ms > 0)));
	at('timeline').replaceChildren(
		...bars.flatMap(({ state, ms }) => {
			if (ms <= 0) return [];
			const bar = make('i');
			bar.dataset.state = state;
			bar.style.flexGrow = String(ms / DAY_MS);
			return [bar];
		}),
	);
	const onlineMs = sum(stretches.filter(({ state }) => state === 'online'));
	const away = stretches.filter(({ state, ms }) => ms > 0 && (state === 'offline' || state === 'blocked')).length;
	const known = duration(knownMs / 1000);
	const online = text('onlineFor', { online: duration(onlineMs / 1000), known });
	const told =
		knownMs < 60_000
			? text('justStarted')
			: onlineMs === 0
				? text('neverOnline', { known })
				: [online, away > 0 ? interruptions(away) : ''].filter(Boolean).join(' ');
	setText(at('timeline-words'), told);
	at('timeline').setAttribute('aria-label', told);
}

/** @template {keyof HTMLElementTagNameMap} Name @param {Name} name */
function make(name, value = '') {
	const element = document.createElement(name);
	element.textContent = value;
	return element;
}

/** @param {Element} list @param {[name: string, value: string | null][]} facts */
function showFacts(list, facts) {
	list.replaceChildren(
		...facts.flatMap(([name, value]) => {
			if (!value) return [];
			const shown = make('dd');
			shown.append(make('bdi', cut(value)));
			return [make('dt', name), shown];
		}),
	);
}
