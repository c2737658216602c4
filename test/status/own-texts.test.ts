import { expect, test } from 'vitest';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { textsOfFiles } from '../../src/status/own-texts.ts';

test('a line of the log may name the settings files and their directories, such as one that is not safe [F1562]', () => {
	const where = '/srv/kiosk7/agent/config.json';
	const texts = textsOfFiles(resolveSettings([{ source: 'file', where, document: {} }]));
	expect(texts).toContain(where);
	expect(texts).toContain('/srv/kiosk7/agent');
});

test('a subprotocol that may be a credential is no text of the device [F1617]', () => {
	const document = (subprotocol: string) => ({ baseUrl: 'https://id.example', service: { subprotocol } });
	const texts = (subprotocol: string) =>
		textsOfFiles(resolveSettings([{ source: 'file', where: '/etc/c.json', document: document(subprotocol) }]));
	expect(texts('idv.device.v1')).toContain('idv.device.v1');
	for (const key of ['ak-0123456789abcdef0123', 'bearer.ak-0123456789abcdef0123'])
		expect(texts(key).join(' ')).not.toContain('0123456789abcdef');
});
