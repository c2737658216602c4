/**
 * The identity of this device: its serial number, MAC address and deviceId, and whether the machine is still the one that
 * was paired. Decides from facts that are handed in; reads nothing, makes no id and never changes what is pinned.
 */

import { AgentError, type Failure, failure } from '../base/errors.ts';
import { OF_ONE_CARD } from '../protocol/device-connection.ts';
import type { IdentityReport } from '../protocol/local-api.ts';
import type { DeviceState, Fingerprint, PinnedIdentity } from '../state/device-state.ts';
import { whySerialRejected } from './serial-numbers.ts';

/** A value and where it came from: `configured`, `pinned`, a source of the facts such as `dmi product_serial`, or `none`. */
export interface Chosen<Value> {
	readonly value: Value;
	readonly source: string;
}

/** One network interface. `null` means that this system doesn't tell; that alone does not speak against it. */
export interface InterfaceFacts {
	readonly name: string;
	/** Six pairs of hexadecimal digits with `:` between them. */
	readonly mac: string;
	/** The kernel's ARPHRD number; 1 is Ethernet, and Wi-Fi counts as such. */
	readonly type: number | null;
	/** Whether hardware stands behind it; bridges, veth and tunnels have none. */
	readonly hasDevice: boolean | null;
	/** 0 permanent, 1 random, 2 taken from another interface, 3 set by software. */
	readonly addrAssignType: number | null;
	readonly wireless: boolean;
	readonly usb: boolean;
}

/** The facts of the machine, as they were found. */
export interface IdentityFacts {
	/** In order of preference. */
	readonly serials: readonly Chosen<string>[];
	readonly interfaces: readonly InterfaceFacts[];
	/** A keyed hash of the machine-id in hexadecimal, or `null` where there is none. Never the id itself. */
	readonly machineIdHash: string | null;
	/** Places that were looked at in vain. */
	readonly unreadable: readonly Rejected[];
	/** Several containers show one machine's serial number and card and one image's machine-id. Default `false`. */
	readonly isContainer?: boolean;
}

/** Values from the settings, as they stand there; each that is set wins over whatever is found or pinned. */
export type ConfiguredIdentity = Partial<Record<'deviceId' | 'serial' | 'macAddress', string | null | undefined>>;

/** The id of a device before, and the machine on which it had it; `null` where an older version has not kept it. */
export interface KeptId extends Chosen<string> {
	readonly on: Fingerprint | null;
}

export interface Rejected {
	readonly source: string;
	readonly reason: string;
}

interface ChosenParts {
	readonly serial: Chosen<string | null>;
	/** In lower case with `:`. */
	readonly macAddress: Chosen<string | null>;
	/** Whether a pairing has fixed the identity. */
	readonly pinned: boolean;
	/** Sources that were looked at and not taken. */
	readonly rejected: readonly Rejected[];
	/** The machine as it is now, without regard to settings; to be kept at pairing and at the first registration. */
	readonly fingerprint: Fingerprint;
	/** One `identity-changed` for each part that is another one than then; a single one when {@link cloned}. */
	readonly warnings: readonly Failure[];
	/** The state seems to have come from another device: report it, and don't register in that device's name. */
	readonly cloned: boolean;
}

export interface CompleteIdentity extends ChosenParts {
	readonly needsGeneratedId: false;
	readonly deviceId: Chosen<string>;
}

/** The machine may have nothing to be known by: make an id, keep it durably, and choose again with it. */
export type IdentityChoice =
	| CompleteIdentity
	| (ChosenParts & { readonly needsGeneratedId: true; readonly deviceId: null });

/**
 * Chooses the identity.
 *
 * - deviceId: configured, else the pinned one, else the one that this device registered with before where its card or its serial number is still here, else the
 *   serial number, else the one that it registered with or was given before, else one made from machine-id and MAC address together, else one to be
 *   generated. A copied disk, an image or a container can share a machine-id, and containers a serial number: neither counts alone there.
 * - serial: configured, else as pinned, else the first of the facts that is a real one.
 * - macAddress: configured, else as pinned, else a permanent address of real hardware: onboard wired before Wi-Fi before
 *   USB, then by name.
 *
 * As pinned also means absent if it was absent: a card plugged in later does not make this another registration.
 * @param pinned the identity of the pairing; `null` before one, and to choose again when pairing again.
 * @param kept what this device was before: {@link keptId}.
 */
export function chooseIdentity(
	facts: IdentityFacts,
	configured: ConfiguredIdentity,
	pinned: PinnedIdentity | null,
	kept: KeptId | null,
): IdentityChoice {
	const { found: foundSerial, rejected: rejectedSerials } = selectFirstValid(
		facts.serials.map(({ value, source }) => ({ value: value.trim(), source, fault: whySerialRejected(value) })),
	);
	const { found: foundMac, rejected: rejectedInterfaces } = selectFirstValid(
		[...facts.interfaces].sort(byPreference).map((nic) => ({
			value: nic.mac.toLowerCase(),
			source: `interface ${nic.name}`,
			fault: whyInterfaceRejected(nic),
		})),
	);

	const serial = choose(configured.serial, pinned?.serial, foundSerial);
	const macAddress = choose(configured.macAddress, pinned?.macAddress, foundMac);
	// A newer version may refuse the serial number by which the device registered, and find another one beside it.
	const registeredBy = facts.serials.some(({ value }) => value.trim() === kept?.value);
	const other = kept ?? idOfHardware(facts, foundMac);
	const best = fingerprintOf(facts, foundSerial, foundMac);
	// A serial number that can be read only since makes no other device of one that has its card.
	const isSame = kept?.on != null && sharesHardware(kept.on, stillThere(facts, best, kept.on));
	const deviceId = chooseDeviceId(configured, pinned, serial, other, facts.isContainer || registeredBy || isSame);
	// An id of its own hardware or of the settings is not taken from another device, whatever else the state holds.
	const then = pinned?.fingerprint ?? (deviceId === kept ? (kept?.on ?? null) : null);
	const seen = stillThere(facts, best, then);
	const changes = then ? changedParts(facts, then, seen) : [];
	const cloned = then !== null && seemsCloned(then, seen, changes);
	// Nothing is known to have registered by it, so that there is no device to be a copy of: this machine goes by an id of its own.
	if (cloned && deviceId?.source === GENERATED) return chooseIdentity(facts, configured, pinned, null);
	const parts: ChosenParts = {
		serial,
		macAddress,
		pinned: pinned !== null,
		rejected: [
			...facts.unreadable,
			...rejectedSerials,
			...rejectedInterfaces,
			...superseded(foundSerial, serial),
			...superseded(foundMac, macAddress),
		],
		fingerprint: seen,
		warnings: then
			? describeChanges(changes, cloned, then, seen, pinned ? 'at the pairing' : 'when it registered')
			: [],
		cloned,
	};
	// Without what it was kept with: that is not for reports.
	return deviceId
		? { ...parts, needsGeneratedId: false, deviceId: { value: deviceId.value, source: deviceId.source } }
		: { ...parts, needsGeneratedId: true, deviceId: null };
}

/** The part of the choice that a pairing keeps. @param pinnedAt ISO 8601. */
export function pinIdentity(choice: CompleteIdentity, pinnedAt: string): PinnedIdentity {
	return {
		deviceId: choice.deviceId.value,
		serial: choice.serial.value,
		macAddress: choice.macAddress.value,
		fingerprint: choice.fingerprint,
		pinnedAt,
	};
}

/**
 * The state after a person says that the machine, as it is now, is still the device that was paired or has registered: all
 * of its identity but the deviceId, by which the service knows the device, is taken from the machine. Where nothing of the hardware can be
 * read, it is still known by what it had: that may be there again.
 * @param found the machine as it is now.
 * @throws AgentError `unpaired` when nothing was kept yet.
 */
export function withAccepted(state: DeviceState, found: CompleteIdentity, pinnedAt: string): DeviceState {
	const { identity, registeredOn } = state;
	const then = identity?.fingerprint ?? registeredOn;
	const { machine } = found.fingerprint;
	const known = then && isBare(then, found.fingerprint) ? ({ ...then, machine, acceptedBare: true } as const) : null;
	if (identity && known) return { ...state, identity: { ...identity, fingerprint: known, pinnedAt } };
	if (identity) return { ...state, identity: { ...pinIdentity(found, pinnedAt), deviceId: identity.deviceId } };
	if (registeredOn) return { ...state, registeredOn: known ?? found.fingerprint };
	throw new AgentError('unpaired', 'This device is not paired yet: there is no identity that could have changed.');
}

/** The state with a serial number that has come to a device whose card is the same, so that it tells of no other machine when the card is replaced. Else the same state. */
export function withSerialSince(state: DeviceState, { fingerprint: seen }: IdentityChoice): DeviceState {
	const { identity, registeredOn } = state;
	const then = identity?.fingerprint ?? registeredOn;
	if (!then || then.serial !== null || seen.serial === null) return state;
	if (then.macAddress === null || then.macAddress !== seen.macAddress) return state;
	const fingerprint = { ...then, serial: seen.serial };
	return identity ? { ...state, identity: { ...identity, fingerprint } } : { ...state, registeredOn: fingerprint };
}

/** The choice as the local interface shows it. */
export function toReport(choice: CompleteIdentity): IdentityReport {
	const { deviceId, serial, macAddress, pinned, rejected, warnings } = choice;
	return { deviceId, serial, macAddress, pinned, rejected: [...rejected], warnings: [...warnings] };
}

/** Of chips without a memory for one, or whose maker left the sample in it: many devices have it. */
const DEFAULT_MAC =
	/^(?:00:e0:4c:(?:36|68):00:0\d|(?:88:){4}87:88|00:01:02:03:04:05|00:11:22:33:44:55|00:12:34:56:78:9a)$/i;

/** Why an interface's MAC address does not stand for this device; `null` if it does. */
export function whyInterfaceRejected(nic: InterfaceFacts): string | null {
	if (nic.type !== null && nic.type !== 1) return 'is not an Ethernet or Wi-Fi interface';
	if (!OF_ONE_CARD.test(nic.mac)) return 'has no MAC address';
	if (DEFAULT_MAC.test(nic.mac)) return 'has the MAC address that cards of its kind come with, not one of its own';
	if (nic.hasDevice === false) return 'is virtual: no hardware behind it';
	const firstByte = Number.parseInt(nic.mac.slice(0, 2), 16);
	if (firstByte & 1) return 'has a group address';
	if (firstByte & 2) return 'has a locally administered MAC address, which no maker gave it';
	if (nic.addrAssignType !== null && nic.addrAssignType !== 0)
		return 'has a MAC address that software set, not the permanent one';
	return null;
}

/** Onboard wired, Wi-Fi, USB; the same order whatever order the kernel lists them in. */
function byPreference(a: InterfaceFacts, b: InterfaceFacts): number {
	const rank = (nic: InterfaceFacts) => (nic.usb ? 2 : nic.wireless ? 1 : 0);
	return rank(a) - rank(b) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** The first candidate that nothing speaks against, and why not each of the others. */
function selectFirstValid(candidates: readonly (Chosen<string> & { readonly fault: string | null })[]): {
	found: Chosen<string> | null;
	rejected: Rejected[];
} {
	let found: Chosen<string> | null = null;
	const rejected: Rejected[] = [];
	for (const { value, source, fault } of candidates) {
		const reason: string | null = fault ?? (found && `comes after ${found.source}`);
		if (reason) rejected.push({ source, reason });
		else found = { value, source };
	}
	return { found, rejected };
}

/** @param pinned `undefined` before a pairing; `null` when the pairing found none. */
function choose(
	configured: string | null | undefined,
	pinned: string | null | undefined,
	found: Chosen<string> | null,
): Chosen<string | null> {
	if (configured != null) return { value: configured, source: 'configured' };
	if (pinned !== undefined) return { value: pinned, source: 'pinned' };
	return found ?? { value: null, source: 'none' };
}

/** A good source that gave way to the settings or to the pairing, unless it says the same. */
function superseded(found: Chosen<string> | null, chosen: Chosen<string | null>): Rejected[] {
	if (!found || found.source === chosen.source || found.value === chosen.value) return [];
	return [{ source: found.source, reason: `comes after the ${chosen.source} value` }];
}

function chooseDeviceId(
	configured: ConfiguredIdentity,
	pinned: PinnedIdentity | null,
	serial: Chosen<string | null>,
	other: Chosen<string> | null,
	othersFirst: boolean,
): Chosen<string> | null {
	if (configured.deviceId != null) return { value: configured.deviceId, source: 'configured' };
	if (pinned) return { value: pinned.deviceId, source: 'pinned' };
	const isOwn = serial.source === 'configured' || !othersFirst;
	if (serial.value !== null && isOwn) return { value: serial.value, source: `serial number (${serial.source})` };
	return other;
}

/** Of a machine without a serial number: a copied disk has the same machine-id, and a card that moves takes its address along. */
function idOfHardware(
	{ machineIdHash, isContainer }: IdentityFacts,
	mac: Chosen<string> | null,
): Chosen<string> | null {
	if (machineIdHash === null || mac === null || isContainer) return null;
	const value = `machine-${machineIdHash.slice(0, 20)}${mac.value.replaceAll(':', '')}`;
	return { value, source: `machine-id and ${mac.source}` };
}

const GENERATED = 'generated';

/**
 * The id that this device registered with before, or was about to: with that the machine is kept. One that 0.1.0 made at its first start,
 * without a machine and without a Connection, is of no registration. A replaced network card changes neither.
 */
export function keptId({
	connections,
	generatedId,
	registeredOn: on,
}: Pick<DeviceState, 'connections' | 'generatedId' | 'registeredOn'>): KeptId | null {
	const registered = connections.at(-1)?.request.deviceId;
	if (registered !== undefined) return { value: registered, source: 'registered before', on };
	return generatedId === null || on === null ? null : { value: generatedId, source: GENERATED, on };
}

/** A container has nothing of its own to be known by: it may move to another machine and another image, with its volume. */
function fingerprintOf(
	{ isContainer, machineIdHash }: IdentityFacts,
	serial: Chosen<string> | null,
	mac: Chosen<string> | null,
): Fingerprint {
	if (isContainer) return { serial: null, macAddress: null, machine: null };
	return { serial: serial?.value ?? null, macAddress: mac?.value ?? null, machine: machineIdHash };
}

/**
 * The fingerprint of now, in which a part of then stands as long as it is anywhere in the machine: a better source that
 * became readable, or a second card, is not a change.
 */
function stillThere(facts: IdentityFacts, best: Fingerprint, then: Fingerprint | null): Fingerprint {
	const { serial = null, macAddress = null } = then ?? {};
	return {
		serial: facts.serials.some(({ value }) => value.trim() === serial) ? serial : best.serial,
		macAddress: facts.interfaces.some(({ mac }) => mac.toLowerCase() === macAddress) ? macAddress : best.macAddress,
		machine: best.machine,
	};
}

type Part = Exclude<keyof Fingerprint, 'acceptedBare'>;
const PARTS: readonly Part[] = ['serial', 'macAddress', 'machine'];
const HARDWARE = PARTS.filter((part) => part !== 'machine');

const sharesHardware = (then: Fingerprint, now: Fingerprint) =>
	HARDWARE.some((part) => then[part] !== null && then[part] === now[part]);

/** Whether nothing is there now of the hardware that was known then. Where the machine-id is not there either, nothing can be read, or it is a container. */
const isBare = (then: Fingerprint, now: Fingerprint) =>
	now.machine !== null && HARDWARE.some((part) => then[part] !== null) && HARDWARE.every((part) => now[part] === null);

/**
 * Parts known both then and now, and different; a placeholder of the maker where a serial number was is of another board. A serial number
 * that was not there then, with another card, is of another machine: where it can only be read since, or a newer version takes it, the card is the same.
 */
function changedParts({ serials, isContainer }: IdentityFacts, then: Fingerprint, now: Fingerprint): Part[] {
	const isOther = (part: Part) => then[part] !== now[part] && now[part] !== null;
	const isNew = then.serial === null && HARDWARE.every(isOther) && PARTS.some((part) => then[part] !== null);
	const isKnown = (part: Part) =>
		now[part] !== null || (part === 'serial' && !isContainer && serials.some(({ value }) => value.trim()));
	return PARTS.filter((part) =>
		then[part] === null ? isNew && part !== 'machine' : isKnown(part) && then[part] !== now[part],
	);
}

/**
 * Whether this looks like another device's state. Serial number and MAC address belong to the hardware: one that is the
 * same settles it. The machine-id lies on the disk and travels with a copy, so it only testifies when it differs. Two
 * different parts are needed; one is enough if nothing of the hardware besides it is known from then or is here, though
 * never the MAC address alone, since network cards are replaced.
 */
function seemsCloned(then: Fingerprint, now: Fingerprint, changed: readonly Part[]): boolean {
	if (isBare(then, now) && changed.includes('machine')) return true;
	if (sharesHardware(then, now)) return false;
	return changed.length > 1 || (changed.length === 1 && changed[0] !== 'macAddress');
}

/**
 * Whether what was kept is of another machine, and this one has an id of its own: a device with a key whose disk came from another one. What
 * that one has registered is not this one's to use.
 */
export function isLeftByAnother(
	facts: IdentityFacts,
	{ fingerprint, deviceId }: IdentityChoice,
	kept: KeptId | null,
): boolean {
	if (!kept?.on || deviceId?.value === kept.value) return false;
	// Of a container nothing was known: a machine that is none is another one.
	const { on } = kept;
	if (!facts.isContainer && PARTS.every((part) => on[part] === null)) return true;
	const seen = stillThere(facts, fingerprint, kept.on);
	return seemsCloned(kept.on, seen, changedParts(facts, kept.on, seen));
}

function describeChanges(
	changed: readonly Part[],
	cloned: boolean,
	then: Fingerprint,
	now: Fingerprint,
	when: string,
): Failure[] {
	const before = (part: Part) => `${when} it ${then[part] === null ? 'had none' : `was ${then[part]}`}`;
	const describe: Record<Part, string> = {
		serial: `its serial number is ${now.serial ?? 'a placeholder of the maker'}, ${before('serial')}`,
		macAddress: `its MAC address is ${now.macAddress}, ${before('macAddress')}`,
		// The hashes would tell a person nothing.
		machine: `its machine-id is another one than ${when}`,
	};
	const reports = cloned
		? [`This seems to be a copy of another device: ${changed.map((part) => describe[part]).join('; ')}.`]
		: changed.map((part) => `A part of this device has changed: ${describe[part]}.`);
	if (reports.length === 0 && isBare(then, now) && !then.acceptedBare)
		reports.push(
			`The hardware by which this device was known ${when} is gone: there is no serial number and no network card of a maker.`,
		);
	return reports.map((message) => failure('identity-changed', message));
}
