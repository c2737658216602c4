/** One program of `run.ts` that asks for large answers, of the service unless told otherwise, and reads only the beginning of each: `node unread.ts SOCKETS COUNT [PATH]`, the sockets with commas between. One that is cut off is asked for again. */
import { connect } from 'node:net';

const [socketPaths = '', count = '0', path = '/v1/service/api/large'] = process.argv.slice(2);

function ask(socketPath: string): void {
	const socket = connect(socketPath, () => socket.write(`GET ${path} HTTP/1.1\r\nHost: agent\r\n\r\n`));
	let againMs = 100;
	socket
		.once('data', (head) => {
			// As Retry-After says.
			if (head.includes(' 503 ')) againMs = 1000;
			else {
				socket.pause();
				process.send?.('begun');
			}
		})
		.on('error', () => {})
		.once('close', () => setTimeout(ask, againMs, socketPath));
}

for (let at = 0; at < Number(count); at += 1) for (const socketPath of socketPaths.split(',')) ask(socketPath);
// Sockets that are not read keep no process alive.
setInterval(() => {}, 60_000);
