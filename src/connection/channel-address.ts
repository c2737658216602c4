/**
 * How a Connection is shown to the channel, by the settings: the URL, the header or the query, and the subprotocol. One place for
 * the agent and its doctor. Pure; opens nothing. Source: assumed (channel-path), assumed (channel-handshake), assumed (query-name), assumed (subprotocol).
 */
import { formatAuthorization } from '../protocol/authorization.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import type { Settings } from '../settings/table.ts';

export interface ChannelAddress {
	/** With the credential in it, where the settings say so: a secret. */
	readonly url: URL;
	/** Value of the `Authorization` header; `null` when the query carries it. */
	readonly authorization: string | null;
	readonly queryName: string;
	readonly subprotocol?: string;
	readonly maxMessageBytes: number;
}

export function channelAddress(
	baseUrl: string,
	token: string,
	{ channelPath, channelAuth, queryName, subprotocol, maxMessageBytes }: Settings['service'],
): ChannelAddress {
	const authorization = formatAuthorization({ scheme: 'Connection', credential: token });
	const query = new URLSearchParams({ [queryName]: channelAuth === 'queryToken' ? token : authorization });
	return {
		url: channelUrl(baseUrl, channelPath, channelAuth === 'header' ? undefined : query),
		authorization: channelAuth === 'header' ? authorization : null,
		queryName,
		...(subprotocol !== null && { subprotocol }),
		maxMessageBytes,
	};
}
