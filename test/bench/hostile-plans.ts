/** Shapes of a plan that were made to cost time and memory, each of nearly a given size. Asserts nothing, measures nothing. */
import { MAX_PLAN_BYTES } from '../../src/fleet/terms.ts';

const until = (bytes: number, part: (index: number) => string, joint = ',') => {
	const parts: string[] = [];
	for (let [size, index] = [0, 0]; ; index += 1) {
		const next = part(index);
		size += Buffer.byteLength(next) + joint.length;
		if (size > bytes) return parts.join(joint);
		parts.push(next);
	}
};

type Filler = (bytes: number) => string;
/** Members of the outermost object; the others are whole texts. */
const MEMBERS: Readonly<Record<string, Filler>> = {
	'unknown names': (bytes) => until(bytes, (n) => `"revison${n}":1`),
	'unknown names of one letter more': (bytes) => until(bytes, (n) => `"deviceTypes${n.toString(36)}":0`),
	'one name again and again': (bytes) => until(bytes, () => '"x":1'),
	'names of 10,000 letters': (bytes) => until(bytes, (n) => `"${String(n).padStart(10_000, 'n')}":1`),
	'one name of its whole size': (bytes) => `"${'n'.repeat(bytes - 10)}":1`,
	'lists in lists': (bytes) => `"rules":${'['.repeat(bytes / 2 - 10)}${']'.repeat(bytes / 2 - 10)}`,
	'objects in objects': (bytes) => `"rules":${'{"a":'.repeat(bytes / 6 - 10)}1${'}'.repeat(bytes / 6 - 10)}`,
	'a name twice at each depth': (bytes) => `"a":${'{"a":1,"a":'.repeat(bytes / 13)}1${'}'.repeat(bytes / 13)}`,
	'long numbers': (bytes) => `"revision":${'9'.repeat(bytes / 2)},"epoch":1.${'3'.repeat(bytes / 2 - 40)}`,
	'many numbers': (bytes) => `"x":[${until(bytes - 10, () => '1.5')}]`,
	'many zeroes': (bytes) => `"x":[${until(bytes - 10, () => '0')}]`,
	'empty texts': (bytes) => `"x":[${until(bytes - 10, () => '""')}]`,
	'one text': (bytes) => `"comment":"${'x'.repeat(bytes - 20)}"`,
	escapes: (bytes) => `"comment":"${'\\u0041'.repeat(bytes / 6 - 10)}"`,
	'short escapes': (bytes) => `"comment":"${'\\n'.repeat(bytes / 2 - 10)}"`,
	'escaped names': (bytes) => until(bytes, (n) => `"\\u0072\\n${n}":1`),
	'empty rules': (bytes) => `"rules":[${until(bytes - 10, () => '{}')}]`,
	'rules with a name of their own': (bytes) => `"rules":[${until(bytes - 10, (n) => `{"n${n}":1}`)}]`,
	'objects of ten names of their own': (bytes) =>
		`"x":[${until(bytes - 10, (n) => `{${Array.from({ length: 10 }, (_, at) => `"${(n * 10 + at).toString(36)}":1`).join(',')}}`)}]`,
	'nearly as many different names as are read': (bytes) => until(Math.min(bytes, 600_000), (n) => `"a${n}":[1,""]`),
	'rules of no kind': (bytes) => `"rules":[${until(bytes - 10, () => '0')}]`,
	'rings of no kind': (bytes) => `"defaults":{"rollout":{"to":{},"rings":[${until(bytes - 100, () => '{}')}]}}`,
	'values of no kind': (bytes) => `"rules":[{"name":"a","match":{"deviceIds":[${until(bytes - 100, () => '0')}]}}]`,
	'values of 100 rules, all wrong': (bytes) =>
		`"rules":[${Array.from({ length: 100 }, (_, n) => `{"name":"a${n}","match":{"serials":[${until(bytes / 100 - 60, () => '" "')}]}}`).join(',')}]`,
	'short values': (bytes) =>
		`"rules":[${Array.from({ length: 10 }, (_, n) => `{"name":"a${n}","match":{"labels":[${until(bytes / 10 - 100, (at) => `"${(at % 1296).toString(36)}"`)}]},"workflowId":"w"}`).join(',')}]`,
	'values with signs beyond ASCII': (bytes) =>
		`"rules":[${Array.from({ length: 5 }, (_, n) => `{"name":"a${n}","match":{"serials":[${until(bytes / 5 - 100, (at) => `"é${(at % 1296).toString(36)}"`)}]},"workflowId":"w"}`).join(',')}]`,
	'beginnings of every length': (bytes) =>
		`"rules":[${Array.from({ length: 20 }, (_, n) => `{"name":"a${n}","match":{"deviceIds":[${until(bytes / 20 - 100, (at) => `"${String(n * 1000 + at).padEnd(4 + (at % 100), 'x')}*"`)}]},"workflowId":"w${n}"}`).join(',')}]`,
	'rules that each list others': (bytes) =>
		`"rules":[${Array.from({ length: 500 }, (_, n) => `{"name":"a${n}","match":{"deviceIds":[${until(bytes / 500 - 80, (at) => `"K-${n}-${at}"`)}]},"workflowId":"w${n}"}`).join(',')}]`,
	extensions: (bytes) => `"extensions":{${until(bytes - 30, (n) => `"k${n}":[{"a":${n}}]`)}}`,
	'extensions of empty lists': (bytes) => `"extensions":{"a":[${until(bytes - 60, () => '[]')}]}`,
	'extensions of lists in lists': (bytes) =>
		`"extensions":{"a":${'['.repeat(bytes / 2 - 20)}${']'.repeat(bytes / 2 - 20)}}`,
};

const WHOLE: Readonly<Record<string, Filler>> = {
	'an end that is missing': (bytes) => '{"a":['.repeat(bytes / 6),
	'lists that do not end': (bytes) => '['.repeat(bytes),
	'lines only': (bytes) => '\n'.repeat(bytes),
	'a fault after all lines': (bytes) => `{"a":1${'\n'.repeat(bytes - 10)}x}`,
	'a text that does not end': (bytes) => `{"a":"${'x'.repeat(bytes - 10)}`,
	'a list of numbers': (bytes) => `[${until(bytes - 10, () => '1')}]`,
};

/** @param bytes of the bare text; the default is the most that a plan may have. @returns name and text. */
export function hostilePlans(format: number, bytes = MAX_PLAN_BYTES): [string, string][] {
	const head = `{"format":"idv-fleet-plan/${format}",`;
	const members = Object.entries(MEMBERS).map(([name, fill]): [string, string] => {
		const revision = /^"(revision|x)/.test(fill(1000)) ? '' : '"revision":1,';
		return [name, `${head}${revision}${fill(bytes - 100)}}`];
	});
	return [...members, ...Object.entries(WHOLE).map(([name, fill]): [string, string] => [name, fill(bytes)])];
}

/** Envelopes that no key has signed, with the same shapes beside the payload or in its place. */
export function hostileEnvelopes(bytes = MAX_PLAN_BYTES): [string, string][] {
	const sig = `${'A'.repeat(86)}==`;
	const head = '{"payloadType":"application/vnd.idv.fleet-plan+json","payload":"AAAA",';
	const members = Object.entries(MEMBERS).map(([name, fill]): [string, string] => [
		`beside a payload: ${name}`,
		`${head}"signatures":[{"sig":"${sig}"}],${fill(bytes - 300)}}`,
	]);
	const signatures = `{"payloadType":"application/vnd.idv.fleet-plan+json","signatures":[${Array(8).fill(`{"sig":"${sig}"}`).join(',')}],"payload":"`;
	return [
		...members,
		['signatures without end', `${head}"signatures":[${until(bytes - 200, () => '{}')}]}`],
		['signatures of no kind', `${head}"signatures":[${until(bytes - 200, () => '0')}]}`],
		['a payload of its whole size', `${signatures}${'A'.repeat(Math.floor((bytes - 1200) / 4) * 4)}"}`],
		['a payload that is not base64', `${signatures}${'A'.repeat(bytes - 1300)}!"}`],
	];
}
