/** The words of a refusal that ask for something, and the remedy where only a person knows the value. Pure. */

export const IN_TRANSCRIPT = 'the transcript (--transcript) shows what the service answered.';

/** Places of the Connection that words of a refusal name, and where no setting shows it. */
const NOWHERE: readonly (readonly [named: RegExp, place: string])[] = [
	[/\bcookies?\b/i, 'in a cookie'],
	[
		/\bsub-?protocols?\b.{0,80}\b(?:token|connection token|credential|jwt)\b|\b(?:token|credential|jwt)\b.{0,40}\b(?:as|in)\b.{0,20}\bsub-?protocols?\b/i,
		'as a subprotocol',
	],
	[
		/\b(?:token|credential|jwt|connection)\b.{0,40}\bin the (?:url )?path\b|\bpath\b.{0,40}\b(?:token|credential|jwt)\b/i,
		'in the path',
	],
];

/** @returns `null` for words that name nothing. */
export function remedyNamed(words: readonly string[]): string | null {
	const place = NOWHERE.find(([named]) => words.some((text) => named.test(text) && !/\bheader\b/i.test(text)))?.[1];
	if (place !== undefined)
		return `By its words the service wants the Connection ${place}, and no setting of this version shows a Connection there: only the Authorization header and a query parameter hold it (service.channelAuth). Ask its operator for one of these; ${IN_TRANSCRIPT}`;
	const header = namedHeader(words);
	if (header !== null)
		return `The service names the header ${header}: ask its operator what belongs in it, and give it with --header '${header}: VALUE' (a secret one in --headers-file), which becomes service.headers; ${IN_TRANSCRIPT}`;
	const [parameter] = namedParameters(words);
	return parameter === undefined
		? null
		: `The service names the query parameter ${parameter}: ask its operator what belongs in it. For the Connection, give --query-name ${parameter} (later service.queryName); for anything else, name the path with it (--channel-path '/ws/device?${parameter}=VALUE', where {deviceId} and {workflowId} are the device's own; later service.channelPath); ${IN_TRANSCRIPT}`;
}

/** A header, such as in "Header X-Device-Id is missing"; none that is there always. */
function namedHeader(words: readonly string[]): string | null {
	const named = words
		.flatMap((text) => [
			...text.matchAll(/\bheaders?\W{1,3}([A-Z][\w-]+)|\b([A-Z][\w-]+)\W{1,3}header\b|\b(X-[\w-]+)/gi),
		])
		.flatMap((found) => found.slice(1).filter((name) => name !== undefined))
		.filter((name) => /^X-|^[A-Z]/.test(name) && !/^(?:authorization|missing|required|a|the|no|request)$/i.test(name));
	return named[0] ?? null;
}

/** As in "query parameter NAME is missing", "missing required query parameter: 'NAME'" and "'NAME' query parameter". */
const PARAMETERS = [
	/\bquery(?:[ -]?string)?(?: param(?:eter)?)?\W{1,3}(?!(?:is|missing|required)\b|param)([\w.-]+)/i,
	/\bparam(?:eter)?\W{1,3}(?!(?:is|missing|required)\b)([\w.-]+)/i,
	/["'`]([\w.-]+)["'`] (?:in the )?(?:query|(?:url )?param)/i,
];

function namedParameters(words: readonly string[]): string[] {
	const names = words.flatMap((text) => PARAMETERS.flatMap((form) => form.exec(text)?.slice(1) ?? []));
	return [...new Set(names.map((name) => name.replace(/\.$/, '')))];
}

/** The query parameters that a refusal names, but for those that hold an id: the Connection may belong in them. */
export function namedQuery(body: string): string[] {
	const said = body.slice(0, 2000).replaceAll('\\"', '"');
	const filled = neededParameters(said).map((one) => one.split('=')[0]);
	return namedParameters([said]).filter((name) => !filled.includes(name));
}

/** The seconds of a heartbeat that the service names: those of `every`, or half of a silence that it ends. */
export function namedCadence(words: readonly string[]): number | null {
	const told = /(?:heart.?beat|\bhb\b|keep.?alive)([^\d]{0,60}?)(\d+(?:\.\d+)?)\s*(ms\b|milli|min)?/gi;
	const named = words.flatMap((text) =>
		[...text.matchAll(told)].flatMap(([, how = '', number, unit = '']) => {
			const seconds = Number(number) * (/^mi?n/i.test(unit) ? 60 : /m(?:illi)?s/i.test(unit + how) ? 0.001 : 1);
			return /every|each|interval|period/i.test(how)
				? [seconds]
				: /\b(?:for|within|in)\b/i.test(how)
					? [seconds / 2]
					: [];
		}),
	);
	return named.map(Math.floor).find((seconds) => seconds >= 1) ?? null;
}

const OWN_ID = /(?<![\w-])(?:device|terminal|client|workflow)[_ -]?id\b/gi;

/** The query parameters that are asked for and that a device can fill in, as they stand in a path. */
export function neededParameters(body: string): string[] {
	const said = body.slice(0, 2000);
	if (!/query|param|missing|requir|need|must|provide|specif|without|expect/i.test(said)) return [];
	if (/\bheader/i.test(said) && !/query|param/i.test(said)) return [];
	const filled = (name: string, what = name) => `${name}={${/^w/i.test(what) ? 'workflowId' : 'deviceId'}}`;
	const ids = [...new Set([...said.matchAll(OWN_ID)].map(([name]) => name))];
	// A parameter under its own name, and what belongs in it: "query parameter device must be the deviceId".
	const [named] = namedParameters([said]).filter((name) => !ids.includes(name));
	const [what = named?.match(/^(?:device|terminal|kiosk|workflow)$/i)?.[0]] = ids;
	return named && what && ids.length < 2
		? [filled(named, what)]
		: ids.filter((name) => !name.includes(' ')).map((name) => filled(name));
}

/** Words of a refusal that may be the name of a subprotocol: what looks like one (`acme.v7`) first, then what stands behind the word itself. */
export function subprotocolHints(header = '', body = ''): string[] {
	const said = body.slice(0, 2000).replaceAll('\\"', '"');
	const names = /protocol/i.test(said) ? (said.match(/(?<![\w./~-])\w+[.~\d-][\w.~-]*(?![\w/~-])/g) ?? []) : [];
	const after = /protocols?[\s"':=[(]+(?:is\s+|named\s+|must be\s+)?["'`]?([\w.~-]+)(?![\w/])/gi;
	const quoted = /["'`]([\w.~-]{2,64})["'`]/g;
	return [
		...header.split(','),
		...names,
		...[...said.matchAll(after), ...said.matchAll(quoted)].map((hit) => hit[1] ?? ''),
	]
		.map((word) => word.trim().replace(/\.+$/, ''))
		.filter((word, index, all) => /^(?!sec-websocket-)[\w~.-]{2,64}$/i.test(word) && all.indexOf(word) === index)
		.slice(0, 8);
}
