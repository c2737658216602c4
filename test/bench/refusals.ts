/**
 * `npm run suite -- bench:refusals`: what a service that wrongly answers 401 for a minute costs devices with good API keys, and when a
 * device whose credential is really revoked asks for a person. The product's own decisions on a virtual clock.
 *
 * `npm run suite -- bench:refusals --devices 10000 --seed 1`
 */
import { parseArgs } from 'node:util';
import { badMinute, quantile, revokedForGood } from '../connection/virtual-fleet.ts';

const { values } = parseArgs({
	options: { devices: { type: 'string', default: '10000' }, seed: { type: 'string', default: '1' } },
});
const devices = Number(values.devices);
const seed = Number(values.seed);
const cell = (value: number, width: number) => value.toFixed(0).padStart(width);

console.log(`${devices} devices with good API keys, 60 s of 401 from second 0 on; seconds from second 0\n`);
console.log('channels end by  Connections after  median  99 %   all  registrations a device  asked a person');
for (const cut of ['lost', 'refused'] as const)
	for (const connections of ['good', 'gone'] as const) {
		const { backAt, blockedAt, registrations } = badMinute({ devices, seed, cut, connections });
		const asked = blockedAt.filter(Number.isFinite).length;
		const times = [0.5, 0.99, 1].map((share) => cell(quantile(backAt, share), 6)).join('');
		console.log(
			`${cut.padEnd(15)}  ${connections.padEnd(17)} ${times}  ${(registrations / devices).toFixed(2).padStart(22)}  ${cell(asked, 14)}`,
		);
	}
console.log('\nrevoked for good   asks for a person after, s: first  median  last');
for (const hasKey of [false, true]) {
	const { blockedAt } = revokedForGood({ devices, seed, hasKey });
	const times = [1 / devices, 0.5, 1].map((share) => cell(quantile(blockedAt, share), 7)).join('');
	console.log(`${(hasKey ? 'key and Connection' : 'Connection alone').padEnd(44)} ${times}`);
}
