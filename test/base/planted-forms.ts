/** Writes a secret down in the ways in which programs write texts down: each encoding alone, pieces, and some inside others. */

type Write = (text: string) => string;

const bytesOf = (text: string) => Buffer.from(text);
const base64 = (text: string) => bytesOf(text).toString('base64');
const wrapped =
	(width: number, end: string): Write =>
	(text) =>
		base64(text)
			.replace(new RegExp(`.{${width}}`, 'g'), `$&${end}`)
			.trimEnd();
const percentAll: Write = (text) =>
	Array.from(bytesOf(text), (byte) => `%${byte.toString(16).padStart(2, '0')}`).join('');
const unicode: Write = (text) =>
	Array.from(text, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');

/** Encodings, each of a whole text. */
const ENCODINGS: Readonly<Record<string, Write>> = {
	'as it is': (text) => text,
	JSON: (text) => JSON.stringify(text).slice(1, -1),
	'JSON, slashes escaped': (text) => JSON.stringify(text).slice(1, -1).replaceAll('/', '\\/'),
	'JSON, not only ASCII letters escaped': (text) =>
		text.replaceAll(
			/[^A-Za-z0-9]/g,
			(letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0').toUpperCase()}`,
		),
	'JSON, all escaped': unicode,
	'JSON twice': (text) => JSON.stringify(JSON.stringify(text)).slice(3, -3),
	percent: encodeURIComponent,
	'percent, all': percentAll,
	'percent twice': (text) => encodeURIComponent(encodeURIComponent(text)),
	'percent, all, twice': (text) => encodeURIComponent(percentAll(text)),
	form: (text) => new URLSearchParams({ x: text }).toString().slice(2),
	base64: base64,
	'base64 after one byte': (text) => base64(`:${text}`),
	'base64 after two bytes': (text) => base64(`u:${text}:x`),
	'base64 of user:password': (text) => base64(`kiosk-7:${text}`),
	'base64 in lines of 76': wrapped(76, '\n'),
	'base64 in lines of 16 with CRLF': wrapped(16, '\r\n'),
	'base64 in lines in JSON': (text) => JSON.stringify(wrapped(16, '\n')(text)).slice(1, -1),
	base64url: (text) => bytesOf(text).toString('base64url'),
	'base64url after two bytes': (text) => bytesOf(`ab${text}`).toString('base64url'),
	hex: (text) => bytesOf(text).toString('hex'),
	'hex in capitals': (text) => bytesOf(text).toString('hex').toUpperCase(),
	'hex with spaces': (text) => bytesOf(text).toString('hex').replace(/../g, '$& ').trim(),
	'hex with colons': (text) =>
		bytesOf(text)
			.toString('hex')
			.replace(/..(?!$)/g, '$&:'),
	'\\x': (text) => bytesOf(text).toString('hex').replace(/../g, '\\x$&'),
	'HTML, named': (text) =>
		text
			.replaceAll('&', '&amp;')
			.replaceAll('<', '&lt;')
			.replaceAll('"', '&quot;')
			.replaceAll('/', '&sol;')
			.replaceAll('+', '&plus;'),
	'HTML, decimal': (text) => Array.from(text, (letter) => `&#${letter.charCodeAt(0)};`).join(''),
	'HTML, hexadecimal': (text) => Array.from(text, (letter) => `&#x${letter.charCodeAt(0).toString(16)};`).join(''),
	'lower case': (text) => text.toLowerCase(),
	'upper case': (text) => text.toUpperCase(),
};

/** Pieces that would help someone who finds them. */
const PIECES: Readonly<Record<string, Write>> = {
	'first half': (text) => text.slice(0, Math.ceil(text.length / 2)),
	'second half': (text) => text.slice(Math.floor(text.length / 2)),
	'all but three': (text) => text.slice(3),
	'the middle': (text) => text.slice(Math.floor(text.length / 4), Math.ceil((3 * text.length) / 4)),
};

const LAYERS = ['JSON', 'percent', 'base64', 'base64url', 'hex', 'HTML, decimal', 'base64 in lines of 16 with CRLF'];

/** Every form by its name; more than 200. */
export function plantedForms(secret: string): Map<string, string> {
	const forms = new Map<string, string>();
	const write = (name: string, text: string) => ENCODINGS[name]?.(text) ?? text;
	for (const name of Object.keys(ENCODINGS)) forms.set(name, write(name, secret));
	for (const [piece, cut] of Object.entries(PIECES)) {
		for (const name of Object.keys(ENCODINGS)) forms.set(`${piece}, then ${name}`, write(name, cut(secret)));
		for (const name of ['base64', 'hex', 'JSON, all escaped'])
			forms.set(`${name}, then ${piece}`, cut(write(name, secret)));
	}
	for (const inner of LAYERS)
		for (const outer of LAYERS) forms.set(`${inner} in ${outer}`, write(outer, write(inner, secret)));
	for (const inner of ['base64', 'hex', 'JSON', 'percent'])
		for (const outer of ['lower case', 'upper case'])
			forms.set(`${inner}, then ${outer}`, write(outer, write(inner, secret)));
	return forms;
}
