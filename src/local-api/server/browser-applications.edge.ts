/**
 * The file of the applications: for each its origin and token, or its own socket, and what it may do. Reads it, refuses it
 * when others could read or change it, and never shows a token in an error.
 */
import type { IncomingMessage } from 'node:http';
import { AgentError } from '../../base/errors.ts';
import { exposureOf } from '../../base/file-trust.edge.ts';
import { inWords, readText } from '../../base/files.edge.ts';
import { isLoopback } from '../../protocol/endpoints.ts';
import { MAX_APPLICATIONS } from '../../protocol/local-api.ts';
import { OWN_REQUESTS } from '../memory-budget.ts';

export interface BrowserApplication {
	/** For people who read the file. */
	readonly name: string;
	/** Compared exactly with the `Origin` of a browser. */
	readonly origin: string;
	/** A secret: at least {@link MIN_TOKEN_LENGTH} characters. */
	readonly token: string;
	/** The group of its own socket, `apps/NAME.sock`; absent for an application in a browser, whose origin and token are then set. */
	readonly socket?: string;
	/** Paths of the service under which it may ask, of those that `forward.allow` leaves; absent for all of them. */
	readonly allow?: readonly string[];
	/** `false` leaves the contents of notifications out. Default `true`. */
	readonly contents?: boolean;
	/** Requests, forwarded requests, and streams or waits at once; absent for {@link SHARES}. */
	readonly shares?: Partial<Shares>;
}

/** Of one application, at once. */
export interface Shares {
	readonly connections: number;
	readonly uploads: number;
	readonly waits: number;
}

export const SHARES: Shares = { connections: OWN_REQUESTS, uploads: 4, waits: 4 };

/** The application that a request was let in as. */
const callers = new WeakMap<IncomingMessage, BrowserApplication>();
export const letInAs = (request: IncomingMessage, application: BrowserApplication) => {
	callers.set(request, application);
};
export const callerOf = (request: IncomingMessage): BrowserApplication | null => callers.get(request) ?? null;

const MIN_TOKEN_LENGTH = 32;
const MAX_BYTES = 65_536;

/** Reads and understands the file. @throws as {@link readApplicationsText} and {@link parseApplications}. */
export async function readBrowserApplications(file: string): Promise<readonly BrowserApplication[]> {
	return parseApplications(await readApplicationsText(file), file);
}

/**
 * One application on each line, as `name origin token`, with spaces or tabs between; `#` begins a comment
 * line. An application with several origins has several lines.
 * @throws AgentError `settings-invalid`: names the line that is wrong.
 */
export function parseApplications(text: string, file: string): readonly BrowserApplication[] {
	const lines = text.split(/\r?\n/);
	const applications = lines.flatMap((line, index) => {
		const text = line.trim();
		if (text === '' || text.startsWith('#')) return [];
		const parsed = parseLine(text);
		if (typeof parsed === 'string') throw invalid(file, `line ${index + 1}: ${parsed}`);
		return [parsed];
	});
	if (applications.length === 0) throw invalid(file, 'it names no application');
	if (applications.length > MAX_APPLICATIONS) throw invalid(file, `it has more than ${MAX_APPLICATIONS} applications`);
	const inBrowser = applications.filter(({ socket }) => socket === undefined);
	const owners = new Map(inBrowser.map(({ token, name }) => [token, name]));
	const taken = inBrowser.find(({ token, name }) => owners.get(token) !== name);
	if (taken) throw invalid(file, `${taken.name} and ${owners.get(taken.token)} have the same token`);
	return applications;
}

/** The application, or what is wrong with the line. */
function parseLine(text: string): BrowserApplication | string {
	const [name = '', origin = '', token = '', ...more] = text.split(/\s+/);
	if (token === '') return 'it is not "name origin token"';
	const options = parseOptions(more);
	if (typeof options === 'string') return options;
	if (!/^[A-Za-z0-9._-]{1,64}$/.test(name))
		return 'the name may have 1 to 64 letters, digits, dots, dashes and underscores';
	if (origin === '-' && token === '-')
		return options.socket === undefined
			? 'it has neither an origin nor socket=GROUP'
			: { name, origin, token, ...options };
	if (options.socket !== undefined) return 'an application with socket=GROUP has - in place of origin and token';
	if (!isOrigin(origin)) return 'the origin is not one as browsers send it, such as https://kiosk.example.com';
	if (origin.startsWith('http:') && !isLoopback(origin))
		return 'the origin has to be https (http only for this machine)';
	if (!new RegExp(`^[A-Za-z0-9._~+/=-]{${MIN_TOKEN_LENGTH},256}$`).test(token))
		return `the token needs ${MIN_TOKEN_LENGTH} to 256 letters, digits and -._~+/=`;
	return { name, origin, token, ...options };
}

type Options = Pick<BrowserApplication, 'socket' | 'allow' | 'contents' | 'shares'>;

/** The options after the token: `allow=/a,/b contents=no connections=4 uploads=2 waits=2 socket=GROUP`, in any order. */
function parseOptions(words: readonly string[]): Options | string {
	const given = new Map(words.map((word) => [word.split('=')[0], word.slice(word.indexOf('=') + 1)]));
	if (given.size < words.length) return 'an option is there twice';
	const shares: Partial<Record<keyof Shares, number>> = {};
	let options: Options = {};
	for (const [key = '', value] of given) {
		if (key === 'allow' && /^\/[^?#,]*(,\/[^?#,]*)*$/.test(value)) options = { ...options, allow: value.split(',') };
		else if (key === 'contents' && /^(yes|no)$/.test(value)) options = { ...options, contents: value === 'yes' };
		else if (key === 'socket' && /^[\w.-]{1,64}$/.test(value)) options = { ...options, socket: value };
		else if (Object.hasOwn(SHARES, key) && /^([1-9]|[1-5]\d|6[0-4])$/.test(value))
			shares[key as keyof Shares] = Number(value);
		// A second token, or one behind a word too many, is a secret.
		else
			return `${/^[a-z]{1,12}$/i.test(key) ? key : 'a word behind the token'} is not an option, or its value is not valid`;
	}
	return Object.keys(shares).length > 0 ? { ...options, shares } : options;
}

/** Also of a browser's extensions and of applications that bring their own browser, such as `chrome-extension://…`. */
function isOrigin(origin: string): boolean {
	const url = /^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(origin) ? URL.parse(origin) : null;
	if (!url) return false;
	return /^https?:$/.test(url.protocol) ? url.origin === origin : true;
}

/** @throws AgentError `credential-unreadable`: no such file, too large, belongs to a stranger, or others than its owner and (reading) its group may use it. */
export async function readApplicationsText(file: string): Promise<string> {
	try {
		return await readText(file, MAX_BYTES, {
			inspect(stat) {
				const exposure = exposureOf(file, stat, { secret: true });
				if (exposure) throw unreadable(file, exposure.reason, { remedy: exposure.remedy });
			},
		});
	} catch (error) {
		throw error instanceof AgentError ? error : unreadable(file, inWords(error), { cause: error });
	}
}

function unreadable(file: string, reason: string, more: { remedy?: string; cause?: unknown } = {}): AgentError {
	const remedy = 'Make it a file of mode 0640 that the user of the agent may read.';
	return new AgentError('credential-unreadable', `The applications file ${file} cannot be used: ${reason}.`, {
		remedy,
		...more,
	});
}

function invalid(file: string, reason: string): AgentError {
	return new AgentError('settings-invalid', `The applications file ${file} cannot be used: ${reason}.`, {
		remedy: 'Write one line for each application: name origin token, then options such as allow=/path.',
	});
}
