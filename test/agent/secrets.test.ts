import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { plantedForms } from '../base/planted-forms.ts';
import { leftOf } from '../base/spellings.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';

const KEY = 'aK7d9-Qz3x_Lm/Tf5+Wp2v==Rk8';
/** Beside the rest of what it was sent, each tenth form: one request each. */
const FORMS = [...plantedForms(KEY)].filter((_, at) => at % 10 === 3);

test('a service that says back what it was sent, in any form, brings nothing of it into the log, and nothing as it is to people', async () => {
	let form = '';
	const service = createServer((request, response) => {
		request.resume();
		response.writeHead(403, { 'Content-Type': 'application/problem+json' });
		response.end(JSON.stringify({ title: 'Forbidden', detail: `You sent ${form} to us.` }));
	});
	await once(service.listen(0, '127.0.0.1'), 'listening');
	onTestFinished(() => void service.close());
	const home = await givenHome();
	const baseUrl = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
	const device = await givenAgent({
		home,
		settings: {
			baseUrl,
			workflowId: 'check-in',
			credential: { apiKeyFile: await home.secretFile('key', KEY) },
			page: { port: 0 },
		},
	});
	await device.untilStatus(({ problem }) => problem?.code === 'access-forbidden');
	const page = device.daemon.addresses.page ?? '';
	for (const [name, text] of FORMS) {
		form = text;
		const tries = device.log.length;
		device.agent.reconnect();
		await device.untilLogged((line) => device.log.indexOf(line) >= tries && line.msg === 'wait');
		const view = await fetch(`${page}api/view`);
		expect(view.status).toBe(200);
		const refused = await device.agent
			.pair({ code: `${baseUrl}/mobile?authorization=Token%20${encodeURIComponent(KEY)}` })
			.catch((error: Error) => JSON.stringify(error));
		const shown = [JSON.stringify(device.agent.status()), await view.text(), JSON.stringify(refused)].join('\n');
		// A person reads the words of the service, but for what it was sent itself.
		expect(shown, name).toContain('answered 403');
		expect(shown, name).not.toContain(KEY);
		expect(leftOf(device.logText(), KEY, text), name).toBeNull();
	}
	expect(device.logText()).toMatch(/answered 403: You sent/);
});
