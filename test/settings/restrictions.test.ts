/** A restriction that is refused leaves nothing open that waits for it. */
import { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { LOCAL_ROUTES, type SettingsReport } from '../../src/protocol/local-api.ts';
import { type LoadedSettings, loadSettings, resolveWith } from '../../src/settings/load.runner.ts';
import { resolveSettings, type SettingsLayer } from '../../src/settings/resolve.ts';
import { RESTRICTS } from '../../src/settings/restrictions.ts';
import { listSettings, valueAt } from '../../src/settings/table.ts';
import { toldProblems } from '../../src/settings/told-problems.ts';
import { examine, expectProblem } from '../diagnosis/examine.ts';
import { givenPlanServer } from '../fixtures/plans.ts';
import { type AgentSetup, givenAgent, givenHome, type RunningAgent } from '../harness/harness.ts';
import { ask } from '../local-api/local-asking.ts';
import { givenService } from '../service/fixture.ts';

const GOOD_KEY = `ed25519:${Buffer.alloc(32, 7).toString('base64')}`;
const PLAN = { format: 'idv-fleet-plan/1', revision: 1, spreadSeconds: 0, defaults: { workflowId: 'moved' } };

/** Online by a key, and what writes one drop-in file. */
async function given(more: object = {}, setup: AgentSetup = {}) {
	const service = await givenService();
	const home = await givenHome();
	await mkdir(home.paths.confDirectory, { recursive: true });
	const credential = { apiKeyFile: await home.secretFile('key', service.credentials.apiKey) };
	const settings = { baseUrl: service.url, credential, workflowId: 'check-in', ...more };
	const device = await givenAgent({ ...setup, home, settings });
	await device.untilLive('check-in');
	const push = async (dropIn: unknown) => {
		await writeFile(join(home.paths.confDirectory, '50-push.json'), JSON.stringify(dropIn));
		await device.daemon.reload();
	};
	return { service, home, settings, device, push };
}

const told = (device: RunningAgent) => device.agent.status().warnings.map(({ message }) => message);

async function rowOf(device: RunningAgent, path: string) {
	const { settings } = (await device.client.request('admin', 'GET', '/v1/settings')) as SettingsReport;
	return settings.find((one) => one.path === path);
}

test.each([
	['keys that are none', { publicKeys: ['ed25519:rubbish'] }, 'fleet.publicKeys'],
	['keys under a name with a slip', { publicKey: [GOOD_KEY] }, 'fleet.publicKeys'],
	['a name of the fleet that is none', { publicKeys: [GOOD_KEY], name: 7 }, 'fleet.name'],
])('with %s the address of a plan waits, over a restart too, until they are right [F660]', async (_, bad, refused) => {
	const plans = await givenPlanServer(PLAN);
	const { home, settings, device, push } = await given();
	await push({ fleet: { planUrl: plans.url, ...bad } });
	const words = `fleet.planUrl waits: ${refused} was refused.`;
	expect(told(device)).toContainEqual(expect.stringContaining(words));
	expect(await rowOf(device, 'fleet.planUrl')).toMatchObject({
		value: null,
		refused: expect.stringContaining(words),
	});
	expectProblem(
		(await examine({ home, settings }, 'settings')).checks.settings,
		'warning',
		'settings-invalid',
		/waits/,
	);
	await device.stop();
	const again = await givenAgent({ home });
	await again.untilLive('check-in');
	expect(told(again)).toContainEqual(expect.stringContaining(words));
	await writeFile(join(home.paths.confDirectory, '50-push.json'), '{ "half": ');
	await again.daemon.reload();
	expect(await rowOf(again, 'fleet.planUrl')).toMatchObject({ value: null });
	expect(plans.answers).toEqual([]);
	const fleet = { planUrl: plans.url, publicKeys: [GOOD_KEY] };
	await writeFile(join(home.paths.confDirectory, '50-push.json'), JSON.stringify({ fleet }));
	await again.daemon.reload();
	again.clock.advance(5000);
	await plans.untilAnswered(1);
	expect(again.agent.status().workflow).toMatchObject({ wanted: 'check-in' });
});

test('the address of a plan that is in force stays beside keys that are none, and is on the disk [F1651]', async () => {
	const plans = await givenPlanServer(PLAN);
	const { device, push } = await given({ fleet: { planUrl: plans.url } });
	await push({ fleet: { publicKeys: ['ed25519:rubbish'] } });
	const row = await rowOf(device, 'fleet.planUrl');
	expect(row?.value).toContain(new URL(plans.url).host);
	expect(row).not.toHaveProperty('disk');
});

test('keys that move to another file and are refused there stay as they were', async () => {
	const plans = await givenPlanServer(PLAN);
	const { home, settings, device, push } = await given({ fleet: { publicKeys: [GOOD_KEY] } });
	await home.writeSettings({ ...settings, fleet: {} });
	await push({ fleet: { planUrl: plans.url, publicKeys: 'ed25519' } });
	expect(await rowOf(device, 'fleet.publicKeys')).toMatchObject({ value: [GOOD_KEY] });
	await device.stop();
	const again = await givenAgent({ home });
	again.clock.advance(5000);
	await plans.untilAnswered(1);
	expect(await rowOf(again, 'fleet.publicKeys')).toMatchObject({ value: [GOOD_KEY] });
});

test('a bad value in a file that another one goes before keeps the value that this file had, when that one is gone [F1597]', () => {
	const read = (before: ReturnType<typeof resolveSettings> | null, ...documents: (object | null)[]) =>
		resolveSettings(
			documents.flatMap((document, at): SettingsLayer[] =>
				document ? [{ source: 'file', where: `${at}.json`, document }] : [],
			),
			undefined,
			before,
		);
	const base = { heartbeatCadence: 20, forward: { allow: ['/api'] } };
	const last = { heartbeatCadence: 42, forward: { allow: ['/api/b'] } };
	const good = read(null, base, { heartbeatCadence: 47, forward: { allow: ['/api/a'] } }, last);
	const bad = { heartbeatCadence: 'soon', forward: { allow: 'api' } };
	for (const before of [good, read(good, base, bad, last)])
		expect(read(before, base, bad).settings).toMatchObject({ heartbeatCadence: 47, forward: { allow: ['/api/a'] } });
	expect(read(good, base).settings).toMatchObject(base);
});

test('a bad restriction never opens what was closed, and holds nothing that a later file says [F1607]', () => {
	const file = (where: string, document: object): SettingsLayer => ({ source: 'file', where, document });
	const allow = (paths: unknown) => ({ forward: { allow: paths } });
	const base = file('config.json', allow(['/api']));
	const good = resolveSettings([base, file('10.json', allow(['/api/a']))]);
	// The same file under another name, and another one that never had a good value.
	for (const bad of [file('11.json', allow('api')), file('20.json', allow(7))])
		expect(resolveSettings([base, bad], undefined, good).settings.forward.allow).toEqual(['/api/a']);
	const acts = (value: unknown) => ({ service: { actOnMessages: value } });
	const covered = [file('10.json', acts('x')), file('20.json', acts(true))];
	for (const before of [null, good])
		expect(resolveSettings(covered, undefined, before).settings.service.actOnMessages).toBe(true);
	expect(resolveSettings(covered.toReversed(), undefined, good).settings.service.actOnMessages).toBe(false);
});

test('beside a file that cannot be read no restriction changes, also not to another value [F1608]', () => {
	const file = (where: string, document: object): SettingsLayer => ({ source: 'file', where, document });
	const base = file('config.json', { fleet: { name: 'wide' }, update: { window: '00:00-23:00' } });
	const narrow = { fleet: { name: 'narrow' }, update: { window: '02:00-03:00' } };
	const good = resolveSettings([base, file('10.json', narrow)]);
	const { settings, problems } = resolveSettings([base], undefined, good, ['11.json']);
	expect(settings).toMatchObject(narrow);
	for (const path of ['fleet.name', 'update.window'])
		expect(problems.map(({ message }) => message)).toContain(`${path} waits: 11.json cannot be read.`);
	expect(resolveSettings([base], undefined, good).settings).toMatchObject({ fleet: { name: 'wide' } });
});

test('where the paths that may be forwarded are refused, nothing is forwarded, until they are right or gone', async () => {
	const { home, service, device, push } = await given();
	const answer = async () => (await ask(device, `${LOCAL_ROUTES.service}api/x`, { method: 'GET' })).status;
	expect(await answer()).toBe(404);
	const before = service.requests.length;
	await push({ forward: { allow: ['api/only'] } });
	expect(await answer()).toBe(403);
	await device.daemon.reload();
	expect(await answer()).toBe(403);
	expect(service.requests).toHaveLength(before);
	expect(told(device)).toContainEqual(
		expect.stringContaining('must be a path such as /api/v1/sessions. Until it is mended it allows nothing.'),
	);
	await push({ forward: { allow: ['/api/x'] } });
	expect(await answer()).toBe(404);
	await push({ forward: { allow: 'api' } });
	expect(await answer()).toBe(404);
	await rm(join(home.paths.confDirectory, '50-push.json'));
	await device.daemon.reload();
	expect(await answer()).toBe(404);
});

test('updates do not begin where their window is refused, and a page waits for the file of its PIN', async () => {
	const { device, push } = await given({ update: { enabled: true } });
	await push({ update: { window: 'at night' }, page: { port: 0, pinFile: 'pin' } });
	expect(await rowOf(device, 'update.enabled')).toMatchObject({ value: false });
	expect(await rowOf(device, 'page.port')).toMatchObject({ value: null });
	for (const words of ['update.enabled waits: update.window was', 'page.port waits: page.pinFile was'])
		expect(told(device)).toContainEqual(expect.stringContaining(words));
	await push({ update: { window: '02:00-05:00' } });
	expect(await rowOf(device, 'update.enabled')).toMatchObject({ value: true });
});

test('where the origins of codes are refused, codes of the service that the device has are taken, and no others', async () => {
	const [service, other] = [await givenService(), await givenService()];
	const home = await givenHome();
	const device = await givenAgent({ home, settings: {} });
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilLive('check-in');
	await home.writeSettings({ pairing: { trustedOrigins: ['rubbish'] } });
	await device.daemon.reload();
	const replace = { replace: true };
	await expect(device.pair(other.createPairingCode('check-in').url, replace)).rejects.toMatchObject({
		failure: { code: 'code-for-other-origin' },
	});
	await device.pair(service.createPairingCode('check-out').url, replace);
	await device.untilLive('check-out');
});

test('a PIN with fewer than six digits is told, and the PIN from before stays [F659]', async () => {
	const home = await givenHome();
	const pinFile = await home.secretFile('pin', '471100');
	const settings = { baseUrl: (await givenService()).url, page: { port: 0, pinFile } };
	const device = await givenAgent({ home, settings });
	await home.secretFile('pin', '4711');
	await device.daemon.reload();
	const words = `page.pinFile: the PIN in ${pinFile} must have six or more digits. Its value from before stays in force.`;
	expect(told(device)).toContainEqual(expect.stringContaining(words));
	expect(device.agent.ways.runtime().pin).toBe('471100');
	expect(await rowOf(device, 'page.pinFile')).toMatchObject({ refused: expect.stringContaining('six or more') });
	expectProblem(
		(await examine({ home, settings }, 'settings')).checks.settings,
		'warning',
		'settings-invalid',
		/six or/,
	);
	await home.secretFile('pin', '815000');
	await device.daemon.reload();
	expect([told(device), device.agent.ways.runtime().pin]).toEqual([[], '815000']);
});

/** What each restriction holds back, opened. */
const OPENED: Readonly<Record<string, { readonly before: unknown; readonly opened: unknown }>> = {
	'pairing.trustedOrigins': { before: ['https://old.example'], opened: ['https://new.example'] },
	'service.actOnMessages': { before: false, opened: true },
	'fleet.planUrl': { before: 'https://plans.example/old', opened: 'https://plans.example/new' },
	'update.enabled': { before: false, opened: true },
	'forward.allow': { before: ['/old'], opened: ['/'] },
	'page.port': { before: 8001, opened: 8002 },
};
/** Of restrictions that are of no use to themselves: a good value. */
const SET: Readonly<Record<string, unknown>> = {
	baseUrl: 'https://id.example',
	'fleet.name': 'north',
	'fleet.publicKeys': [GOOD_KEY],
	'update.source': '/etc/apt/sources.list.d/kiosks.list',
	'update.window': '02:00-05:00',
	'page.pinFile': '/etc/idv-agent/pin',
};
const held = [...new Set(Object.values(RESTRICTS).flatMap((restricts) => Object.keys(restricts)))];
const rows = held.flatMap((path) => ['first', 'later'].map((push) => [path, push] as const));
const UNREADABLE: Readonly<Record<string, (file: string) => Promise<unknown>>> = {
	'half written': (file) => writeFile(file, '{ "fleet": '),
	empty: (file) => writeFile(file, ''),
	'a list': (file) => writeFile(file, '[]'),
	'a directory': (file) => mkdir(file),
	'a link that leads nowhere': (file) => symlink('nothing', file),
	'too large': (file) => writeFile(file, ' '.repeat(2 ** 20 + 1)),
	'not UTF-8': (file) => writeFile(file, Buffer.from('{"a":"é"}', 'latin1')),
};

/** A configuration on a disk, and what each look at it finds. */
async function givenFiles() {
	const { paths } = await givenHome();
	const sources = { paths, env: {}, sets: [] };
	const at = (name: string) => join(paths.confDirectory, name);
	await mkdir(paths.confDirectory, { recursive: true });
	const look = (before: LoadedSettings | null = null) => loadSettings(sources, before && { loaded: before });
	const put = (name: string, path: string, value: unknown) =>
		writeFile(at(name), JSON.stringify({ ...nested(path, value) }));
	/** As at the next start. */
	const start = ({ documents }: LoadedSettings) => look(resolveWith(documents, sources));
	return { at, look, put, start };
}

const nested = (path: string, value: unknown): object =>
	path.split('.').reduceRight((within: unknown, key) => ({ [key]: within }), value) as object;

test.each(rows)(
	'%s is as it was while a file that was never read is there, in the %s push, over a start, too [F642]',
	async (path, push) => {
		const { before, opened } = OPENED[path] ?? expect.unreachable(path);
		const { at, look, put, start } = await givenFiles();
		if (push === 'later') await put('10-site.json', path, before);
		const good = await look();
		const was = valueAt(good.settings, path);
		const expected = push === 'first' && path === 'service.actOnMessages' ? opened : was;
		await put('10-site.json', path, opened);
		await writeFile(at('50-new.json'), '{ "half": ');
		const running = await look(good);
		const again = await look(running);
		for (const one of [running, again, await start(good)]) {
			expect(valueAt(one.settings, path)).toEqual(expected);
			const words = `${path} waits: ${at('50-new.json')} cannot be read.`;
			if (expected !== opened) {
				expect(one.problems.map(({ message }) => message)).toContain(words);
				expect(one.holdsTogether).toBe(false);
			}
		}
		await writeFile(at('50-new.json'), '{}');
		expect(valueAt((await look(again)).settings, path)).toEqual(opened);
		await rm(at('50-new.json'));
		expect(valueAt((await look(again)).settings, path)).toEqual(opened);
	},
);

test.each(held)('%s has its closed value where nothing was before a file that cannot be read', async (path) => {
	const { at, look, put } = await givenFiles();
	await put('10-site.json', path, OPENED[path]?.opened);
	await writeFile(at('50-new.json'), '{ "half": ');
	const closed = Object.values(RESTRICTS).find((restricts) => path in restricts)?.[path];
	expect(valueAt((await look()).settings, path)).toEqual(closed ?? listSettings().get(path)?.fallback);
});

test.each(Object.entries(UNREADABLE))(
	'a restriction that moves into a file that is %s does not end, and what it holds back can be closed',
	async (_, make) => {
		for (const [path, value] of Object.entries(SET)) {
			const { at, look, put } = await givenFiles();
			await put('10-site.json', path, value);
			const good = await look();
			await rm(at('10-site.json'));
			await make(at('50-new.json'));
			expect(valueAt((await look(good)).settings, path)).toEqual(value);
		}
		const { at, look, put } = await givenFiles();
		await put('10-site.json', 'fleet.planUrl', 'https://plans.example/old');
		const good = await look();
		await put('10-site.json', 'fleet.planUrl', null);
		await make(at('50-new.json'));
		expect((await look(good)).settings.fleet.planUrl).toBeNull();
		await put('10-site.json', 'heartbeatCadence', 7);
		expect((await look(good)).settings.heartbeatCadence).toBe(7);
	},
);

test.each([
	['a group that is there twice', `{ "fleet": { "publicKeys": ["${GOOD_KEY}"] }, "fleet": { "name": "north" } }`],
	['keys that are there twice, at last empty', `{ "fleet": { "publicKeys": ["${GOOD_KEY}"], "publicKeys": [] } }`],
	['a slip in the name of the group', `{ "fleets": { "publicKeys": ["${GOOD_KEY}"] } }`],
	[
		'a slip beside many names of another version',
		JSON.stringify({
			...Object.fromEntries(Array.from({ length: 30 }, (_, at) => [`later${at}`, at])),
			'fleet.publicKey': [GOOD_KEY],
		}),
	],
])('%s is no way around the keys of a plan, over a start, too [F643]', async (_, text) => {
	const { at, look, put, start } = await givenFiles();
	await put('10-site.json', 'heartbeatCadence', 7);
	const good = await look();
	await put('10-site.json', 'fleet.planUrl', 'https://plans.example/new');
	await writeFile(at('50-new.json'), text);
	const running = await look(good);
	const first = await look();
	for (const one of [running, await look(running), first, await start(good), await start(first)])
		expect(one.settings.fleet.planUrl).toBeNull();
	expect(running.problems.map(({ message }) => message)).toContain(
		'fleet.planUrl waits: fleet.publicKeys was refused.',
	);
	// The document that a start goes back to while the file is half written says the same.
	await writeFile(at('50-new.json'), '{ "half": ');
	expect((await start(first)).settings.fleet.planUrl).toBeNull();
	await writeFile(at('50-new.json'), `{ "fleet": { "publicKeys": ["${GOOD_KEY}"] } }`);
	expect((await look(running)).settings.fleet.planUrl).toBe('https://plans.example/new');
});

const layer = (document: object, where = 'a'): SettingsLayer => ({ source: 'file', where, document });

test.each(Object.entries(RESTRICTS))('what %s restricts has a value that is valid meanwhile', (path, restricts) => {
	const known = listSettings();
	expect(known.has(path)).toBe(true);
	for (const [held, meanwhile] of Object.entries(restricts)) {
		const { schema, fallback } = known.get(held) ?? expect.unreachable(held);
		expect(schema.parse(meanwhile ?? fallback)).toEqual(meanwhile ?? fallback);
	}
});

test.each<[string, object, object]>([
	['a bad address of the service', { baseUrl: 'id' }, { pairing: { trustedOrigins: ['https://nothing.invalid'] } }],
	[
		'its name with a slip',
		{ baseURL: 'https://id.example' },
		{ pairing: { trustedOrigins: ['https://nothing.invalid'] } },
	],
	['a switch in words', { service: { actOnMessages: 'no' } }, { service: { actOnMessages: false } }],
	['no group', { forward: 'none' }, { forward: { allow: ['/.'] } }],
	['a window beside updates', { update: { enabled: true, window: '2-5' } }, { update: { enabled: false } }],
])('%s is held back from the first start on, and after it was set and taken back', (_, bad, expected) => {
	const first = resolveSettings([layer(bad)]);
	const explicit = resolveSettings([layer({ forward: { allow: [] } })]);
	for (const before of [null, first, explicit]) {
		const pushed = resolveSettings([layer(bad)], undefined, before);
		const again = resolveSettings([layer(bad)], undefined, pushed);
		// Its file is half written by now: it counts as it was kept.
		const kept = resolveSettings(
			pushed.documents.map(({ document }) => layer(document as object)),
			undefined,
			again,
		);
		for (const one of [pushed, again, kept]) {
			const { settings, problems } = one;
			expect(settings).toMatchObject(expected);
			const words = / (waits|allows nothing): |Until (?:it|that) is mended \S+ (is false|allows nothing)\.$/;
			if (one !== pushed || before) expect(problems.some(({ message }) => words.test(message))).toBe(true);
		}
		expect(resolveSettings([layer({})], undefined, again).settings).toEqual(resolveSettings([]).settings);
	}
});

test.each<[what: string, bad: object, whole: RegExp]>([
	['in itself', { service: { actOnMessages: 'no' } }, /Until it is mended it is false\.$/],
	[
		'with its group',
		{ forward: 'none' },
		/^a: forward must be a group of settings: \{ … \}\. Until that is mended forward\.allow allows nothing\.$/,
	],
	['of another setting', { update: { enabled: true, window: '2-5' } }, /update\.window \S.*\w\.$/],
])(
	'of a restriction that is refused %s nothing is said to stay where nothing from before does [F1040]',
	(_, bad, whole) => {
		const { problems, unknown } = resolveSettings([layer(bad)], undefined, resolveSettings([layer({})]));
		const told = toldProblems(problems, unknown).map(({ message }) => message);
		expect(told).toContainEqual(expect.stringMatching(whole));
		expect(told.join(' ')).not.toContain('from before stay');
		const other = resolveSettings([layer({ ...bad, deviceType: 7 })], undefined, resolveSettings([layer({})]));
		expect(toldProblems(other.problems, other.unknown).map(({ message }) => message)).toContainEqual(
			expect.stringMatching(/deviceType must be a text\. Its value from before stays in force\.$/),
		);
	},
);

test('of a name that is not a setting no value is said to stay [F1641]', () => {
	const texts = new Map([['nosuch.x', { value: '5', where: '--set nosuch.x' }]]);
	const { problems, unknown } = resolveSettings([{ source: 'flag', texts }], undefined, resolveSettings([layer({})]));
	const [told] = toldProblems(problems, unknown).map(({ message }) => message);
	expect(told).toMatch(/^--set nosuch\.x: nosuch\.x is not a setting[^.]*\.?$/);
});

test('the address of a plan that is in force stays, whichever way its keys come to be refused, but not that of a variable', () => {
	const url = (name: string) => `https://plans.example/${name}`;
	const before = resolveSettings([layer({ fleet: { planUrl: url('old') } })]);
	const push = [layer({ fleet: { planUrl: url('new') } }), layer({ fleet: { publicKeys: ['none'] } }, 'b')];
	const pushed = resolveSettings(push, undefined, before);
	expect(pushed).toMatchObject({ settings: { fleet: { planUrl: url('old') } }, holdsTogether: false });
	expect(resolveSettings(push, undefined, pushed).settings.fleet.planUrl).toBe(url('old'));
	const variable = { value: url('env'), where: 'IDV_AGENT_FLEET_PLAN_URL' };
	const env: SettingsLayer = { source: 'environment', texts: new Map([['fleet.planUrl', variable]]) };
	const started = resolveSettings([env]);
	expect(resolveSettings([...push, env], undefined, started).settings.fleet.planUrl).toBeNull();
});
