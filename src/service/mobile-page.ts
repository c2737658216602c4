/** The page behind a deep link that was opened in a browser: says what the link is. Repeats nothing of the link. */
import type { Answer } from './http-answer.runner.ts';

export const MOBILE_PAGE: Answer = {
	status: 200,
	headers: {
		'content-type': 'text/html; charset=utf-8',
		'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
		'referrer-policy': 'no-referrer',
	},
	body: `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Pairing link</title>
<style>
:root { color-scheme: light dark; }
body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 12vh auto; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; }
</style>
</head>
<body>
<main>
<h1>This link pairs a device or continues a session</h1>
<p>It works once and for a short time. Do not forward it: the first to use it takes the place of the device.</p>
<ul>
<li>On a kiosk or scanner: show the code to its scanner, or run <code>idv-agent pair</code> there and paste the link.</li>
<li>On a phone: open it in the application that asked for it.</li>
</ul>
<p>Opening this page has not used it up.</p>
</main>
</body>
</html>
`,
};
