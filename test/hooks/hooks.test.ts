import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { EventSink, LocalRoute } from '../../src/local-api/server/local-server.edge.ts';
import { type HookCall, LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { givenAgent, givenHome, givenPairedAgent, type Home, type LogLine, runHooks } from '../harness/harness.ts';
import { open } from '../local-api/local-server.ts';
import { givenService } from '../service/fixture.ts';

/** Settings by which each hook adds its name and its input to a file, and the lines of that file. */
async function givenHooks(home: Home) {
	const file = join(home.directory, 'called');
	const script = join(home.directory, 'hook.sh');
	await writeFile(
		script,
		`echo "$IDV_AGENT_HOOK $(cat)" >> "$1"\necho 'Connection c0nn3ct10n-4f7Qz9Xk2Lm8' >&2\nexit 3\n`,
	);
	const argv = ['/bin/sh', script, file];
	return {
		settings: {
			hooks: {
				onNotification: argv,
				onOnline: argv,
				onOffline: argv,
				onNeedsPerson: argv,
				onPaired: argv,
				onPairingFailed: argv,
			},
		},
		/** The inputs with which a hook was called. */
		calls: (hook: string) =>
			(existsSync(file) ? readFileSync(file, 'utf8') : '')
				.split('\n')
				.filter((line) => line.startsWith(`${hook} `))
				.map((line) => JSON.parse(line.slice(hook.length + 1))),
	};
}

test('a pairing runs them whichever entrance it comes by: this one is the agent itself', async () => {
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const device = await givenAgent({ home, settings });
	await expect(device.agent.pair({ code: 'no code at all' })).rejects.toMatchObject({ code: 'not-a-pairing-code' });
	await device.untilLogged(({ msg }) => msg.startsWith('onPairingFailed failed'));
	expect(calls('onPairingFailed')).toMatchObject([{ code: 'not-a-pairing-code' }]);
});

test('commands are run for what happens, with JSON on standard input', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const device = await givenAgent({ home, settings });
	const ended = (hook: string) => device.untilLogged(({ msg }) => msg.startsWith(`${hook} failed`));

	await expect(device.client.request('admin', 'POST', '/v1/pair', { code: 'no code at all' })).rejects.toMatchObject({
		code: 'not-a-pairing-code',
	});
	await ended('onPairingFailed');
	expect(calls('onPairingFailed')).toMatchObject([{ code: 'not-a-pairing-code' }]);

	const { url } = service.createPairingCode('check-in');
	await device.client.request('admin', 'POST', '/v1/pair', { code: url, trustOrigin: new URL(url).origin });
	await ended('onPaired');
	await ended('onOnline');
	expect(calls('onPaired')).toMatchObject([{ workflowId: 'check-in', online: true }]);
	expect(calls('onOnline')).toMatchObject([{ state: 'online' }]);

	service.notify({ type: 'hello', id: 'h1' });
	const line = await ended('onNotification');
	expect(calls('onNotification')).toMatchObject([{ type: 'notification', kind: 'hello', data: { id: 'h1' } }]);
	expect(line).toMatchObject({ level: 'warn', exitStatus: 3 });
	expect(device.logText()).not.toContain('4f7Qz9Xk2Lm8');

	await service.close();
	await ended('onOffline');
	expect(calls('onOffline')).toHaveLength(1);
});

test('a device that only a person can bring back online is told once, with its cause [F1869]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const device = await givenAgent({ home, settings });
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilState('online');
	// Until it has lasted for a quarter of an hour, it is an outage like any other.
	service.failNext('/ws/device', { status: 403 }, 3);
	const gone = device.untilState('offline');
	service.dropSockets();
	await gone;
	await device.passWait();
	await device.untilStatus(
		({ problem, channel }) => problem?.code === 'access-forbidden' && channel.nextAttemptAt !== null,
	);
	device.clock.advance(15 * 60_000);
	const first = await device.untilState('blocked');
	// A slow attempt that fails as well is no news.
	await device.passWait();
	await device.untilStatus(
		({ state, channel }) => state === 'blocked' && channel.nextAttemptAt !== first.channel.nextAttemptAt,
	);
	await device.untilLogged(({ msg }) => msg.startsWith('onNeedsPerson failed'));
	await device.untilLogged(({ msg }) => msg.startsWith('onOffline failed'));
	expect(calls('onOffline')).toMatchObject([{ state: 'offline', problem: { code: 'connection-lost' } }]);
	expect(calls('onNeedsPerson')).toMatchObject([{ state: 'blocked', problem: { code: 'access-forbidden' } }]);
	// Unpaired it needs no one; what blocks it after that is told, though it was not online in between.
	await device.agent.unpair();
	const { url: baseUrl, credentials } = service;
	const apiKeyFile = await home.secretFile('key', credentials.apiKey);
	service.failNext({}, { status: 409 });
	await home.writeSettings({ ...settings, baseUrl, workflowId: 'check-in', credential: { apiKeyFile } });
	await device.daemon.reload();
	const { problem } = await device.untilState('blocked');
	await device.untilLogged(({ msg }) => msg.startsWith('onNeedsPerson failed') && calls('onNeedsPerson').length > 1);
	expect(calls('onNeedsPerson')[1]).toMatchObject({ state: 'blocked', problem: { code: problem?.code } });
});

/** The program beside a device, started when a test says so, and the hooks whose commands have ended. */
function givenProgram(home: Home) {
	const lines: LogLine[] = [];
	let look = () => {};
	const hooks = runHooks(home, (line) => {
		lines.push(JSON.parse(line));
		look();
	});
	const close = () => hooks.close();
	onTestFinished(close);
	return {
		close,
		lines,
		logged: (text: string, count = 1) =>
			new Promise<void>((resolve) => {
				look = () => {
					if (lines.filter(({ msg }) => msg.includes(text)).length >= count) resolve();
				};
				look();
			}),
	};
}

test('what happens while no program runs the commands waits for one, and none is told what another has started [F535]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	await home.writeSettings(settings);
	const device = await givenPairedAgent(service, { home });
	const first = givenProgram(home);
	await first.logged('onOnline failed');
	await first.logged('onPaired failed');
	await first.close();

	service.dropSockets();
	await device.untilState('offline');
	const second = givenProgram(home);
	await second.logged('onOffline failed');
	expect([calls('onPaired'), calls('onOnline'), calls('onOffline')].map(({ length }) => length)).toEqual([1, 1, 1]);
	await second.close();
});

test('a notification is told once, over restarts of either program, from when its hook was set [F536]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const told = () => calls('onNotification').map(({ data }) => data.id);
	const before = await givenPairedAgent(service, { home });
	const notify = async (id: string) => {
		service.notify({ type: 'hello', id });
		await before.untilEvent(({ content }) => content.includes(id));
	};
	await notify('too-early');
	await home.writeSettings({ hooks: { onNotification: settings.hooks.onNotification } });
	await before.daemon.reload();
	await notify('n1');
	const first = givenProgram(home);
	await first.logged('onNotification failed');
	await first.close();
	await notify('n2');
	await before.stop();

	const after = await givenAgent({ home });
	const second = givenProgram(home);
	await second.logged('onNotification failed');
	expect(told()).toEqual(['n1', 'n2']);
	await second.close();
	// Applications that read without a name find them all the same.
	const kept = (await after.events()).filter(({ type }) => type === 'notification');
	expect(kept.map(({ content }) => JSON.parse(content).id)).toEqual(['too-early', 'n1', 'n2']);

	// A hook that is no longer set keeps nothing on the device.
	await home.writeSettings({});
	await after.daemon.reload();
	expect(after.agent.events.positionOf('idv-agent-hooks')).toBeNull();
});

test('a command that had no turn before the program ended is started by the next one [F537]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const slow = ['/bin/sh', '-c', 'echo begun >&2; exec sleep 60'];
	await home.writeSettings({ hooks: { onNotification: slow } });
	const device = await givenPairedAgent(service, { home });
	for (const id of ['1', '2', '3', '4', 'fifth']) service.notify({ type: 'hello', id });
	await device.untilEvent(({ content }) => content.includes('fifth'));
	const first = givenProgram(home);
	const position = () => device.agent.events.positionOf('idv-agent-hooks');
	const fourth = (await device.events()).filter(({ type }) => type === 'notification')[3]?.id;
	await expect.poll(position, { timeout: 20_000 }).toBe(fourth);
	await first.close();
	await first.logged('onNotification was ended by a signal: begun', 4);

	await home.writeSettings({ hooks: { onNotification: settings.hooks.onNotification } });
	const second = givenProgram(home);
	await second.logged('onNotification failed');
	expect(calls('onNotification').map(({ data }) => data.id)).toEqual(['fifth']);
	await second.close();
});

test('a second program is refused, so that no command runs twice, and goes on when the first has ended [F538]', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const device = await givenAgent({ home, settings });
	const second = givenProgram(home);
	await second.logged('Another program runs the commands of hooks.* already');
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilLogged(({ msg }) => msg.startsWith('onOnline failed'));
	expect(calls('onOnline')).toHaveLength(1);
	await second.close();
});

test('each outage of the agent is logged once, also one with the same words as the last', async () => {
	const home = await givenHome();
	const program = givenProgram(home);
	await program.logged('cannot be followed');
	const fourth = Promise.withResolvers<void>();
	let times = 0;
	const stream = (sink: EventSink) => {
		times += 1;
		if (times === 4) fourth.resolve();
		// It is there for a moment, away without one, and there again.
		if (times !== 2) sink.send({ event: 'hooks', data: '[]' });
		sink.close();
		return () => {};
	};
	const route: LocalRoute = {
		...{ method: 'GET', path: LOCAL_ROUTES.hookStream, listeners: ['agent'] },
		handle: () => ({ stream }),
	};
	await open([route], { runDir: home.paths.runDir });
	await fourth.promise;
	await program.close();
	const said = program.lines.map(({ msg }) => msg.replace(/^the agent cannot be followed.*: /, ''));
	expect(said).toEqual([expect.stringContaining('No agent'), ...Array(2).fill('the agent has ended the stream')]);
});

test('a hook that the files of the program do not name is said, counted, and not told again', async () => {
	const service = await givenService();
	const home = await givenHome();
	const device = await givenPairedAgent(service, { home, sets: ['hooks.onOnline=/bin/true'] });
	const program = givenProgram(home);
	await program.logged(
		'onOnline could not be started (the agent has a command for it, and the settings of this program',
	);
	await program.close();
	const metrics = await device.client.request('admin', 'POST', '/v1/hooks/report', { outcome: 'exited' });
	expect(metrics).toEqual({ waiting: 0 });
});

test('the end of the agent is told to no hook', async () => {
	const service = await givenService();
	const sets = ['hooks.onOnline=["/bin/true"]', 'hooks.onOffline=["/bin/true"]'];
	const device = await givenPairedAgent(service, { sets });
	const told: string[] = [];
	const isTold = Promise.withResolvers<void>();
	const ended = device.client
		.events(LOCAL_ROUTES.hookStream, {}, async ({ event, data }) => {
			if (event !== 'call') return;
			told.push((JSON.parse(data) as HookCall).hook);
			isTold.resolve();
		})
		.catch(() => {});
	await isTold.promise;
	await device.stop();
	await ended;
	expect(told).toEqual(['onOnline']);
});
