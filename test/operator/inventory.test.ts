import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readInventory } from '../../src/operator/inventory.runner.ts';

const INVENTORY =
	'deviceId,serial,labels,workflowId\nK-1,S-1,lobby,checkin\nK-2,,,checkin\nK-3,S-3,lobby;berlin,checkout\n';

async function read(text: string | Buffer, warn?: (said: string) => void) {
	const directory = await mkdtemp(join(tmpdir(), 'inventory-'));
	onTestFinished(() => rm(directory, { recursive: true, force: true }));
	const file = join(directory, 'devices');
	await writeFile(file, text);
	return readInventory(file, warn);
}

test.each<[string, string, RegExp]>([
	['no deviceId column', 'devcieId,serial\nK-1,S\n', /line 1: there is no column deviceId; is devcieId meant/],
	['a field too many', `${INVENTORY}K-4,a,b,c,d\n`, /line 5: there are more fields/],
	['a quote that does not end', `${INVENTORY}"K-4,a,b,c\n`, /: line 5: a field in quotes does not end\.$/],
	['an empty deviceId', `${INVENTORY},S-4,,\n`, /line 5: deviceId must not be empty/],
	['a device that is there twice', `${INVENTORY}K-2,,,\n`, /line 5: deviceId is there already, on line 3/],
	['a bad label', `${INVENTORY}K-4,,lo*by,\n`, /line 5: labels\/0 must be letters/],
	['a bad MAC address', 'deviceId,macAddress\nK-1,00:11\n', /line 2: macAddress must be six pairs/],
	['half a JSON line', '{"deviceId":"K-1"}\n{"deviceId":\n', /line 2: this is not one whole JSON object/],
	['a JSON line without an id', '{"deviceId":"K-1"}\n{"id":"K-2"}\n', /line 2: deviceId is missing/],
	['nothing at all', '\n', /line 1: the file is empty/],
	[
		'a column that is nearly one of ours',
		'deviceId,label\nK-1,a\n',
		/line 1: "label" is not known here; did you mean labels\?/,
	],
	[
		'another name for one of ours',
		'deviceId;workflow\nK-1;a\n',
		/line 1: "workflow" is not known here; did you mean workflowId\?/,
	],
	[
		'a mistyped field of JSON',
		'{"deviceId":"K-1","lables":["a"]}\n',
		/line 1: "lables" is not known here; did you mean labels\?/,
	],
	['a column that is there twice', 'deviceId,Device_ID\nK-1,K-2\n', /line 1: there are two columns deviceId/],
	[
		'a wrong head below other lines',
		'sep=;\n\ndevcieId;serial\nK-1;S\n',
		/: line 3: there is no column deviceId; is devcieId meant\?$/,
	],
	['a quote in the first row of all', 'sep=;\n"deviceId\nK-1\n', /: line 2: a field in quotes does not end\.$/],
	['a list', '{"deviceId":"K-1"}\n[]\n', /line 2: each line must be one JSON object/],
	[
		'a number in a list',
		'[{"deviceId":"K-1"},\n5]',
		/item 2: this is neither JSON with an object for each device[^\n]*$/,
	],
	['a bad item of a list', '[\n{"deviceId":"K-1"},\n{"deviceId":"K-2","labels":5}]', /: item 2: labels must be/],
	['a quote that does not end', 'deviceId\nK-1\n"K-2\nK-3\nK-4\n', /: line 3: a field in quotes does not end\.$/],
	['a quote in the first row', 'deviceId\n"K-1\nK-2\n', /: line 2: a field in quotes does not end\.$/],
	[
		'a cell of a workflow without a value',
		'deviceId,workflowId\nK-1,#N/A\n',
		/line 2: workflowId #N\/A: a spreadsheet shows this/,
	],
	['more labels than a device has', `deviceId,labels\nK-1,${'a '.repeat(33)}\n`, /line 2: labels are more than 32/],
])('refuses %s, naming the line [F1940]', async (_, text, words) => {
	expect(await read(INVENTORY)).toHaveLength(3);
	await expect(read(text)).rejects.toMatchObject({ code: 'inventory-invalid', message: expect.stringMatching(words) });
});

test.each([
	'\ufeffdeviceId;labels;workflowId\r\nK-1;lobby,berlin;checkin\r\n',
	'deviceId\tlabels\tworkflowId\nK-1\tlobby|berlin\tcheckin\n',
])('reads what a spreadsheet of another country writes: %j', async (text) => {
	expect(await read(text)).toMatchObject([{ deviceId: 'K-1', labels: ['lobby', 'berlin'], workflowId: 'checkin' }]);
});

test('reads JSON lines behind a byte order mark', async () => {
	expect(await read('\ufeff{"deviceId":"K-1","site":"north"}\n')).toMatchObject([{ deviceId: 'K-1' }]);
});

test('names twenty bad lines at most', async () => {
	const lines = Array.from({ length: 30 }, (_, index) => `K-${index},,lo*by,\n`).join('');
	const error = await read(`deviceId,serial,labels,workflowId\n${lines}`).catch((reason: Error) => reason);
	expect((error as Error).message.split('\n')).toHaveLength(20);
});

test('reads a head in other capitals, quotes, a byte order mark and empty lines', async () => {
	expect(await read('\ufeff"Device ID",MAC_Address,"x"\n"K-1",00-1B-21-0A-0B-0C,"a, b"\n\nK-2,,c\n')).toEqual([
		{
			deviceId: 'K-1',
			serial: null,
			macAddress: '00:1b:21:0a:0b:0c',
			deviceType: null,
			labels: [],
			workflowId: null,
			version: null,
		},
		{ deviceId: 'K-2', serial: null, macAddress: null, deviceType: null, labels: [], workflowId: null, version: null },
	]);
});

test.each<[string, string, number]>([
	['rows of nothing at the end', 'deviceId;labels;workflowId\r\nK-1;a;w\r\n;;\r\n;;\r\n', 1],
	['empty cells behind the last column', 'deviceId,labels,,\nK-1,a,,,,\nK-2\n', 2],
	[
		'a title and empty rows above the head',
		'Kiosks of the north, 2026\r\n\r\n;;\r\nSite;Device ID;Labels\r\nX;K-1;a\r\n',
		1,
	],
	['the same row twice', 'deviceId,labels\nK-1,a\nK-1,a\n', 1],
	["Excel's hint of the separator", 'sep=;\r\nDEVICEID;Labels\r\n"K-1";"a,b"\r\n', 1],
	['spaces that do not break', 'deviceId,labels\nK-1\u00a0,\u00a0a\n', 1],
	['line ends of old machines', 'deviceId,labels\rK-1,a\rK-2,b\r', 2],
])('a spreadsheet writes %s, and each device counts once [F730]', async (_, text, count) => {
	expect((await read(text)).map(({ deviceId }) => deviceId)).toEqual(['K-1', 'K-2'].slice(0, count));
});

test('a file in UTF-16, as spreadsheets call Unicode text', async () => {
	expect(await read(Buffer.from('\ufeffdeviceId\tlabels\r\nK-1\tä\r\n'.replace('ä', 'a'), 'utf16le'))).toHaveLength(1);
});

test.each([true, false])(
	'a file in UTF-16 with its bytes the other way round, with a mark (%s) or without',
	async (isMarked) => {
		const text = `${isMarked ? '\ufeff' : ''}deviceId\tlabels\r\nK-1\ta\r\n`;
		expect(await read(Buffer.from(text, 'utf16le').swap16())).toMatchObject([{ deviceId: 'K-1', labels: ['a'] }]);
		expect(await read(Buffer.from(text, 'utf16le'))).toMatchObject([{ deviceId: 'K-1', labels: ['a'] }]);
	},
);

test('a line that a spreadsheet has left behind is told with its number, and other ids of these words are not [F1266]', async () => {
	const said: string[] = [];
	const rows = ['K-1', 'Total: 1', 'deviceId', '=N1', 'Summe', 'TOTAL-1', 'count-er', 'N=1'];
	await read('sep=;\r\ndeviceId;labels\r\nTotal: 1;a\r\n', (one) => said.push(one));
	expect(said.splice(0).join()).toContain('line 3: Total: 1 counts as a device');
	const devices = await read(`deviceId\n${rows.join('\n')}\n`, (one) => said.push(one));
	expect(devices).toHaveLength(rows.length);
	expect(said.map((one) => /line \d+: .* counts as a device/.exec(one)?.[0])).toEqual([
		'line 3: Total: 1 counts as a device',
		'line 4: deviceId counts as a device',
		'line 5: =N1 counts as a device',
		'line 6: Summe counts as a device',
	]);
});

test('a line with another separator than the head is told, and its text counts as a device [F1433]', async () => {
	const said: string[] = [];
	const text = 'deviceId,serial\nK-1,S1\nK-2;S2\n"K-4|x",S4\n';
	const devices = await read(text, (one) => said.push(one));
	expect(devices.map(({ deviceId }) => deviceId)).toEqual(['K-1', 'K-2;S2', 'K-4|x']);
	expect(said.map((one) => /line \d+(?=: .*another separator\?$)/.exec(one)?.[0])).toEqual(['line 3', 'line 4']);
});

test('ids that differ in capitals only are two devices, and are told [F726]', async () => {
	const said: string[] = [];
	expect(await read('deviceId\nK-1\nK-2\nk-1\n', (words) => said.push(words))).toHaveLength(3);
	expect(said).toEqual([expect.stringMatching(/K-1 and k-1 differ in capitals only/)]);
	await read('deviceId\nK-1\nK-1\n', (words) => said.push(words));
	expect(said).toHaveLength(1);
});

test.each([
	["'007", '007', 'an apostrophe'],
	['Caf\u00e9-1', 'Cafe\u0301-1', 'an accent as written'],
])('ids that a person takes for one are two devices, and are told (%s) [F1494]', async (one, other, how) => {
	const said: string[] = [];
	expect(await read(`deviceId\n${one}\nK-2\n${other}\n`, (words) => said.push(words))).toHaveLength(3);
	expect(said).toEqual([expect.stringContaining(`${one} and ${other} differ in ${how} only, and are two devices`)]);
});

test('a serial number or MAC address of several rows is told with its lines, in whatever spelling [F1425]', async () => {
	const said: string[] = [];
	const rows = [
		'K-1,S1,',
		'K-2,s1 ,',
		'K-3,S1,',
		'K-4,S3,00:1B:21:0A:0B:0C',
		'K-5,,00-1b-21-0a-0b-0c',
		'K-6,,',
		'K-1,S1,',
	];
	const devices = await read(`deviceId,serial,macAddress\n${rows.join('\n')}\n`, (words) => said.push(words));
	expect(devices).toHaveLength(6);
	expect(said).toEqual([
		expect.stringMatching(/: line 2 and line 3: K-1 and K-2, and 1 more have the serial number S1: /),
		expect.stringMatching(/: line 5 and line 6: K-4 and K-5 have the MAC address 00:1b:21:0a:0b:0c: /),
	]);
});

test('an id that a spreadsheet has made a number of is named', async () => {
	await expect(read('deviceId\n1.23E+11\n')).rejects.toThrow(
		/line 2: deviceId 1\.23E\+11: a spreadsheet has made a number/,
	);
});

test('100,000 rows of a spreadsheet are read, with the version that each device has', async () => {
	const rows = Array.from({ length: 100_000 }, (_, n) => `"K-${n}";"lobby";;0.2.${n % 3}\r\n`).join('');
	const devices = await read(`\ufeffDEVICEID;LABELS;WORKFLOWID;VERSION\r\n${rows};;;\r\n`);
	expect(devices).toHaveLength(100_000);
	expect(devices.at(-1)).toMatchObject({ deviceId: 'K-99999', workflowId: null, version: '0.2.0' });
});

test.each<[string, RegExp[]]>([
	[
		`${INVENTORY}K-4,S-4,lob`,
		[/: line 5: it has fewer fields than the others, and no line end follows: was the file cut off\?$/],
	],
	[`${INVENTORY}K-4,S-4`.replaceAll('\n', '\r\n'), [/: line 5: it has fewer fields/]],
	[`${INVENTORY}K-4,S-4\n`, []],
	[`${INVENTORY}K-4,S-4,lobby,checkin`, []],
	[`${INVENTORY}K-4\nK-5`, []],
	['deviceId\nK-1\nK-', []],
])('a last row that seems to be cut off is told with its line, and no other: %j [F1738]', async (text, expected) => {
	const said: string[] = [];
	await read(text, (one) => said.push(one));
	expect(said).toEqual(expected.map((words) => expect.stringMatching(words)));
});
