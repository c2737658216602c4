/* Elements of index.html by id, each of its kind: one that is missing there stops the page at its start, where every test sees it. And what both scripts need: the time that passes, and letters that fit the screen. */

const ELEMENTS = {
	...all(HTMLElement, 'announcement', 'status', 'state-word', 'note', 'sentence', 'next', 'hotline', 'support'),
	...all(HTMLElement, 'name', 'who', 'warnings', 'timeline', 'timeline-words', 'no-events', 'events'),
	...all(HTMLElement, 'facts', 'notes', 'notes-list', 'pairing-title', 'answer', 'enter', 'camera'),
	...all(HTMLElement, 'confirm', 'host', 'host-elsewhere', 'workflow-line', 'workflow-field', 'workflow-choice'),
	...all(HTMLElement, 'pin-field', 'pad'),
	...all(HTMLFormElement, 'code-form'),
	...all(HTMLButtonElement, 'start', 'retry', 'show-code', 'camera-start', 'camera-stop', 'close', 'yes', 'no'),
	...all(HTMLInputElement, 'code', 'picture', 'workflow', 'pin'),
	...all(HTMLSelectElement, 'language', 'workflow-list'),
	...all(HTMLDetailsElement, 'details'),
	...all(HTMLDialogElement, 'pairing'),
	...all(HTMLVideoElement, 'video'),
	...all(SVGElement, 'sign', 'qr-code'),
};

/** @template {Element} Kind @template {string} Id @param {new () => Kind} kind @param {Id[]} ids */
function all(kind, ...ids) {
	const found = ids.map((id) => {
		const element = document.getElementById(id);
		if (element instanceof kind) return [id, element];
		throw new Error(`index.html has no ${kind.name} with the id ${id}.`);
	});
	return /** @type {Record<Id, Kind>} */ (Object.fromEntries(found));
}

/** @template {keyof typeof ELEMENTS} Id @param {Id} id */
export const at = (id) => ELEMENTS[id];

/** Leaves what is the same alone, so that a screen reader does not read it again. @param {Element} element @param {string} value */
export function setText(element, value) {
	if (element.textContent !== value) element.textContent = value;
}

let [wallMs, monotonicMs, sumMs] = [Date.now(), performance.now(), 0];
/** Since the page was opened. A clock may be set back, and monotonic time may stand still in a machine that sleeps: the longer step counts. */
export function passedMs() {
	const [wall, monotonic] = [Date.now(), performance.now()];
	sumMs += Math.max(0, wall - wallMs, monotonic - monotonicMs);
	[wallMs, monotonicMs] = [wall, monotonic];
	return sumMs;
}

/** In pixels: below this people cannot read, and scroll instead. */
const SMALLEST = 10;
let fitted = '';
/** Smaller letters until the next step, its button and the hotline are on the screen, or the whole dialog, whatever their words are. */
export function fitScreen() {
	const dialog = at('pairing');
	const [inView, isHidden] = dialog.open
		? [dialog, [...dialog.querySelectorAll('[hidden]')].map(({ id }) => id)]
		: [at('status'), [at('start').hidden, at('retry').hidden]];
	const now = [innerWidth, innerHeight, inView.textContent, isHidden].join();
	if (now === fitted) return;
	fitted = now;
	const { style } = document.documentElement;
	style.fontSize = '';
	dialog.removeAttribute('data-tight');
	let size = parseFloat(getComputedStyle(document.documentElement).fontSize);
	const isTooLong = () =>
		dialog.open
			? dialog.scrollHeight > dialog.clientHeight
			: at('status').getBoundingClientRect().bottom + scrollY > innerHeight;
	while (size > SMALLEST && isTooLong()) {
		size -= 1;
		style.fontSize = `${size}px`;
	}
	dialog.toggleAttribute('data-tight', dialog.open && isTooLong());
}
