/** A hostile user of the agent against root, on a real Debian with apt, dpkg and systemd: none of the attempts of `attempts.ts` succeeds. */
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { createSigner } from '../fixtures/plans.ts';
import { type Attempt, attempts, TOOLS } from './attempts.ts';
import { createDevice, type Device, IS_SHORT } from './device.ts';

const SECRET = 'ROOT-ONLY-5f2c81';
const order = (version: string | null, revision: number) => ({
	format: 'idv-fleet-plan/2',
	revision,
	spreadSeconds: 0,
	defaults: {
		rollout: {
			to: version === null ? { workflowId: 'document-check' } : {},
			rings: [{ percent: 100, ...(version !== null && { agent: { version } }) }],
		},
	},
});

const signer = createSigner();
/** Nothing of this is signed by the site as it is. */
const HOSTILE: Readonly<Record<string, object>> = {
	'an unsigned one': order('1.0.1', 9),
	'one that the attacker has signed': createSigner().sign(order('1.0.1', 9)),
	'one that was changed after the site had signed it': tampered(order('1.0.1', 9)),
	...Object.fromEntries(
		[
			'-o=Dir::Etc=/var/lib/idv-agent',
			'../../../../tmp/x',
			'1.0\n--allow-unauthenticated',
			'1.0 evil',
			'9'.repeat(10_000),
		].map((version) => [
			`with the version ${JSON.stringify(version.slice(0, 40))}, under the signature of another`,
			tampered(order(version, 9)),
		]),
	),
};

function tampered(plan: object): object {
	return { ...signer.sign(order(null, 9)), payload: Buffer.from(JSON.stringify(plan)).toString('base64') };
}

const ATTEMPTS = attempts(Object.keys(HOSTILE).map((name) => name.replaceAll(/[^a-z0-9 ]/gi, '')));

/** What must be as it was, in lines: root's files, and what the agent's user may read and write of them. */
const CANARIES = `
find /root/canary /etc/shadow /etc/passwd /etc/group /etc/idv-agent /etc/systemd/system /etc/apt /etc/sudoers.d /etc/cron* /etc/ld.so* /usr/lib/idv-agent /usr/lib/idv-agent-updates ! -name '*.cache' ! -name 'idv-agent-judge.service' ! -type d -printf '%p %U:%G %m %l\\n' -type f -exec sha256sum {} + 2>/dev/null
find / /run -xdev -perm /6000 -type f -printf 'set-id %p %m\\n'
find /etc/pwned /usr/bin/idv-agent -printf '%p %l\\n' 2>/dev/null
setpriv --reuid=idv-agent --regid=idv-agent --init-groups find / /run -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run/idv-agent -o -path /run/systemd -o -path /var/lib/idv-agent -o -path /usr/share \\) -prune -o ! -type l \\( -writable -o ! -perm -o=r -readable \\) -printf 'open to it: %p %u %m\\n' 2>/dev/null | grep -v -e idv-agent-update -e idv-agent-support
`;
/** One attempt: the attack, root's part, the end of all that the attacker has left running, and the words that root's secret got into. */
const ATTEMPT = `
attacker() { (cd /var/lib/idv-agent && exec setpriv --reuid=idv-agent --regid=idv-agent --init-groups timeout 20 sh -c "$1" >/dev/null 2>&1 </dev/null); }
attacker "$ATTACK"
timeout 100 bash -c "$ROOT" >/root/said 2>&1 </dev/null; [ $? -ne 124 ] || echo "ROOT DOES NOT END"
agent=$(systemctl show idv-agent --property=MainPID --value)
for n in 1 2 3; do pgrep -U idv-agent | grep -vx "$agent" | xargs -r kill -9 2>/dev/null; done
chmod 700 /var/lib/idv-agent
attacker 'rm -rf update-plan.json pipe u.*; cd /run/idv-agent; for s in agent.sock admin.sock; do if [ -S $s.real ]; then rm -rf $s; mv $s.real $s; fi; done'
attacker "$UNDO"
cat /root/said
grep -qP '[\\x1b\\x9b]' /root/said && echo "ROOT'S TERMINAL IS STEERED"
grep -alrs ${SECRET} /root/said /var/lib/idv-agent /run/idv-agent /var/lib/idv-agent-update /tmp 2>/dev/null | sed 's/^/THE SECRET IS IN /'
journalctl --quiet --lines=200 --output=cat | grep -q ${SECRET} && echo "THE SECRET IS IN THE JOURNAL"
echo "ALL WAS TRIED"
`;
const ONLINE = `timeout 30 sh -c 'until perl -e "use Socket; socket(S,AF_UNIX,SOCK_STREAM,0); connect(S,pack_sockaddr_un(q(/run/idv-agent/agent.sock))) or exit 1; syswrite(S,qq(GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n)); print <S>" | grep -q "\\"state\\": *\\"online\\""; do sleep 0.1; done' || echo "NOT ONLINE"`;

describe('a hostile user of the agent against root', () => {
	let device: Device;
	let before = '';

	const canaries = async () => (await device.machine.run(CANARIES)).text;

	beforeAll(async () => {
		device = await createDevice(inject('site'));
		const { must } = device.machine;
		for (const [name, text] of Object.entries(TOOLS)) await device.put(`/srv/attack/${name}`, text);
		for (const [name, plan] of Object.entries(HOSTILE))
			await device.put(`'/srv/plans/${name.replaceAll(/[^a-z0-9 ]/gi, '')}'`, JSON.stringify(plan));
		await device.put('/srv/none', JSON.stringify(signer.sign(order(null, 8))));
		await device.put('/srv/older', JSON.stringify(signer.sign(order('0.9.0', 1))));
		await device.put(
			'/etc/idv-agent/conf.d/20-plan.json',
			JSON.stringify({ update: { enabled: true }, fleet: { publicKeys: [signer.publicKey] } }),
		);
		await device.put(
			'/root/site/brought',
			JSON.stringify({ baseUrl: 'https://id.example', apiKey: 'a-key-of-the-site', replace: true }),
		);
		await device.put('/root/site/config.json', '{}');
		await device.put('/root/canary', `${SECRET}\n`);
		await must(
			`chmod 600 /root/canary; usermod --password '$6$${SECRET}' root; rm -f /etc/shadow- /etc/passwd-; chmod 755 /srv /srv/attack /srv/plans`,
		);
		await device.untilOnline();
		before = await canaries();
	});
	afterAll(async () => device?.destroy());

	test('is noticed where it has changed, read or replaced something of root [F1919]', async () => {
		const { must } = device.machine;
		for (const [change, back] of [
			['chmod 644 /root/canary', 'chmod 600 /root/canary'],
			['echo x >> /root/canary', `echo ${SECRET} > /root/canary`],
			['chown idv-agent /etc/shadow', 'chown root /etc/shadow'],
			['touch /etc/pwned', 'rm /etc/pwned'],
			['cp /bin/sh /opt/sh; chmod 4755 /opt/sh', 'rm /opt/sh'],
			['chmod 666 /etc/profile', 'chmod 644 /etc/profile'],
		] as const) {
			await must(change);
			expect(await canaries()).not.toBe(before);
			await must(back);
			expect(await canaries()).toBe(before);
		}
		const { text } = await attempt(
			'cp /srv/none leak',
			'cat /root/canary; cp /root/canary /var/lib/idv-agent/leak; printf "\\033"',
			'',
		);
		expect(text).toContain('THE SECRET IS IN /var/lib/idv-agent/leak');
		expect(text).toContain("ROOT'S TERMINAL IS STEERED");
		await must('rm /var/lib/idv-agent/leak');
	});

	test('has tried at least forty things', () => expect(ATTEMPTS.length).toBeGreaterThanOrEqual(40));

	const attempt = (attack: string, root: string, undo: string) =>
		device.machine.run(
			`eval "$(cat)"; ${ATTEMPT}`,
			`ATTACK=${quoted(attack)}\nROOT=${quoted(root)}\nUNDO=${quoted(undo)}\n`,
		);

	async function fails({ attack, root, undo = 'true', says }: Attempt): Promise<void> {
		const { text } = await attempt(attack, root, undo);
		expect(text).not.toMatch(/ROOT DOES NOT END|THE SECRET IS IN|TERMINAL IS STEERED/);
		expect(text).toContain('ALL WAS TRIED');
		if (says) expect(text).toMatch(says);
		expect(await canaries()).toBe(before);
		expect((await device.machine.run(ONLINE)).text).toBe('');
		expect(await device.installed()).toBe('1.0.0 installed');
	}
	const isOf =
		(words: string) =>
		({ name }: Attempt) =>
			name.includes(words);
	const ofSockets = ATTEMPTS.filter(isOf('while systemd makes it'));
	const ofStops = ATTEMPTS.filter(isOf('that never stops'));

	const others = ATTEMPTS.filter((one) => ![...ofSockets, ...ofStops].includes(one));
	// For CI each sixth, and the one that had succeeded.
	test.each(others.filter((_, index) => !IS_SHORT || index % 6 === 0))('$name', fails);
	test.each(ofSockets)('$name [F1910]', fails);
	test.skipIf(IS_SHORT).each(ofStops)('$name [F1918]', fails);

	const attacker = (command: string) =>
		device.machine.run(
			`cd /var/lib/idv-agent && setpriv --reuid=idv-agent --regid=idv-agent --init-groups sh -c ${quoted(command)}`,
		);

	test('a directory in the place of the plan does not keep idv-agent-updates from being removed [F1912]', async () => {
		await attacker('mkdir -p update-plan.json/deep; ln -s /root l');
		await device.machine.must('apt-get remove --yes idv-agent-updates && ! ls /var/lib/idv-agent-update');
	});

	test('programs that go on writing do not keep the agent from being purged [F1913]', async () => {
		const { must } = device.machine;
		await attacker('setsid perl /srv/attack/churn >/dev/null 2>&1 </dev/null & sleep 0.3');
		await must(
			'timeout 100 apt-get purge --yes idv-agent && ! ls /var/lib/idv-agent /run/idv-agent && ! getent passwd idv-agent',
		);
		expect(await must('cat /root/canary; stat --format=%U:%a /root/canary /etc/shadow')).toBe(
			`${SECRET}\nroot:600\nroot:640\n`,
		);
	});
});

const quoted = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
