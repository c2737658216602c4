/** The writer of what leaves: with the words of this program, and a key of its own that is never kept. */
import { hash as digest, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { createShaper, type Shaper } from './shapes.ts';
import { wordsOf } from './words.ts';

/** Built in by the bundler; read from the sources in a checkout. */
declare const IDV_AGENT_WORDS: string | undefined;

const MAX_KNOWN = 4096;
const known = new Map<string, boolean>();
let words = '';

function isKnown(word: string): boolean {
	const answer = known.get(word);
	if (answer !== undefined) return answer;
	if (words === '') words = typeof IDV_AGENT_WORDS === 'string' ? IDV_AGENT_WORDS : readWords();
	if (known.size >= MAX_KNOWN) known.clear();
	const isIn = words.includes(` ${word} `) || Object.hasOwn(constants.errno, word);
	known.set(word, isIn);
	return isIn;
}

/** Between spaces, in one text: a list of them would stay in memory for months. @param root the folder with the sources. */
export function readWords(root = join(import.meta.dirname, '..')): string {
	// `globSync` asks for the working directory, which may be gone.
	const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
	const sources = files.map((file) => readFileSync(join(root, file), 'utf8'));
	return ` ${wordsOf(sources).join(' ')} `;
}

/** Of the marks of equal texts. */
export const newKey = () => randomBytes(32).toString('hex');

/** @param own hosts, ids and paths of this device. @param keepsShapes for texts that were written by another writer. */
export function openShaper(own: () => readonly string[] = () => [], keepsShapes = false, key = newKey()): Shaper {
	const hash = (text: string) => digest('sha256', `${key}${text}`, 'hex').slice(0, 6);
	return createShaper({ isKnown, hash, own, now: Date.now, keepsShapes });
}
