import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { SECRET_MARK } from '../../src/base/redact.ts';
import { plantedForms } from '../base/planted-forms.ts';
import { givenAgent, givenHome } from '../harness/harness.ts';

const KEY = 'aK7d9-Qz3x_Lm/Tf5+Wp2v==Rk8';
/** Beside the rest of what it was sent, each tenth form: one request each. */
const FORMS = [...plantedForms(KEY)].filter((_, at) => at % 10 === 3);

test('a service that says back what it was sent, in any form, makes no secret appear: log, status, page, errors', async () => {
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
	const seen: string[] = [];
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
		seen.push(
			[name, JSON.stringify(device.agent.status()), await view.text(), JSON.stringify(refused), device.logText()].join(
				'\n',
			),
		);
		expect(seen.at(-1)).toContain(SECRET_MARK);
		// The beginning of the form, and pieces that many forms leave as they are.
		for (const piece of [text.slice(0, 24), KEY.slice(0, 10), KEY.slice(-12)])
			expect(seen.at(-1)?.toLowerCase(), name).not.toContain(piece.toLowerCase());
	}
});
