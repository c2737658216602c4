import { cpus } from 'node:os';
import { expect, test } from 'vitest';
import { readMachineFacts } from '../../src/identity/machine-facts.edge.ts';

test('the facts of this machine are told, and nothing that is its alone', async () => {
	const facts = await readMachineFacts();
	// Neither serial number nor UUID, whatever the packages read: these fields and no other.
	expect(facts).toEqual({
		manufacturer: facts.manufacturer && expect.any(String),
		model: facts.model && expect.any(String),
		isVirtual: expect.any(Boolean),
		processor: facts.processor && expect.any(String),
		physicalCores: facts.physicalCores && expect.any(Number),
		celsius: facts.celsius && expect.any(Number),
		battery: facts.battery && { percent: expect.any(Number), isCharging: expect.any(Boolean) },
	});
	// Containers may not say how many there are.
	expect(facts.physicalCores ?? 1).toBeGreaterThanOrEqual(1);
	expect(facts.physicalCores ?? 1).toBeLessThanOrEqual(cpus().length);
});
