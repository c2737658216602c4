/** Versions of Debian packages: which ones this project orders, and which of two is newer. Pure. Source: Debian Policy 5.6.12, deb-version(7), apt-get(8). */

/** dpkg reads an epoch as an `int`. */
const MAX_EPOCH = 2 ** 31 - 1;
/** The longest that a plan may name. */
export const MAX_VERSION_CHARACTERS = 64;

/** `[epoch:]upstream[-revision]`, taken apart at the first colon and the last hyphen; `null` for the part that is absent. */
function partsOf(version: string): { epoch: string | null; upstream: string; revision: string | null } {
	const colon = version.indexOf(':');
	const rest = version.slice(colon + 1);
	const hyphen = rest.lastIndexOf('-');
	return {
		epoch: colon < 0 ? null : version.slice(0, colon),
		upstream: hyphen < 0 ? rest : rest.slice(0, hyphen),
		revision: hyphen < 0 ? null : rest.slice(hyphen + 1),
	};
}

/**
 * Why a text is not a version that may be ordered: one of Debian's policy, and nothing that apt reads as an operator.
 * @returns the end of a sentence, such as `must be …`; `null` for a good version.
 */
export function versionProblem(text: string): string | null {
	if (text.length > MAX_VERSION_CHARACTERS) return `must have at most ${MAX_VERSION_CHARACTERS} characters`;
	// apt-get(8): `pkg=0.3.0+` installs 0.3.0, and `pkg=0.3.0-` removes the package.
	if (/[+-]$/.test(text)) return 'must not end in + or -: apt reads them as install and remove';
	const { epoch, upstream, revision } = partsOf(text);
	const isVersion =
		(epoch === null || (/^\d+$/.test(epoch) && Number(epoch) <= MAX_EPOCH)) &&
		/^\d[A-Za-z0-9.+~-]*$/.test(upstream) &&
		(revision === null || /^[A-Za-z0-9.+~]+$/.test(revision));
	return isVersion ? null : 'must be a version of a Debian package, such as 0.3.0 or 1:0.3.0-1';
}

/** Negative where `a` is older than `b`, 0 where dpkg takes them for the same version, as it does `0.3.0` and `0:0.3.0-0`. */
export function compareVersions(a: string, b: string): number {
	const [one, other] = [partsOf(a), partsOf(b)];
	return (
		Math.sign(Number(one.epoch ?? 0) - Number(other.epoch ?? 0)) ||
		compareParts(one.upstream, other.upstream) ||
		compareParts(one.revision ?? '', other.revision ?? '')
	);
}

/** Text and number in turn, as dpkg does. */
function compareParts(a: string, b: string): number {
	const [ours, theirs] = [runsOf(a), runsOf(b)];
	for (let at = 0; at < Math.max(ours.length, theirs.length); at += 1) {
		const [, letters = '', digits = ''] = ours[at] ?? [];
		const [, otherLetters = '', otherDigits = ''] = theirs[at] ?? [];
		const found = compareLetters(letters, otherLetters) || compareDigits(digits, otherDigits);
		if (found !== 0) return found;
	}
	return 0;
}

const runsOf = (part: string) => [...part.matchAll(/(\D*)(\d*)/g)];

/** `~` is before the end, the end before letters, letters before everything else. */
function compareLetters(a: string, b: string): number {
	const place = (one: string) =>
		one === '~' ? -1 : /[A-Za-z]/.test(one) ? one.charCodeAt(0) : one.charCodeAt(0) + 256;
	for (let at = 0; at < Math.max(a.length, b.length); at += 1) {
		const [ours = 0, theirs = 0] = [a[at], b[at]].map((one) => (one === undefined ? 0 : place(one)));
		if (ours !== theirs) return ours - theirs;
	}
	return 0;
}

function compareDigits(a: string, b: string): number {
	const [ours, theirs] = [a, b].map((digits) => digits.replace(/^0+/, '')) as [string, string];
	return ours.length - theirs.length || (ours < theirs ? -1 : ours > theirs ? 1 : 0);
}
