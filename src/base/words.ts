/** The words of this program: what its sources say in texts, the names in its documents, and what those say that it works with. Pure. */

const TEXT = /'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g;

/** The name of a member in a document of ours. */
const PROPERTY = /^\s*(?:readonly )?([a-z][A-Za-z]{2,30})\??:/gm;

/** In the names of messages that services send. */
const KINDS = `notification message event command request response reply status state changed created updated deleted removed added assigned
started stopped opened closed completed finished failed cancelled canceled approved declined rejected accepted verified verification identity
document check session visitor person detected left arrived entered door badge printer screen greeting goodbye config configuration
settings reload refresh restart reboot subscribe subscribed unsubscribe publish published keepalive alive ready info warning alert
authenticate authenticated authorization registered registration connected disconnected expired expiring revoked renewed rotated`;

/** Of systemd, the kernel, Node, web servers and HTTP. */
const OF_OTHERS = `Started Starting Stopped Stopping Main process exited killed dumped main Failed with result exit watchdog timeout
Scheduled restart job counter is at Consumed CPU time memory peak swap Deactivated successfully oom kill killer active activating
deactivating inactive failed loaded enabled disabled masked running dead systemd kernel service unit usr bin sbin lib etc var run tmp opt home
root srv local share usec sec Debian GNU Linux Ubuntu trixie bookworm noble
nginx Apache openresty envoy Envoy Caddy Varnish HAProxy Traefik cloudflare IIS Microsoft Express gunicorn uvicorn Werkzeug Jetty
Tomcat Kestrel squid Squid Python Node PHP json xml html plain text octet stream charset utf iso image form urlencoded multipart
tty ttyS ttyACM ttyUSB hidraw event eth wlan keep alive close gzip deflate br zstd chunked identity no store cache private public max age must revalidate websocket Upgrade
Connection Vary Accept Encoding Origin Authorization realm Basic Digest Negotiate Bearer Token ApiKey
Bad Request Unauthorized Payment Required Forbidden Not Found Method Allowed Conflict Gone Length Precondition Payload Too Large
Unsupported Media Type Unprocessable Entity Content Locked Early Many Requests Internal Server Error Implemented Gateway Service
Unavailable Version Network Authentication expired invalid unknown short code used already missing required denied rejected
pending waiting queued processing success ok error errors device workflow session key credential revoked ping pong hello welcome
ack heartbeat utf8 base64 v1 v2 v3 x64 arm64 amd64 IPv4 IPv6 TLS SSL ERR CERT HAS EXPIRED NOT YET VALID UNABLE TO VERIFY LEAF SIGNATURE GET ISSUER
LOCALLY SELF SIGNED IN CHAIN DEPTH ZERO ALTNAME INVALID UND HEADERS TIMEOUT CONNECT SOCKET WRONG VERSION NUMBER HANDSHAKE FAILURE
ALERT PROTOCOL UNEXPECTED EOF WHILE READING cjs mjs file node internal modules
${KINDS}`;

/** Sorted, each once. @param sources texts of TypeScript. */
export function wordsOf(sources: readonly string[]): string[] {
	const words = new Set(OF_OTHERS.split(/\s+/));
	for (const source of sources) {
		for (const [, name = ''] of source.matchAll(PROPERTY)) words.add(name);
		for (const [text] of source.matchAll(TEXT))
			if (!text.startsWith('/')) for (const word of wordsIn(text)) words.add(word);
	}
	return [...words].sort();
}

/** Of permissions and of times of the day: a value of ours, as a whole. */
const EXAMPLE = /(?<![\w.:/-])(?:[a-z_]{3,24}:(?:read|write)|\d\d:\d\d-\d\d:\d\d)(?![\w.:/-])/g;

function wordsIn(text: string): string[] {
	const plain = text.replace(/\\[a-z]/g, ' ');
	const words = plain.match(/[A-Za-z]+(?:'(?:s|t|re)\b)?/g) ?? [];
	const named = words.filter(
		(word) => word.length <= 24 && (word.length > 2 || /^(?:[a-z]{2}|[A-Z]{2}|[A-Z][a-z]|a|I)$/.test(word)),
	);
	return [...named, ...(plain.match(EXAMPLE) ?? [])];
}
