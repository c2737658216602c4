/** A client of openapi-typescript and openapi-fetch, over the socket whose path is the first argument. */
import createClient from 'openapi-fetch';
import { Agent, fetch as fetchBy } from 'undici';
import type { paths } from './made/openapi-typescript.js';

const dispatcher = new Agent({ connect: { socketPath: process.argv[2] ?? '' } });
const fetch = async ({ url, method, headers, body, signal }: Request): Promise<Response> => {
	const answer = await fetchBy(url, {
		method,
		headers: [...headers],
		body: body && (await new Response(body).text()),
		signal,
		dispatcher,
	});
	return answer as unknown as Response;
};
const client = createClient<paths>({ baseUrl: 'http://agent', fetch });

const { data: status, error } = await client.GET('/v1/status');
if (!status) throw new Error(error.detail);
const wanted: string | null = status.workflow.wanted;
// Before anything is acknowledged: what all have acknowledged is gone.
const stream = await client.GET('/v1/events/stream', { parseAs: 'stream' });
const reader = stream.data?.getReader();
let text = '';
while (!text.includes('data: {')) text += Buffer.from((await reader?.read())?.value ?? []).toString();
await reader?.cancel();
const { data: page } = await client.GET('/v1/events', { params: { query: { consumer: 'generated' } } });
const first = page?.events.find(({ kind }) => kind === 'hello');
const { data: acknowledged } = await client.POST('/v1/events/ack', {
	body: { consumer: 'generated', id: first?.id ?? '' },
});
const { data: leases } = await client.POST('/v1/leases', { body: { name: 'generated', seconds: 30 } });
const { error: refusal } = await client.POST('/v1/leases', { body: { name: 'not a name' } });
console.log(
	JSON.stringify({
		wanted,
		hello: first?.data,
		position: acknowledged?.position === first?.id,
		leases: leases?.leases.map(({ name }) => name),
		refusal: refusal?.code,
		stream: text.includes('data: {'),
	}),
);
await dispatcher.destroy();
