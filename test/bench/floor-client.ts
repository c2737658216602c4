/**
 * The floor that the agent is measured beside: the least program that has the channel open. It does nothing else, so it
 * never gets a feature, not even reconnecting. Bundled the way the agent is.
 *
 * `floor-client URL TOKEN_FILE`: connects to the `ws:` or `wss:` URL with the Connection token in the file, prints `open`
 * and stays until it is ended; with a channel that fails or closes it ends with 69.
 */
import { readFileSync } from 'node:fs';
import { WebSocket } from 'ws';

const [url = '', tokenFile = ''] = process.argv.slice(2);
const authorization = `Connection ${readFileSync(tokenFile, 'utf8').trim()}`;
const channel = new WebSocket(url, { headers: { authorization }, perMessageDeflate: false, followRedirects: false });

channel.on('open', () => process.stdout.write('open\n'));
channel.on('error', (error) => process.stderr.write(`${error.message}\n`));
channel.on('close', () => process.exit(69));
