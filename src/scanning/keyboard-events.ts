/** A USB keyboard's events into characters, by the US key map of 64-bit Linux. Source: linux/input-event-codes.h. */

/** `struct input_event`: seconds and microseconds of 8 bytes each, type and code of 2, value of 4. */
export const EVENT_BYTES = 24;

const EV_SYN = 0;
const EV_KEY = 1;
const SYN_DROPPED = 3;
const RELEASED = 0;
const PRESSED = 1;

const ENTER = 28;
const KEYPAD_ENTER = 96;
const LEFT_CTRL = 29;
const RIGHT_CTRL = 97;
const LEFT_SHIFT = 42;
const RIGHT_SHIFT = 54;
const LEFT_ALT = 56;
const CAPS_LOCK = 58;

/** Characters by key code, plain and with shift. */
const KEYS: ReadonlyMap<number, readonly [plain: string, shifted: string]> = new Map([
	...row(2, '1234567890-=', '!@#$%^&*()_+'),
	...row(15, '\tqwertyuiop[]', '\tQWERTYUIOP{}'),
	...row(30, "asdfghjkl;'`", 'ASDFGHJKL:"~'),
	...row(43, '\\zxcvbnm,./', '|ZXCVBNM<>?'),
	...row(57, ' ', ' '),
	...row(55, '*', '*'),
	...row(71, '789-456+1230.', '789-456+1230.'),
	...row(98, '/', '/'),
]);
const KEYPAD_DIGITS: ReadonlyMap<number, string> = new Map(
	[...KEYS].filter(([code, [key]]) => code >= 71 && code <= 82 && /\d/.test(key)).map(([code, [key]]) => [code, key]),
);

function row(first: number, plain: string, shifted: string): [number, readonly [string, string]][] {
	return [...plain].map((key, index) => [first + index, [key, shifted[index] ?? key]]);
}

/** Which keys are held, and the bytes of an event that has arrived in part. */
export interface Keyboard {
	readonly rest: Uint8Array;
	readonly held: ReadonlySet<number>;
	readonly capsLock: boolean;
	/** Digits typed on the keypad while Alt is held: how some scanners type what no key has. */
	readonly altDigits: string;
}

export const NO_KEYS: Keyboard = { rest: new Uint8Array(), held: new Set(), capsLock: false, altDigits: '' };

/**
 * Takes the next bytes of the device in; returns what was typed. Enter is a line feed. Events that the kernel had to drop
 * become a U+FFFD, so that a code with a hole in it is taken for none.
 */
export function takeEvents(
	before: Keyboard,
	bytes: Uint8Array,
): { readonly keyboard: Keyboard; readonly characters: string } {
	const all = new Uint8Array(before.rest.length + bytes.length);
	all.set(before.rest);
	all.set(bytes, before.rest.length);
	const view = new DataView(all.buffer);
	const held = new Set(before.held);
	let { capsLock, altDigits } = before;
	let characters = '';
	let at = 0;
	for (; at + EVENT_BYTES <= all.length; at += EVENT_BYTES) {
		const type = view.getUint16(at + 16, true);
		const code = view.getUint16(at + 18, true);
		const value = view.getInt32(at + 20, true);
		if (type === EV_SYN && code === SYN_DROPPED) {
			characters += '\ufffd';
			held.clear();
			altDigits = '';
			continue;
		}
		// A key that repeats itself is held too long; a scanner means it once.
		if (type !== EV_KEY || (value !== PRESSED && value !== RELEASED)) continue;
		if (value === RELEASED) {
			held.delete(code);
			if (code === LEFT_ALT) {
				characters += characterOf(altDigits);
				altDigits = '';
			}
			continue;
		}
		held.add(code);
		if (code === CAPS_LOCK) capsLock = !capsLock;
		else if (held.has(LEFT_ALT)) altDigits = (altDigits + (KEYPAD_DIGITS.get(code) ?? '')).slice(-5);
		else if (held.has(LEFT_CTRL) || held.has(RIGHT_CTRL)) characters += withCtrl(code);
		else if (code === ENTER || code === KEYPAD_ENTER) characters += '\n';
		else characters += withShift(code, held.has(LEFT_SHIFT) || held.has(RIGHT_SHIFT), capsLock);
	}
	return { keyboard: { rest: all.slice(at), held, capsLock, altDigits }, characters };
}

function withShift(code: number, shift: boolean, capsLock: boolean): string {
	const [plain, shifted] = KEYS.get(code) ?? ['', ''];
	const isLetter = /[a-z]/.test(plain);
	return shift !== (capsLock && isLetter) ? shifted : plain;
}

/** Ctrl-M and Ctrl-J are how some scanners type the end of a line. */
function withCtrl(code: number): string {
	const [plain] = KEYS.get(code) ?? [''];
	return plain === 'm' || plain === 'j' ? '\n' : '';
}

function characterOf(digits: string): string {
	const number = Number(digits);
	return digits !== '' && number > 0 && number < 256 ? String.fromCharCode(number) : '';
}
