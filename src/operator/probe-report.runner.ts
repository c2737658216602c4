/** The report of the device that `idv probe` runs at the end, and the places of kinds and ids that its run shows. Pure. */
import { type NotificationPointers, readNotification } from '../protocol/channel.ts';
import type { LoadedSettings } from '../settings/load.runner.ts';
import { answersAcks, asides } from './probe-asides.runner.ts';
import type { Ran } from './probe-device.runner.ts';
import { isLike, PASSING } from './probe-ends.runner.ts';
import { type Finding, lifeFindings } from './probe-findings.runner.ts';
import { readForm } from './probe-form.runner.ts';
import {
	deciding,
	HELLO,
	idsOf,
	isError,
	kindOf,
	likeTemplate,
	messagesOf,
	type ReadingSettings,
	ranked,
	repeated,
	tellsOfOthers,
	wordOf,
} from './probe-readings.runner.ts';
import type { DeviceReport, Run } from './probe-state.runner.ts';

/** What the device brought. */
export function reportOf(run: Run, { lives, events, isOnline, isCut, dropped }: Ran, service: Service): DeviceReport {
	const { seconds, restarts, unasked } = run;
	const answerMs = Math.min(1000, seconds * 125);
	const form = { ...formOf(service), unasked };
	const isAside = lives.map((life) => asides(life, form, answerMs, { ...service }));
	const all = events.filter(({ type }) => type === 'notification');
	const own = all.filter(({ content }) => !isAside.some((is) => is(content)));
	const counted = (some: typeof all) => {
		const kinds: Record<string, number> = {};
		for (const { kind } of some) kinds[kind] = (kinds[kind] ?? 0) + 1;
		return kinds;
	};
	const { ackBody } = service;
	const isAck = ackBody === null ? () => false : likeTemplate(ackBody);
	const repeats = lives.flatMap((life) => {
		const isReceipt = answersAcks(life, answerMs, form, { ...service });
		const messages = messagesOf(life.heard, form).filter(({ text }) => !isReceipt(text));
		return repeated(messages, form, ackBody === null ? 0 : answerMs);
	});
	const first = service.firstMessages.length;
	const answers = lives.flatMap((life) => {
		const isNews = tellsOfOthers(life, form, answerMs);
		return ranked(life, first, answerMs).flatMap((one) =>
			(one.rank ?? 0) === 0
				? []
				: messagesOf([one], form).map(({ text }) => ({
						rank: HELLO.test(wordOf(text, form)) ? 1 : one.rank,
						isError: isError(text) && !isNews(text),
					})),
		);
	});
	const isConfirmed = first > 0 && answers.some((one) => one.rank === 2 && !one.isError);
	const isServed = own.length > 0 || isConfirmed;
	const errors = answers.filter((one) => one.isError).length;
	return {
		...{ isServed, isRefused: !isServed && errors > 0, errors },
		...{ isOnline, seconds, kinds: counted(own), others: counted(all.filter((one) => !own.includes(one))) },
		...{ repeats: repeats.length, dropped, isCut },
		withId: idsOf(
			own.map(({ content }) => ({ text: content })),
			form,
		).filter((id) => id !== null).length,
		acknowledgements: lives.reduce((sum, { said }) => sum + said.filter(({ text }) => isAck(text)).length, 0),
		closes: lives.flatMap(({ ended }) => {
			if (!ended) return [];
			const { code, atMs, reason } = ended;
			const isUsual = PASSING.includes(code) || isLike(ended, restarts);
			return [{ code, afterSeconds: Math.round(atMs / 100) / 10, reason, isUsual }];
		}),
	};
}

const formOf = ({ frameContents, jsonInBinary, kindPointer, notificationIdPointer }: Service): ReadingSettings => ({
	frameContents,
	...(jsonInBinary && { jsonInBinary }),
	...(kindPointer !== null && { kindPointer }),
	...(notificationIdPointer !== null && { notificationIdPointer }),
});

export type Service = LoadedSettings['settings']['service'];

/** The places of kinds and ids as this run shows them, where those of the settings find fewer. */
export function amendments(run: Run, { lives }: Ran, settings: Service): Finding[] {
	const answerMs = Math.min(1000, run.seconds * 125);
	const heard = lives.flatMap((life) => ranked(life, settings.firstMessages.length, answerMs));
	const form = readForm(heard, settings.ignoreKinds);
	const [life] = lives;
	const found = (pointers: NotificationPointers) => {
		const all = messagesOf(deciding(heard), form)
			.filter(({ text }) => !settings.ignoreKinds.includes(kindOf(text, formOf(settings))))
			.map(({ text }) => readNotification({ type: 'text', text }, pointers));
		const ids = new Set(all.flatMap(({ serviceId }) => serviceId ?? []));
		const kinds = all.map(({ kind }) => kind).filter((kind) => kind !== 'unknown');
		// One kind for all of them may be that of their envelope.
		return [new Set(kinds).size > 1 ? kinds.length : kinds.length / 2, ids.size, all.length] as const;
	};
	const [kinds, ids, all] = found(settings);
	const [betterKinds, betterIds] = found(form);
	const isWrong = (set: string | null, now: number, then: number) =>
		all > 0 && (then > now || (set !== null && now === 0));
	const isOther = form.frameContents !== undefined && form.frameContents !== settings.frameContents;
	const wrong = [
		...(isOther ? ['frame-contents', 'notification-kind', 'notification-id'] : []),
		...(isWrong(settings.kindPointer, kinds, betterKinds) ? ['notification-kind'] : []),
		...(isWrong(settings.notificationIdPointer, ids, betterIds) ? ['notification-id'] : []),
	];
	const read = life ? lifeFindings({ life, form, settleMs: answerMs, settings: { ...settings } }) : [];
	return read.filter(({ point }) => wrong.includes(point));
}
