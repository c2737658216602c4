/** A process that watches settings and has nothing else to do: it ends at once, or the watch keeps it alive. */
import { watchSettings } from '../../src/settings/files.edge.ts';

watchSettings({ configFile: process.argv[2] ?? '' }, () => process.exit(1));
process.stdout.write('watching');
