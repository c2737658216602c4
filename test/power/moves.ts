/** Power cuts while a paired device is moved: by a person, by the service, by a new code; and while it is unpaired. */
import { expect } from 'vitest';
import { LOCAL_ROUTES } from '../../src/protocol/local-api.ts';
import { type Bed, givenBed, WORKFLOWS } from './bed.ts';
import type { LossyDisk } from './lossy-disk.ts';
import type { Cut } from './plan.ts';
import type { Planted } from './programs.ts';

/** Each resolves when somebody was told that the device is at `to`. */
const MOVES: Readonly<Record<string, (bed: Bed, to: string) => Promise<unknown>>> = {
	person: ({ device }, to) => device.client.request('admin', 'PUT', LOCAL_ROUTES.workflow, { workflowId: to }),
	service: ({ device, service }, to) => {
		service.changeWorkflow('KIOSK-7', to);
		return device.untilStatus(({ workflow }) => workflow.live === to, `workflow ${to}`);
	},
	code: ({ device, service }, to) => {
		const code = service.createPairingCode(to).url;
		const body = { code, trustOrigin: new URL(code).origin, replace: true };
		return device.client.request('admin', 'POST', LOCAL_ROUTES.pair, body, { deadlineMs: 60_000 });
	},
};

/** What was said to be done is done after the cut, what was not is done or not; and the device is online either way. */
export async function cutWhileMoving(disk: LossyDisk, cut: Cut, program?: Planted): Promise<void> {
	const { random } = cut;
	const bed = await givenBed(disk, cut, program && { program });
	const { device, service } = bed;
	await device.start();
	await device.pair(service.createPairingCode('check-in').url);
	await device.untilState('online');
	// Two moves take up to 80.
	const steps = Math.floor(random() * 80);
	if (random() < 0.2) return cutWhileUnpairing(bed, steps);

	const kind = Object.keys(MOVES)[Math.floor(random() * 3)] ?? 'person';
	// A second move goes over what the first has left.
	const [first, second] = random() < 0.5 ? ['boarding', 'lounge'] : ['lounge', 'check-in'];
	const done: string[] = [];
	const { report } = await bed.cutDuring(async () => {
		for (const to of [first, second]) {
			await MOVES[kind]?.(bed, to);
			done.push(to);
		}
	}, steps);
	const story = `${kind}, said: ${done.join(', ')}, ${JSON.stringify(report)}`;
	await device.start();
	const status = await device.untilStatus(
		({ state, workflow }) => (state === 'online' && workflow.live === workflow.wanted) || state === 'unpaired',
		'settled state',
	);
	expect(status.state, story).toBe('online');
	expect(
		status.warnings.filter(({ code }) => code.startsWith('state-')),
		story,
	).toEqual([]);
	const order = ['check-in', first, second];
	// The next move may have been half done: then it is carried on.
	const possible = order.slice(done.length, done.length + 2);
	expect(possible, story).toContain(status.workflow.live);
	expect(WORKFLOWS).toContain(status.workflow.live);
}

/** An unpaired device has no Connection, in no file. */
async function cutWhileUnpairing({ device, disk, cutDuring }: Bed, steps: number): Promise<void> {
	const tokens = [...(await device.state()).matchAll(/"token": "([^"]+)"/g)].map(([, token = '']) => token);
	expect(tokens).not.toEqual([]);
	const { said, report } = await cutDuring(() => device.client.request('admin', 'POST', LOCAL_ROUTES.unpair), steps);
	if (said) for (const token of tokens) expect(await disk.holding(token), JSON.stringify(report)).toEqual([]);
	await device.start();
	const { state } = await device.untilStatus(({ state }) => ['unpaired', 'online'].includes(state), 'settled state');
	if (said) expect(state, JSON.stringify(report)).toBe('unpaired');
}
