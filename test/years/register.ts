/**
 * Before any of the agent is loaded: its file system and SQLite's files give way to the simulated
 * machine's; and where a bug is to be planted, the source is changed on its way in, not on the disk.
 */
import { registerHooks } from 'node:module';
import { databaseOn } from './disk.ts';
import { currentDisk } from './machine-edges.ts';
import type { Plant } from './planted.ts';

const SOURCES = new URL('../../src/', import.meta.url).href;
const STAND_INS: Readonly<Record<string, string>> = {
	'node:fs': './fs-sync.ts',
	'node:fs/promises': './fs-async.ts',
};
/** Reads the sources of the program, which a device has built in. */
const READS_SOURCES = `${SOURCES}base/shapes.edge.ts`;

/** @throws when the text that a bug replaces is not in its file exactly once. */
export function replaceMachine(plant: Plant | null): void {
	registerHooks({
		resolve(specifier, context, next) {
			const isAgent = context.parentURL?.startsWith(SOURCES) && context.parentURL !== READS_SOURCES;
			const standIn = isAgent ? STAND_INS[specifier] : undefined;
			return standIn ? { url: new URL(standIn, import.meta.url).href, shortCircuit: true } : next(specifier, context);
		},
		load(url, context, next) {
			const loaded = next(url, context);
			const edits = plant?.edits.filter(([file]) => url === `${SOURCES}${file}`) ?? [];
			if (edits.length === 0) return loaded;
			let source = String(loaded.source);
			for (const [file, from, to] of edits) {
				if (source.split(from).length !== 2) throw new Error(`${plant?.name}: not once in ${file}`);
				source = source.replace(from, () => to);
			}
			return { ...loaded, source };
		},
	});
	const getBuiltinModule = process.getBuiltinModule.bind(process) as (id: string) => object | undefined;
	const sqlite = { DatabaseSync: databaseOn(currentDisk) };
	process.getBuiltinModule = ((id: string) => (id === 'node:sqlite' ? sqlite : getBuiltinModule(id))) as never;
}
