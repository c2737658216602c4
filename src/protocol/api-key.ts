/** The bodies of API key creation. Source: service-interface, API key and Endpoints 3 and 4. */
import * as z from 'zod';
import { later } from './later.ts';

/** `<resource>:<action>`. Source: service-interface, Authentication, rule 5. */
export const permissionSchema = later(() =>
	z
		.string()
		.max(128, 'must have at most 128 characters')
		.regex(/^[a-z0-9_.*-]+:[a-z0-9_.*-]+$/i, 'must have the form <resource>:<action>, such as deeplink:write'),
);

/** Permissions that are seen in use; the complete list is not published. */
export const KNOWN_PERMISSIONS = ['ephemeral_device:write', 'person:write', 'deeplink:write'] as const;

/** Further resources that are seen in use, with unknown actions. */
export const KNOWN_RESOURCES = ['device', 'device_all', 'device_log'] as const;

export const apiKeyRequestSchema = later(() =>
	z.object({
		name: z.string().trim().min(1, 'must not be empty').max(128, 'must have at most 128 characters'),
		permissions: z.array(permissionSchema).min(1, 'must name at least one permission').max(64),
		/** Lifetime in seconds, 1 to ten years; left out, the key does not expire. The command line calls it `expires`. */
		ttl: z
			.int('must be a whole number of seconds')
			.min(1, 'must be at least 1 second')
			.max(315_360_000, 'must be at most 315360000 seconds (ten years)')
			.optional(),
	}),
);
export type ApiKeyRequest = z.infer<typeof apiKeyRequestSchema>;

export const apiKeySchema = later(() =>
	z.object({
		id: z.string(),
		token: z.string(),
		name: z.string(),
		permissions: z.array(z.string()),
		expiresAt: z.string().optional(),
	}),
);
export type ApiKey = z.infer<typeof apiKeySchema>;
