import { readFile, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readJsonLines } from '../../src/operator/inventory.runner.ts';
import { listen } from '../connection/network-peers.ts';
import { beginsFake, STEERING, steeringIn } from '../fixtures/foreign-text.ts';
import { createSigner } from '../fixtures/plans.ts';
import { openChannel, registerDevice } from '../service/fixture.ts';
import { modeOf, operatorOfFile, succeeded } from './operator.ts';

const operator = operatorOfFile();

const PLAN = `{
  "format": "idv-fleet-plan/1",
  "revision": 7,
  "spreadSeconds": 0,
  "defaults": { "workflowId": "checkin" },
  "rules": [
    { "name": "lobby", "match": { "labels": ["lobby"] }, "workflowId": "checkout" }
  ]
}
`;
const PLAN_2 = `{
  "format": "idv-fleet-plan/2",
  "fleet": "north",
  "epoch": 1,
  "revision": 7,
  "validUntil": "2099-01-01T00:00:00Z",
  "extensions": { "example.com/ticket": 42 },
  "defaults": {
    "workflowId": "checkin",
    "rollout": {
      "to": { "workflowId": "checkout" },
      "rings": [ { "percent": 5, "startAt": "2098-12-01T04:00:00Z", "agent": { "version": "0.3.0", "more": true } } ]
    }
  }
}
`;
const INVENTORY =
	'deviceId,serial,labels,workflowId\nK-1,S-1,lobby,checkin\nK-2,,,checkin\nK-3,S-3,lobby;berlin,checkout\n';

const plan = (text = PLAN, name = 'plan.json') => operator.file(name, text, 0o644);
const inventory = (text = INVENTORY, name = 'devices.csv') => operator.file(name, text, 0o644);

/** What is signed by nobody's checks is said on standard error. */
async function signed(file: string, key: string, out: string) {
	const outcome = await operator.idv(['fleet', 'sign', file, '--unchecked', '--key', key, '--out', out, '--json']);
	expect(outcome).toMatchObject({ status: 0 });
	return JSON.parse(outcome.stdout);
}

/** A key of `idv fleet keygen`. */
async function givenKey(name = 'fleet.key') {
	const file = join(operator.directory, name);
	const { publicKey } = succeeded(await operator.idv(['fleet', 'keygen', '--out', file, '--json']));
	return { file, publicKey: publicKey as string };
}

test.each([
	['0.3.0-', /\/agent\/version must not end in \+ or -/],
	['0.3.0+', /\/agent\/version must not end in \+ or -/],
	['0.3.0/stable', /\/agent\/version must be a version of a Debian package/],
])(
	'idv fleet check and idv fleet sign refuse version %s, which apt reads as more than a version',
	async (version, words) => {
		const file = await plan(PLAN_2.replace('0.3.0', version));
		const { file: key } = await givenKey();
		await operator.expectRefused({ status: 65, code: 'plan-invalid', words }, ['fleet', 'check', file]);
		await operator.expectRefused({ status: 65, code: 'plan-invalid', words }, [
			'fleet',
			'sign',
			'--unchecked',
			file,
			'--key',
			key,
		]);
	},
);

describe('idv fleet keygen', () => {
	test('writes the private key for this user alone and shows only the public one', async () => {
		const file = join(operator.directory, 'fleet.key');
		const outcome = await operator.idv(['fleet', 'keygen', '--out', file]);
		expect(outcome).toMatchObject({ status: 0, stderr: '' });
		expect(outcome.stdout).toMatch(/^Public key {3}ed25519:[\w+/]{43}=$/m);
		expect(await modeOf(file)).toBe('600');
		const secret = (await readFile(file, 'utf8')).split('\n')[1] ?? '';
		expect(secret.length).toBeGreaterThan(40);
		expect(outcome.stdout).not.toContain(secret);
	});

	test('never replaces a file', async () => {
		const file = await operator.file('fleet.key', 'precious');
		await operator.expectRefused({ status: 64, code: 'usage', words: /is there already/ }, [
			'fleet',
			'keygen',
			'--out',
			file,
		]);
		expect(await readFile(file, 'utf8')).toBe('precious');
	});
});

describe('idv fleet check', () => {
	test('says what a good plan is', async () => {
		const file = await plan();
		expect((await operator.idv(['fleet', 'check', file])).stdout).toBe(
			`${file}: revision 7, 1 rule, spread over 0 s, not signed.\nNothing is wrong with it.\n`,
		);
		expect(succeeded(await operator.idv(['fleet', 'check', file, '--json']))).toEqual({
			file,
			format: 'idv-fleet-plan/1',
			fleet: null,
			epoch: 0,
			revision: 7,
			validUntil: null,
			rules: 1,
			spreadSeconds: 0,
			isSigned: false,
			verifiedBy: null,
			findings: [],
		});
	});

	test('says how long a plan of format 2 is trusted, and by which fleet', async () => {
		const file = await plan(PLAN_2);
		expect((await operator.idv(['fleet', 'check', file])).stdout).toBe(
			`${file}: fleet north, epoch 1, revision 7, valid until 2099-01-01T00:00:00Z, 0 rules, spread over 600 s, not signed.\nNothing is wrong with it.\n`,
		);
		expect(succeeded(await operator.idv(['fleet', 'check', file, '--json']))).toMatchObject({
			format: 'idv-fleet-plan/2',
			fleet: 'north',
			epoch: 1,
			validUntil: '2099-01-01T00:00:00Z',
		});
		const late = await plan(PLAN_2.replace('2099', '2020'));
		const { status, stdout } = await operator.idv(['fleet', 'check', late]);
		expect(stdout).toMatch(/Note: line 6, column 17: \/validUntil is over/);
		expect(stdout).toMatch(/Error: .*\/defaults\/rollout\/rings\/0 starts after validUntil/);
		expect(status).toBe(65);
	});

	test('names every problem with its line and path', async () => {
		const file = await plan(
			PLAN.replace('"revision"', '"revison"').replace('["lobby"]', '["in the lobby"]').replace('0,', '"0",'),
		);
		const { status, stderr } = await operator.idv(['fleet', 'check', file]);
		expect(status).toBe(65);
		expect(stderr).toContain(`${file}: line 1, column 1: /revision is missing.`);
		expect(stderr).toContain(`${file}: line 3, column 14: /revison is not known here; did you mean revision?`);
		expect(stderr).toContain(`${file}: line 4, column 20: /spreadSeconds must be a whole number.`);
		expect(stderr).toContain(`${file}: line 7, column 46: /rules/0/match/labels/0 must be letters`);
	});

	test('finds a rule that can never count', async () => {
		const file = await plan(
			PLAN.replace(
				'"checkout" }',
				'"checkout" },\n    { "name": "never", "match": { "labels": ["lobby"] }, "workflowId": "x" }',
			),
		);
		const { status, stdout } = await operator.idv(['fleet', 'check', file]);
		expect(stdout).toMatch(/^Error: line 8, column 5: \/rules\/1 \(never\) can never apply/m);
		expect(status).toBe(65);
		const key = await givenKey();
		const out = join(operator.directory, 'signed.json');
		const signed = await operator.idv(['fleet', 'sign', '--unchecked', file, '--key', key.file, '--out', out]);
		expect(signed).toMatchObject({ status: 65, stderr: expect.stringMatching(/can never apply.*\[plan-invalid\]/) });
		await expect(stat(out)).rejects.toThrow();
	});

	test('refuses a file that is not there, and one that is no text', async () => {
		const missing = join(operator.directory, 'none.json');
		await operator.expectRefused(
			{ status: 65, code: 'plan-invalid', words: /none\.json cannot be read: it is not there \(ENOENT\)/ },
			['fleet', 'check', missing],
		);
		await writeFile(missing, Buffer.from([0xff, 0xfe]));
		await operator.expectRefused({ status: 65, code: 'plan-invalid', words: /is not UTF-8/ }, [
			'fleet',
			'check',
			missing,
		]);
	});
});

describe('idv fleet sign', () => {
	test('makes one file that only its key verifies, and a second signature beside the first [F121]', async () => {
		const [one, two] = [await givenKey('one.key'), await givenKey('two.key')];
		const out = join(operator.directory, 'signed.json');
		const file = await plan();
		expect(await signed(file, one.file, out)).toMatchObject({ revision: 7, publicKey: one.publicKey, signatures: 1 });
		expect(await modeOf(out)).toBe('644');
		const { payload } = JSON.parse(await readFile(out, 'utf8'));
		expect(Buffer.from(payload, 'base64').toString()).toBe(PLAN);
		const check = (key: string) => operator.idv(['fleet', 'check', out, '--public-key', key, '--json']);
		expect(succeeded(await check(one.publicKey))).toMatchObject({ isSigned: true, verifiedBy: one.publicKey });
		expect(await check(two.publicKey)).toMatchObject({ status: 65, stdout: expect.stringMatching(/plan-untrusted/) });
		await signed(out, two.file, out);
		expect(succeeded(await check(one.publicKey))).toMatchObject({ verifiedBy: one.publicKey });
		expect(succeeded(await check(two.publicKey))).toMatchObject({ verifiedBy: two.publicKey });
	});

	test('signs a plan of format 2 as well, byte for byte, and leaves what others have added to the envelope', async () => {
		const key = await givenKey();
		const out = join(operator.directory, 'signed.json');
		await signed(await plan(PLAN_2), key.file, out);
		const envelope = JSON.parse(await readFile(out, 'utf8'));
		expect(Buffer.from(envelope.payload, 'base64').toString()).toBe(PLAN_2);
		await writeFile(out, JSON.stringify({ ...envelope, extensions: { log: 'x' } }));
		const other = await givenKey('two.key');
		await signed(out, other.file, out);
		expect(JSON.parse(await readFile(out, 'utf8'))).toMatchObject({ extensions: { log: 'x' }, signatures: [{}, {}] });
		const check = await operator.idv(['fleet', 'check', out, '--public-key', key.publicKey, '--json']);
		expect(succeeded(check)).toMatchObject({ format: 'idv-fleet-plan/2', verifiedBy: key.publicKey });
	});

	test('to standard output is the envelope and nothing else', async () => {
		const key = await givenKey();
		const { status, stdout } = await operator.idv(['fleet', 'sign', '--unchecked', await plan(), '--key', key.file]);
		expect(status).toBe(0);
		expect(Object.keys(JSON.parse(stdout))).toEqual(['payloadType', 'payload', 'signatures']);
	});

	test.each<[string, string, RegExp]>([
		['no key', 'not a key', /does not hold a private key in PEM/],
		[
			'a public key',
			'-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n',
			/does not hold a private key/,
		],
	])('refuses %s, without a word of it', async (_, text, words) => {
		const file = await operator.file('bad.key', text);
		await operator.expectRefused({ status: 78, code: 'fleet-key-invalid', words }, [
			'fleet',
			'sign',
			'--unchecked',
			await plan(),
			'--key',
			file,
		]);
	});

	test('refuses a key of another kind, and takes one of keygen [F124]', async () => {
		const { generateKeyPairSync } = await import('node:crypto');
		const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
		const file = await operator.file('ec.key', privateKey.export({ format: 'pem', type: 'pkcs8' }).toString());
		await operator.expectRefused({ status: 78, code: 'fleet-key-invalid', words: /type ec, not Ed25519/ }, [
			'fleet',
			'sign',
			'--unchecked',
			await plan(),
			'--key',
			file,
		]);
		const { file: made } = await givenKey();
		expect(await operator.idv(['fleet', 'sign', '--unchecked', await plan(), '--key', made])).toMatchObject({
			status: 0,
		});
	});

	test('a public key in another form is refused', async () => {
		await operator.expectRefused({ status: 78, code: 'fleet-key-invalid', words: /ed25519: and 32 bytes/ }, [
			'fleet',
			'check',
			await plan(),
			'--public-key',
			'MCowBQYDK2VwAyEA',
		]);
	});

	test('warns of a key that others may read', async () => {
		const { privateKey } = createSigner();
		const pem = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
		const file = await operator.file('open.key', pem, 0o644);
		const { status, stderr } = await operator.idv(['fleet', 'sign', '--unchecked', await plan(), '--key', file]);
		expect(status).toBe(0);
		expect(stderr).toMatch(/^Warning: Other users may read .*chmod 600/);
	});
});

describe('idv fleet preview', () => {
	test('shows who would move, from CSV and from JSON lines alike', async () => {
		const lines = [
			{ deviceId: 'K-1', serial: 'S-1', labels: ['lobby'], workflowId: 'checkin', site: 'ignored' },
			{ deviceId: 'K-2', workflowId: 'checkin' },
			{ deviceId: 'K-3', serial: 'S-3', labels: ['lobby', 'berlin'], workflowId: 'checkout' },
		];
		const asLines = await inventory(lines.map((line) => `${JSON.stringify(line)}\n`).join('\n'), 'devices.jsonl');
		const [file, csv] = [await plan(), await inventory()];
		const preview = async (from: string) =>
			succeeded(await operator.idv(['fleet', 'preview', file, '--inventory', from, '--devices', '--json']));
		const expected = {
			revision: 7,
			devices: 3,
			moves: 1,
			stays: 2,
			leftAlone: 0,
			inSeveral: 0,
			groups: [
				{
					...{ what: 'workflow', from: 'checkin', to: 'checkout', rule: 'lobby', percent: null },
					...{ devices: 1, first: null, last: null },
				},
			],
			changes: [
				{
					...{ deviceId: 'K-1', what: 'workflow', from: 'checkin', to: 'checkout' },
					...{ rule: 'lobby', percent: null, at: null },
				},
			],
		};
		expect(await preview(csv)).toEqual(expected);
		expect(await preview(asLines)).toEqual(expected);
		const { stdout } = await operator.idv(['fleet', 'preview', file, '--inventory', csv]);
		expect(stdout).toMatch(/^Revision 7: 1 device of 3 would move\./);
		expect(stdout).toMatch(/^1 +checkin +→ +checkout +rule lobby +when taken$/m);
	});

	test('refuses a bad line for people and for programs, until it is corrected [F125]', async () => {
		const file = await inventory(`${INVENTORY},S-4,,\n`);
		await operator.expectRefused(
			{ status: 65, code: 'inventory-invalid', words: /devices\.csv: line 5: deviceId must not be empty/ },
			['fleet', 'preview', await plan(), '--inventory', file],
		);
		await inventory(`${INVENTORY}K-4,S-4,,\n`);
		const corrected = ['fleet', 'preview', await plan(), '--inventory', file, '--json'];
		expect(succeeded(await operator.idv(corrected))).toMatchObject({ devices: 4 });
	});
});

describe('idv fleet diff', () => {
	test('tells what the new plan says otherwise, and how many devices it moves', async () => {
		const after = PLAN.replace('7', '8').replace('"checkout"', '"boarding"');
		const files = [await plan(), await plan(after, 'new.json')];
		const { status, stdout, stderr } = await operator.idv([
			'fleet',
			'diff',
			...files,
			'--inventory',
			await inventory(),
		]);
		expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
		expect(stdout).toMatch(/^revision +7 +→ +8$/m);
		expect(stdout).toMatch(/^rule lobby, workflowId +checkout +→ +boarding$/m);
		expect(stdout).toMatch(/^2 devices of 3 would move\.$/m);
		expect(succeeded(await operator.idv(['fleet', 'diff', ...files, '--json']))).toMatchObject({ isTaken: true });
	});

	test('tells a version that a ring orders, and a rollout of nothing else', async () => {
		const only = PLAN_2.replace('{ "workflowId": "checkout" }', '{}');
		const files = [await plan(only), await plan(only.replace('0.3.0', '0.4.0'), 'new.json')];
		const ring = (version: string) => `only the version: 5 % with version ${version} from 2098-12-01T04:00:00Z`;
		expect((await operator.idv(['fleet', 'diff', ...files])).stdout).toBe(
			`defaults, rollout  ${ring('0.3.0')}  →  ${ring('0.4.0')}\n`,
		);
		const { differences } = JSON.parse((await operator.idv(['fleet', 'diff', ...files, '--json'])).stdout);
		expect(differences).toEqual([{ what: 'defaults, rollout', before: ring('0.3.0'), after: ring('0.4.0') }]);
		const both = await plan(PLAN_2.replace(', "agent": { "version": "0.3.0", "more": true }', ''), 'both.json');
		const { stdout } = await operator.idv(['fleet', 'diff', both, await plan(PLAN_2)]);
		expect(stdout).toMatch(/ {2}to checkout: 5 % from \S+ {2}→ {2}to checkout: 5 % with version 0\.3\.0 from \S+$/m);
	});

	test('warns of a revision that devices would refuse', async () => {
		const files = [await plan(), await plan(PLAN.replace('checkout', 'boarding'), 'new.json')];
		const { status, stderr } = await operator.idv(['fleet', 'diff', ...files]);
		expect(status).toBe(0);
		expect(stderr).toMatch(/^Warning: Devices that have revision 7 will refuse revision 7: give it revision 8\.$/m);
	});
});

describe('idv fleet status', () => {
	/** A device of the service that says this in its heartbeat, and stays online. */
	async function givenDevice(deviceId: string, said: object | null) {
		const { service } = operator;
		const token = await registerDevice(service, deviceId, 'checkin');
		if (!said) return;
		const { socket } = await openChannel(service, token);
		const heard = service.waitFor('heartbeat');
		const frame = { type: 'heartbeat', deviceId, workflowId: 'checkin', sequence: 1, sentAt: 'now', uptimeSeconds: 1 };
		socket.send(JSON.stringify({ ...frame, ...said }));
		await heard;
	}

	test('counts what the devices of the service report', async () => {
		await givenDevice('K-1', { planRevision: 7 });
		await givenDevice('K-2', { planRevision: 6 });
		await givenDevice('K-3', { planRevision: 6, planRefused: 7 });
		await givenDevice('K-4', null);
		const status = succeeded(await operator.idv(['fleet', 'status', '--json', '--devices']));
		expect(status).toMatchObject({
			revision: 7,
			devices: 4,
			moved: 1,
			refused: 1,
			pending: 2,
			pendingOffline: 1,
			workflows: { checkin: 4 },
		});
		const of = Object.fromEntries(
			status.reports.map(({ deviceId, standing }: Record<string, string>) => [deviceId, standing]),
		);
		expect(of).toEqual({ 'K-1': 'moved', 'K-2': 'pending', 'K-3': 'refused', 'K-4': 'pendingOffline' });
		const { stdout } = await operator.idv(['fleet', 'status', '--plan', await plan()]);
		expect(stdout).toMatch(/^At target +2$/m);
		expect(stdout).toMatch(/^Refused +1 +K-3$/m);
		expect(stdout).toMatch(/^Offline +1 +K-4$/m);
		expect(succeeded(await operator.idv(['fleet', 'status', '--revision', '6', '--json']))).toMatchObject({ moved: 2 });
	});

	test('counts lines that were gathered by any means, the last one of each device', async () => {
		const line = (deviceId: string, state: string, plan: object | null) =>
			`${JSON.stringify({ schemaVersion: 1, deviceId, state, workflow: { live: 'w', wanted: 'w' }, plan })}\n`;
		const refused = { revision: 7, message: 'It was not online within 300 s.' };
		const file = await operator.file(
			'gathered.jsonl',
			line('K-1', 'online', { followed: 6, refused: null }) +
				line('K-1', 'online', { followed: 7, refused: null }) +
				line('K-2', 'online', { followed: 6, refused }) +
				line('K-3', 'offline', null),
		);
		expect(succeeded(await operator.idv(['fleet', 'status', '--from', file, '--json']))).toMatchObject({
			revision: 7,
			devices: 3,
			moved: 1,
			refused: 1,
			pending: 1,
			pendingOffline: 1,
		});
		expect((await operator.idv(['fleet', 'status', '--from', file])).stdout).toMatch(/^K-2: It was not online/m);
	});

	test('of a service that lists no devices says what to give instead, and takes no empty file for it', async () => {
		const other = createServer((_request, response) => response.writeHead(404).end());
		const env = { ...operator.env(), IDV_URL: `http://127.0.0.1:${await listen(other)}` };
		await operator.expectRefused(
			{ status: 69, code: 'bad-response', words: /answered 404\. .*--from FILE/ },
			['fleet', 'status'],
			env,
		);
		const told = await operator.idv(['fleet', 'status', '--from', await operator.file('empty.jsonl', '\n')]);
		expect(told).toMatchObject({ status: 65, stderr: expect.stringMatching(/No line of .* is of a device\. /) });
	});

	test('names the line that is no status', async () => {
		const file = await operator.file(
			'gathered.jsonl',
			'{"deviceId":"K-1","state":"online","workflow":{"live":null,"wanted":null}}\n{}\n',
		);
		const { status, stderr } = await operator.idv(['fleet', 'status', '--from', file]);
		expect(status).toBe(0);
		expect(stderr).toMatch(/^Warning: 1 line of .*\n.*line 2: deviceId is not as in/);
		const alone = await operator.file('alone.jsonl', '{}\n');
		const refusal = { status: 65, code: 'inventory-invalid', words: /line 1: deviceId is not as in/ } as const;
		await operator.expectRefused(refusal, ['fleet', 'status', '--from', alone]);
	});

	test('refuses at once a file in which more lines than any fleet has cannot be read [F888]', async () => {
		const good = '{"deviceId":"K-1","state":"online","workflow":{"live":null,"wanted":null}}\n';
		const file = await operator.file('other.jsonl', good + '{}\n'.repeat(20_000));
		const words =
			/other\.jsonl has more than 10000 lines that cannot be read. The first: .*line 2: deviceId is not as in/;
		await operator.expectRefused({ status: 65, code: 'inventory-invalid', words }, ['fleet', 'status', '--from', file]);
	});

	test('reads no further line once so many cannot be read, whatever stands in them [F1376]', async () => {
		const file = await operator.file('ones.jsonl', '1\n'.repeat(20_000));
		const words = /ones\.jsonl has more than 10000 lines that cannot be read. The first: .*line 1: each line must be/;
		await operator.expectRefused({ status: 65, code: 'inventory-invalid', words }, ['fleet', 'status', '--from', file]);
		const told: string[] = [];
		const mixed = await operator.file('mixed.jsonl', 'x\n{}\nx\n{"a":1}');
		const rows = (await readJsonLines(mixed, (said) => void told.push(said)))[Symbol.iterator]();
		expect([rows.next().value, told.length]).toEqual([{ place: 'line 2', fields: {} }, 1]);
		expect([rows.next().value, told.length]).toEqual([{ place: 'line 4', fields: { a: 1 } }, 2]);
		expect(rows.next().done).toBe(true);
	});

	test('of a service that refuses is refused', async () => {
		const env = { ...operator.env(), IDV_AUTHORIZATION: 'Bearer wrong-token-000' };
		await operator.expectRefused(
			{ status: 77, code: 'credential-refused', words: /idv whoami/ },
			['fleet', 'status'],
			env,
		);
	});
});

test('an inventory whose leading zeros a spreadsheet has removed is named as that, by check and by preview [F1199]', async () => {
	const rules = [{ name: 'lobby', match: { deviceIds: ['00123', '00124'] }, workflowId: 'checkin' }];
	const plan = { format: 'idv-fleet-plan/1', revision: 1, spreadSeconds: 0, rules };
	const file = await operator.file('zeros.json', JSON.stringify(plan), 0o644);
	const inventory = await operator.file('zeros.csv', 'deviceId\n123\n124\n');
	const words = /00123, 00124; the inventory has 123 in place of 00123: a spreadsheet has removed the zeros, so format/;
	const checked = await operator.idv(['fleet', 'check', file, '--inventory', inventory]);
	expect([checked.status, checked.stdout]).toEqual([65, expect.stringMatching(words)]);
	expect(checked.stdout).not.toContain('did you mean');
	const shown = await operator.idv(['fleet', 'preview', file, '--inventory', inventory]);
	expect([shown.status, shown.stderr]).toEqual([0, expect.stringMatching(words)]);
});

test('a name of a plan that steers terminals and has line ends is told on one line, without any of that [F1370]', async () => {
	const good = await plan();
	const bad = await plan(JSON.stringify({ ...JSON.parse(PLAN), [STEERING]: 1 }), 'bad.json');
	const devices = await inventory();
	for (const args of [
		['check', bad],
		['diff', good, bad],
		['preview', bad, '--inventory', devices],
	]) {
		const told = await operator.idv(['fleet', ...args]);
		expect(told).toMatchObject({ status: 65, stderr: expect.stringMatching(/PWN.*FAKE.* is not known here/) });
		expect([steeringIn(told.stdout + told.stderr), beginsFake(told.stderr)]).toEqual([[], false]);
		const json = await operator.idv(['fleet', ...args, '--json']);
		expect(steeringIn(json.stdout)).toEqual([]);
		expect(JSON.parse(json.stdout).error.message).toMatch(/PWN.*FAKE.* is not known here/);
	}
});
