/** `idv-agent/testing`: the embedded service as a library, for the tests of a backend or of another client. */
export type { Authorization } from '../protocol/authorization.ts';
export type { ListedDevice } from '../protocol/device-list.ts';
export {
	type Dialect,
	type DialectOptions,
	type EmbeddedService,
	type ServiceEventName,
	type ServiceOptions,
	startService,
} from './embedded-service.runner.ts';
export type { RequestEntry, ServiceEvents } from './event-log.runner.ts';
export type { FailedAnswer, Release, RequestMatch } from './faults.ts';
export type { BasicUser, ChannelFilter, InitialApiKey } from './options.runner.ts';
