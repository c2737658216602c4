/** Fills a store with two hours of 60 simulated devices, for scripts/fleet-picture.ts: `node test/telemetry/store/feed.ts OTLP_URL`. */
import { feed } from './simulated-devices.ts';

await feed(process.argv[2] ?? 'http://127.0.0.1:8428/opentelemetry/v1/metrics', {
	devices: 60,
	minutes: 120,
	endMs: Date.now(),
});
