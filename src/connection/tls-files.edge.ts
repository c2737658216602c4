/** The files of TLS that settings name: authorities that are trusted besides the usual ones, and the client certificate with its key. */
import { X509Certificate } from 'node:crypto';
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import { AgentError, asError, type Failure, toFailure } from '../base/errors.ts';
import { readTextNow, unreadable } from '../base/files.edge.ts';
import { joinSentences } from '../base/sentences.ts';

export interface TlsSettings {
	/** PEM file with certificate authorities that are trusted besides the usual ones. */
	readonly caFile?: string | undefined;
	/** Trust what the operating system trusts, besides the usual ones. Default: no. */
	readonly systemCa?: boolean | undefined;
	/** PEM file with the certificate that this device shows; wants {@link clientKeyFile}. */
	readonly clientCertificateFile?: string | undefined;
	/** PEM file with the key of the client certificate, without a passphrase. */
	readonly clientKeyFile?: string | undefined;
}

export type ReadFile = (path: string) => string;
/** Of a bundle of authorities: eight times those of Debian. */
const MAX_FILE_BYTES = 2 * 1024 * 1024;

/** A file that settings of the way to the service name. Never waits for the writer of a pipe. */
export const readFileOfWay: ReadFile = (path) => readTextNow(path, MAX_FILE_BYTES);

/** One context for all connections: building it again for each would parse all authorities each time. `null` for the plain case. */
export function readTls(settings: TlsSettings, read: ReadFile): SecureContext | null {
	const { caFile, systemCa = false, clientCertificateFile, clientKeyFile } = settings;
	const both = 'network.clientCertificateFile and network.clientKeyFile';
	if ((clientCertificateFile === undefined) !== (clientKeyFile === undefined))
		throw new AgentError('settings-invalid', `${both} must be set together.`);
	if (caFile === undefined && !systemCa && clientCertificateFile === undefined) return null;

	const own = caFile === undefined ? null : readAuthorities(caFile, read);
	const [cert = null, key = null] = readBoth(settings, read);
	try {
		const context = createSecureContext({ ...(cert !== null && { cert }), ...(key !== null && { key }) });
		addAuthorities(context, [...(systemCa ? getCACertificates('system') : []), ...(own ?? [])]);
		return context;
	} catch {
		// The library's words may quote the key.
		const message = `${both} are not a PEM certificate and its key without a passphrase.`;
		throw new AgentError('settings-invalid', message);
	}
}

/**
 * Besides the usual ones, which stay parsed: the option `ca` replaces them, and handing all of them over as texts takes 9 ms
 * and 0.6 MiB. Node documents no other way; a test holds its function to this.
 */
export function addAuthorities(context: SecureContext, authorities: readonly string[]): void {
	for (const pem of authorities) (context.context as { addCACert(pem: string): void }).addCACert(pem);
}

function readAuthorities(path: string, read: ReadFile): string[] {
	const text = readSetting('network.caFile', path, read) ?? '';
	// Each from its first line to its last, or to the next one's where it is cut off.
	const certificates = text
		.split(/(?=-----BEGIN CERTIFICATE-----)/)
		.flatMap((part) => /^-----BEGIN CERTIFICATE-----[\s\S]*?(?:-----END CERTIFICATE-----|$)/.exec(part) ?? []);
	const broken = certificates.findIndex((pem) => !isCertificate(pem));
	if (certificates.length > 0 && broken < 0) return certificates;
	const place =
		certificates.length > 1
			? `has ${certificates.length} certificates, and number ${broken + 1} is damaged`
			: 'has no readable PEM certificate';
	throw new AgentError('settings-invalid', `network.caFile ${path} ${place}.`, { params: { path } });
}

function isCertificate(pem: string): boolean {
	try {
		return new X509Certificate(pem) !== null;
	} catch {
		return false;
	}
}

/** When the client certificate begins and ends, milliseconds since 1970; nothing without one. */
export function certificateLife({ clientCertificateFile }: TlsSettings, read: ReadFile) {
	const text = readSetting('network.clientCertificateFile', clientCertificateFile, read);
	if (text === null) return {};
	const { validFrom, validTo } = new X509Certificate(text);
	return { certificateStartMs: Date.parse(validFrom), certificateEndMs: Date.parse(validTo) };
}

/** The certificate and its key. @throws AgentError that names each which cannot be read. */
function readBoth({ clientCertificateFile, clientKeyFile }: TlsSettings, read: ReadFile): (string | null)[] {
	const faults: Failure[] = [];
	const texts = [
		['network.clientCertificateFile', clientCertificateFile] as const,
		['network.clientKeyFile', clientKeyFile] as const,
	].map(([name, path]) => {
		try {
			return readSetting(name, path, read);
		} catch (error) {
			faults.push(toFailure(error));
			return null;
		}
	});
	const [first, second] = faults;
	if (first) throw asError({ ...first, message: joinSentences(first.message, second?.message ?? '') });
	return texts;
}

function readSetting(name: string, path: string | undefined, read: ReadFile): string | null {
	if (path === undefined) return null;
	try {
		return read(path);
	} catch (cause) {
		throw unreadable('settings-unreadable', name, path, cause);
	}
}
