/** Texts of strangers on their way to a terminal, a file of lines or a program: none of them steers what shows it. Pure. */

/** Control characters, those that turn the direction of writing, and the line ends of Unicode. */
const STEERING = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]+/gu;
/** The same but for tabs and the line ends of our own texts, of which CSV has two characters. */
const STEERING_IN_LINES = /(?:(?!\r?\n|\t)[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}])+/gu;
/** Those of them that may stand in JSON as they are. */
const RAW_IN_JSON = /[\x7f-\x9f\p{Bidi_Control}\p{Zl}\p{Zp}]/gu;

/** A name or a text of someone else within a sentence, a cell or a label: what would steer, or begin a line, becomes a space. */
export function onOneLine(text: string): string {
	return text.replaceAll(STEERING, ' ');
}

/** Whole lines, with their ends. */
export function inPlainLines(text: string): string {
	return text.replaceAll(STEERING_IN_LINES, ' ');
}

/** JSON that says the same. */
export function inPlainJson(json: string): string {
	return json.replaceAll(RAW_IN_JSON, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
