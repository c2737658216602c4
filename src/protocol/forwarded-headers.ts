/** The headers of an application's request that may go on to the service. */
import * as z from 'zod';
import { anyCase, later } from './later.ts';

/** Headers that belong to one connection. */
export const HOP_BY_HOP =
	/^(?:connection|http2-settings|keep-alive|proxy-authenticate|proxy-authentication-info|proxy-authorization|proxy-connection|te|trailer|transfer-encoding|upgrade)$/;
/** Headers that say what is sent and what is asked for, and nothing that some servers answer another request for. */
const USUAL =
	/^(?:accept|accept-charset|accept-language|cache-control|content-(?:digest|disposition|encoding|language|length|type)|date|digest|idempotency-key|if-(?:match|modified-since|none-match|unmodified-since)|pragma|prefer|repr-digest|traceparent|tracestate|user-agent|x-correlation-id|x-idempotency-key|x-request-id)$/;
/** Whatever the settings say: about the local caller, and those that make some servers answer for another path or method. */
const NEVER =
	/^(?:host|expect|(?:proxy-)?auth.*|.*authorization.*|cookie2?|origin|referer|forwarded|via|accept-encoding|x-host|x-forwarded-.*|x-real-ip|x-client-ip|x-original-.*|x-rewrite-.*|x-(?:http-)?method.*|sec-.*|access-control-.*)$/;

const mayBeNamed = (name: string) => !HOP_BY_HOP.test(name) && !NEVER.test(name);

/** The name of a header that settings may add; in lower case. Without underscores, which some servers read as hyphens. */
export const forwardedHeaderSchema = later(() =>
	z
		.string('must be a text')
		.regex(/^[A-Za-z0-9-]{1,64}$/, 'must be the name of a header such as X-Tenant: letters, digits and hyphens')
		.toLowerCase()
		.refine(mayBeNamed, 'must not be a header of the connection, of a credential, or of another address or method')
		.meta({ not: { pattern: anyCase(`${HOP_BY_HOP.source}|${NEVER.source}`) } }),
);

/** @param name in lower case. @param more names that settings add. */
export const isForwarded = (name: string, more: readonly string[]): boolean =>
	USUAL.test(name) || (more.includes(name) && mayBeNamed(name));
