/** Codes made by other people's programs are read by ours, and ours by theirs. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { readPairingCode } from '../../../src/protocol/pairing-code.ts';
import { readPicture, readSingleCode } from '../../../src/scanning/picture-reader.edge.ts';
import { writeQrPng, writeQrSvg } from '../../../src/service/qr-code.runner.ts';
import { modeOf, operatorOfFile } from '../../operator/operator.ts';
import { credentialsOf, send } from '../../service/fixture.ts';

const operator = operatorOfFile();
const LINK = 'https://id.example.com/mobile?authorization=Token%20tr-0123456789abcdefghijklmnopqr&workflowId=wf-1';
/** Program and the package that has it. ImageMagick joins pictures; it draws no SVG that a reader could use. */
const NEEDED = {
	qrencode: 'qrencode',
	zbarimg: 'zbar-tools',
	convert: 'imagemagick',
	'rsvg-convert': 'librsvg2-bin',
};

beforeAll(() => {
	const missing = Object.entries(NEEDED).filter(([program]) => spawnSync(program, ['--version']).error);
	if (missing.length === 0) return;
	throw new Error(`This suite needs more: apt-get install ${missing.map(([, name]) => name).join(' ')}`);
});

async function directory(): Promise<string> {
	const path = await mkdtemp(join(tmpdir(), 'idv-codes-'));
	onTestFinished(() => rm(path, { recursive: true }));
	return path;
}

function readByZbar(path: string): string {
	return execFileSync('zbarimg', ['-q', '--raw', '--nodbus', path], { encoding: 'utf8' }).trimEnd();
}

describe('codes by qrencode are read', () => {
	test.each([
		['as a link', LINK, []],
		['with a raw space after the scheme', LINK.replace('%20', ' '), []],
		['as a bare token', 'tr-0123456789abcdefghijklmnopqr', []],
		['as JSON', JSON.stringify({ baseUrl: 'https://id.example.com', token: 'tr-0123456789abcdefghij' }), []],
		['with the most redundancy', LINK, ['-l', 'H']],
		['two pixels a module and no border but the least', LINK, ['-s', '2', '-m', '1']],
		['as large as codes get', `${LINK}&x=${'a'.repeat(2000)}`, ['-l', 'L']],
		['in capitals (alphanumeric mode)', 'HTTPS://ID.EXAMPLE.COM/MOBILE?AUTHORIZATION=TOKEN', []],
	])('%s', async (_name, text, options) => {
		const path = join(await directory(), 'code.png');
		execFileSync('qrencode', ['-o', path, ...options, text]);
		expect(await readSingleCode(path)).toBe(text);
	});

	test('two different ones in one picture: both are found, and neither is taken', async () => {
		const folder = await directory();
		const paths = [join(folder, 'a.png'), join(folder, 'b.png')];
		for (const [index, path] of paths.entries()) execFileSync('qrencode', ['-o', path, `${LINK}-${index}`]);
		const both = join(folder, 'both.jpg');
		execFileSync('convert', [...paths, '-background', 'white', '+append', both]);
		expect((await readPicture(both)).sort()).toEqual([`${LINK}-0`, `${LINK}-1`]);
		await expect(readSingleCode(both)).rejects.toThrow('The picture shows 2 different pairing codes.');
	});
});

describe('our codes are read by zbarimg', () => {
	test('PNG and SVG', async () => {
		const folder = await directory();
		const [png, svg, drawn] = ['code.png', 'code.svg', 'drawn.png'].map((name) => join(folder, name)) as [
			string,
			string,
			string,
		];
		await writeFile(png, writeQrPng(LINK));
		expect(readByZbar(png)).toBe(LINK);
		await writeFile(svg, writeQrSvg(LINK));
		execFileSync('rsvg-convert', [svg, '-o', drawn]);
		expect(readByZbar(drawn)).toBe(LINK);
	});

	test('as the service sends them', async () => {
		const path = join(await directory(), 'code.png');
		const answer = await send(operator.service.url, {
			path: '/api/deeplink/qrcode?workflowId=checkin',
			authorization: credentialsOf(operator.service).Basic,
			headers: { accept: 'image/png' },
		});
		await writeFile(path, answer.bytes);
		expect(readPairingCode(readByZbar(path))).toMatchObject({ kind: 'pairingCode', workflowId: 'checkin' });
	});

	test('as an operator saves them', async () => {
		const out = join(operator.directory, 'code.png');
		const { status } = await operator.idv(['qrcode', '--workflow', 'checkin', '--out', out]);
		expect({ status, mode: await modeOf(out) }).toEqual({ status: 0, mode: '600' });
		expect(readPairingCode(readByZbar(out))).toMatchObject({ baseUrl: operator.service.url, workflowId: 'checkin' });
	});
});
