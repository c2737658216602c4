/** The files that settings name and that are opened when they are used, not with the settings. */
import { type Failure, toFailure } from '../base/errors.ts';
import { readBrowserApplications } from '../local-api/server/browser-applications.edge.ts';
import type { Settings } from '../settings/table.ts';

/** What cannot be used of them. Never throws. */
export async function findUnusable({ telemetry, local: { http } }: Settings): Promise<Failure[]> {
	const problems: Failure[] = [];
	const attempt = (made: Promise<unknown>) => made.catch((error) => void problems.push(toFailure(error)));
	if (telemetry.otlpUrl !== null && telemetry.headersFile !== null) {
		const { readTelemetryHeaders } = await import('../telemetry/telemetry.runner.ts');
		await attempt(readTelemetryHeaders(telemetry.headersFile));
	}
	if (http.applicationsFile !== null) await attempt(readBrowserApplications(http.applicationsFile));
	return problems;
}
