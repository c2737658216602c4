/** The forms of values that settings have, in words for the person who wrote them. Made when a value is checked. */
import * as z from 'zod';
import { templateProblem } from '../protocol/channel.ts';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { later } from '../protocol/later.ts';

export const text = later(() =>
	z.string('must be a text').min(1, 'must not be empty').max(4096, 'must have at most 4096 characters'),
);
export const filePath = later(() => text.refine((path) => path.startsWith('/'), 'must be an absolute path'));
export const pointer = later(() => text.regex(/^(\/[^/]*)*$/, 'must be a JSON pointer (RFC 6901) such as /data/token'));
export const tokenPlace = later(() =>
	text.regex(
		/^((\/[^/]*)*|header:[A-Za-z0-9-]{1,64})$/,
		'must be a JSON pointer (RFC 6901) such as /data/token, or header: and the name of a header',
	),
);
/** A message of the deployment's own shape: as text, or in a file as JSON. */
export const messageTemplate = later(() =>
	z
		.union([text, z.record(z.string(), z.unknown()).transform((document) => JSON.stringify(document))], {
			error: 'must be a text or a JSON object',
		})
		.superRefine((template, context) => {
			const problem = templateProblem(template);
			if (problem !== null) context.addIssue(problem);
		}),
);
export const whole = (min: number, max: number) =>
	z.int('must be a whole number').min(min, `must be at least ${min}`).max(max, `must be at most ${max}`);
export const kindOfMessage = later(() => text.max(256, 'must have at most 256 characters'));
export const urlPath = (example: string) => later(() => text.regex(/^\/[^?#]*$/, `must be a path such as ${example}`));
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

/** Address of the service: https, or http to this machine itself. */
export const baseUrl = later(() =>
	z.string('must be a text').transform((value, context) => {
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
	z.string('must be a text').transform((value, context) => {
		const url = normalizeBaseUrl(value);
		if (url) return url;
		context.addIssue('must be an origin such as https://id.example.com, with the path of the service if it has one');
		return z.NEVER;
	}),
);

/** Address of a plan or a metrics store: https, or http to this machine itself, without user and fragment. */
export const fetchedUrl = later(() =>
	z.string('must be a text').transform((value, context) => {
		const url = URL.parse(value);
		const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.href));
		if (url && isSafe && !url.username && !url.password && !url.hash) return url.href;
		context.addIssue('must be an https address without user and fragment (plain http is only for this machine itself)');
		return z.NEVER;
	}),
);
