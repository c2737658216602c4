import { expect, test } from 'vitest';
import { cutOut } from '../../src/base/escapes.ts';

const [KEY, HEADER, TOKEN] = ['ak-Qm4Xv8Rt2Lp6Zk9W', 'ak-Qm4Xv8Rt', 'Zk9Wd3Hf7Bn1Yc5S'];

test.each([
	[`key ${KEY} there`, 'key [secret] there'],
	[`${KEY}d3Hf7Bn1Yc5S`, '[secret]'],
	[`${HEADER} and ${KEY}`, '[secret] and [secret]'],
	[`${KEY}${KEY}`, '[secret][secret]'],
	['none of them', 'none of them'],
])('of secrets that begin or end alike nothing is left of any: %s [F1649]', (text, shown) => {
	for (const secrets of [
		[HEADER, KEY, TOKEN],
		[TOKEN, KEY, HEADER],
	])
		expect(cutOut(text, secrets)).toBe(shown);
});

test('a secret in other capitals is one [F1681]', () => {
	expect(cutOut(`key ${KEY.toUpperCase()} there`, [KEY])).toBe('[secret]');
});
