/**
 * What a hostile user of the agent tries against root, one attempt a row: what it does first, and what root does then. The user may write all
 * that `idv-agent` may write, has left the sandbox of the unit, and may wait. Nothing here is a test.
 */

export interface Attempt {
	readonly name: string;
	/** As the agent's user, in the directory of its state. What shall go on while root works is put into the background. */
	readonly attack: string;
	/** As root. It has 100 s. */
	readonly root: string;
	/** As the agent's user: takes back what root would find at the next attempt, too. Sockets and the plan come back in any case. */
	readonly undo?: string;
	/** What root says then. */
	readonly says?: RegExp;
}

/** Programs of the attacker, by their names in /srv/attack. */
export const TOOLS: Readonly<Record<string, string>> = {
	// Answers whatever is asked on both sockets: with a head, and a piece so many times.
	answer: `use Socket; my ($head, $piece, $times) = @ARGV; $SIG{PIPE} = "IGNORE"; $SIG{CHLD} = "IGNORE";
s/\\\\e/\\e/g, s/\\\\n/\\r\\n/g for $head, $piece;
for my $name ("agent.sock", "admin.sock") {
	my $path = "/run/idv-agent/$name"; rename $path, "$path.real";
	socket(my $s, AF_UNIX, SOCK_STREAM, 0); bind($s, pack_sockaddr_un($path)) or die $!; listen($s, 50);
	next if fork;
	close STDOUT; close STDERR;
	while (1) { next unless accept(my $c, $s); if (fork) { close $c; next } sysread($c, my $r, 65536); syswrite($c, $head);
		for (1 .. $times) { syswrite($c, $piece) or last } sleep 60 if $times < 0; exit }
}`,
	// Puts a link in the place of each socket that appears.
	'swap-sockets': `my $end = time + 20; while (time < $end) { for my $s ("agent.sock", "admin.sock") { my $p = "/run/idv-agent/$s";
	next if -l $p || !-S $p; rename($p, "$p.real") && symlink($ARGV[0], $p) } }`,
	// Changes between names in the place of a file.
	'swap-files': `my ($at, @others) = @ARGV; my $end = time + 20; while (time < $end) { for (@others) { unlink "u.new"; /^=(.*)/ ? symlink($1, "u.new") : link($_, "u.new"); rename("u.new", $at) } }`,
	// Has dpkg's lock open by its path alone.
	lock: '$^F = 255; sysopen(my $lock, "/var/lib/dpkg/lock", 010000000) or die $!; exec @ARGV',
	// An agent that never stops, and asks for more time.
	'never-stops': `use Socket; $SIG{TERM} = "IGNORE"; socket(my $s, AF_UNIX, SOCK_DGRAM, 0); connect($s, pack_sockaddr_un($ENV{NOTIFY_SOCKET})); send($s, "READY=1", 0);
while (1) { send($s, "WATCHDOG=1\\nEXTEND_TIMEOUT_USEC=" . (30000000 + $i++), 0); select(undef, undef, undef, 0.5) }`,
	// Makes the same 300 files without end, in a directory that it does not have to find again: all files of a disk are root's as well.
	churn:
		'mkdir "deep"; chdir "deep" if fork; while (1) { $i = ++$n % 300; open(my $f, ">", "f$i"); mkdir "d$i"; symlink("/root/canary", "l$i") }',
	// Says something to a socket of datagrams.
	say: 'use Socket; socket(my $s, AF_UNIX, SOCK_DGRAM, 0); connect($s, pack_sockaddr_un(shift)) or die $!; s/\\\\n/\\n/g, s/\\\\e/\\e/g, send($s, $_, 0) for @ARGV',
	// Makes links by the names that support bundles of the next two minutes have.
	'bundle-names':
		'for (0 .. 120) { my @t = gmtime(time + $_); symlink("/root/canary", sprintf("/tmp/idv-agent-support-%04d-%02d-%02dT%02d%02d%02d.tar.gz", $t[5] + 1900, $t[4] + 1, @t[3, 2, 1, 0])) }',
	// Uses up what a user may have of inotify.
	watches:
		'my @call = `uname -m` =~ /aarch64/ ? (26, 0) : (253); for (1 .. 5000) { last if syscall($call[0], $call[1] || 0) < 0 } sleep 60',
};

const APPLY = '/usr/lib/idv-agent-updates/idv-agent-updates apply';
const PREPARE = 'cd /; idv-agent update show; idv-agent status';
const background = (command: string) => `setsid ${command} >/dev/null 2>&1 </dev/null & sleep 0.2`;
const tool = (name: string, ...words: string[]) =>
	`perl /srv/attack/${name} ${words.map((word) => `'${word}'`).join(' ')}`;
const answers = (head: string, piece = '', times = 1) => tool('answer', `HTTP/1.1 ${head}\\n\\n`, piece, String(times));
const JSON_HEAD = '200 OK\\nContent-Type: application/json';
const REFUSED = /\[plan-(?:invalid|untrusted)\]/;

/** @param plans by name: what the site has signed, and what the attacker has made of it. All are in /srv/plans. */
export function attempts(plans: readonly string[]): readonly Attempt[] {
	const plan = (name: string, attack: string, says: RegExp = REFUSED): Attempt => ({
		name: `update-plan.json: ${name}`,
		attack,
		root: APPLY,
		says,
	});
	return [
		plan("a link to root's file", 'ln -s /root/canary update-plan.json'),
		plan('a link to the passwords', 'ln -s /etc/shadow update-plan.json'),
		plan("a hard link to root's file", 'ln /etc/shadow update-plan.json || ln -s /etc/shadow update-plan.json'),
		plan('a link to a device without an end', 'ln -s /dev/zero update-plan.json'),
		plan("a link to the kernel's log, which waits for its reader", 'ln -s /proc/kmsg update-plan.json'),
		plan('a pipe without a writer', 'mkfifo update-plan.json'),
		plan('a directory', 'mkdir -p update-plan.json/deep'),
		plan('a socket', `perl -e 'use IO::Socket::UNIX; IO::Socket::UNIX->new(Local=>"update-plan.json",Listen=>1)'`),
		plan('1 GiB of holes', 'truncate -s 1G update-plan.json'),
		plan('brackets without an end', "perl -e 'print chr(91) x 2000000' > update-plan.json"),
		plan(
			'a link and a file in turns while root reads',
			`echo {} > u.old; ${background(tool('swap-files', 'update-plan.json', 'u.old', '=/root/canary', '=/etc/shadow'))}`,
		),
		...plans.map((name) => plan(name, `cp '/srv/plans/${name}' update-plan.json`)),
		plan('an older one that the site has signed', 'cp /srv/older update-plan.json', /update-refused|nothing to do/),
		plan(
			'two good ones in turns while root reads',
			`cp /srv/none u.one; { cat /srv/none; echo; } > u.two; ${background(tool('swap-files', 'update-plan.json', 'u.one', 'u.two'))}`,
			/nothing to do/,
		),
		plan(
			'a good one while dpkg looks busy: its lock is open by its path alone',
			`cp /srv/none update-plan.json; ${background(tool('lock', 'sleep', '60'))}`,
			/nothing to do/,
		),
		plan(
			"the same with the lock open in a program that is root's by its mode",
			`cp /srv/none update-plan.json; mkfifo pipe; ${background(`sh -c "${tool('lock', 'su', 'root')} <>pipe"`)}`,
			/nothing to do/,
		),
		plan(
			'a good one, and leases of 2 MiB on a socket of its own',
			`cp /srv/none update-plan.json; ${answers(`${JSON_HEAD}\\n\\n{"leases":[{"name":"till"}]}`, ' '.repeat(4000), 600)}`,
			/nothing to do/,
		),
		{
			name: 'the plan is renamed two hundred times in a moment',
			attack: 'for n in $(seq 200); do echo {} > u.new; mv u.new update-plan.json; done',
			root: 'systemctl is-failed idv-agent-update.path || true',
			says: /^active/,
		},
		{
			name: "its own trial.json and outcomes.json, and root's ones overwritten",
			attack:
				'for f in trial outcomes; do echo \'{"phase":"goingBack","takenBack":[]}\' | tee $f.json > /var/lib/idv-agent-update/$f.json; done; cp /bin/sh /var/lib/idv-agent-update/idv-agent-updates',
			root: 'idv-agent update show',
			undo: 'rm -f trial.json outcomes.json',
		},
		{
			name: 'state.json is a link to the passwords while root provisions',
			attack: 'mv state.json s.keep; mv state.json.bak b.keep; ln -s /etc/shadow state.json; mkfifo state.json.bak',
			root: 'cp /root/site/brought /root/site/provision.json; timeout 20 idv-agent provision --config /root/site/config.json /root/site/provision.json; rm -rf /root/site/conf.d /root/site/provisioned.json',
			undo: 'rm -f state.json state.json.bak; mv s.keep state.json; mv b.keep state.json.bak',
		},
		{
			name: "links in the place of the secret that root puts into the agent's directory",
			attack: `for n in provisioned.api-key provisioned.api-key.new; do ln -sf /root/canary $n; done; ${background(tool('swap-files', 'provisioned.api-key.new', '=/root/canary', '=/etc/shadow'))}`,
			root: 'cp /root/site/brought /root/site/provision.json; PATH=/usr/bin/none /usr/bin/idv-agent provision --config /root/site/config.json /root/site/provision.json; rm -rf /root/site/conf.d /root/site/provisioned.json; true',
			undo: 'rm -f provisioned.api-key provisioned.api-key.new',
		},
		{
			name: 'links to everything of root while tmpfiles run and the agent starts again',
			attack:
				'mkdir -p l/l; for f in /root /root/canary /etc /etc/shadow /usr/bin/su; do ln -sfn $f l/$(basename $f); done; chmod 0777 . l',
			root: 'systemd-tmpfiles --create idv-agent.conf; systemd-sysusers idv-agent.conf; systemctl restart idv-agent',
			undo: 'rm -rf l',
		},
		{
			name: 'a directory without any right, in which root reads',
			attack: `cp /srv/none update-plan.json; ${background('chmod 000 /var/lib/idv-agent')}`,
			root: `${APPLY}; systemd-tmpfiles --create idv-agent.conf`,
			says: /nothing to do/,
		},
		{
			name: 'a link in the place of each socket while systemd makes it',
			attack: background(tool('swap-sockets', '/root/canary')),
			root: 'for n in 1 2 3; do systemctl restart idv-agent.socket idv-agent-admin.socket idv-agent; done; ls -l /run/idv-agent',
			says: /sock\.real/,
		},
		{
			name: "a link from the sockets to systemd's own",
			attack:
				'cd /run/idv-agent; for s in agent admin; do mv $s.sock $s.sock.real; ln -s /run/systemd/private $s.sock; done',
			root: 'idv-agent status; echo 1 | timeout 10 idv-agent pair -; idv-agent unpair; true',
		},
		{
			name: 'a regular file, a pipe and a directory in the place of the sockets',
			attack:
				'cd /run/idv-agent; for s in agent admin; do mv $s.sock $s.sock.real; done; mkfifo agent.sock; mkdir admin.sock',
			root: 'idv-agent status; idv-agent unpair; true',
		},
		...(
			[
				[
					'signs that steer a terminal, as they are',
					answers('422 \\e[31m', '{"code":"x","detail":"\\e]0;title\\e[2J"}'),
				],
				[
					'signs that steer a terminal, within JSON',
					answers(
						'422 No\\nContent-Type: application/problem+json',
						'{"code":"\\u001b[31m","title":"\\u001b]0;t\\u0007","detail":"a\\u001b[2Jb\\u009b1m","remedy":"\\u001b[1mrm"}',
					),
				],
				['a redirect to a file', answers('301 Moved\\nLocation: file:///root/canary')],
				['another protocol', answers('101 Switching\\nUpgrade: x\\nConnection: Upgrade')],
				['300 MiB', answers(JSON_HEAD, '[[],'.repeat(4000), 20_000)],
				['headers without an end', answers('200 OK', 'X: y\\n'.repeat(3000), 20_000).replace('\\n\\n', '\\n')],
				[
					'a status with names of JavaScript',
					answers(
						JSON_HEAD,
						'{"__proto__":{"state":"online"},"constructor":{"prototype":{"uid":0}},"state":{"toString":1}}',
					),
				],
			] as const
		).map(
			([what, attack]): Attempt => ({
				name: `the agent's sockets answer root with ${what}`,
				attack,
				root: `${PREPARE}; idv-agent workflow show; true`,
				says: /\[(?:bad-response|agent-not-running|response-too-large|request-timeout|internal)\]|Offline|Online|Device/,
			}),
		),
		{
			name: 'the same sockets answer the doctor and a removal of the pairing',
			attack: answers(
				JSON_HEAD,
				'{"state":"\\u001b[2J","problem":{"code":"\\u001b[1m","message":"\\u001b[1m"},"device":{"id":"\\u009b"}}',
			),
			root: 'cd /root; idv-agent doctor --check local-socket --check disk-space; idv-agent unpair; true',
		},
		{
			name: 'logs that are links, pipes and holes, in a bundle and in the eyes of the doctor',
			attack:
				'ln -s /root/canary events-00000009-x.log; mkfifo history-00000009-x.log; truncate -s 1G audit-00000009-x.log; ln -s /etc/shadow state.json.corrupt-1',
			root: 'rm -f /root/b.tar.gz; timeout 30 idv-agent support-bundle --out /root/b.tar.gz; gzip -dc /root/b.tar.gz',
			undo: 'rm -f events-00000009-x.log history-00000009-x.log audit-00000009-x.log state.json.corrupt-1',
		},
		{
			name: 'links in /tmp by the names of the next bundles',
			attack: tool('bundle-names'),
			root: 'cd /tmp; timeout 20 idv-agent support-bundle; true',
			undo: 'rm -f /tmp/idv-agent-support-*',
			says: /bundle-unwritable/,
		},
		{
			name: 'programs and modules lie where root is and where its home would be',
			attack: `mkdir -p node_modules/x bin; for f in idv-agent idv-agent-updates idv-agent-updates.cjs index.js package.json .noderc openssl.cnf .profile .bashrc .env bin/systemctl bin/journalctl bin/idv-agent systemctl; do printf '#!/bin/sh\\ntouch /etc/pwned\\n' > $f; chmod 755 $f; done`,
			root: 'cd /var/lib/idv-agent; HOME=$PWD XDG_CONFIG_HOME=$PWD idv-agent status; idv-agent config check; /usr/lib/idv-agent-updates/idv-agent-updates apply; true',
			undo: 'rm -rf node_modules bin idv-agent idv-agent-updates* index.js package.json .noderc openssl.cnf .profile .bashrc .env systemctl',
		},
		{
			name: "systemd's own commands: variables, units, links, lingering",
			attack:
				'systemctl --no-ask-password set-environment NODE_OPTIONS=--inspect LD_PRELOAD=/var/lib/idv-agent/x.so; systemctl --no-ask-password edit idv-agent; systemd-run --no-ask-password touch /etc/pwned; systemctl --no-ask-password link /var/lib/idv-agent/x.service; systemctl --no-ask-password mask idv-agent-update.path; loginctl enable-linger; mkdir -p .config/systemd/user; systemctl --user start x',
			root: 'systemctl daemon-reload; systemctl show-environment; systemctl is-enabled idv-agent-update.path',
			says: /^(?![\s\S]*(?:LD_PRELOAD|NODE_OPTIONS))[\s\S]*enabled/,
			undo: 'rm -rf .config',
		},
		{
			name: "words to systemd in the agent's name",
			attack: tool(
				'say',
				'/run/systemd/notify',
				'MAINPID=1',
				'READY=1\\nSTATUS=\\e[2J',
				'FDSTORE=1\\nFDNAME=x',
				'STOPPING=1',
				'WATCHDOG=trigger',
			),
			root: 'systemctl show idv-agent --property=MainPID --property=StatusText; systemctl restart idv-agent',
			says: /^(?!.*MainPID=1$)/m,
		},
		{
			name: "forged lines of the agent's journal",
			attack: tool(
				'say',
				'/run/systemd/journal/socket',
				'MESSAGE=forged \\e[2J\\n_SYSTEMD_UNIT=idv-agent.service\\nUNIT=idv-agent.service\\nOBJECT_SYSTEMD_UNIT=idv-agent.service\\n_UID=0\\nCOREDUMP_UNIT=idv-agent.service\\n',
			),
			root: 'journalctl --sync; journalctl --unit=idv-agent.service --lines=100 --output=cat --no-pager | grep -c forged; true',
			says: /^0$/m,
		},
		{
			name: "what root keeps of updates is read and changed, and apt's own files",
			attack:
				'cat /var/lib/idv-agent-update/*; cd /var/lib/idv-agent-update && { rm -f *; ln -s /etc/shadow before.deb; }; echo x > /var/lib/apt/lists/x; echo deb > /etc/apt/sources.list.d/x.list; echo x > /var/cache/apt/archives/x.deb; echo x > /var/lib/dpkg/info/idv-agent.postinst; echo x > /etc/apt/preferences.d/x',
			root: 'apt-get update >/dev/null && apt-get check',
		},
		{
			name: 'root processes are killed, traced and read',
			attack:
				'for p in 1 $(pgrep -u root); do kill -9 $p; kill -STOP $p; cat /proc/$p/environ; echo x > /proc/$p/mem; ls /proc/$p/fd /proc/$p/cwd/; echo -1000 > /proc/$p/oom_score_adj; done; echo "|/var/lib/idv-agent/x" > /proc/sys/kernel/core_pattern',
			root: 'systemctl is-active systemd-journald',
			says: /^active/,
		},
		{
			name: 'an encrypted credential and a provisioning by the agent',
			attack:
				'for d in /etc/credstore.encrypted /run/credstore /etc/idv-agent /etc/idv-agent/conf.d /run/credentials; do echo x > $d/provision.json; ln -s /etc/shadow $d/idv-agent.api-key; done',
			root: 'systemctl start idv-agent-credential-check idv-agent-credential idv-agent-provision; true',
		},
		{
			name: "a provision.json of the agent's that a person has copied with its owner",
			attack: 'echo \'{"baseUrl":"https://evil.example","replace":true}\' > p.json',
			root: 'cp -p /var/lib/idv-agent/p.json /root/site/p.json; idv-agent provision --config /root/site/config.json /root/site/p.json; rm /root/site/p.json',
			undo: 'rm -f p.json',
			says: /\[file-exposed\]/,
		},
		{
			name: "settings of updates in a file of the agent's that root has linked",
			attack: 'echo \'{"update":{"source":"/var/lib/idv-agent/evil.list"}}\' > s.json; cp /srv/none update-plan.json',
			root: `ln -s /var/lib/idv-agent/s.json /etc/idv-agent/conf.d/99-s.json; ${APPLY}; rm /etc/idv-agent/conf.d/99-s.json`,
			undo: 'rm -f s.json',
			says: /\[file-exposed\]/,
		},
		{
			name: 'all watches that a user may have, while root waits for a plan',
			attack: `${background(tool('watches'))}; cp /srv/none u.new; mv u.new update-plan.json`,
			root: 'timeout 10 sh -c "until systemctl is-active idv-agent-update | grep -q activating; do sleep 0.1; done"; systemctl is-active idv-agent-update.path',
			says: /^active/m,
		},
		{
			name: '500 processes',
			attack: `${background("sh -c \"for n in $(seq 500 | tr '\\n' ' '); do sleep 60 & done; wait\"")}`,
			root: PREPARE,
		},
		{
			name: 'a disk that is full to the last file and byte',
			attack:
				'fallocate -l 2G fill || dd if=/dev/zero of=fill bs=1M 2>/dev/null; mkdir -p many; cd many; seq 70000 | xargs touch 2>/dev/null; true',
			root: `${APPLY}; idv-agent status; df -i / | tail -1`,
			undo: 'rm -rf fill many',
		},
		{
			name: 'links, and sockets that go, while the package is installed again',
			attack: `ln -s /root l1; ln -s /etc/shadow update-plan.json; ${background(tool('swap-sockets', '/root/canary'))}`,
			root: 'DEBIAN_FRONTEND=noninteractive apt-get install --yes --reinstall idv-agent',
			undo: 'rm -f l1',
		},
		{
			name: 'an agent that never stops, and asks for more time as often as it likes',
			attack: 'true',
			root: `mkdir -p /run/systemd/system/idv-agent.service.d; cd /run/systemd/system/idv-agent.service.d; printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/perl /srv/attack/never-stops\\n' > 99.conf; systemctl daemon-reload; systemctl restart idv-agent; rm 99.conf; systemctl daemon-reload; timeout 25 systemctl restart idv-agent && echo restarted`,
			says: /^restarted/m,
		},
	];
}
