/** One program of `run.ts` that asks the service for large answers and reads only the beginning of each: `node unread.ts SOCKET COUNT`. One that is cut off is asked for again. */
import { connect } from 'node:net';

const [socketPath = '', count = '0'] = process.argv.slice(2);

function ask(): void {
	const socket = connect(socketPath, () => socket.write('GET /v1/service/api/large HTTP/1.1\r\nHost: agent\r\n\r\n'));
	socket
		.once('data', () => {
			socket.pause();
			process.send?.('begun');
		})
		.on('error', () => {})
		.once('close', () => setTimeout(ask, 100));
}

for (let at = 0; at < Number(count); at += 1) ask();
// Sockets that are not read keep no process alive.
setInterval(() => {}, 60_000);
