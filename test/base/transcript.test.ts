import fc from 'fast-check';
import { expect, test } from 'vitest';
import { openShaper } from '../../src/base/shapes.edge.ts';
import { createTranscript, readTranscript, type SeenLine } from '../../src/base/transcript.ts';

/** The lines as text, and read again. */
function written(...lines: readonly SeenLine[]) {
	const out: string[] = [];
	const transcript = createTranscript(
		(line) => void out.push(line),
		() => 5,
		openShaper,
		['KIOSK-1'],
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

test('a secret has the same shape wherever it stands, with its scheme and its place', () => {
	const { lines } = written(
		answer('{"data":{"token":"Connection short-one"},"deviceId":"KIOSK-1"}'),
		request(
			{ authorization: 'Connection short-one', accept: 'application/json', cookie: 'a=b' },
			{ token: 'short-one' },
		),
	);
	const [said, { headers, query }] = lines as unknown as [{ body: string }, Extract<SeenLine, { kind: 'request' }>];
	const [, shape = ''] = /Connection (\[word-9-[0-9a-f]{6}\])/.exec(headers['authorization'] ?? '') ?? [];
	expect(said.body).toBe(`{"data":{"token":"Connection ${shape}"},"deviceId":"KIOSK-1"}`);
	expect(headers).toMatchObject({ accept: 'application/json', cookie: expect.stringMatching(/^a=\[word-1-/) });
	expect(query).toEqual({ token: shape });
	expect(lines).toHaveLength(2);
});

test('a JWT that says when it ends is told apart from one that does not', () => {
	const ends = `eyJhbGciOi.${Buffer.from('{"exp":1790000000}').toString('base64url')}.c2ln`;
	expect(written(answer(ends)).text).toContain(`"[jwt-${ends.length}-`);
	expect(written(answer('eyJhbGciOi.eyJleHAiOj.c2ln')).text).toContain('"[dotted-26-');
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
	expect(() => readTranscript('{"kind":"open","at":1,"exchange":1,"subprotocol":""}\nhello')).toThrow(
		'Line 2 is not a line of a transcript.',
	);
});
