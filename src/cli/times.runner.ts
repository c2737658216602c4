/** Times that people write as options. */
import { AgentError } from '../base/errors.ts';

const UNITS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** ISO 8601 with a zone, as a plan has its times. */
const MOMENT = /^(\d{4}-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** In milliseconds since 1970; a day that no month has, or a time without its zone, is none. @throws AgentError `usage`. */
export function readMoment(text: string): number {
	const ms = momentIn(text);
	if (Number.isFinite(ms)) return ms;
	throw new AgentError('usage', 'A time must be written as 2026-11-21T06:00:00Z.', { remedy: 'Correct the time.' });
}

/** As {@link readMoment}, in ISO 8601; a day begins at midnight of this machine's clock, and `2h` is so long ago. @throws AgentError `usage`. */
export function readTime(option: string, text: string): string {
	const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
	const isDay = /^\d{4}-\d\d-\d\d$/.test(text) && isOfCalendar(text);
	const written = isDay ? Date.parse(`${text}T00:00:00`) : momentIn(text);
	const atMs = count === undefined ? written : Date.now() - Number(count) * (UNITS[unit] ?? 0);
	const at = new Date(atMs);
	if (!Number.isNaN(at.getTime())) return at.toISOString();
	throw new AgentError('usage', `${option} is not a time.`, {
		remedy: 'Write it as 2026-11-21 or 2026-11-21T06:00:00Z, or as an age: 30m, 2h or 3d.',
	});
}

function momentIn(text: string): number {
	const [, day = ''] = MOMENT.exec(text) ?? [];
	return isOfCalendar(day) ? Date.parse(text) : Number.NaN;
}

/** Not so for 2026-02-30, which a parser takes for the second of March. */
function isOfCalendar(day: string): boolean {
	const at = new Date(`${day}T00:00:00Z`);
	return !Number.isNaN(at.getTime()) && at.toISOString().startsWith(day);
}
