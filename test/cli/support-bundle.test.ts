import { execFileSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { givenHome } from './command.ts';
import { expectRefusal } from './refusal.ts';

test('a bundle never takes the place of a file, says where it cannot be, and is written to another name [F135]', async () => {
	const home = await givenHome();
	const taken = join(home.directory, 'taken.tar.gz');
	await writeFile(taken, 'precious');
	const refused = await home.agent(['support-bundle', '--out', taken]);
	expectRefusal(refused, { status: 74, code: 'bundle-unwritable', words: /there is a file already/ });
	const free = join(home.directory, 'free.tar.gz');
	expect(await home.agent(['support-bundle', '--out', free])).toMatchObject({ status: 0 });
	const unpacked = execFileSync('tar', ['-tzf', free], { encoding: 'utf8' }).trim().split('\n');
	const folders = new Set(unpacked.map((name) => name.split('/')[0]));
	expect([...folders]).toEqual([expect.stringMatching(/^idv-agent-support-\d{4}-\d\d-\d\dT\d{6}$/)]);
	expect(unpacked).toContain(`${[...folders][0]}/status.json`);
});
