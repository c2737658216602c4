/** A process that logs to its standard output once it is told to, for tests that look at it from the other side. */

import { createLog } from '../../src/base/log.edge.ts';

const log = createLog();
process.stdin.once('data', () => {
	for (let number = 1; number <= Number(process.argv[2]); number += 1) log.warn('waiting', { count: number });
	process.stderr.write('still alive');
	process.stdin.destroy();
});
