/**
 * Lists everything that is shipped as a CycloneDX document: the packages inside the programs, Node and the parts of Node. `npm run sbom`
 * writes it; the Debian package carries it. The same input gives the same bytes: no time, no chance.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { bundle, ENTRIES } from './bundle.ts';

interface LockedPackage {
	readonly version: string;
	readonly integrity?: string;
	readonly license?: string;
}

/** `scripts/node-binaries.json`: for each architecture the npm package that Node comes in, and the hash of the binary itself. */
export interface NodeBinary {
	readonly package: string;
	readonly version: string;
	/** Of `bin/node`, hexadecimal. */
	readonly sha256: string;
}

/** Keys of `process.versions` that number interfaces or data rather than parts. */
const NO_PARTS: readonly string[] = ['node', 'modules', 'napi', 'unicode', 'cldr', 'tz'];

export async function readNodeBinaries(root: string): Promise<Readonly<Record<string, NodeBinary>>> {
	return JSON.parse(await readFile(join(root, 'scripts/node-binaries.json'), 'utf8'));
}

/** Refuses a Node that is not the one this repository names. @throws Error that names both hashes. */
export async function checkNodeBinary(root: string, architecture: string, file: string): Promise<void> {
	const pinned = (await readNodeBinaries(root))[architecture];
	const found = createHash('sha256')
		.update(await readFile(file))
		.digest('hex');
	if (found !== pinned?.sha256)
		throw new Error(`${file} has sha256 ${found}; scripts/node-binaries.json names ${pinned?.sha256 ?? 'none'}.`);
}

/**
 * The packages inside the programs, by their place in `node_modules`, in its order: those of which the bundler has put something into
 * a file. A package that is installed and left out of every bundle is on no device, so that no fault of it counts.
 */
export async function shippedPackages(
	root: string,
): Promise<ReadonlyMap<string, LockedPackage & { readonly name: string }>> {
	const held = new Set<string>();
	const outDir = await mkdtemp(join(tmpdir(), 'idv-sbom-'));
	await bundle({ root, entries: ENTRIES, outDir, packages: held }).finally(() => rm(outDir, { recursive: true }));
	const lock = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as {
		packages: Record<string, LockedPackage>;
	};
	return new Map(
		[...held].toSorted().map((name) => {
			const place = `node_modules/${name}`;
			const entry = lock.packages[place];
			if (entry === undefined) throw new Error(`${place} is in a program, and package-lock.json does not name it.`);
			return [place, { ...entry, name: place.slice(place.lastIndexOf('node_modules/') + 13) }];
		}),
	);
}

/** The document as text. */
export async function writeSbom(root: string): Promise<string> {
	const { name, version, license } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
	const packages = [...(await shippedPackages(root)).values()].map((entry) => ({
		type: 'library',
		...identified(entry.name, entry.version),
		...(entry.integrity && { hashes: [hashOf(entry.integrity)] }),
		licenses: [licensed(entry.license ?? 'NOASSERTION')],
	}));
	const binaries = await readNodeBinaries(root);
	const node = Object.entries(binaries).map(([architecture, binary]) => ({
		type: 'platform',
		'bom-ref': `node-${architecture}`,
		name: 'node',
		version: binary.version,
		description: `Node.js for linux-${architecture}, from the npm package ${binary.package}; stripped of its symbols when it is shipped`,
		purl: `pkg:npm/${binary.package}@${binary.version}`,
		cpe: `cpe:2.3:a:nodejs:node.js:${binary.version}:*:*:*:*:*:*:*`,
		hashes: [{ alg: 'SHA-256', content: binary.sha256 }],
		licenses: [licensed('MIT')],
	}));
	const parts = Object.entries(await partsOfNode(root))
		.filter(([part]) => !NO_PARTS.includes(part))
		.map(([part, at]) => ({
			type: 'library',
			'bom-ref': `node-part-${part}`,
			name: part,
			version: at,
			description: 'Part of Node.js',
			purl: `pkg:generic/${part}@${encodeURIComponent(at)}`,
		}));
	// One package may be there in one version twice.
	const components = [...new Map([...packages, ...node, ...parts].map((part) => [part['bom-ref'], part])).values()];
	const subject = { type: 'application', 'bom-ref': name, name, version, licenses: [licensed(license)] };
	const body = {
		bomFormat: 'CycloneDX',
		specVersion: '1.6',
		version: 1,
		metadata: { component: subject },
		components,
		dependencies: [
			{ ref: name, dependsOn: [...packages, ...node].map((part) => part['bom-ref']).filter(isFirst) },
			...node.map((part) => ({ ref: part['bom-ref'], dependsOn: parts.map((inner) => inner['bom-ref']) })),
		],
	};
	const digest = createHash('sha256').update(JSON.stringify(body)).digest('hex');
	const uuid = `${digest.slice(0, 8)}-${digest.slice(8, 12)}-5${digest.slice(13, 16)}-8${digest.slice(17, 20)}-${digest.slice(20, 32)}`;
	return `${JSON.stringify({ ...body, serialNumber: `urn:uuid:${uuid}` }, null, '\t')}\n`;
}

const isFirst = (item: string, at: number, all: readonly string[]) => all.indexOf(item) === at;

function identified(name: string, version: string) {
	const purl = `pkg:npm/${name.replace('@', '%40')}@${version}`;
	return { 'bom-ref': purl, name, version, purl };
}

/** An identifier, or an expression of several. */
function licensed(license: string) {
	return /[ ()]/.test(license) ? { expression: license.replace(/^\((.*)\)$/, '$1') } : { license: { id: license } };
}

/** npm writes base64, CycloneDX hexadecimal. */
function hashOf(integrity: string) {
	const [algorithm = '', digest = ''] = integrity.split('-');
	return {
		alg: algorithm.toUpperCase().replace('SHA', 'SHA-'),
		content: Buffer.from(digest, 'base64').toString('hex'),
	};
}

/** As the Node that is shipped says itself; the parts are the same for each architecture. */
async function partsOfNode(root: string): Promise<Record<string, string>> {
	const binary = join(root, 'node_modules', `node-linux-${process.arch}`, 'bin/node');
	if (!existsSync(binary)) throw new Error(`${binary} is not there: npm ci brings it.`);
	const script = 'process.stdout.write(JSON.stringify(process.versions))';
	const { stdout } = await promisify(execFile)(binary, ['-e', script], { env: {} });
	return JSON.parse(stdout);
}

if (import.meta.filename === process.argv[1]) {
	const root = resolve(import.meta.dirname, '..');
	const out = resolve(process.argv[2] ?? join(root, 'build/sbom.cdx.json'));
	const document = await writeSbom(root);
	await mkdir(dirname(out), { recursive: true });
	await writeFile(out, document);
	console.log(`${out}: ${JSON.parse(document).components.length} components`);
}
