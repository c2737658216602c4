/** The machine for a person at a distance. Starts some thirty short programs; never shows a serial number or a UUID. */
import { setTimeout } from 'node:timers/promises';

/** For all programs together. */
const DEADLINE_MS = 5_000;

/** `null` for what this machine does not have, or does not tell this user. */
export interface MachineFacts {
	readonly manufacturer: string | null;
	/** As the firmware says it. */
	readonly model: string | null;
	/** In a virtual machine or a container. */
	readonly isVirtual: boolean | null;
	/** Such as `AMD Ryzen Embedded R1505G`. */
	readonly processor: string | null;
	readonly physicalCores: number | null;
	/** Of the processor. */
	readonly celsius: number | null;
	readonly battery: { readonly percent: number; readonly isCharging: boolean } | null;
}

export async function readMachineFacts(): Promise<MachineFacts> {
	const { default: information } = await import('systeminformation');
	const late = setTimeout(DEADLINE_MS, null, { ref: false });
	const inTime = <Value>(work: Promise<Value>) => Promise.race([work.catch(() => null), late]);
	const [system, cpu, heat, battery] = await Promise.all([
		inTime(information.system()),
		inTime(information.cpu()),
		inTime(information.cpuTemperature()),
		inTime(information.battery()),
	]);
	return {
		manufacturer: system?.manufacturer || null,
		model: system?.model || null,
		isVirtual: system?.virtual ?? null,
		processor: [cpu?.manufacturer, cpu?.brand].filter(Boolean).join(' ') || null,
		physicalCores: cpu?.physicalCores || null,
		celsius: heat?.main ?? null,
		battery: battery?.hasBattery ? { percent: battery.percent, isCharging: battery.isCharging } : null,
	};
}
