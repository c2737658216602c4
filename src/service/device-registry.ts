/**
 * The devices that have registered: what each said of itself, when it was last heard, which Connections it holds and which
 * of those are revoked. Owns no socket; whether a device is online is the channel hub's knowledge.
 */
import type { Heartbeat } from '../protocol/channel.ts';
import type { DeviceConnectionRequest } from '../protocol/device-connection.ts';
import type { ListedDevice } from '../protocol/device-list.ts';
import type { ConnectionClaims } from './connection-tokens.ts';
import { createExpiringMap } from './expiring-map.ts';
import { serviceFull } from './problems.ts';

/** Connections that one device may hold; the oldest is revoked for one more. */
const MAX_CONNECTIONS_PER_DEVICE = 16;

/** A device as it is listed, but for whether it is online; `workflowId` is the one it registered for last. */
export type RegisteredDevice = Omit<ListedDevice, 'online'>;

export interface DeviceRegistry {
	/** @throws ProblemResponse 503 `service-full` when the device is new and there is no room for it. */
	ensureRoom(deviceId: string): void;
	/** A device registered and was given this Connection. */
	register(request: DeviceConnectionRequest, claims: ConnectionClaims): void;
	/** A Connection is in use that may come from another service with the same signing key. */
	noteUse(claims: ConnectionClaims): void;
	noteHeartbeat(heartbeat: Heartbeat, atMs: number): void;
	/** Revokes the device's Connections but for `keepId`; returns how many. */
	revoke(deviceId: string, keepId?: string): number;
	isRevoked(connectionId: string): boolean;
	list(): RegisteredDevice[];
}

interface Entry {
	device: RegisteredDevice;
	/** Oldest first. */
	connections: { readonly id: string; readonly expiresAtMs: number }[];
}

export function createDeviceRegistry(limit: number, now: () => number): DeviceRegistry {
	const entries = new Map<string, Entry>();
	const revoked = createExpiringMap<true>(limit * MAX_CONNECTIONS_PER_DEVICE, now);

	function makeRoom(deviceId: string): boolean {
		if (entries.has(deviceId) || entries.size < limit) return true;
		const nowMs = now();
		for (const [id, entry] of entries) {
			if (entry.connections.every((connection) => connection.expiresAtMs <= nowMs)) entries.delete(id);
		}
		return entries.size < limit;
	}

	function addConnection(entry: Entry, claims: ConnectionClaims): void {
		const nowMs = now();
		entry.connections = entry.connections.filter(({ id, expiresAtMs }) => expiresAtMs > nowMs && id !== claims.jti);
		entry.connections.push({ id: claims.jti, expiresAtMs: claims.exp * 1000 });
		if (entry.connections.length > MAX_CONNECTIONS_PER_DEVICE) revokeOldest(entry);
	}

	function revokeOldest(entry: Entry): void {
		const oldest = entry.connections.shift();
		if (oldest) revoked.add(oldest.id, true, oldest.expiresAtMs);
	}

	return {
		ensureRoom(deviceId) {
			if (!makeRoom(deviceId)) throw serviceFull('devices');
		},
		register(request, claims) {
			const before = entries.get(request.deviceId);
			const device: RegisteredDevice = {
				deviceId: request.deviceId,
				workflowId: request.workflowId,
				serial: request.serial ?? null,
				macAddress: request.macAddress ?? null,
				deviceType: request.deviceType ?? null,
				lastHeartbeatAt: before?.device.lastHeartbeatAt ?? null,
				planRevision: before?.device.planRevision ?? null,
				planRefused: before?.device.planRefused ?? null,
			};
			const entry: Entry = { device, connections: before?.connections ?? [] };
			addConnection(entry, claims);
			entries.set(request.deviceId, entry);
		},
		noteUse(claims) {
			const known = entries.get(claims.deviceId);
			if (known) {
				if (!known.connections.some((connection) => connection.id === claims.jti)) addConnection(known, claims);
			} else if (makeRoom(claims.deviceId)) {
				this.register(
					{ deviceId: claims.deviceId, workflowId: claims.workflowId, deviceType: claims.deviceType },
					claims,
				);
			} else {
				throw serviceFull('devices');
			}
		},
		noteHeartbeat({ deviceId, planRevision = null, planRefused = null }, atMs) {
			const entry = entries.get(deviceId);
			if (!entry) return;
			const lastHeartbeatAt = new Date(atMs).toISOString();
			entry.device = { ...entry.device, lastHeartbeatAt, planRevision, planRefused };
		},
		revoke(deviceId, keepId) {
			const entry = entries.get(deviceId);
			if (!entry) return 0;
			const ended = entry.connections.filter((connection) => connection.id !== keepId);
			for (const connection of ended) revoked.add(connection.id, true, connection.expiresAtMs);
			entry.connections = entry.connections.filter((connection) => connection.id === keepId);
			return ended.length;
		},
		isRevoked: (connectionId) => revoked.get(connectionId) === true,
		list: () => [...entries.values()].map((entry) => entry.device),
	};
}
