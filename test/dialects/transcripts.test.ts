/** A transcript holds no secret and everything else: a device with the probe's file is online at a service that replays it. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test as plain } from 'vitest';
import { openShaper } from '../../src/base/shapes.edge.ts';
import { createTranscript, readTranscript } from '../../src/base/transcript.ts';
import { formatAuthorization } from '../../src/protocol/authorization.ts';
import { startService } from '../../src/service/embedded-service.runner.ts';
import { startReplay } from '../../src/service/replay.runner.ts';
import { givenPlace } from './device.ts';
import { drawDialect } from './generator.ts';

const FIRST = Number(process.env['DIALECTS_SEED']);

plain.concurrent.for([0, 1, 2, 3, 4].map((index) => FIRST + index))(
	'the transcript of seed %i',
	async (seed, { expect, onTestFinished }) => {
		const dialect = drawDialect(seed);
		const heard: string[] = [];
		const service = await startService({
			dialect,
			transcript: createTranscript((line) => void heard.push(line), Date.now, openShaper),
		});
		onTestFinished(() => service.close());
		const place = await givenPlace(onTestFinished);
		const wire = join(place.directory, 'wire.jsonl');
		const { apiKey } = service.credentials;
		const probed = await place.probe(
			[
				'--url',
				service.url,
				'--yes',
				'--seconds',
				'2',
				'--workflow',
				'check-in',
				'--out',
				place.settingsFile,
				'--transcript',
				wire,
			],
			{ IDV_AUTHORIZATION: formatAuthorization({ scheme: 'ApiKey', credential: apiKey }) },
		);
		expect(probed.status, `${JSON.stringify(dialect)}\n${probed.stdout}${probed.stderr}`).toBe(0);
		await service.close();

		for (const text of [await readFile(wire, 'utf8'), heard.join('\n')]) {
			expect(text).not.toContain(apiKey);
			expect(text).not.toMatch(/eyJ|[\w-]{24,}\.[\w-]{24,}/);
			const lines = readTranscript(text);
			const replay = await startReplay(lines, { host: '127.0.0.1', port: 0 });
			onTestFinished(() => replay.close());
			const settings = { ...JSON.parse(await readFile(place.settingsFile, 'utf8')), baseUrl: replay.url };
			const other = await givenPlace(onTestFinished);
			const device = await other.startDevice({
				...settings,
				deviceId: 'KIOSK-1',
				credential: { apiKeyFile: await other.secretFile('key', 'another-key-0001') },
			});
			await device
				.untilStatus(({ state }) => state === 'online')
				.catch((error: Error) => {
					throw new Error(`${JSON.stringify(dialect)}\n${error.message}\n${text}`);
				});
		}
	},
);
