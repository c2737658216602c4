/**
 * The `package.json` of the tarball: what a project that installs it may be given, and nothing that is for the checkout only. No
 * dependency (the bundles hold theirs), so neither a Node nor a script that npm would run; and the Node that the libraries need, since
 * the commands say themselves what they need. npm packs the file that lies in the root: `prepack` puts this one there and `postpack`
 * the checkout's own back (after a pack that was cut off in between, `git checkout package.json` does).
 */
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const ROOT = resolve(import.meta.dirname, '..');
const MANIFEST = join(ROOT, 'package.json');
const KEPT = join(ROOT, 'node_modules/.cache/idv-agent/package.json');
/** The oldest Node that `client` and `testing` are tried with. */
const OLDEST_FOR_LIBRARIES = '>=18';
const PACKED = ['name', 'version', 'description', 'license', 'type', 'bin', 'exports', 'files'];

const now = JSON.parse(readFileSync(MANIFEST, 'utf8')) as Record<string, unknown>;
if (process.argv[2] === 'restore') copyFileSync(KEPT, MANIFEST);
else if ('scripts' in now) {
	mkdirSync(dirname(KEPT), { recursive: true });
	copyFileSync(MANIFEST, KEPT);
	const packed = Object.fromEntries(PACKED.map((name) => [name, now[name]]));
	writeFileSync(MANIFEST, `${JSON.stringify({ ...packed, engines: { node: OLDEST_FOR_LIBRARIES } }, null, '\t')}\n`);
}
