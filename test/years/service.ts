/**
 * The service, the line to it and the host of the fleet plan, as a device meets them: what they answer, lose, delay and
 * forget. Everything that reaches it or leaves it is observed.
 */
import { AgentError } from '../../src/base/errors.ts';
import { classifyNetworkError } from '../../src/connection/classify-network-error.ts';
import type { Exchange, ExchangeRequest } from '../../src/connection/exchange.edge.ts';
import type { FoundPlan, PlanRequest } from '../../src/fleet/fetch-plan.edge.ts';
import type { Chance } from './chance.ts';
import type { Observe } from './observed.ts';
import type { Session } from './sockets.ts';
import type { Machine, Time } from './time.ts';

export const BASE_URL = 'https://service.test';
export const PLAN_URL = 'https://plan.test/plan.json';
/** Of the machine, and of another one. */
export const [SERIAL, OTHER_SERIAL] = ['SN-0073481', 'SN-0099173'];
export const WORKFLOWS = ['wf-a', 'wf-b', 'wf-c'] as const;

/** What becomes of packets. `hole`: they vanish both ways, and come again when the line is back. */
export type Line = 'up' | 'refused' | 'dns' | 'hole' | 'reset' | 'badCertificate' | 'portal';
/** What the service makes of a request. */
export type Mode =
	| 'well'
	| 'busy503'
	| 'tooMany429'
	| 'broken500'
	| 'says401'
	| 'says403'
	| 'says404'
	| 'hangs'
	| 'slow'
	| 'losesAnswers'
	| 'cutsAnswers'
	| 'garbage'
	| 'dropsChannels';

export interface ServiceTraits {
	/** How long a Connection lives, in milliseconds. */
	readonly connectionLifeMs: number;
	readonly isOpaque: boolean;
	/** Whether a Connection may register its device again. */
	readonly mayRegisterAgain: boolean;
	/** The close code for the old channel when a device registers again; 0 for none, 1006 for a cut. */
	readonly endsOldWith: number;
	/** Whether it lets a channel live on when its Connection ends. */
	readonly isLenient: boolean;
	readonly pings: boolean;
	readonly takesSelfRegistration: boolean;
}

interface Issued {
	readonly id: number;
	readonly token: string;
	readonly deviceId: string;
	readonly workflowId: string;
	readonly cadenceMs: number;
	readonly endsAtMs: number;
	isEnded: boolean;
}

export interface PublishedPlan {
	readonly revision: number;
	readonly text: string;
	readonly from: string;
	readonly to: string;
	readonly startAtMs: number;
	readonly publishedAtMs: number;
}

export type Service = ReturnType<typeof createService>;

const STATUS_OF: Partial<Record<Mode, number>> = {
	busy503: 503,
	tooMany429: 429,
	broken500: 500,
	says401: 401,
	says403: 403,
	says404: 404,
};
const ERROR_OF: Partial<Record<Line, [code: string, afterMs: number]>> = {
	refused: ['ECONNREFUSED', 50],
	dns: ['ENOTFOUND', 50],
	reset: ['ECONNRESET', 80],
	badCertificate: ['CERT_NOT_YET_VALID', 90],
	hole: ['UND_ERR_CONNECT_TIMEOUT', 10_000],
};
const PORTAL = '<!DOCTYPE html><html><title>Sign in</title></html>';
const MAX_ISSUED = 200;

const encoded = (document: unknown) => Buffer.from(JSON.stringify(document)).toString('base64url');

export function createService(parts: {
	readonly time: Time;
	readonly chance: Chance;
	readonly traits: ServiceTraits;
	readonly observe: Observe;
}) {
	const { time, chance, traits, observe } = parts;
	const issued = new Map<string, Issued>();
	const codes = new Map<string, { timesSent: number; isUsed: boolean; readonly endsAtMs: number }>();
	const sessions = new Set<Session>();
	let tokensIssued = 0;
	let notifications = 0;
	let newest = '{}';

	const service = {
		traits,
		line: 'up' as Line,
		mode: 'well' as Mode,
		retryAfterSeconds: 0,
		/** For `dropsChannels`. */
		dropAfterMs: 5000,
		dropCode: 1006,
		answersPings: true,
		apiKeys: new Set(['key-of-this-life-0']),
		workflows: new Set<string>(WORKFLOWS),
		sessions,
		issued,
		plan: null as PublishedPlan | null,
		earlierPlan: null as PublishedPlan | null,
		planHost: 'well' as 'well' | 'frozen' | 'back' | 'tooMany' | 'garbage',
		/** A way there or back, in milliseconds. */
		latencyMs: () => 3 + Math.floor(chance() * chance() * 250),
		date: () => new Date(time.trueMs()).toUTCString(),
		makeCode(workflowId: string | null): string {
			const token = `tr-${encoded({ code: codes.size, salt: chance.whole(0, 1e9) })}`;
			codes.set(token, { timesSent: 0, isUsed: false, endsAtMs: time.nowMs + 300_000 });
			const workflow = workflowId === null ? '' : `&workflowId=${workflowId}`;
			return `${BASE_URL}/mobile?authorization=Token%20${token}${workflow}`;
		},
		valid(token: string): Issued | null {
			const known = issued.get(token);
			return known && !known.isEnded && known.endsAtMs > time.nowMs ? known : null;
		},
		/** All that it knew of Connections is gone. */
		forget() {
			for (const known of issued.values()) known.isEnded = true;
		},
		newestSession: (): Session | null => [...sessions].at(-1) ?? null,
		/** Sends one on the newest channel that it believes open; without one it is lost. */
		notify(bytes = 0): string {
			const session = service.newestSession();
			const number = notifications;
			notifications += 1;
			const padding = bytes > 0 ? { padding: 'x'.repeat(bytes) } : {};
			const document = { type: 'session.started', id: `n${number}`, number, channel: session?.id ?? 0, ...padding };
			observe({ type: 'notificationSent', number, atMs: time.nowMs, session: session?.id ?? null });
			const text = JSON.stringify(document);
			newest = text;
			session?.toDevice(() => session.receive(text));
			return text;
		},
		/** Sends the newest notification again on the newest channel. */
		repeat() {
			const session = service.newestSession();
			session?.toDevice(() => session.receive(newest));
		},
		message(document: object) {
			const session = service.newestSession();
			session?.toDevice(() => session.receive(JSON.stringify(document)));
		},
		endSessions(code: number) {
			for (const session of [...sessions]) session.end(code);
		},
		setLine(line: Line, cutsSessions: boolean) {
			service.line = line;
			if (line === 'up') for (const session of sessions) session.release();
			else if (cutsSessions)
				for (const session of [...sessions]) {
					session.leave();
					session.lose();
				}
		},
		exchange,
		fetchPlan,
		refusal,
	};

	/** What a refused request or upgrade gets now, by the mode; `null` when it is let in. */
	function refusal(): { status: number; headers: Record<string, string>; body: string } | null {
		const headers: Record<string, string> = { date: service.date() };
		if (service.line === 'portal')
			return { status: 200, headers: { ...headers, 'content-type': 'text/html' }, body: PORTAL };
		const status = STATUS_OF[service.mode];
		if (status === undefined) return null;
		if (service.retryAfterSeconds > 0) headers['retry-after'] = String(service.retryAfterSeconds);
		return { status, headers, body: '{"code":"not-now"}' };
	}

	function issue(request: { deviceId: string; workflowId: string; heartbeatCadence?: number }): Issued {
		tokensIssued += 1;
		const issuedAt = Math.floor(time.trueMs() / 1000);
		const life = Math.round(traits.connectionLifeMs / 1000);
		const claims = { iat: issuedAt, exp: issuedAt + life, jti: tokensIssued };
		const secret = encoded({ token: tokensIssued, salt: chance.whole(0, 1e9) });
		const token = traits.isOpaque ? `opaque-${secret}` : `${encoded({ alg: 'none' })}.${encoded(claims)}.${secret}`;
		const known: Issued = {
			id: tokensIssued,
			token,
			deviceId: request.deviceId,
			workflowId: request.workflowId,
			cadenceMs: (request.heartbeatCadence ?? 30) * 1000,
			endsAtMs: time.nowMs + life * 1000,
			isEnded: false,
		};
		issued.set(token, known);
		if (issued.size > MAX_ISSUED) issued.delete(issued.keys().next().value ?? '');
		return known;
	}

	function register(request: ExchangeRequest): { status: number; headers: Record<string, string>; body: string } {
		const headers = { date: service.date() };
		const refused = (status: number, code: string) => ({
			status,
			headers,
			body: JSON.stringify({ code, detail: code }),
		});
		const asked = JSON.parse(request.body ?? '{}') as { deviceId: string; workflowId?: string };
		const [scheme = '', credential = ''] = (request.headers['authorization'] ?? '').split(' ');
		const workflow = asked.workflowId ?? null;
		const { deviceId } = asked;
		observe({ type: 'registration', scheme, credential, deviceId, workflowId: workflow, atMs: time.nowMs });
		const code = scheme === 'Token' ? codes.get(credential) : undefined;
		if (code) {
			code.timesSent += 1;
			observe({ type: 'codeSent', times: code.timesSent });
		}
		if (service.mode === 'garbage') return { status: 200, headers, body: '{"hello":"world"}' };
		if (scheme === '' && !traits.takesSelfRegistration) return refused(401, 'credential-required');
		if (scheme === 'ApiKey' && !service.apiKeys.has(credential)) return refused(401, 'unknown-key');
		if (scheme === 'Connection' && (!traits.mayRegisterAgain || !service.valid(credential)))
			return refused(401, 'connection-ended');
		if (scheme === 'Token') {
			if (!code || code.isUsed || code.endsAtMs < time.nowMs) return refused(401, 'unknown-code');
			code.isUsed = true;
		}
		const { workflowId } = asked;
		if (workflowId === undefined || !service.workflows.has(workflowId)) return refused(404, 'unknown-workflow');
		if (traits.endsOldWith !== 0) {
			service.forget();
			service.endSessions(traits.endsOldWith);
		}
		const made = issue({ ...asked, workflowId });
		observe({ type: 'issued', token: made.token, workflowId, atMs: time.nowMs });
		return { status: 200, headers, body: JSON.stringify({ token: made.token, workflowId }) };
	}

	function exchange(_network: unknown, request: ExchangeRequest): Promise<Exchange> {
		const machine = time.machine as Machine;
		const { host } = request.url;
		return new Promise((resolve) => {
			let written = false;
			const settle = (outcome: Exchange) => {
				cancel();
				resolve(outcome);
			};
			const fail = (error: object) =>
				settle({ kind: 'failed', failure: classifyNetworkError(error, { host }), written });
			const cancel = machine.clock.schedule(request.deadlineMs, () => fail({ name: 'TimeoutError' }));
			request.signal?.addEventListener('abort', () => fail({ name: 'AbortError' }), { once: true });
			const [code, afterMs] = ERROR_OF[service.line] ?? [];
			if (code !== undefined) {
				written = service.line === 'reset';
				machine.input(afterMs ?? 0, () => fail({ code }));
				return;
			}
			time.after(service.latencyMs(), () => {
				if (service.line === 'hole' || service.mode === 'hangs') return;
				written = true;
				const isRegistration = request.method === 'POST';
				const answer = refusal() ?? (isRegistration ? register(request) : { status: 200, headers: {}, body: '' });
				if (service.mode === 'losesAnswers') return void machine.input(200, () => fail({ code: 'ECONNRESET' }));
				const slowMs = service.mode === 'slow' ? chance.whole(0, 20_000) : 0;
				time.after(service.latencyMs() + slowMs, () => {
					if (service.line === 'hole') return;
					const bytes = Buffer.from(answer.body);
					const whole = { kind: 'answered', status: answer.status, headers: answer.headers } as const;
					const isCut = service.mode === 'cutsAnswers';
					const cut = isCut ? classifyNetworkError({ code: 'ECONNRESET' }, { host }) : null;
					machine.input(0, () => settle({ ...whole, bytes: isCut ? bytes.subarray(0, 5) : bytes, cut }));
				});
			});
		});
	}

	function fetchPlan(_network: unknown, { etag, signal, deadlineMs }: PlanRequest): Promise<FoundPlan> {
		const machine = time.machine as Machine;
		observe({ type: 'planAsked', atMs: time.nowMs });
		return new Promise((resolve, reject) => {
			const fail = () => {
				cancel();
				reject(new AgentError('plan-unreachable', 'The fleet plan was not fetched.'));
			};
			const cancel = machine.clock.schedule(deadlineMs, fail);
			signal.addEventListener('abort', fail, { once: true });
			time.after(service.latencyMs() * 2, () => {
				if (service.line === 'hole') return;
				machine.input(0, () => {
					if (signal.aborted) return;
					const plan = service.planHost === 'back' ? (service.earlierPlan ?? service.plan) : service.plan;
					if (service.line !== 'up' || service.planHost === 'tooMany' || !plan) return fail();
					cancel();
					if (service.planHost === 'garbage')
						return resolve({ kind: 'changed', bytes: Buffer.from(PORTAL), etag: '"portal"' });
					const current = `"${plan.revision}"`;
					if (service.planHost === 'frozen' && etag !== null) return resolve({ kind: 'unchanged' });
					if (etag === current) return resolve({ kind: 'unchanged' });
					resolve({ kind: 'changed', bytes: Buffer.from(plan.text), etag: current });
				});
			});
		});
	}

	return service;
}
