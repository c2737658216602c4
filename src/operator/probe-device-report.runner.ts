/** The words of `idv probe` about the device that ran at the end, and about what that does not show. */
import type { Shell } from '../cli/output.runner.ts';
import { cleanText, cleanWords } from '../protocol/problem.ts';
import { ABOUT_ACK } from './probe-acks.runner.ts';
import { NAMELESS, OVER } from './probe-readings.runner.ts';
import type { DeviceReport } from './probe-state.runner.ts';

export function tellDevice(shell: Shell, device: DeviceReport): void {
	const { isOnline, isServed, seconds, kinds, others, withId, repeats, dropped, isCut, acknowledgements, closes } =
		device;
	const atLeast = isCut ? 'at least ' : '';
	const named = (counts: DeviceReport['kinds']) =>
		Object.entries(counts).map(([kind, count]) => `${cleanText(kind, 64)} (${count})`);
	const [names, aside] = [named(kinds), named(others)];
	const total = Object.values(kinds).reduce((sum, count) => sum + count, 0);
	const ended = closes.map(
		({ code, afterSeconds, reason }) =>
			`${code ?? 'no code'} after ${afterSeconds} s${reason ? ` ("${cleanWords(reason, 80)}")` : ''}`,
	);
	shell.table([
		[
			`A device with these settings, for ${seconds} s`,
			isOnline
				? isServed
					? 'online'
					: 'opened: nothing shows that the service serves it'
				: 'was online, not at the end',
		],
		[
			'Notifications',
			total === 0 ? 'none came' : `${atLeast}${names.join(', ')}; ${withId} of ${atLeast}${total} with an id`,
		],
		...(aside.length > 0 ? [['Other messages (greetings, pings, answers)', atLeast + aside.join(', ')]] : []),
		[
			'Sent again by the service',
			`${atLeast}${repeats}${dropped > 0 ? `; ${dropped} dropped by the device as sent again` : ''}`,
		],
		['Acknowledgements', String(acknowledgements)],
		['Channels that the service ended', ended.join(', ') || 'none'],
	]);
	for (const one of doubts(device)) shell.line(one);
}

/** The ends that are about the device. */
export const endedBy = ({ closes }: DeviceReport) => closes.filter(({ isUsual }) => !isUsual);

/** What a device online with the settings does not show: that applications get what the service sends. */
function doubts(device: DeviceReport): string[] {
	const { isServed, errors, seconds, kinds, withId, repeats, dropped, isCut, acknowledgements } = device;
	const total = Object.values(kinds).reduce((sum, count) => sum + count, 0);
	const named = total - NAMELESS.reduce((sum, kind) => sum + (kinds[kind] ?? 0), 0);
	const reasons = endedBy(device).map(({ reason }) => reason);
	const isUnacked = (reason: string) => !OVER.test(reason) && ABOUT_ACK.test(reason);
	return [
		reasons.some((reason) => OVER.test(reason)) &&
			'The service ended the channel because the Connection was over: look at service.connectionLifeSeconds.',
		reasons.some(isUnacked) &&
			'The service ended the channel of the device because something was not acknowledged, which channels from before may have brought: if that goes on, look at service.ackBody.',
		reasons.some((reason) => !OVER.test(reason) && !isUnacked(reason)) &&
			'The service ended the channel of the device: these settings may not be the whole. Look at service.heartbeatBody, at service.pingKind and at heartbeatCadence.',
		isServed &&
			errors > 0 &&
			`The service sent the device errors (${errors}), as it may for heartbeats that it does not know: look at service.heartbeatBody, and at its words above.`,
		total === 0 &&
			`No notification came in ${seconds} s, so that nothing shows how they are written: start sessions for the workflow while the probe runs, and run it again. If the service had some to send, look at service.firstMessages (what the device must say first) and service.ignoreKinds.`,
		total > 0 &&
			kinds['binary'] === total &&
			'The notifications are bytes in which no JSON was found: if there is some, look at service.jsonInBinary, and at service.frameContents for a frame that holds several.',
		total > 0 &&
			named === 0 &&
			kinds['binary'] !== total &&
			'No notification has a kind that was found: look at service.kindPointer (where it stands), and at service.frameContents if a frame holds several.',
		total > 0 &&
			withId === 0 &&
			kinds['binary'] !== total &&
			'No notification has an id that was found: what comes again is not known as the same. If the service gives ids, look at service.notificationIdPointer.',
		repeats > 0 &&
			`The service sent ${isCut ? 'at least ' : ''}${repeats} again, as it may until each is acknowledged: look at service.ackBody, and at service.notificationIdPointer for what an acknowledgement names.`,
		dropped > 0 &&
			`Applications did not get ${dropped} that had the id, the kind and the contents of one before: if each of them counts, the id is that of something else; look at service.notificationIdPointer.${acknowledgements > 0 ? '' : ' If the service sends each again until it is acknowledged, look at service.ackBody.'}`,
	].filter((one) => one !== false);
}
