/** The devices that have registered: what each said of itself, which Connections it holds, and which are revoked. */
import { HEARTBEAT_FIELDS, type Heartbeat, type HeartbeatExtras } from '../protocol/channel.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import type { ListedDevice } from '../protocol/device-list.ts';
import type { ConnectionClaims } from './connection-tokens.runner.ts';
import { createExpiringMap } from './expiring-map.ts';
import { serviceFull } from './problems.ts';

/** Connections that one device may hold; the oldest is revoked for one more. */
const MAX_CONNECTIONS_PER_DEVICE = 16;

/** A device as it is listed, but for whether it is online; `workflowId` is the one it registered for last. */
export type RegisteredDevice = Omit<ListedDevice, 'online'>;

export type DeviceRegistry = ReturnType<typeof createDeviceRegistry>;

interface Entry {
	device: RegisteredDevice;
	/** Oldest first. */
	connections: { readonly id: string; readonly expiresAtMs: number }[];
}

export function createDeviceRegistry(limit: number, now: () => number) {
	const entries = new Map<string, Entry>();
	const revoked = createExpiringMap<true>(limit * MAX_CONNECTIONS_PER_DEVICE, now);

	function addConnection(entry: Entry, claims: ConnectionClaims): void {
		const nowMs = now();
		entry.connections = entry.connections.filter(({ id, expiresAtMs }) => expiresAtMs > nowMs && id !== claims.jti);
		entry.connections.push({ id: claims.jti, expiresAtMs: claims.exp * 1000 });
		const oldest = entry.connections.length > MAX_CONNECTIONS_PER_DEVICE && entry.connections.shift();
		if (oldest) revoked.add(oldest.id, true, oldest.expiresAtMs);
	}

	/** @throws ProblemResponse 503 `service-full` when the device is new and there is no room for it. */
	function ensureRoom(deviceId: string): void {
		if (entries.has(deviceId) || entries.size < limit) return;
		const nowMs = now();
		for (const [id, entry] of entries)
			if (entry.connections.every((connection) => connection.expiresAtMs <= nowMs)) entries.delete(id);
		if (entries.size >= limit) throw serviceFull('devices');
	}

	function register(request: DeviceConnectionRequest, claims: ConnectionClaims): void {
		const { deviceId, workflowId, serial = null, macAddress = null, deviceType = null, heartbeatCadence } = request;
		const { device, connections = [] } = entries.get(deviceId) ?? {};
		const { lastHeartbeatAt = null } = device ?? {};
		const cadence = heartbeatCadence === undefined ? {} : { heartbeatCadence };
		const said = { deviceId, workflowId, serial, macAddress, deviceType, ...cadence };
		const entry: Entry = { device: { ...said, lastHeartbeatAt, ...heartbeatFields(device ?? {}) }, connections };
		addConnection(entry, claims);
		entries.set(deviceId, entry);
	}

	return {
		ensureRoom,
		register,
		/** A registration of a known device was refused; its next one that is accepted ends that. */
		noteRefusal(deviceId: string, refused: NonNullable<RegisteredDevice['refused']>): void {
			const entry = entries.get(deviceId);
			if (entry) entry.device = { ...entry.device, refused };
		},
		/** A Connection is in use that may come from another service with the same signing key. */
		noteUse(claims: ConnectionClaims): void {
			const known = entries.get(claims.deviceId);
			if (known) {
				if (!known.connections.some((connection) => connection.id === claims.jti)) addConnection(known, claims);
				return;
			}
			ensureRoom(claims.deviceId);
			register(claims, claims);
		},
		noteHeartbeat(heartbeat: Heartbeat, atMs: number): void {
			const entry = entries.get(heartbeat.deviceId);
			if (!entry) return;
			const lastHeartbeatAt = new Date(atMs).toISOString();
			entry.device = { ...entry.device, lastHeartbeatAt, ...heartbeatFields(heartbeat) };
		},
		/** Revokes the device's Connections but for `keepId`; returns how many. */
		revoke(deviceId: string, keepId?: string): number {
			const entry = entries.get(deviceId);
			if (!entry) return 0;
			const ended = entry.connections.filter((connection) => connection.id !== keepId);
			for (const connection of ended) revoked.add(connection.id, true, connection.expiresAtMs);
			entry.connections = entry.connections.filter((connection) => connection.id === keepId);
			return ended.length;
		},
		isRevoked: (connectionId: string): boolean => revoked.get(connectionId) === true,
		list: (): RegisteredDevice[] => [...entries.values()].map((entry) => entry.device),
	};
}

type Told = 'planRefused' | (typeof HEARTBEAT_FIELDS)[number];

/** The words of the newest heartbeat; a field that it left out is not known any more, whatever an earlier one said, and an extra one is not listed. */
function heartbeatFields(said: Partial<Heartbeat | RegisteredDevice>): Pick<RegisteredDevice, Told> {
	const told: Partial<HeartbeatExtras> = Object.fromEntries(HEARTBEAT_FIELDS.map((name) => [name, said[name]]));
	return { ...told, planRevision: said.planRevision ?? null, planRefused: said.planRefused ?? null };
}
