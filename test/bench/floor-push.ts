/**
 * The floor that telemetry is measured beside: a process that sends as many bytes as a push, as often, over one https connection.
 * `floor-push URL CA_FILE BYTES SECONDS`; with 0 bytes it sends nothing and loads nothing. Bundled the way the agent is.
 */
const [url = '', caFile = '', bytes = '0', seconds = '10'] = process.argv.slice(2);
const body = Buffer.alloc(Number(bytes), 7);

setInterval(async () => {
	if (body.length === 0) return;
	const [{ Agent, request }, { readFileSync }] = await Promise.all([import('node:https'), import('node:fs')]);
	agent ??= new Agent({ ca: readFileSync(caFile), keepAlive: true });
	request(url, { method: 'POST', agent, headers: { 'content-length': body.length } }, (answer) => answer.resume())
		.on('error', () => {})
		.end(body);
}, Number(seconds) * 1000);
let agent: import('node:https').Agent | undefined;
