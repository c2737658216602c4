import { expect, test } from 'vitest';
import { resolveSettings } from '../../src/settings/resolve.ts';
import { textsOfFiles } from '../../src/status/own-texts.ts';

test('a line of the log may name the settings files and their directories, such as one that is not safe [F1562]', () => {
	const where = '/srv/kiosk7/agent/config.json';
	const texts = textsOfFiles(resolveSettings([{ source: 'file', where, document: {} }]));
	expect(texts).toContain(where);
	expect(texts).toContain('/srv/kiosk7/agent');
});
