/** The client of @hey-api/openapi-ts, over the socket whose path is the first argument. */
import { Agent, fetch as fetchBy } from 'undici';
import { client } from './made/hey-api/client.gen.js';
import { acknowledgeEvents, getEvents, getStatus, holdLease, streamEvents } from './made/hey-api/index.js';

const dispatcher = new Agent({ connect: { socketPath: process.argv[2] ?? '' } });
const overSocket = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
	const { url, method, headers, body, signal } = new Request(input, init);
	const answer = await fetchBy(url, {
		method,
		headers: [...headers],
		body: body && (await new Response(body).text()),
		signal,
		dispatcher,
	});
	return answer as unknown as Response;
};
client.setConfig({ baseUrl: 'http://agent', fetch: overSocket as typeof fetch });

const { data: status, error } = await getStatus();
if (!status) throw new Error(error?.detail);
const wanted: string | null = status.workflow.wanted;
// Before anything is acknowledged: what all have acknowledged is gone.
let streamed = false;
const leave = new AbortController();
const { stream } = await streamEvents({ signal: leave.signal });
for await (const event of stream) {
	streamed = typeof event === 'object' && 'id' in event;
	leave.abort();
	break;
}
const { data: page } = await getEvents({ query: { consumer: 'generated' } });
const first = page?.events.find(({ kind }) => kind === 'hello');
const { data: acknowledged } = await acknowledgeEvents({ body: { consumer: 'generated', id: first?.id ?? '' } });
const { data: leases } = await holdLease({ body: { name: 'generated', seconds: 30 } });
const { error: refusal } = await holdLease({ body: { name: 'not a name' } });
console.log(
	JSON.stringify({
		wanted,
		hello: first?.data,
		position: acknowledged?.position === first?.id,
		leases: leases?.leases.map(({ name }) => name),
		refusal: refusal?.code,
		stream: streamed,
	}),
);
await dispatcher.destroy();
