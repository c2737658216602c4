/**
 * The embedded service as a process of the host inside the machine's network: it lives on while the machine loses its
 * power. Prints what happens as JSON, one object a line; each line of input is a workflow to make a pairing code for.
 */
import { createInterface } from 'node:readline';
import { startService } from '../../src/service/embedded-service.ts';

const [port, apiKey = ''] = process.argv.slice(2);
const service = await startService({
	port: Number(port),
	apiKeys: [{ name: 'fleet', permissions: ['ephemeral_device:write'], token: apiKey }],
});
const print = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);
for (const event of ['registered', 'device-online', 'device-offline'] as const)
	service.on(event, ({ deviceId, workflowId }) => print({ event, deviceId, workflowId }));
print({ event: 'listening' });
for await (const workflowId of createInterface({ input: process.stdin }))
	print({ event: 'code', link: service.createPairingCode(workflowId).url });
await service.close();
