/** The routes of Linux: which interface has an address, and whether this machine has a network to go out by. Pure. */

export type WayOut = 'there' | 'no default route' | 'none';

const UP = 0x1;
const REJECTS = 0x200;

/** @param ipv4 and ipv6: /proc/net/route and /proc/net/ipv6_route. @param hasLink whether an interface has a carrier. */
export function wayOut(ipv4: string, ipv6: string, hasLink: (name: string) => boolean): WayOut {
	const isOpen = ({ name, flags }: Route) => name !== 'lo' && (flags & UP) !== 0 && (flags & REJECTS) === 0;
	const open = [...routesOf4(ipv4), ...routesOf6(ipv6)].filter((route) => isOpen(route) && hasLink(route.name));
	if (open.length === 0) return 'none';
	return open.some(({ isDefault }) => isDefault) ? 'there' : 'no default route';
}

interface Route {
	readonly name: string;
	readonly flags: number;
	readonly isDefault: boolean;
}

/** @param ipv4 /proc/net/route. @returns `null` where none has that address, or where that is not known, as of IPv6. */
export function interfaceOf(ipv4: string, address: string): string | null {
	// As Linux writes addresses: the first byte is the lowest.
	const own = address.split('.').reduceRight((all, byte) => all * 256 + Number(byte), 0);
	const isOwn = ({ to, mask }: { to: number; mask: number }) => mask !== 0 && (own & mask) >>> 0 === to;
	return routesOf4(ipv4).find(isOwn)?.name ?? null;
}

function routesOf4(text: string): (Route & { readonly to: number; readonly mask: number })[] {
	const lines = text.split('\n').slice(1).filter(Boolean);
	return lines.map((line) => {
		const [name = '', ...fields] = line.split('\t');
		const [to = Number.NaN, , flags = 0, , , , mask = Number.NaN] = fields.map((field) => Number.parseInt(field, 16));
		return { name, to, mask, flags, isDefault: to === 0 && mask === 0 };
	});
}

/** Those of a link alone and of groups lead nowhere. */
function routesOf6(text: string): Route[] {
	const lines = text.split('\n').filter((line) => line !== '' && !/^f[ef]/.test(line));
	return lines.map((line) => {
		const fields = line.trim().split(/\s+/);
		const isDefault = fields[1] === '00' && /^0+$/.test(fields[0] ?? '');
		return { name: fields.at(-1) ?? '', flags: Number.parseInt(fields.at(-2) ?? '', 16), isDefault };
	});
}
