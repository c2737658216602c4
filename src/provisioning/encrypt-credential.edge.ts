/** Encrypts a credential for this machine by systemd-creds; the secret goes through pipes only. */
import { spawn } from 'node:child_process';
import { buffer } from 'node:stream/consumers';

const DEADLINE_MS = 20_000;

/** @param name of the credential in systemd. @returns the encrypted text; `null` where systemd-creds cannot. */
export async function encryptCredential(name: string, secret: string): Promise<Uint8Array | null> {
	const sealed = await pipeThrough(['encrypt', `--name=${name}`, '-', '-'], Buffer.from(secret));
	if (!sealed) return null;
	const opened = await pipeThrough(['decrypt', `--name=${name}`, '-', '-'], sealed);
	return opened?.toString() === secret ? sealed : null;
}

async function pipeThrough(words: readonly string[], input: Uint8Array): Promise<Buffer | null> {
	const child = spawn('systemd-creds', [...words], { stdio: ['pipe', 'pipe', 'ignore'], timeout: DEADLINE_MS });
	const ended = new Promise<boolean>((resolve) => {
		child.once('error', () => resolve(false));
		child.once('close', (status) => resolve(status === 0));
	});
	child.stdin.on('error', () => {});
	child.stdin.end(input);
	const [output, isGood] = await Promise.all([buffer(child.stdout), ended]);
	return isGood && output.length > 0 ? output : null;
}
