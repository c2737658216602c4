/** Where the service's endpoints are under a base URL. */
import { anyCase } from './later.ts';

/** Source: service-interface, Endpoints 1, 2, 3 and 5. */
export const ENDPOINTS = {
	pairingCode: '/api/deeplink/qrcode',
	deviceConnection: '/api/device/connection',
	/** Two forms are published, the third comes from the field. Tried in this order, the next one on 404 or 405: assumed (api-key-path). */
	apiKeys: ['/api/security/apikeys', '/api/apikey', '/api/security/apikey'],
	sessionStart: '/api/v1/deeplink',
} as const;

/** Path of the notification channel under the base URL. Source: assumed (channel-path); service-interface, Endpoints 6 gives only the name. */
export const DEFAULT_CHANNEL_PATH = '/ws/device';

/** Path of the page that a deep link opens. Source: service-interface, Handoff URL record. */
export const DEEP_LINK_PATH = '/mobile';

/** Joins a base URL, which may have a path of its own, with an endpoint path and an optional query. */
export function endpointUrl(baseUrl: string, path: string, query?: URLSearchParams): URL {
	const url = new URL(baseUrl);
	url.pathname = `${url.pathname.replace(/\/+$/, '')}/${path.replace(/^\/+/, '')}`;
	url.search = query?.toString() ?? '';
	url.hash = '';
	return url;
}

/** The same for a path that may have a query of its own. */
export function placeUnder(baseUrl: string, place: string): URL {
	const [path = '', ...query] = place.split('?');
	const url = endpointUrl(baseUrl, path);
	url.search = query.join('?');
	return url;
}

/** The channel's URL: the same host and path prefix under `ws:` or `wss:`, or the whole address that is given in its place. */
export function channelUrl(baseUrl: string, channelPath: string, query?: URLSearchParams): URL {
	const url = /^wss?:/i.test(channelPath) ? new URL(channelPath) : placeUnder(baseUrl, channelPath);
	if (url.protocol.startsWith('http')) url.protocol = url.protocol === 'http:' ? 'ws:' : 'wss:';
	if (query) url.search = [url.search.slice(1), query.toString()].filter(Boolean).join('&');
	return url;
}

const MAX_BASE_URL = 4096;
/**
 * The base URL in the one form in which it is stored and compared: scheme, punycode host, port and path without a
 * trailing slash. `null` for anything but plain http(s) to one host without user, password, query or fragment.
 */
export function normalizeBaseUrl(text: string): string | null {
	// A longer one is a mistake, and many slashes at its end take time.
	const url = text.length > MAX_BASE_URL ? null : URL.parse(text.trim());
	if (!url || (url.protocol !== 'https:' && url.protocol !== 'http:')) return null;
	if (url.username || url.password || url.search || url.hash || !/^[^*]+$/.test(url.hostname)) return null;
	return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

const OWN_HOST = /localhost|\[::1\]|127(?:[.][0-9]{1,3}){3}/.source;

/** Whether the host can only be this machine: the one place where plain http is allowed. */
export function isLoopback(baseUrl: string): boolean {
	return new RegExp(`^(?:${OWN_HOST})$`).test(URL.parse(baseUrl)?.hostname ?? '');
}

/** A host with its port in such an address. */
export const HOST = String.raw`[^\s/\\?#@*]+`;

/** Addresses with TLS, or to a host that may go without, as patterns for editors. The check parses them. @param rest what may follow the host. */
export const addressPattern = (
	scheme: 'http' | 'ws',
	rest: string,
	plainHost = `(?:${anyCase(OWN_HOST)})(?::[0-9]+)?`,
) => String.raw`^\s*${anyCase(scheme)}(?:[Ss]:[/\\]*${HOST}|:[/\\]*${plainHost})(?:${rest})?\s*$`;
