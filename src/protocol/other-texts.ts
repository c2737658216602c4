/** The kind of a text that cannot pair, by its form alone: one list for scanners, pictures, the page and what is typed. Pure. */

export type OtherKind = 'wifi' | 'contact' | 'phone' | 'mail' | 'place' | 'link' | 'application' | 'product';

const FORMS: readonly (readonly [OtherKind, RegExp])[] = [
	['wifi', /^wifi:/i],
	['contact', /^(?:begin:vcard|mecard:|bizcard:)/i],
	['phone', /^(?:(?:tel|sms|smsto|facetime):|tel\W{1,2}\d[\d.-]{4,}$)/i],
	['mail', /^(?:mailto|matmsg|smtp):/i],
	['place', /^geo:/i],
	// Also without a scheme; the letters of a host are all small or all capitals.
	['link', /^https?:/i],
	['link', /^(?:www\.|WWW\.|(?:[a-z\d-]+\.)+[a-z]{2,4}\/|(?:[A-Z\d-]+\.)+[A-Z]{2,4}\/)/],
	// Of a label: an address of the network, a date.
	['product', /^(?:(?:\d{1,3}\.){3}\d{1,3}(?:[:/]\d{1,5})?|[\da-f]{2}([:-])[\da-f]{2}(?:\1[\da-f]{2}){4})$/i],
	[
		'product',
		/^(?:(?:19|20)\d\d([-/.])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])|(?:0?[1-9]|[12]\d|3[01])([-/.])(?:0?[1-9]|[12]\d|3[01])\2(?:19|20)\d\d)(?:[T ]\d.*)?$/,
	],
	['application', /^[a-z][a-z+.-]+:\S/i],
	// The digits of goods, books and parcels, a parcel of UPS or of DHL, and an item's number as GS1 writes it.
	['product', /^(?:\d{8,48}|97[89](?:-?\d){10}|1Z[\dA-Z]{16}|JJD\d{15,18}|\(01\)\d{14}.*)$/],
];

/** The marks of bar codes, by which scanners tell the kind of what they read. Source: ISO/IEC 15424. */
const BAR_CODE = /^\][ABCEFGIe][0-9A-Za-z]/;
const MARK = /^\][A-Za-z][0-9A-Za-z]/;

/** The kind of a text that cannot pair, if it is known. */
export function kindOf(text: string): OtherKind | null {
	const plain = text.trim().replace(MARK, '');
	const isProduct = BAR_CODE.test(text.trim()) || isReference(plain);
	const [kind] = FORMS.find(([, form]) => form.test(plain)) ?? [isProduct ? 'product' : null];
	return kind;
}

/** The number of an account or of an invoice: its check digits are right. Source: ISO 13616; ISO 11649. */
function isReference(text: string): boolean {
	if (!/^[A-Z]{2}\d{2}[A-Z\d]{4,30}$/.test(text)) return false;
	const signs = [...text.slice(4), ...text.slice(0, 4)];
	return signs.reduce((rest, sign) => Number(`${rest}${Number.parseInt(sign, 36)}`) % 97, 0) === 1;
}

export const KIND_SENTENCES: Readonly<Record<OtherKind, string>> = {
	wifi: 'This is a code for a Wi-Fi network, not a pairing code.',
	contact: 'This is the code of a contact, not a pairing code.',
	phone: 'This is the code of a telephone number, not a pairing code.',
	mail: 'This is the code of an e-mail address, not a pairing code.',
	place: 'This is the code of a place on a map, not a pairing code.',
	link: 'This is a link, but there is no pairing token in it.',
	application: 'This is a code for another application, not a pairing code.',
	product: 'This is a bar code of a product or a label, not a pairing code.',
};
