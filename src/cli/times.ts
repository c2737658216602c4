/** Times that people write as options. */
import { AgentError } from '../base/errors.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** ISO 8601; a day begins at midnight of this machine's clock, and `2h` is so long ago. @throws AgentError `usage`. */
export function readTime(option: string, text: string): string {
	const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
	const isDay = /^\d{4}-\d\d-\d\d$/.test(text);
	const isTime = (isDay || /^\d{4}-\d\d-\d\dT/.test(text)) && isOfCalendar(text.slice(0, 10));
	const written = isTime ? Date.parse(isDay ? `${text}T00:00:00` : text) : Number.NaN;
	const atMs = count === undefined ? written : Date.now() - Number(count) * (UNITS[unit] ?? 0);
	const at = new Date(atMs);
	if (!Number.isNaN(at.getTime())) return at.toISOString();
	throw new AgentError('usage', `${option} is not a time.`, {
		remedy: 'Write it as 2026-11-21 or 2026-11-21T06:00:00Z, or as 30m, 2h or 3d for so long ago.',
	});
}

/** Not so for 2026-02-30, which a parser takes for the second of March. */
function isOfCalendar(day: string): boolean {
	const at = new Date(`${day}T00:00:00Z`);
	return !Number.isNaN(at.getTime()) && at.toISOString().startsWith(day);
}
