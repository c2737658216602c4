/** Names, methods and times that an application may give on the local interface, for both of its sides. Imports nothing: the client ships it. */

/** A name that an application or a lease gives itself. */
export const CONSUMER_NAME = /^[\w.-]{1,64}$/;

/** Longest time of a lease, in seconds. */
export const MAX_LEASE_SECONDS = 3600;

/** What is passed on to the service. */
export const FORWARDED_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
