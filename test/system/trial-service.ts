/**
 * The embedded service as a process of the host inside the machine's network: it lives on while the machine loses its
 * power. Prints what happens as JSON, one object a line; each line of input is a workflow to make a pairing code for, or a JSON object to notify the devices of.
 */
import { createInterface } from 'node:readline';
import { startService } from '../../src/service/embedded-service.runner.ts';

const [port, apiKey = ''] = process.argv.slice(2);
const service = await startService({
	port: Number(port),
	// Started again, it knows its devices.
	signingKey: Buffer.from(apiKey.padEnd(32, '.')),
	apiKeys: [{ name: 'fleet', permissions: ['ephemeral_device:write'], token: apiKey }],
});
const print = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
for (const event of ['registered', 'device-online', 'device-offline'] as const)
	service.on(event, ({ deviceId, workflowId }) => print({ event, deviceId, workflowId }));
print({ event: 'listening' });
for await (const line of createInterface({ input: process.stdin }))
	if (line.startsWith('{')) service.notify(JSON.parse(line));
	else print({ event: 'code', link: service.createPairingCode(line).url });
await service.close();
