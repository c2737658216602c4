/** What a command tells a person to do helps: each refusal is made, its remedy is carried out, and then it works. */
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { authorizationOf } from '../operator/operator.ts';
import { finish, givenHome } from './command.ts';
import { givenDevice } from './device.ts';
import { expectRefusal } from './refusal.ts';

test('no pairing code: one that idv qrcode makes is taken [F082]', async () => {
	const { pair, home, service } = await givenDevice();
	const refused = await pair('Milk, 1 litre');
	expectRefusal(refused, { status: 65, code: 'not-a-pairing-code', words: /idv qrcode makes one/ });
	const operator = {
		IDV_URL: service.url,
		IDV_AUTHORIZATION: authorizationOf('Basic', service),
		XDG_CONFIG_HOME: home.directory,
	};
	const picture = join(home.directory, 'code.png');
	const made = await finish('idv', ['qrcode', '--workflow', 'document-check', '--out', picture], operator);
	expect(made).toMatchObject({ status: 0 });
	expect(await home.agent(['pair', '--image', picture])).toMatchObject({ status: 0 });
});

test('a mistake on the command line: the help that is named shows how it is written [F100]', async () => {
	const home = await givenHome();
	const refused = await home.agent(['config', 'shwo']);
	expectRefusal(refused, { status: 64, code: 'usage', words: /See "idv-agent config --help"/ });
	const [, named = ''] = /See "idv-agent ([^"]+)"/.exec(refused.stderr) ?? [];
	const help = await home.agent(named.split(' '));
	const [, command = ''] = /^ +(show)\b/m.exec(help.stdout) ?? [];
	expect(await home.agent(['config', command])).toMatchObject({ status: 0 });
});

test('no agent that runs: started as it is said, it answers [F108]', async () => {
	const home = await givenHome();
	const refused = await home.agent(['status']);
	expectRefusal(refused, {
		status: 69,
		code: 'agent-not-running',
		words: /or idv-agent run; or check the path of its socket\. \[/,
	});
	await home.run();
	expect(await home.agent(['status'])).toMatchObject({ status: 0 });
});
