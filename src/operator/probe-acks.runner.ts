/** Which messages `idv probe` takes for an acknowledgement, and which it never says. Pure. */
import { readWord } from '../protocol/channel.ts';
import { parseJson } from '../protocol/json.ts';
import { membersOf, PLACEHOLDER } from './probe-readings.runner.ts';

/** Words about what a service misses. */
export const ABOUT_ACK = /\back|acknowledg|confirm|receipt|unacked|deliver/i;
const ACKNOWLEDGES = /^(?:ack(?:s|ed|nowledg\w*)?|receipts?|received|delivered|seen)$/i;
/** Beginnings of words that decide about what a notification is about, such as a session. */
const DECIDES =
	/^(?:accept|reject|approv|deny|denied|declin|refus|cancel|abort|clos|delet|remov|revok|terminat|unsubscri|dismiss)/i;

/** Words by which a device itself leaves, together as one or as its parts. */
const LEAVES =
	/^(?:log(?:out|off)|sign(?:out|off)|bye|quit|exit|leave|disconnect|disabl|un(?:regist|pair|link|enrol)|deregist|reset|reboot|restart|shutdown|wipe|erase)/i;

const partsOf = (words: readonly string[]) =>
	words.flatMap((one) => one.replace(/([a-z])([A-Z])/g, '$1 $2').split(/[^A-Za-z]+/));

/** Whether a message that a service has written out would undo what the device is: its Connection, its place or its subscription. */
export function endsSomething(text: string): boolean {
	const document = parseJson(text);
	const word = document === undefined ? text : (readWord(document) ?? '');
	const parts = partsOf([word]);
	return [...parts, ...parts.map((part, at) => part + (parts[at + 1] ?? ''))].some(
		(part) => LEAVES.test(part) || DECIDES.test(part),
	);
}

/**
 * Whether a message that a service has written out may be tried as an acknowledgement. One whose own word says so always; another one only
 * shows that it is needed where something fails without it, and one that decides about a session then only where the service asks for it.
 * @param isFailing what is not acknowledged comes again, or the channel ends for want of an acknowledgement. @param isAsked the words before the message say that it acknowledges.
 */
export function mayAcknowledge(text: string, isFailing: boolean, isAsked: boolean): boolean {
	const document = parseJson(text);
	const word = readWord(document);
	const members = membersOf(document);
	const values = members.flatMap(({ value }) => (typeof value === 'string' && !PLACEHOLDER.test(value) ? [value] : []));
	// Without a word of its own its names say what it is.
	const own = word === null ? [...members.map(({ name }) => name), ...values] : [word];
	const decides = partsOf([...own, ...values]).some((part) => DECIDES.test(part));
	if (decides) return isFailing && isAsked;
	return isFailing || partsOf(own).some((part) => ACKNOWLEDGES.test(part));
}
