/** The forms of values that settings have, in words for the person who wrote them. Made when a value is checked. */
import * as z from 'zod';
import { CLOSE_MEANINGS } from '../protocol/channel.ts';
import { addressPattern, HOST, isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { FRAME_CONTENTS, type FrameContents } from '../protocol/frame-messages.ts';
import { later } from '../protocol/later.ts';
import { type TemplatePurpose, templateProblem, unknownField } from '../protocol/templates.ts';
import { readHeader, SERVICE_LINE } from './header-lines.ts';

const anyText = later(() => z.string('must be a text').max(4096, 'must have at most 4096 characters'));
export const text = later(() => anyText.min(1, 'must not be empty'));
export const filePath = later(() => text.regex(/^\//, 'must be an absolute path'));
export const frameContents = later(
	() =>
		text.regex(
			FRAME_CONTENTS,
			'must be "auto", "one", "lines", "array", "body" or a JSON pointer to an array, such as /events',
		) as unknown as z.ZodType<FrameContents>,
);
export const pointer = later(() => text.regex(/^(\/[^/]*)*$/, 'must be a JSON pointer (RFC 6901) such as /data/token'));
/** An empty one is the whole body, as in RFC 6901. */
export const tokenPlace = later(() =>
	anyText.regex(
		/^((\/[^/]*)*|header:[A-Za-z0-9-]{1,64}|cookie:[\w!#$%&'*+.^`|~-]{1,64})$/,
		'must be a JSON pointer (RFC 6901) such as /data/token, or header: or cookie: and a name',
	),
);
export const nextPlace = later(() => tokenPlace.min(1, 'must not be empty'));
/** A message of the deployment's own shape: as text, or in a file as JSON. */
export const messageTemplate = (purpose: TemplatePurpose) =>
	later(() => {
		const asJson = [z.record(z.string(), z.unknown()), z.array(z.unknown())].map((schema) =>
			schema.transform((document) => JSON.stringify(document)),
		);
		return z
			.union([text, ...asJson], { error: 'must be a text, a JSON object or a JSON array' })
			.superRefine((template, context) => {
				const problem = templateProblem(template, purpose);
				if (problem !== null) context.addIssue(problem);
			})
			.meta({ not: { type: 'string', pattern: unknownField(purpose) } });
	});
/** A path under baseUrl that may have a query, and fields of the device in it. */
export const registrationPath = later(() => placeSchema(pathProblem, PATH.source));
/** The same, or a whole address: wss, or ws to this machine itself. */
export const channelPlace = later(() =>
	placeSchema(
		(place) => (place.startsWith('/') ? pathProblem(place) : channelAddressProblem(place)),
		`${PATH.source}|${addressPattern('ws', QUERIED)}`,
	),
);
const placeSchema = (problemOf: (place: string) => string | null, pattern: string) =>
	text
		.superRefine((place, context) => {
			const problem = problemOf(place) ?? templateProblem(place, 'path');
			if (problem !== null) context.addIssue(problem);
		})
		.meta({ pattern, not: { pattern: unknownField('path') } });
const PATH = /^\/[^#\s]*$/;
/** What may follow the host of an address, for editors. */
const QUERIED = String.raw`[/\\?][^#]*`;
const pathProblem = (place: string) =>
	PATH.test(place) ? null : 'must be a path such as /ws/device or /devices/{deviceId}/channel';
const ONE_HOST = 'must name one host: a * in it stands for no other';
const isPattern = (url: URL | null) => url?.hostname.includes('*') ?? false;
function channelAddressProblem(address: string): string | null {
	const url = URL.parse(address);
	if (isPattern(url)) return ONE_HOST;
	if (
		!/^wss?:/i.test(address) ||
		!url?.hostname ||
		/[{}]/.test(decodeURIComponent(url.host)) ||
		url.username ||
		url.password ||
		url.hash
	)
		return 'must be a path such as /ws/device, or an address such as wss://events.example.com/ws without user and fragment';
	if (url.protocol !== 'wss:' && !isLoopback(url.href))
		return 'must begin with wss:// (plain ws is only for this machine itself)';
	return null;
}
/** An extra header of the requests to the service. */
export const serviceHeader = later(() =>
	text
		.superRefine((line, context) => {
			const read = readHeader(line, true);
			if (typeof read === 'string') context.addIssue(read === 'is not Name: value' ? 'must be Name: value' : read);
		})
		.meta(SERVICE_LINE),
);
const closeMeaning = later(() => z.enum(CLOSE_MEANINGS, 'must be "refused", "replaced" or "retry"'));
const CODE = /^[1-4]\d{3}$/;
/** Close codes and what each means. */
export const closeCodes = later(() =>
	z
		.record(z.string(), closeMeaning)
		.refine((codes) => Object.keys(codes).every((code) => CODE.test(code)), 'must name close codes from 1000 to 4999')
		.meta({ propertyNames: { pattern: CODE.source } }),
);
export const whole = (min: number, max: number) =>
	z.int('must be a whole number').min(min, `must be at least ${min}`).max(max, `must be at most ${max}`);
export const kindOfMessage = later(() => text.max(256, 'must have at most 256 characters'));
const FIELD = /\{\w+\}/;
/** Texts that look like templates and are taken as they are. */
const notFilledIn = (value: string, context: z.RefinementCtx) => {
	const [field] = FIELD.exec(value) ?? [];
	if (field !== undefined) context.addIssue(`names ${field}, which nothing fills in`);
};
/** No request has another, which could be read in two ways; `/.` alone stands for none. */
const PLAIN_PATH = /^(?:\/\.|(?:\/(?!\.*(?:\/|$))[^/%;\\\s]+)*\/?)$/;
export const urlPath = (example: string) =>
	later(() =>
		text
			.regex(/^\/[^?#]*$/, `must be a path such as ${example}`)
			.regex(PLAIN_PATH, 'must be as requests are compared with it: without %, blanks and empty or dot segments')
			.superRefine(notFilledIn)
			.meta({ not: { pattern: FIELD.source } }),
	);
const nameOf = (form: RegExp, problem: string) =>
	later(() =>
		z
			.string('must be a text')
			.min(1, 'must not be empty')
			.max(64, 'must have at most 64 characters')
			.regex(form, problem),
	);
/** A name that a device is given in its settings, for plans to choose it by. */
export const labelSchema = nameOf(/^[A-Za-z0-9][\w.:/-]*$/, 'must be letters, digits and . _ : / - without spaces');
/** The name of a fleet, as its plans carry it. */
export const fleetNameSchema = nameOf(
	/^[\p{L}\p{N}][\p{L}\p{N} .:/_-]*$/u,
	'must be letters, digits, spaces and . _ : / -',
);

/** A public key in one line, as settings hold it: `ed25519:` and its 32 bytes in base64. */
export const publicKeySchema = later(() =>
	z
		.string('must be a text')
		.regex(/^ed25519:[A-Za-z0-9+/]{43}=$/, 'must be a key such as "ed25519:…" from idv fleet keygen'),
);

/** Scanners are sold with any of these: `auto` takes CR, LF or a quiet moment, `none` only the quiet. */
export const SCAN_SUFFIXES = ['auto', 'cr', 'lf', 'none'] as const;

export type ScanSuffix = (typeof SCAN_SUFFIXES)[number];
export const timeWindow = later(() =>
	text.regex(/^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$/, 'must be two times of the day such as 02:00-05:00'),
);

const BARE = String.raw`[/\\][^?#]*`;
const address = (...form: Parameters<typeof addressPattern>) =>
	z
		.string('must be a text')
		.superRefine((value, context) => {
			notFilledIn(value, context);
			if (isPattern(URL.parse(value))) context.addIssue(ONE_HOST);
		})
		.meta({ pattern: addressPattern(...form), not: { pattern: FIELD.source } });

/** Address of the service: https, or http to this machine itself. */
export const baseUrl = later(() =>
	address('http', BARE).transform((value, context) => {
		const url = normalizeBaseUrl(value);
		if (url && (url.startsWith('https:') || isLoopback(url))) return url;
		context.addIssue(
			url
				? 'must begin with https:// (plain http is only for this machine itself)'
				: 'must be an https address without user, query or fragment, such as https://id.example.com',
		);
		return z.NEVER;
	}),
);
/** Where pairing codes may come from. */
export const origin = later(() =>
	address('http', BARE, HOST).transform((value, context) => {
		const url = normalizeBaseUrl(value);
		if (url) return url;
		context.addIssue('must be an origin such as https://id.example.com, with the path of the service if it has one');
		return z.NEVER;
	}),
);

/** Address of a plan or a metrics store: https, or http to this machine itself, without user and fragment. */
export const fetchedUrl = later(() =>
	address('http', QUERIED).transform((value, context) => {
		const url = URL.parse(value);
		const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.href));
		if (url && isSafe && !url.username && !url.password && !url.hash) return url.href;
		context.addIssue('must be an https address without user and fragment (plain http is only for this machine itself)');
		return z.NEVER;
	}),
);

export const isPin = (text: string) => /^\d{6,64}$/.test(text);

/** Whether a file is a credential that its site may have encrypted at rest: what is in it is written nowhere else. */
export const isEncryptedAtRest = (file: string | null): boolean => file?.startsWith('/run/credentials/') ?? false;
