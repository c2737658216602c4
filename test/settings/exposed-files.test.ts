import { chmod, chown, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { toFailure } from '../../src/base/errors.ts';
import { findExposure } from '../../src/base/file-trust.edge.ts';
import { findExposedFiles } from '../../src/settings/exposed-files.runner.ts';
import { readSecretFile } from '../../src/settings/files.edge.ts';
import { resolveWith } from '../../src/settings/load.runner.ts';

async function givenFile(mode: number, directoryMode = 0o755): Promise<string> {
	const directory = await mkdtemp(join(tmpdir(), 'trust-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const file = join(directory, 'below', 'file');
	await mkdir(dirname(file));
	await writeFile(file, 'x');
	await chmod(file, mode);
	await chmod(dirname(file), directoryMode);
	return file;
}

const isTrusted = async (file: string, secret: boolean) => (await findExposure(file, { secret })) === null;

describe('a file may be trusted', () => {
	test.each([0o400, 0o440, 0o600, 0o640, 0o700])('with a secret in it at mode %o', async (mode) => {
		expect(await isTrusted(await givenFile(mode), true)).toBe(true);
	});

	test.each([0o644, 0o604, 0o660, 0o620, 0o602, 0o666, 0o777, 0o646])(
		'but not with a secret in it at mode %o',
		async (mode) => {
			expect(await isTrusted(await givenFile(mode), true)).toBe(false);
		},
	);

	test.each([0o444, 0o644, 0o600, 0o755])('without a secret at mode %o', async (mode) => {
		expect(await isTrusted(await givenFile(mode), false)).toBe(true);
	});

	test.each([0o664, 0o646, 0o666, 0o622, 0o777])('but not even without a secret at mode %o', async (mode) => {
		expect(await isTrusted(await givenFile(mode), false)).toBe(false);
	});

	test.each([
		[0o777, false],
		[0o775, false],
		[0o1777, true],
		[0o755, true],
	])('by its directory of mode %o: %j', async (mode, trusted) => {
		expect(await isTrusted(await givenFile(0o644, mode), false)).toBe(trusted);
	});

	test.each([
		['in', 0o755, 0o775],
		['into', 0o775, 0o755],
	])('not by a link %s a directory where its group could put another one', async (_where, fileMode, linkMode) => {
		const link = join(dirname(await givenFile(0o644, linkMode)), 'link');
		await symlink(await givenFile(0o644, fileMode), link);
		expect(await isTrusted(link, false)).toBe(false);
	});

	test('and no remedy takes the rights of a device or the way into a directory [F1303]', async () => {
		const directory = dirname(await givenFile(0o644, 0o777));
		expect((await findExposure(directory, { secret: false }))?.remedy).toContain(`chmod 0755 ${directory}`);
		const link = join(dirname(await givenFile(0o644)), 'link');
		await symlink('/dev/null', link);
		expect(await findExposure(link, { secret: false })).toEqual({
			reason: 'it is not a regular file',
			remedy: `Put a regular file in the place of ${link}.`,
		});
	});

	test('when it is not there: there is nothing to trust', async () => {
		expect(await isTrusted('/nowhere/at/all', true)).toBe(true);
	});

	test.skipIf(process.getuid?.() !== 0)("when it belongs to root or the agent's user only (needs root)", async () => {
		const file = await givenFile(0o600);
		await chown(file, 4242, 4242);
		expect(await isTrusted(file, true)).toBe(false);
		expect(await findExposure(file, { secret: true, owners: [4242] })).toBeNull();
		await chown(dirname(file), 4243, 4243);
		expect(await findExposure(file, { secret: true, owners: [4242] })).toMatchObject({
			reason: expect.stringContaining('replace it in'),
		});
	});
});

test('each file that decides what the device does is looked at, with its own rule', async () => {
	const [config, key, pin, ca, applications] = await Promise.all(Array.from({ length: 5 }, () => givenFile(0o644)));
	const loaded = resolveWith(
		[
			{
				where: config ?? '',
				document: {
					baseUrl: 'https://id.example.com',
					credential: { apiKeyFile: key },
					network: { caFile: ca },
					page: { pinFile: pin },
					local: { http: { port: 0, applicationsFile: applications } },
				},
			},
		],
		{ env: {}, sets: [] },
	);
	const found = async () => (await findExposedFiles(loaded)).map(({ code, params }) => `${code} ${params?.['path']}`);
	expect(await found()).toEqual([key, pin, applications].map((file) => `file-exposed ${file}`));
	for (const file of [config, ca]) await chmod(file ?? '', 0o666);
	expect((await found()).sort()).toEqual(
		[config, key, pin, ca, applications].map((file) => `file-exposed ${file}`).sort(),
	);
	await chmod(dirname(config ?? ''), 0o777);
	expect(await found()).toContain(`file-exposed ${dirname(config ?? '')}`);
});

test('a directory in the place of a secret or a certificate is named, and its mode is left alone [F1550]', async () => {
	const open = dirname(await givenFile(0o600, 0o777));
	for (const place of ['/', open]) {
		const read = await readSecretFile(place).then(expect.unreachable, toFailure);
		expect(read).toMatchObject({
			code: 'credential-unreadable',
			message: `The credential file ${place} cannot be read: it is not a regular file, but a directory.`,
			remedy: 'Put a text file in its place, or name one.',
		});
		const document = { page: { pinFile: place }, network: { caFile: place } };
		expect(await findExposedFiles(resolveWith([{ where: '/none', document }], { env: {}, sets: [] }))).toEqual([]);
	}
});
