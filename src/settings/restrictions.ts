/** The settings that restrict others. */

/** In the place of origins that were refused: no code is from there. */
export const NO_ORIGIN = 'https://nothing.invalid';
/** The same for paths: none is under it. */
const NO_PATH = '/.';

/**
 * By the path of a restriction: what it restricts, and the value of that while the restriction was refused and nothing good of it
 * is left; `undefined` is the one from before. Where a setting that is refused leaves nothing more open than it was, it has no row.
 */
export const RESTRICTS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
	baseUrl: { 'pairing.trustedOrigins': [NO_ORIGIN] },
	'pairing.trustedOrigins': { 'pairing.trustedOrigins': [NO_ORIGIN] },
	'service.actOnMessages': { 'service.actOnMessages': false },
	'fleet.name': { 'fleet.planUrl': undefined },
	'fleet.publicKeys': { 'fleet.planUrl': undefined },
	'update.window': { 'update.enabled': false },
	'forward.allow': { 'forward.allow': [NO_PATH] },
	'page.pinFile': { 'page.port': undefined },
};
