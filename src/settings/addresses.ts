/** How addresses in settings are read: each becomes its normal form, or says what is wrong with it. */
import * as z from 'zod';
import { isLoopback, normalizeBaseUrl } from '../protocol/endpoints.ts';
import { later } from '../protocol/later.ts';

/** Of the service: https, or http to this machine itself. */
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

/** Of a plan or a metrics store: https, or http to this machine itself, without user and fragment. */
export const fetchedUrl = later(() =>
	z.string('must be a text').transform((value, context) => {
		const url = URL.parse(value);
		const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopback(url.href));
		if (url && isSafe && !url.username && !url.password && !url.hash) return url.href;
		context.addIssue('must be an https address without user and fragment (plain http is only for this machine itself)');
		return z.NEVER;
	}),
);
