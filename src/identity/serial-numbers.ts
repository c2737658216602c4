/** Which texts tell devices apart as serial numbers; makers leave many that do not. Pure. */
import { isSerial } from '../protocol/device-connection.ts';

/** Words of which makers make the text that a factory should have replaced, `To Be Filled By O.E.M.` or `Type2 - Board Serial Number`. */
const WORDS = [
	...'to be fill filled by oem\\d? tbd default string standard eval sample dummy bad index reserved'.split(' '),
	...'system chassis base board main mother product manufacturer type\\d? sku version'.split(' '),
	...'serial number name asset tag information no not none null na unknown invalid empty'.split(' '),
	...'specified unspecified applicable available unavailable provided present defined undefined'.split(' '),
	...'set settable used unused unknow generic please changeme sernum\\d? sn\\d?'.split(' '),
	...'test\\d* engineering prototype demo placeholder blank todo qwerty yet tbf mb enclosure'.split(' '),
	...'customer enter entered assigned programmed required here your qemu kvm virtual machine'.split(' '),
	...'sys pc mfg amazonec2'.split(' '),
];
/** With a number after them, if there is one. */
const ONLY_WORDS = new RegExp(`^(?:${WORDS.join('|')})+0*([1-9]\\d*)?$`);
/** Makers whose serial numbers may be all letters leave the vowels out, so that they make no words; and no word has one letter three times in a row. */
const WORD = /^(?!.*(.)\1\1)(?![b-df-hj-np-tv-z]+0*$)\D+0*$/u;
/** Shorter ones are marks of a batch or a slot, not of a device. */
const MIN_LENGTH = 4;
/** Before counted digits, as in `SYS-1234567890`; after so many letters, fewer digits than these may count devices. */
const [MAX_PREFIX, MIN_COUNTED] = [8, 6];
const REPEATED = new RegExp(`^(?:(.)\\1*|[a-z]{1,${MAX_PREFIX}}?(.)\\2{${MIN_COUNTED - 1},})$`, 'u');
/** Two or three characters, over and over; fewer of them may be a short number of a device. */
const PATTERN = /^(?=.{8})(..|...)\1{2,}$/u;
/** A UUID that a maker of firmware left in its sample, and the serial number of many boards of one maker. */
const SAMPLES = ['03000200040005000006000700080009', '123490en400015'];
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz';
const COUNTED = [
	'0123456789'.repeat(14),
	`0123456789${ALPHABET}`,
	`1234567890${ALPHABET}`,
	'1a2b3c4d5e6f7g8h9i',
	// Bytes of a sample.
	'00010203040506070809',
].flatMap((row) => [row, [...row].reverse().join('')]);

/** Why a text is not a serial number that tells devices apart; `null` if it is one. */
export function whySerialRejected(value: string): string | null {
	const text = value.trim();
	if (text === '') return 'is empty';
	const essence = text
		.toLowerCase()
		.replace(/^0x/, '')
		.replace(/[^\p{L}\p{N}]/gu, '');
	if (isWords(essence) || isCounted(essence)) return `is a placeholder of the maker: ${text}`;
	if (text.length < MIN_LENGTH) return `has fewer than ${MIN_LENGTH} characters`;
	if (essence === '') return 'has neither letters nor digits';
	if (REPEATED.test(essence)) return 'is one character repeated';
	if (PATTERN.test(essence)) return 'is the same few characters repeated';
	// Different bytes would be the same text.
	if (text.includes('\ufffd')) return 'has bytes that are not UTF-8';
	return isSerial(text) ? null : 'is too long or has unprintable characters';
}

/** Whether this is a word, or words of a factory alone, with a first number or one that is counted; another one may be of a device. */
function isWords(essence: string): boolean {
	const [found, count = '1'] = ONLY_WORDS.exec(essence) ?? [];
	return WORD.test(essence) || (found !== undefined && /^(?:1|123(?:4\d*)?)$/.test(count) && isRow(count));
}

const isRow = (rest: string) => COUNTED.some((row) => row.includes(rest));

/** Whether these are characters in a row, alone, each twice, or after a few letters (fewer, if those are in a row as well) or other characters, or zeros and a one. */
function isCounted(essence: string): boolean {
	if (/^0+1$|0{16}$/.test(essence) || SAMPLES.includes(essence)) return true;
	if (essence.length >= MIN_LENGTH && isRow(essence)) return true;
	const once = essence.replace(/(.)\1/gu, '$1');
	if (once.length >= MIN_LENGTH && once.length * 2 === essence.length && isRow(once)) return true;
	const [, letters, digits] = /^(abc[a-z]*)(0?123\d*)$/.exec(essence) ?? [];
	if (letters && digits && isRow(letters) && isRow(digits)) return true;
	const [, rest = ''] = new RegExp(`^[a-z]{1,${MAX_PREFIX}}(\\d{${MIN_COUNTED},})$`).exec(essence) ?? [];
	if (rest !== '' && isRow(rest)) return true;
	return [1, 2, 3, 4].some((length) => /^[01].{7}/u.test(essence.slice(length)) && isRow(essence.slice(length)));
}
