/**
 * The file of the applications that live in a browser: for each its origin and its token. Reads it, refuses it when others
 * could read or change it, and never shows a token in an error.
 */
import { AgentError } from '../../base/errors.ts';
import { exposureOf } from '../../base/file-trust.edge.ts';
import { inWords, readText } from '../../base/files.edge.ts';
import { isLoopback } from '../../protocol/endpoints.ts';

export interface BrowserApplication {
	/** For people who read the file. */
	readonly name: string;
	/** Compared exactly with the `Origin` of a browser. */
	readonly origin: string;
	/** A secret: at least {@link MIN_TOKEN_LENGTH} characters. */
	readonly token: string;
}

const MIN_TOKEN_LENGTH = 32;
const MAX_BYTES = 65_536;
/** The log searches each of its lines for all of their tokens. */
const MAX_APPLICATIONS = 16;

/**
 * Reads the file: one application on each line, as `name origin token`, with spaces or tabs between; `#` begins a comment
 * line. An application with several origins has several lines.
 * @throws AgentError `credential-unreadable`: no such file, too large, belongs to a stranger, or others than its owner
 * and (reading) its group may use it. `settings-invalid`: names the line that is wrong.
 */
export async function readBrowserApplications(file: string): Promise<readonly BrowserApplication[]> {
	const lines = (await readGuarded(file)).split(/\r?\n/);
	const applications = lines.flatMap((line, index) => {
		const text = line.trim();
		if (text === '' || text.startsWith('#')) return [];
		const parsed = parseLine(text);
		if (typeof parsed === 'string') throw invalid(file, `line ${index + 1}: ${parsed}`);
		return [parsed];
	});
	if (applications.length === 0) throw invalid(file, 'it names no application');
	if (applications.length > MAX_APPLICATIONS) throw invalid(file, `it has more than ${MAX_APPLICATIONS} applications`);
	const owners = new Map(applications.map(({ token, name }) => [token, name]));
	const taken = applications.find(({ token, name }) => owners.get(token) !== name);
	if (taken) throw invalid(file, `${taken.name} and ${owners.get(taken.token)} have the same token`);
	return applications;
}

/** The application, or what is wrong with the line. */
function parseLine(text: string): BrowserApplication | string {
	const [name = '', origin = '', token = '', ...more] = text.split(/\s+/);
	if (token === '' || more.length > 0) return 'it is not "name origin token"';
	if (!/^[A-Za-z0-9._-]{1,64}$/.test(name))
		return 'the name may have 1 to 64 letters, digits, dots, dashes and underscores';
	if (!isOrigin(origin)) return 'the origin is not one as browsers send it, such as https://kiosk.example.com';
	if (origin.startsWith('http:') && !isLoopback(origin))
		return 'the origin has to be https (http only for this machine)';
	if (!new RegExp(`^[A-Za-z0-9._~+/=-]{${MIN_TOKEN_LENGTH},256}$`).test(token))
		return `the token needs ${MIN_TOKEN_LENGTH} to 256 letters, digits and -._~+/=`;
	return { name, origin, token };
}

/** Also of a browser's extensions and of applications that bring their own browser, such as `chrome-extension://…`. */
function isOrigin(origin: string): boolean {
	const url = /^[a-z][a-z0-9+.-]*:\/\/[^\s/?#@*]+$/.test(origin) ? URL.parse(origin) : null;
	if (!url) return false;
	return /^https?:$/.test(url.protocol) ? url.origin === origin : true;
}

async function readGuarded(file: string): Promise<string> {
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
		remedy: 'Write one line for each application: name origin token.',
	});
}
