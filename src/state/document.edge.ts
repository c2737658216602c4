/**
 * One copy of the state as a file: read with a bound and checked, or formed for a save. Its first line is the digest of all that
 * follows: a wrong byte anywhere shows. Never writes, never names a value in a message.
 *
 * A document in which the digest is absent or not the first field was written by another version, and is taken as it is.
 */
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import type { Checked } from '../base/checked.ts';
import { AgentError } from '../base/errors.ts';
import { errnoOf, inWords, isOutOfRoom, readText, unreadable } from '../base/files.edge.ts';
import { isObject, parseJson } from '../protocol/json.ts';
import type { Copy, CopyStamp } from './copies.ts';
import { type DeviceState, deviceStateSchema, STATE_SCHEMA_VERSION } from './device-state.ts';
import { newerFields, withNewerFields } from './newer-fields.ts';

/** A larger state file is taken for damaged, in bytes. */
const MAX_STATE_BYTES = 1024 * 1024;

type Fields = Readonly<Record<string, unknown>>;

const format = (document: object) => `${JSON.stringify(document, null, '\t')}\n`;
const digestOf = (text: string) => createHash('sha256').update(text).digest('base64url');
const OPENING = '{\n\t"digest": "';
const CLOSING = '",\n';
const DIGEST_LENGTH = 43;
const HEADER_LENGTH = OPENING.length + DIGEST_LENGTH + CLOSING.length;

/** The text of a state that is known to be valid. @throws AgentError `state-unwritable` for one that would not be read again. */
export function formDocument(state: DeviceState, newer: Fields, copy: CopyStamp): string {
	const body = format({ copy, ...withNewerFields(state, newer) }).slice('{\n'.length);
	const text = OPENING + digestOf(body) + CLOSING + body;
	if (Buffer.byteLength(text) <= MAX_STATE_BYTES) return text;
	throw new AgentError(
		'state-unwritable',
		`The state would have more than ${MAX_STATE_BYTES} bytes, and is not written.`,
	);
}

/** `whole`; why it is not; `null` where there is no digest at the head, nor what is left of one. */
function judgeDigest(text: string, document: unknown): 'whole' | 'mismatch' | 'damaged head' | null {
	const body = text.slice(HEADER_LENGTH);
	const said = text.slice(OPENING.length, OPENING.length + DIGEST_LENGTH);
	if (digestOf(body) === said) return text === OPENING + said + CLOSING + body ? 'whole' : 'damaged head';
	return isObject(document) && Object.keys(document)[0] === 'digest' ? 'mismatch' : null;
}

/**
 * @param mayChange whether its permissions may be corrected.
 * @throws AgentError `memory-low` when the system can open no file at all.
 */
export async function readCopy(file: string, checked: Checked, mayChange: boolean): Promise<Copy> {
	let text: string;
	let inode = 0n;
	try {
		text = await readText(file, MAX_STATE_BYTES, {
			// A save never leaves a link, and what one leads to may be anything.
			refuseLink: true,
			inspect({ mode }, descriptor) {
				inode = fs.fstatSync(descriptor, { bigint: true }).ino;
				// Put back by hand or by a backup, it may have become readable for others.
				if (mayChange && mode & 0o077) attempt(() => fs.fchmodSync(descriptor, 0o600));
			},
		});
	} catch (error) {
		const code = errnoOf(error);
		if (code === 'ENOENT') return { kind: 'missing' };
		if (code === 'too-large') return { kind: 'damaged', reason: 'it is far too large' };
		if (code === 'not-utf8') return { kind: 'damaged', reason: CUT };
		if (isOutOfRoom(error)) throw unreadable('state-unreadable', 'The state file', file, error);
		const other = whatElse(file);
		if (other) return { kind: 'damaged', reason: other };
		return { kind: 'unreadable', reason: inWords(error), newerVersion: false };
	}
	return readDocument(text, inode, checked);
}

/** What is in the place of a file: a save leaves nothing of the kind. `null` for a file, and where it cannot be seen. */
function whatElse(file: string): string | null {
	try {
		const found = fs.lstatSync(file);
		if (found.isSymbolicLink()) return 'it is a link';
		if (found.isDirectory()) return 'it is a directory';
		return found.isFile() ? null : 'it is a pipe, a socket or a device';
	} catch {
		return null;
	}
}

const CUT = 'it is cut short or overwritten';

function readDocument(text: string, inode: bigint, checked: Checked): Copy {
	const damaged = (reason: string): Copy => ({ kind: 'damaged', reason });
	if (text === '') return damaged('it is empty');
	const document = parseJson(text);
	if (document === undefined) return damaged(CUT);
	const digest = judgeDigest(text, document);
	if (digest === 'mismatch') return damaged('its content does not match its digest');
	if (digest === 'damaged head') return damaged('its first line is overwritten');
	const { digest: _, copy, ...known } = isObject(document) ? document : {};
	const whole = { kind: 'whole', text, inode, stamp: digest === 'whole' && isStamp(copy) ? copy : null } as const;
	if (checked.has('state', text)) return { ...whole, state: known as DeviceState, newer: {} };
	const version = known['schemaVersion'];
	if (typeof version === 'number' && version > STATE_SCHEMA_VERSION)
		return { kind: 'unreadable', reason: 'it was written by a newer version of the agent', newerVersion: true };
	const state = deviceStateSchema.safeParse(known);
	if (!state.success) {
		const where = state.error.issues[0]?.path.join('.');
		return damaged(where && isObject(document) ? `${where} is not valid` : 'it is not the state of a device');
	}
	const newer = newerFields(known, state.data);
	if (whole.stamp && formDocument(state.data, {}, whole.stamp) === text) checked.add('state', text);
	return { ...whole, state: state.data, newer };
}

function isStamp(copy: unknown): copy is CopyStamp {
	return isObject(copy) && typeof copy['id'] === 'string' && Number.isSafeInteger(copy['save']);
}

function attempt(step: () => void): void {
	try {
		step();
	} catch {
		// Not ours to change: its content is read all the same.
	}
}
