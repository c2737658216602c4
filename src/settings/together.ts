/** The rules that need more than one setting. Pure. */
import type { SettingsBefore } from './restrictions.ts';
import type { Settings } from './table.ts';

export interface Broken {
	readonly message: string;
	readonly paths: readonly string[];
	/** What would have to be set. */
	readonly lacks?: readonly string[];
}

/** Those that are broken, with the settings that go back together. */
export function checkTogether(settings: Settings, before: SettingsBefore | null): Broken[] {
	const problems: Broken[] = [];
	const { credential, network } = settings;
	const ofCredential = Object.keys(credential).map((key) => `credential.${key}`);
	/** The service that was named before, if any was. */
	const needsBaseUrl = (paths: string[]) => (before?.settings.baseUrl != null ? ['baseUrl'] : paths);
	const named = (['apiKeyFile', 'basicFile', 'connectionFile'] as const).filter((key) => credential[key] !== null);
	if (named.length > 1)
		problems.push({
			message: `credential.${named.join(' and credential.')} are set, but only one of them can be used.`,
			paths: ofCredential,
		});
	// Otherwise a stranger's pairing code could name the host that the key is sent to.
	const needsHost = credential.selfRegistration ? [...named, 'selfRegistration'] : named;
	if (settings.baseUrl === null && needsHost.length > 0)
		problems.push({
			message: `credential.${needsHost[0]} needs baseUrl: a credential is only sent to a host that the settings name.`,
			paths: needsBaseUrl(ofCredential),
			lacks: ['baseUrl'],
		});
	if (settings.baseUrl === null && settings.service.headersFile !== null)
		problems.push({
			message: 'service.headersFile needs baseUrl: its headers are only sent to a host that the settings name.',
			paths: needsBaseUrl(['service.headersFile']),
			lacks: ['baseUrl'],
		});
	if ((network.clientCertificateFile === null) !== (network.clientKeyFile === null))
		problems.push({
			message: 'network.clientCertificateFile and network.clientKeyFile belong together: set both or none.',
			paths: ['network.clientCertificateFile', 'network.clientKeyFile'],
			lacks: ['network.clientCertificateFile', 'network.clientKeyFile'],
		});
	if (settings.local.http.port !== null && settings.local.http.applicationsFile === null)
		problems.push({
			message: 'local.http.port needs local.http.applicationsFile: without it no application may use the port.',
			paths: ['local.http.port', 'local.http.applicationsFile'],
			lacks: ['local.http.applicationsFile'],
		});
	return problems;
}
