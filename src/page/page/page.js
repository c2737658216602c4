/* The page: shows the agent's state, live, and asks it to pair. Keeps no code longer than it is needed. */
import { readFromCamera, readPictureFile } from './codes.js';

const HOUR_MS = 3_600_000;
/** Until the agent is asked again where the browser does not do it. */
const AGAIN_MS = 3_000;
const WORDS = {
	online: 'Online',
	connecting: 'Connecting',
	offline: 'Offline',
	blocked: 'Needs attention',
	unpaired: 'Not paired',
	silent: 'No answer from the agent',
	none: 'unknown',
};
const at = (id) => document.getElementById(id);

// ---- What the agent says ----

let view = null;
/** How far the agent's clock is ahead of the browser's. */
let aheadMs = 0;

listen();

function listen() {
	const live = new EventSource('/api/live');
	live.addEventListener('view', ({ data }) => {
		view = JSON.parse(data);
		aheadMs = view.nowMs - Date.now();
		show();
	});
	live.onerror = () => {
		document.body.dataset.state = 'silent';
		setText(at('state-word'), WORDS.silent);
		setText(
			at('sentence'),
			'The page reconnects automatically. If this persists, start the agent: systemctl start idv-agent',
		);
		// Browsers give up after an answer that is not a stream, such as for too many open windows; some at any failure.
		if (live.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN_MS);
	};
}
// The timeline moves on while nothing happens.
setInterval(() => view && showTimeline(), 30_000);

function show() {
	const { status, canPair } = view;
	document.body.dataset.state = status.state;
	setText(at('state-word'), WORDS[status.state] ?? status.state);
	setText(at('sentence'), status.sentence);
	document.title = `${WORDS[status.state] ?? status.state}: ${status.deviceId ?? 'this device'}`;
	at('warnings').hidden = view.warnings.length === 0;
	at('warnings').replaceChildren(...view.warnings.map((text) => make('li', text)));
	showFacts(at('device'), [
		['Device', status.deviceId],
		['Type', status.deviceType],
		['Serial number', status.serial],
		['MAC address', status.macAddress],
		['Service', status.baseUrl],
		['Workflow, live', status.workflow.live ?? 'none'],
		['Workflow, wanted', status.workflow.wanted ?? 'none'],
		['Last heartbeat', view.lastHeartbeatAt && timeOf(view.lastHeartbeatAt)],
		['Agent', status.agentVersion],
	]);
	showTimeline();
	at('no-events').hidden = view.events.length > 0;
	at('events').replaceChildren(...view.events.toReversed().map(eventItem));
	showPairing(canPair);
}

function eventItem({ at: when, kind, content }) {
	const item = make('li');
	const time = make('time', timeOf(when));
	time.dateTime = when;
	item.append(time, content === undefined ? kind : `${kind}: ${content}`);
	return item;
}

function showTimeline() {
	const now = Date.now() + aheadMs;
	const since = now - HOUR_MS;
	const stretches = view.timeline.map(({ fromMs, state }, index) => {
		const from = Math.min(now, Math.max(since, fromMs));
		const to = Math.min(now, Math.max(since, view.timeline[index + 1]?.fromMs ?? now));
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
	const interrupted = away === 0 ? '' : `, interrupted ${away === 1 ? 'once' : `${away} times`}`;
	const words =
		knownMs < 60_000
			? 'The agent has been running for less than a minute.'
			: `Online for ${minutes(onlineMs)} of the last ${minutes(knownMs)}${interrupted}.`;
	setText(at('timeline-words'), words);
	at('timeline').setAttribute('aria-label', words);
}

// ---- Pairing ----

let code = '';
let trustOrigin;
let camera = null;

function showPairing(canPair) {
	const wasHidden = at('pairing').hidden;
	at('pairing').hidden = !canPair;
	if (canPair && wasHidden) at('code').focus();
	if (!canPair && !wasHidden) {
		camera?.abort();
		forget();
		setText(at('answer'), '');
	}
}

at('code-form').addEventListener('submit', (event) => {
	event.preventDefault();
	const typed = at('code').value;
	at('code').value = '';
	void take(typed);
});

at('show-code').addEventListener('click', () => {
	const isShown = at('code').type === 'text';
	at('code').type = isShown ? 'password' : 'text';
	at('show-code').setAttribute('aria-pressed', String(!isShown));
});

// A scanner types wherever the focus is: keys for no other field go into the field for codes.
document.addEventListener('keydown', (event) => {
	if (at('pairing').hidden || event.key.length !== 1 || event.ctrlKey || event.metaKey || event.altKey) return;
	if (event.target.closest('input, textarea, select')) return;
	// The space bar presses buttons.
	if (event.key === ' ' && event.target.closest('button, a, label')) return;
	at('code').focus();
});

at('picture').addEventListener('change', async () => {
	const [file] = at('picture').files;
	at('picture').value = '';
	if (!file) return;
	say('Looking for a code …');
	await readPictureFile(file).then(take, (error) => say(error.message));
});

at('camera-start').addEventListener('click', async () => {
	camera?.abort();
	const mine = new AbortController();
	camera = mine;
	at('camera').hidden = false;
	say('');
	try {
		const text = await readFromCamera(at('video'), mine.signal, () => bringIntoView(at('camera')));
		if (text !== null) await take(text);
	} catch (error) {
		say(error.message);
	} finally {
		if (camera === mine) {
			at('camera').hidden = true;
			camera = null;
		}
	}
});

at('camera-stop').addEventListener('click', () => {
	camera?.abort();
	at('camera-start').focus();
});

at('cancel').addEventListener('click', () => {
	forget();
	say('Nothing was spent.');
	at('code').focus();
});

at('pair-form').addEventListener('submit', async (event) => {
	event.preventDefault();
	if (at('pair').dataset.step === 'trust') {
		trustOrigin = at('pair').dataset.origin;
		await look();
		return;
	}
	if (at('pair').dataset.step === 'workflow') {
		await look();
		if (at('pair').dataset.step !== 'pair') return;
	}
	say('Pairing …');
	at('pair').disabled = true;
	const pin = at('pin').value;
	const result = await ask('/api/pair', { ...asked(), ...(pin && { pin }) });
	at('pair').disabled = false;
	at('pin').value = '';
	if (result.ok) {
		forget();
		say(result.body.sentence);
	} else {
		say(result.body.sentence);
		// A wrong PIN costs nothing; anything else may have cost the code.
		if (result.body.code === 'access-denied') at('pin').focus();
		else forget();
	}
});

async function take(text) {
	forget();
	code = text;
	await look();
}

/** Asks what the code would do, and shows it with the next thing to press. */
async function look() {
	say('Looking at the code …');
	const { ok, body } = await ask('/api/inspect', asked());
	if (!ok) {
		forget();
		say(body.sentence);
		return;
	}
	const { problem, host, hostInUnicode, baseUrl, workflowId, tokenKind, changes } = body;
	const step = body.ready
		? 'pair'
		: problem?.code === 'origin-unconfirmed'
			? 'trust'
			: problem?.code === 'workflow-missing'
				? 'workflow'
				: null;
	if (step === null) {
		forget();
		say(body.sentence ?? 'This code cannot be used.');
		return;
	}
	say('');
	setText(
		at('preview-title'),
		step === 'trust' ? `This code is for ${host}. Does this device belong there?` : `This code pairs with ${host}`,
	);
	showFacts(at('preview-facts'), [
		['Host', hostInUnicode === undefined ? host : `${host} (shown elsewhere as ${hostInUnicode})`],
		['Workflow', workflowId],
		['Kind of code', tokenKind],
		['What happens', changes.join(', ')],
	]);
	at('workflow-field').hidden = step !== 'workflow';
	at('workflow').required = step === 'workflow';
	at('pin-field').hidden = !view?.wantsPin || step === 'trust';
	setText(at('pair'), step === 'trust' ? `Yes, it belongs to ${host}` : `Pair with ${host}`);
	at('pair').dataset.step = step;
	at('pair').dataset.origin = baseUrl === null ? '' : new URL(baseUrl).origin;
	at('preview').hidden = false;
	at('preview').focus();
	bringIntoView(at('preview'));
}

function asked() {
	const workflowId = at('workflow').value.trim();
	return { code, ...(workflowId && { workflowId }), ...(trustOrigin && { trustOrigin }) };
}

/** The code is a secret: it goes as soon as it is of no more use. */
function forget() {
	code = '';
	trustOrigin = undefined;
	for (const id of ['code', 'workflow', 'pin']) at(id).value = '';
	at('preview').hidden = true;
	delete at('pair').dataset.step;
}

async function ask(path, body) {
	try {
		const response = await fetch(path, {
			method: 'POST',
			headers: { 'content-type': 'application/json' },
			body: JSON.stringify(body),
			cache: 'no-store',
		});
		return { ok: response.ok, body: await response.json() };
	} catch {
		return { ok: false, body: { sentence: 'The agent gave no answer. Look at the state above.' } };
	}
}

// ---- Small things ----

function say(text) {
	setText(at('answer'), text);
	if (text !== '') bringIntoView(at('answer'));
}

/** On a low screen what comes next may be below its edge. */
function bringIntoView(element) {
	element.scrollIntoView({ block: 'nearest' });
}

/** Leaves what is the same alone, so that a screen reader does not read it again. */
function setText(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

function make(name, text = '') {
	const element = document.createElement(name);
	element.textContent = text;
	return element;
}

function showFacts(list, facts) {
	const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== '');
	list.replaceChildren(...known.flatMap(([name, value]) => [make('dt', name), make('dd', value)]));
}

function timeOf(iso) {
	return new Date(iso).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

function minutes(ms) {
	const whole = Math.round(ms / 60_000);
	return whole < 1 ? `${Math.round(ms / 1000)} s` : `${whole} min`;
}
