import { expect, test } from 'vitest';
import { shownAddress } from '../../src/settings/shown.runner.ts';

test.each([
	['http://proxy.example:3128', 'http://proxy.example:3128'],
	['http://proxy.example:3128/', 'http://proxy.example:3128'],
	['proxy.example:3128', 'proxy.example:3128'],
	['http://[2001:db8::1]:8080', 'http://[2001:db8::1]:8080'],
	['http://kiosk:geheim@proxy.example:3128', 'http://[secret]@proxy.example:3128'],
	['https://geheim@plans.example/a', 'https://[secret]@plans.example/[secret]'],
	['https://plans.example/geheim/plan.json', 'https://plans.example/[secret]'],
	['https://plans.example?sig=geheim', 'https://plans.example/[secret]'],
	['http://kiosk:ge/heim@proxy.example', '[secret]'],
	['ftp://proxy.example', '[secret]'],
	['geheim wort', '[secret]'],
])('the address %s is shown as %s: where it leads, and no password [F1618]', (text, shown) => {
	expect(shownAddress(text)).toBe(shown);
});
