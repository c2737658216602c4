/**
 * How a Connection is shown to the channel, by the settings: the URL, the header or the query, and the subprotocol. One place for
 * the agent and its doctor. Pure; opens nothing. Source: assumed (channel-path), assumed (channel-handshake), assumed (query-name), assumed (subprotocol).
 */
import { AUTHORIZATION_PARAMETER, formatAuthorization, parseAuthorization } from '../protocol/authorization.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import { channelUrl } from '../protocol/endpoints.ts';
import { fillPath } from '../protocol/templates.ts';
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
	device: Pick<DeviceConnectionRequest, 'deviceId' | 'workflowId'>,
	{ channelPath, channelAuth, queryName, subprotocol, maxMessageBytes }: Settings['service'],
): ChannelAddress {
	const authorization = formatAuthorization({ scheme: 'Connection', credential: token });
	const query = new URLSearchParams({ [queryName]: channelAuth === 'queryToken' ? token : authorization });
	return {
		url: channelUrl(baseUrl, fillPath(channelPath, device), channelAuth === 'header' ? undefined : query),
		authorization: channelAuth === 'header' ? authorization : null,
		queryName,
		...(subprotocol !== null && { subprotocol }),
		maxMessageBytes,
	};
}

/** The credentials in it, so that no message repeats one. */
export function secretsOf({
	url,
	authorization,
	queryName = AUTHORIZATION_PARAMETER,
	secretValues = [],
}: Pick<ChannelAddress, 'url' | 'authorization'> & {
	readonly queryName?: string | undefined;
	readonly secretValues?: readonly string[] | undefined;
}): string[] {
	const sent = [authorization, url.searchParams.get(queryName)].flatMap((text) => {
		const parsed = parseAuthorization(text);
		if (!parsed) return text ? [text] : [];
		return parsed.scheme === 'Basic' ? [parsed.password] : [parsed.credential];
	});
	return [...sent, ...secretValues];
}
