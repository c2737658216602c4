/** The kind of a text that cannot pair, by its form alone: one list for scanners, pictures, the page and what is typed. Pure. */

export type OtherKind =
	| 'wifi'
	| 'contact'
	| 'phone'
	| 'mail'
	| 'place'
	| 'link'
	| 'application'
	| 'document'
	| 'payment'
	| 'product';

const DATE = '\\d\\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\\d|3[01])';
/** Consonants, then vowels: how a tax number of Italy writes a name. */
const NAME = '(?:[B-DF-HJ-NP-TV-Z]{2}[A-Z]|[A-Z][AEIOU][AEIOUX]|[AEIOU]X{2})';

/**
 * A form that a token may have as well is one of these only where chance makes it of two tokens in a million at most. What is misread of
 * it has a wrong check digit and is not a token either: check digits are looked at only where the form alone would be of more tokens.
 * Made when a text is looked at: a program that never does so carries none of it.
 */
const forms = (): readonly (readonly [OtherKind, RegExp])[] => [
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
	// The lines of a document that machines read: with a name, and with two dates and the sex. Source: ICAO 9303.
	['document', /^[ACIPV][A-Z<][A-Z<]{3}[A-Z\d<]*<[A-Z\d<\s]*$/],
	['document', new RegExp(`^[A-Z\\d<]{9}[\\d<][A-Z<]{3}${DATE}\\d[MFX<]${DATE}\\d[A-Z\\d<]{8}(?:[A-Z\\d<]{8})?$`)],
	['document', new RegExp(`^${DATE}\\d[MFX<]${DATE}\\d[A-Z<]{3}[A-Z\\d<]{11}\\d$`)],
	// The number of a person: of Italy, Mexico and China.
	['document', new RegExp(`^${NAME}{2}\\d\\d[ABCDEHLMPRST](?:[04][1-9]|[1256]\\d|[37][01])[A-MZ]\\d{3}[A-Z]$`)],
	['document', new RegExp(`^[A-Z][AEIOUX][A-Z]{2}${DATE}[HMX][A-Z]{2}[B-DF-HJ-NP-TV-Z]{3}[A-Z\\d]\\d$`)],
	['document', /^\d{17}X$/],
	// A payment begins with its version and ends with its check sum. Source: EMVCo.
	// The number of a company of Brazil.
	['document', /^\d\d\.\d{3}\.\d{3}\/[\dA-Z]{4}-\d\d$/],
	// Bitcoin, Ethereum and Lightning. Source: BIP 173; BOLT 11; LUD 01.
	[
		'payment',
		/^(?:bc1[qp][02-9ac-hj-np-z]{38}(?:[02-9ac-hj-np-z]{20})?|0x[\da-f]{40}|lnurl1[a-z\d]{20,}|lnbc(?:\d+[munp]?)?1[a-z\d]{50,})$/i,
	],
	['payment', /^000201\d{2}.+6304[\dA-F]{4}$/i],
	// The digits of goods, books and parcels; a parcel of UPS or of DHL; goods as GS1 and as HIBC write them.
	['product', /^(?:\d{8,48}|97[89](?:-?\d){10}|1Z[\dA-Z]{8}\d{8}|J?JD\d{13,21})$/],
	[
		'product',
		/^(?:\(01\)\d{14}.*|01\d{14}(?:1[0-7]|21|24[01])\S+|\+[A-Z][A-Z\d]{4,21}\d[A-Z\d. $/+%-](?:\/[\d$].*)?)$/,
	],
];

/** By country, after two check digits: so many digits (n), letters (a), or either (c). Source: the registry of ISO 13616. */
const ACCOUNTS =
	'AD8n12c AE19n AL8n16c AT16n AZ4a20c BA16n BE12n BG4a6n8c BH4a14c BI23n BR23n1a1c BY4c4n16c CH5n12c CR18n CY8n16c CZ20n ' +
	'DE18n DJ23n DK14n DO4c20n EE16n EG25n ES20n FI14n FK2a12n FO14n FR10n11c2n GB4a14n GE2a16n GI4a15c GL14n GR7n16c GT4c20c ' +
	'HN4a20n HR17n HU24n IE4a14n IL19n IQ4a15n IS22n IT1a10n12c JO4a4n18c KW4a22c KZ3n13c LB4n20c LC4a24c LI5n12c LT16n ' +
	'LU3n13c LV4a13c LY21n MC10n11c2n MD2c18c ME18n MK3n10c2n MN16n MR23n MT4a5n18c MU4a19n3a NI4a20n NL4a10n NO11n OM3n16c ' +
	'PK4a16c PL24n PS4a21c PT21n QA4a21c RO4a16c RS18n RU14n15c SA2n18c SC4a20n3a SD14n SE20n SI15n SK20n SM1a10n12c SO19n ' +
	'ST21n SV4a20n TL19n TN20n TR6n16c UA6n19c VA18n VG4a16n XK16n YE4a4n18c';
const SIGNS: Readonly<Record<string, string>> = { n: '\\d', a: '[A-Z]', c: '[A-Z\\d]' };
function referenceForm(): RegExp {
	const accounts = ACCOUNTS.split(' ').map((form) =>
		form.replace(/^../, '$&\\d\\d').replace(/(\d+)([nac])/g, (_all, count, kind) => `${SIGNS[kind]}{${count}}`),
	);
	return new RegExp(`^(?:RF\\d\\d[A-Z\\d]{1,21}|${accounts.join('|')})$`);
}

/** The marks of bar codes, by which scanners tell the kind of what they read. Source: ISO/IEC 15424. */
const BAR_CODE = /^\][ABCEFGIe][0-9A-Za-z]/;
const MARK = /^\][A-Za-z][0-9A-Za-z]/;

/** The kind of a text that cannot pair, if it is known. A scanner may have made all its capitals small. */
export function kindOf(text: string): OtherKind | null {
	const plain = text.trim().replace(MARK, '');
	const capitals = plain === plain.toLowerCase() ? plain.toUpperCase() : plain;
	const [kind] = forms().find(([, form]) => form.test(capitals)) ?? [];
	if (kind) return kind;
	if (isReference(capitals.replaceAll(' ', ''))) return 'payment';
	return BAR_CODE.test(text.trim()) || isVehicle(capitals) ? 'product' : null;
}

/** The number of an account or of an invoice: its check digits are right. Source: ISO 13616; ISO 11649. */
function isReference(text: string): boolean {
	if (!referenceForm().test(text)) return false;
	const signs = [...text.slice(4), ...text.slice(0, 4)];
	return signs.reduce((rest, sign) => Number(`${rest}${Number.parseInt(sign, 36)}`) % 97, 0) === 1;
}

/** The number of a car, where cars have a check digit in it; none without a letter that hexadecimal digits have not. Source: ISO 3779; 49 CFR 565. */
function isVehicle(text: string): boolean {
	if (!/^(?=.*[G-Z])[1-5L][A-HJ-NPR-Z\d]{7}[\dX][A-HJ-NPR-Z\d]{2}\d{6}$/.test(text)) return false;
	const value = (sign: string) => '0123456789.ABCDEFGH..JKLMN.P.R..STUVWXYZ'.indexOf(sign) % 10;
	const weights = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
	const sum = weights.reduce((all, weight, at) => all + weight * value(text[at] ?? ''), 0);
	return '0123456789X'[sum % 11] === text[8];
}

export const KIND_SENTENCES: Readonly<Record<OtherKind, string>> = {
	wifi: 'This is a code for a Wi-Fi network, not a pairing code.',
	contact: 'This is the code of a contact, not a pairing code.',
	phone: 'This is the code of a telephone number, not a pairing code.',
	mail: 'This is the code of an e-mail address, not a pairing code.',
	place: 'This is the code of a place on a map, not a pairing code.',
	link: 'This is a link, but there is no pairing token in it.',
	application: 'This is a code for another application, not a pairing code.',
	document: 'This is a line of an identity document or the number of a person, not a pairing code.',
	payment: 'This is a code for a payment or the number of an account, not a pairing code.',
	product: 'This is a bar code of a product or a label, not a pairing code.',
};
