/* The page: shows the agent's state, live, in the language of the people before it. Pairing is in pair.js. */
import { followPairing, openPairing, pairedNote } from './pair.js';
import { drawQr, MAX_BYTES } from './qr.js';
import {
	ago,
	duration,
	fill,
	interruptions,
	LANGUAGES,
	moment,
	ofBrowser,
	problemWords,
	speak,
	text,
	words,
} from './words.js';

const HOUR_MS = 3_600_000;
/** Until the agent is asked again where the browser does not do it. */
const AGAIN_MS = 3_000;
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
/** Problems that a person at the screen cannot mend: they stand under Details, for support. */
const FOR_SUPPORT = new Set([
	'socket-failed',
	'restart-needed',
	'settings-invalid',
	'settings-unreadable',
	'scanner-denied',
	'plan-unreachable',
	'plan-invalid',
	'plan-untrusted',
	'plan-outdated',
	'plan-not-followed',
	'update-failed',
	'update-unprepared',
	'update-refused',
	'update-taken-back',
	'tools-missing',
	'answer-withheld',
	'file-exposed',
	'plan-for-other-fleet',
	'plan-expired',
	'plan-unattested',
	'plan-not-followed',
	'provision-invalid',
	'provision-failed',
	'state-unwritable',
	'state-unreadable',
	'state-in-use',
	'open-to-first-comer',
]);
const at = (id) => document.getElementById(id);

let view = null;
/** How far the agent's clock is ahead of the browser's. */
let aheadMs = 0;
let isSilent = false;
/** The language that a person has chosen here, until the page is opened again. */
let chosen = null;

for (const [tag, name] of Object.entries(LANGUAGES)) {
	const option = make('option', name);
	option.value = tag;
	option.lang = tag;
	at('language').append(option);
}
at('language').addEventListener('change', async () => {
	chosen = at('language').value;
	await render();
});
at('start').addEventListener('click', () => openPairing());
// The state shows the result.
at('retry').addEventListener('click', () => fetch('/api/retry', { method: 'POST' }).catch(() => {}));
document.addEventListener('paired', () => render());
// On a tall screen there is room for everything.
at('details').open = matchMedia('(min-height: 60rem) and (max-aspect-ratio: 4/5)').matches;
listen();
// The timeline, "20 seconds ago" and "for 4 minutes" move on while nothing happens.
setInterval(() => view && void render(), 30_000);

function listen() {
	const live = new EventSource('/api/live');
	live.addEventListener('view', ({ data }) => {
		isSilent = false;
		view = JSON.parse(data);
		aheadMs = view.nowMs - Date.now();
		void render();
	});
	live.onerror = () => {
		isSilent = true;
		void render();
		// Browsers give up after an answer that is not a stream; some at any failure.
		if (live.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
	};
	// The agent makes room for newer windows.
	live.addEventListener('closed', () => {
		live.close();
		setTimeout(listen, AGAIN_MS);
	});
}

/** One after the other: a language may have to be loaded first. */
let rendering = Promise.resolve();
function render() {
	rendering = rendering.then(async () => {
		const wanted = chosen ?? (view && view.language !== 'auto' ? view.language : ofBrowser());
		if (document.documentElement.lang !== wanted || words === null) {
			await speak(wanted);
			at('language').value = wanted;
		}
		show();
	});
	return rendering;
}

const now = () => Date.now() + aheadMs;

function show() {
	const state = isSilent ? 'silent' : view.status.state;
	const { sentence, next } = isSilent ? { sentence: text('silent'), next: text('silentDo') } : statusWords(view);
	document.body.dataset.state = state;
	at('sign').firstElementChild.setAttribute('d', SIGNS[state]);
	setText(at('state-word'), words.states[state]);
	const note = state === 'online' ? pairedNote() : '';
	setText(at('note'), note);
	setText(at('sentence'), sentence);
	setText(at('next'), next);
	setText(at('announcement'), [note, `${words.states[state]}.`, sentence, next].filter(Boolean).join(' '));
	if (!view) return;
	const { status, standing, pinNeed } = view;
	document.title = `${words.states[state]}: ${status.deviceId ?? ''}`;
	at('start').hidden = isSilent || standing === 'paired' || pinNeed === 'setting' || pinNeed === 'longerPin';
	// One next step: where a code helps, trying again does not.
	at('retry').hidden = isSilent || !at('start').hidden || !['offline', 'blocked'].includes(status.state);
	showIdentity(view);
	const told = status.warnings.filter(({ code }) => !FOR_SUPPORT.has(code) && code !== status.summary.params.problem);
	at('warnings').hidden = told.length === 0 || isSilent;
	at('warnings').replaceChildren(...told.map(({ code }) => make('li', problemWords(code).join(' '))));
	showFacts(at('facts'), [
		[text('service'), status.baseUrl],
		[text('live'), status.workflow.live],
		[text('wanted'), status.workflow.wanted],
		[text('heartbeat'), view.lastHeartbeatAt && ago(view.lastHeartbeatAt, now())],
		[text('kind'), status.deviceType],
		[text('mac'), status.macAddress],
		[text('version'), status.agentVersion],
	]);
	const notes = [status.problem, ...status.warnings].filter((one) => one !== null);
	at('notes').hidden = notes.length === 0;
	at('notes-list').replaceChildren(...notes.map(({ code, message }) => make('li', `${code}: ${message}`)));
	showTimeline();
	at('no-events').hidden = view.events.length > 0;
	at('events').replaceChildren(...view.events.toReversed().map(eventItem));
	followPairing(view);
}

/** The state in one sentence and what to do, from codes and parameters. */
function statusWords({ status, standing, pinNeed }) {
	const { code, params } = status.summary;
	const told = [status.problem, ...status.warnings].find((one) => one !== null && one.code === params.problem);
	const seconds = Number(params.seconds ?? 0);
	const summary = fill(words.summaries[code] ?? words.summaries.blocked, { ...params, duration: duration(seconds) });
	const [what, todo] = told ? problemWords(told.code) : ['', ''];
	// Where a person has to act, how long it has lasted only takes their time.
	const sentence = [told && !told.recovers && status.state !== 'online' ? '' : summary, what].filter(Boolean).join(' ');
	if (standing === 'first' && pinNeed === 'setting') return { sentence, next: text('pinSetting') };
	if (standing !== 'paired' && pinNeed === 'longerPin') return { sentence, next: text('pinShort') };
	if (told) return { sentence, next: [todo, told.recovers ? text('retries') : ''].filter(Boolean).join(' ') };
	if (standing === 'first') return { sentence, next: problemWords('unpaired')[1] };
	return {
		sentence,
		next: status.state === 'offline' ? text('retries') : code === 'online' ? text('nothingToDo') : '',
	};
}

function showIdentity({ status, support }) {
	setText(at('name'), status.deviceId ?? '…');
	const serial = status.serial === status.deviceId ? null : status.serial;
	showFacts(at('who'), [
		[text('serial'), serial],
		[text('support'), support],
	]);
	drawIdentity([status.deviceId, status.serial, support].filter(Boolean).join('\n'));
}

let drawn = null;
function drawIdentity(whole) {
	if (drawn === whole) return;
	drawn = whole;
	let short = whole;
	while (new TextEncoder().encode(short).length > MAX_BYTES) short = short.slice(0, -1);
	const dark = drawQr(short);
	const size = dark.length + 8;
	const path = dark
		.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x + 4} ${y + 4}h1v1h-1z`] : [])))
		.join('');
	at('qr-code').setAttribute('viewBox', `0 0 ${size} ${size}`);
	at('qr-code').firstElementChild.setAttribute('d', path);
}

function eventItem({ at: when, kind, content }) {
	const item = make('li');
	const time = make('time', moment(when, now()));
	time.dateTime = when;
	const what = make('bdi', content === undefined ? kind : `${kind}: ${content}`);
	item.append(time, ' ', what);
	return item;
}

function showTimeline() {
	const end = now();
	const since = end - HOUR_MS;
	const stretches = view.timeline.map(({ fromMs, state }, index) => {
		const from = Math.min(end, Math.max(since, fromMs));
		const to = Math.min(end, Math.max(since, view.timeline[index + 1]?.fromMs ?? end));
		return { state, ms: Math.max(0, to - from) };
	});
	const knownMs = stretches.reduce((sum, { ms }) => sum + ms, 0);
	const bars = [{ state: 'none', ms: HOUR_MS - knownMs }, ...stretches].filter(({ ms }) => ms > 0);
	at('timeline').replaceChildren(
		...bars.map(({ state, ms }) => {
			const bar = make('i');
			bar.dataset.state = state;
			bar.style.flexGrow = String(ms / HOUR_MS);
			return bar;
		}),
	);
	const onlineMs = stretches.filter(({ state }) => state === 'online').reduce((sum, { ms }) => sum + ms, 0);
	const away = stretches.filter(({ state, ms }) => ms > 0 && (state === 'offline' || state === 'blocked')).length;
	const online = onlineMs < 1000 ? duration(1) : duration(onlineMs / 1000);
	const told =
		knownMs < 60_000
			? text('justStarted')
			: [text('onlineFor', { online, known: duration(knownMs / 1000) }), away > 0 ? interruptions(away) : '']
					.filter(Boolean)
					.join(' ');
	setText(at('timeline-words'), told);
	at('timeline').setAttribute('aria-label', told);
}

/** Leaves what is the same alone, so that a screen reader does not read it again. */
function setText(element, value) {
	if (element.textContent !== value) element.textContent = value;
}

function make(name, value = '') {
	const element = document.createElement(name);
	element.textContent = value;
	return element;
}

function showFacts(list, facts) {
	const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== '');
	list.replaceChildren(
		...known.flatMap(([name, value]) => {
			const shown = make('dd');
			shown.append(make('bdi', value));
			return [make('dt', name), shown];
		}),
	);
}
