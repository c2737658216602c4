/**
 * `npm run suite -- bench:redact`: the cost of taking 64 secrets out of one line of the log, beside the floor, which searches the line
 * for each of them as it is and finds no other form. Asserts nothing: machines are noisy.
 */
import { randomBytes } from 'node:crypto';
import { redact, registryOf } from '../../src/base/redact.ts';

const LINES = 20_000;
const random = (bytes: number) => randomBytes(bytes).toString('base64url');
const secrets = Array.from({ length: 64 }, (_, at) =>
	at < 8 ? `eyJhbGciOiJIUzI1NiJ9.${random(200)}.${random(32)}` : random(24),
);
const line = `${JSON.stringify({ level: 'info', time: new Date().toISOString(), code: 'connection-lost', host: 'id.example.com', delayMs: 1500, msg: 'The connection to id.example.com was lost; attempt 3 of the link is in 1.5 s.' })}\n`;

function microsecondsPerLine(work: (line: string) => unknown): string {
	for (let at = 0; at < LINES / 10; at += 1) work(line);
	const startedAt = performance.now();
	for (let at = 0; at < LINES; at += 1) work(line);
	return (((performance.now() - startedAt) * 1000) / LINES).toFixed(1).padStart(7);
}

const registry = registryOf(secrets);
const floor = (text: string) => secrets.reduce((rest, secret) => rest.replaceAll(secret, '[secret]'), text);
console.log(`one line of ${line.length} characters, 64 secrets, microseconds of CPU`);
console.log(`floor: each secret as it is    ${microsecondsPerLine(floor)}`);
console.log(`by value, whatever encoded in  ${microsecondsPerLine(registry.mask)}`);
console.log(`by value and by form           ${microsecondsPerLine((text) => redact(text, registry))}`);
