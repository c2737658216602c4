/** The words for why an order of a fleet plan is not carried out. Permanent: status, metrics and heartbeats carry them. */
export const UPDATE_REASONS = [
	...(['disabled', 'not-installed', 'waiting-window', 'held-lease', 'trying', 'taken-back'] as const),
	...(['newer-than-ordered', 'refused', 'service-away'] as const),
	...(['apt-failed', 'apt-unreachable', 'apt-untrusted', 'apt-expired', 'apt-not-found', 'apt-not-alone'] as const),
	...(['apt-busy', 'apt-disk', 'apt-script'] as const),
] as const;
