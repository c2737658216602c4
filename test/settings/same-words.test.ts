import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { SettingsReport, Status } from '../../src/protocol/local-api.ts';
import { givenHome as givenShell } from '../cli/command.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';
import { givenService } from '../service/fixture.ts';

const DAY_SECONDS = 86_400;

test('what config check says of limits, hooks, files and ends, the running agent says as well [F984]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const claims = { exp: Math.floor(Date.now() / 1000) + 3 * DAY_SECONDS };
	const key = `h.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.s`;
	const headersFile = join(home.directory, 'no-headers');
	const settings = {
		baseUrl: service.url,
		workflowId: 'check-in',
		credential: { apiKeyFile: await home.secretFile('key', key) },
		events: { maxBytes: 1_000_000 },
		service: { maxMessageBytes: 2_000_000 },
		hooks: { onOnline: ['bin/on-online'] },
		telemetry: { otlpUrl: 'http://127.0.0.1:1', headersFile },
	};
	const device = await givenAgent({ home, settings });
	const shell = await givenShell();
	const { stdout } = await shell.agent(['config', 'check', '--json', '--config', home.paths.configFile]);
	const { problems, notices } = JSON.parse(stdout) as Record<'problems' | 'notices', { message: string }[]>;
	const checked = [...problems, ...notices].map(({ message }) => message);
	for (const words of [
		'service.maxMessageBytes is more than events.maxBytes',
		'hooks.onOnline: bin/on-online is not an absolute path',
		headersFile,
		'The API key in ',
	]) {
		expect(checked.filter((message) => message.includes(words))).toHaveLength(1);
		await device.untilStatus(({ warnings }) => warnings.some(({ message }) => message.includes(words)));
	}
});

test('limits of a file that has vanished are told as contradicting each other, and never as refused [F986]', async () => {
	const home = await givenHome();
	const conf = join(home.paths.confDirectory, '50-push.json');
	await writeFile(conf, JSON.stringify({ events: { maxBytes: 1_000_000 }, service: { maxMessageBytes: 2_000_000 } }));
	const device = await givenAgent({ home });
	const tells =
		(words: string) =>
		({ warnings }: Status) =>
			warnings.some(({ message }) => message.includes(words));
	await rm(conf);
	const status = await device.untilStatus(tells('is not there any more'));
	expect(tells('service.maxMessageBytes is more than events.maxBytes')(status)).toBe(true);
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	for (const path of ['events.maxBytes', 'service.maxMessageBytes'])
		expect(settings.find((one) => one.path === path)).not.toHaveProperty('refused');
});
