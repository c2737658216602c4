/** Debian's chromium, driven by playwright-core, and what only this suite needs from Debian. Knows nothing of the page. */
import { execFileSync } from 'node:child_process';
import axe from 'axe-core';
import { type Browser, chromium, type Page } from 'playwright-core';
import { findProgram } from './programs.ts';

/** A name under which another site might reach this machine. */
export const REBOUND_HOST = 'rebound.example';

/** @param camera a film that its camera shows; left out, it has a test picture. @throws Error that says how to get what is missing. */
export async function launchChromium(camera?: string): Promise<Browser> {
	return chromium.launch({
		executablePath: findProgram('chromium'),
		args: [
			'--no-sandbox',
			'--disable-gpu',
			'--use-fake-ui-for-media-stream',
			'--use-fake-device-for-media-stream',
			`--host-resolver-rules=MAP ${REBOUND_HOST} 127.0.0.1`,
			...(camera === undefined ? [] : [`--use-file-for-fake-video-capture=${camera}`]),
		],
	});
}

/** Makes a film of a camera that is held before a picture. @throws Error that says how to get what is missing. */
export function filmPicture(picture: string, film: string): void {
	const filter = 'scale=380:380:flags=neighbor,pad=640:480:(ow-iw)/2:(oh-ih)/2:gray';
	const input = ['-loglevel', 'error', '-y', '-loop', '1', '-i', picture];
	const output = ['-vf', filter, '-t', '1', '-r', '10', '-pix_fmt', 'yuvj420p', '-f', 'mjpeg', film];
	execFileSync(findProgram('ffmpeg'), [...input, ...output]);
}

/** What axe finds wrong with the page as it is: names, roles, contrast, order. One line each. */
export async function findBarriers(page: Page): Promise<string[]> {
	// Evaluated, not inserted: the page allows no script but its own.
	await page.evaluate(axe.source);
	const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: typeof axe }).axe.run());
	return violations.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
}
