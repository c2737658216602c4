/** Sends metrics as long as the settings name a place for them; loads what that takes only then. */
import type { Telemetry, TelemetryParts } from '../telemetry/telemetry.runner.ts';

export function keepTelemetry(parts: TelemetryParts) {
	let telemetry: Telemetry | null = null;
	const close = () => {
		telemetry?.close();
		telemetry = null;
	};
	return {
		/** Follows the settings that are in force now. */
		async apply(): Promise<void> {
			if (parts.settings().otlpUrl === null) close();
			else if (telemetry) telemetry.reevaluate();
			else telemetry = (await import('../telemetry/telemetry.runner.ts')).startTelemetry(parts);
		},
		close,
	};
}
