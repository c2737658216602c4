import { expect, test } from 'vitest';
import { createRateLimit } from '../../src/service/rate-limit.ts';

test('Retry-After is the next whole second at which a registration is taken: never a moment too early', () => {
	let nowMs = 1_000_000_000;
	const limit = { perMinute: 1, window: 'sliding', retryAfter: true, countsRefused: false } as const;
	const count = createRateLimit(limit as never, () => nowMs);
	count('192.0.2.1');
	nowMs += 500;
	try {
		count('192.0.2.1');
		expect.unreachable();
	} catch (error) {
		expect(JSON.stringify(error)).toContain('"retry-after":"60"');
	}
	nowMs += 59_499;
	expect(() => count('192.0.2.1')).toThrow();
	nowMs += 1;
	count('192.0.2.1');
});
