/** `GET /api/device`, ours: who is registered, with which workflow and plan. Source: assumed (device-list). */
import * as z from 'zod';
import { later } from './later.ts';

export const DEVICE_LIST_PATH = '/api/device';

export const listedDeviceSchema = later(() =>
	z.object({
		deviceId: z.string(),
		/** The workflow of its newest open channel; offline, the one it registered for last. */
		workflowId: z.string(),
		online: z.boolean(),
		/** ISO 8601. */
		lastHeartbeatAt: z.string().nullable(),
		/** The newest revision of the fleet plan that the device was online as it says; `null`: it has told none. */
		planRevision: z.number().nullable().default(null),
		/** The revision that it could not follow. */
		planRefused: z.number().nullable().default(null),
		/** What a device says only where its `service.heartbeatFields` ask for it. */
		agentVersion: z.string().optional(),
		problemCode: z.string().optional(),
		planRing: z.number().optional(),
		planReason: z.string().optional(),
		updateReason: z.string().optional(),
		updateTakenBack: z.string().optional(),
		serial: z.string().nullable().default(null),
		macAddress: z.string().nullable().default(null),
		/** Why the service refused its last registration, and for which workflow; left out once one was accepted. */
		refused: z.object({ code: z.string(), workflowId: z.string() }).optional(),
		/** Seconds, where it registered with one. */
		heartbeatCadence: z.number().optional(),
		deviceType: z.string().nullable().default(null),
	}),
);
export type ListedDevice = z.infer<typeof listedDeviceSchema>;

export const deviceListSchema = later(() => z.object({ devices: z.array(listedDeviceSchema) }));
