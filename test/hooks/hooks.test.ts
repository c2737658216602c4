import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { givenAgent, givenHome, type Home } from '../harness/harness.ts';
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

test('a device that only a person can bring back online is told once, with its cause', async () => {
	const service = await givenService();
	const home = await givenHome();
	const { settings, calls } = await givenHooks(home);
	const device = await givenAgent({ home, settings });
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilState('online');
	service.failNext('/ws/device', { status: 403 }, 2);
	const gone = device.untilState('offline');
	service.dropSockets();
	await gone;
	await device.passWait();
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
});
