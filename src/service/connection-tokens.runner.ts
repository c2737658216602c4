/**
 * Connection tokens: signed (JWT, HS256) and self-contained, so that no lookup is needed for permission checks.
 * Source: service-interface, Authentication, rule 4; form (the dialect may hide it) and claims: assumed (connection-life). Knows nothing of revocation.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { errors, jwtVerify, SignJWT } from 'jose';
import * as z from 'zod';
import {
	type DeviceConnectionRequest,
	deviceIdSchema,
	deviceTypeSchema,
	heartbeatCadenceSchema,
	workflowIdSchema,
} from '../protocol/device-connection.ts';
import type { ServiceSettings } from './options.runner.ts';
import { ProblemResponse } from './problems.ts';

/** What a Connection may do. None of the names is published: assumed (permissions). */
const CONNECTION_PERMISSIONS = ['device_channel:read', 'device_connection:renew'] as const;

const ISSUER = 'embedded-service';
/** It has one customer: a device that it refused may be rescued by any of its codes. */
const TENANT = 'trial';

const claimsSchema = z.object({
	jti: z.string().min(1).max(64),
	deviceId: deviceIdSchema,
	workflowId: workflowIdSchema,
	deviceType: deviceTypeSchema.optional(),
	heartbeatCadence: heartbeatCadenceSchema.optional(),
	permissions: z.array(z.string()),
	/** Seconds since 1970. */
	iat: z.int(),
	/** Seconds since 1970. */
	exp: z.int(),
});
export type ConnectionClaims = z.infer<typeof claimsSchema>;

export type ConnectionTokens = ReturnType<typeof createConnectionTokens>;

export function createConnectionTokens(settings: ServiceSettings) {
	const { signingKey = randomBytes(32), connectionTtlSeconds, now } = settings;
	const isOpaque = settings.dialect.connectionForm === 'opaque';
	return {
		async issue({ deviceId, workflowId, deviceType, heartbeatCadence }: DeviceConnectionRequest) {
			const iat = Math.floor(now() / 1000);
			const claims: ConnectionClaims = {
				jti: randomUUID(),
				deviceId,
				workflowId,
				...(deviceType === undefined ? {} : { deviceType }),
				...(heartbeatCadence === undefined ? {} : { heartbeatCadence }),
				permissions: [...CONNECTION_PERMISSIONS],
				iat,
				exp: iat + Math.ceil(connectionTtlSeconds),
			};
			const token = await new SignJWT({ ...claims, tenant: TENANT })
				.setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
				.setIssuer(ISSUER)
				.sign(signingKey);
			// Without its dots no holder takes it for a JWT, and it still carries everything: it outlives a restart.
			return { token: isOpaque ? Buffer.from(token).toString('base64url') : token, claims };
		},
		/** @throws ProblemResponse 401 `connection-invalid` or `connection-expired`. */
		async verify(token: string): Promise<ConnectionClaims> {
			const jwt = isOpaque ? Buffer.from(token, 'base64url').toString() : token;
			try {
				const { payload } = await jwtVerify(jwt, signingKey, {
					algorithms: ['HS256'],
					issuer: ISSUER,
					currentDate: new Date(now()),
				});
				return claimsSchema.parse(payload);
			} catch (error) {
				if (error instanceof errors.JWTExpired)
					throw new ProblemResponse('connection-expired', 'This Connection has expired.');
				throw new ProblemResponse('connection-invalid', 'This is not a Connection that this service has issued.');
			}
		},
	};
}
