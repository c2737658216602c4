import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createTranscript, readTranscript, type SeenLine } from '../../src/base/transcript.ts';

/** The lines as text, and read again. */
function written(...lines: readonly SeenLine[]) {
	const out: string[] = [];
	const transcript = createTranscript(
		(line) => void out.push(line),
		() => 5,
	);
	for (const line of lines) transcript.note(line);
	return { text: out.join('\n'), lines: readTranscript(out.join('\n')) };
}

const request = (headers: Record<string, string>, query: Record<string, string> = {}, body = ''): SeenLine => ({
	kind: 'request',
	exchange: 1,
	method: 'POST',
	path: '/api/device/connection',
	query,
	headers,
	body,
});
const answer = (body: string): SeenLine => ({ kind: 'answer', exchange: 1, status: 201, headers: {}, body });

test('a secret is the same placeholder wherever it stands, with its scheme and its place', () => {
	const { lines } = written(
		answer('{"data":{"token":"Connection short-one"},"deviceId":"KIOSK-1"}'),
		request(
			{ authorization: 'Connection short-one', accept: 'application/json', cookie: 'a=b' },
			{ token: 'short-one' },
		),
	);
	expect(lines).toMatchObject([
		{ at: 5, body: '{"data":{"token":"Connection [token-1]"},"deviceId":"KIOSK-1"}' },
		{
			headers: { authorization: 'Connection [token-1]', accept: 'application/json', cookie: '[hidden]' },
			query: { token: '[token-1]' },
		},
	]);
});

test('a JWT is told apart, and plain text is a secret as a whole', () => {
	expect(written(answer('eyJhbGciOi.eyJleHAiOj.c2ln')).lines).toMatchObject([{ body: '[jwt-1]' }]);
});

test('no credential is in it, wherever a service puts one', () => {
	const secret = fc.stringMatching(/^[A-Za-z][\w-]{20,60}[0-9]$/);
	const name = fc.constantFrom('token', 'x', 'a/b', 'value');
	fc.assert(
		fc.property(secret, name, fc.constantFrom('', 'Bearer ', 'Connection '), (token, key, label) => {
			const { text } = written(
				answer(JSON.stringify({ [key]: [`${label}${token}`] })),
				answer(`${label}${token}`),
				request({ authorization: `ApiKey ${token}`, 'x-anything': token }, { [key]: `${label}${token}` }),
				{ kind: 'frame', exchange: 1, direction: 'toDevice', frame: 'text', body: `see ${token}` },
				{ kind: 'close', exchange: 1, direction: 'toDevice', code: 4401, reason: `bad ${token}` },
			);
			expect(text).not.toContain(token);
		}),
	);
});

test('a file that is no transcript is refused by its line', () => {
	expect(() => readTranscript('{"kind":"open","exchange":1}\nhello')).toThrow('Line 2 is not a line of a transcript.');
});
