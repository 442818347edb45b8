// The daemon's HTTP API, and word of what has changed.

import { toast } from './dom.js';
import { keep, kept } from './kept.js';

export class ApiError extends Error {
	constructor(status, problem) {
		super(problem.detail || problem.title || `the daemon answered ${status}`);
		this.status = status;
		this.code = problem.code ?? '';
	}
}

let signedOut = () => {};
export const onSignedOut = (told) => { signedOut = told; };

/** One call; resolves to the JSON answer. Raises ApiError with words for the person. */
export async function call(method, path, body, { raw = false, quiet = false, signal } = {}) {
	const init = { method, headers: {}, cache: 'no-store', credentials: 'same-origin', signal };
	if (raw) init.body = body;
	else if (body !== undefined) {
		init.headers['Content-Type'] = 'application/json';
		init.body = JSON.stringify(body);
	}
	let response;
	try {
		response = await fetch(path, init);
	} catch {
		throw new ApiError(0, { detail: 'The daemon does not answer.' });
	}
	const answer = await response.json().catch(() => ({}));
	if (response.ok) return answer;
	if (response.status === 401 && !quiet) signedOut();
	throw new ApiError(response.status, answer);
}

export const get = (path, options) => call('GET', path, undefined, options);
export const post = (path, body, options) => call('POST', path, body, options);
export const query = (path, fields) => {
	const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== '');
	return given.length ? `${path}?${new URLSearchParams(given)}` : path;
};

/** Runs what a button does: busy meanwhile, its trouble told, true if it went well. */
export async function act(button, work, done = '') {
	button.disabled = true;
	button.setAttribute('aria-busy', 'true');
	try {
		await work();
		if (done) toast(done);
		return true;
	} catch (error) {
		toast(error.message, true);
		return false;
	} finally {
		button.disabled = false;
		button.removeAttribute('aria-busy');
	}
}

const TYPES = [
	'message.accepted', 'message.started', 'message.parked', 'message.retry', 'message.done',
	'message.dead', 'message.cancelled', 'chat.in', 'chat.out', 'chat.refused', 'question.asked',
	'question.closed', 'stop.applied', 'agent.state', 'agent.ended', 'config.applied',
	'config.refused', 'daemon.started', 'daemon.draining', 'gap',
];

/** Durable events by one stream, closed while the page is hidden; it goes on where it was. */
class Changes {
	#listeners = new Set();
	#followers = new Set();
	#source = null;
	#timer = 0;
	#kinds = new Set();
	#isOn = false;
	onLink = () => {};

	constructor() {
		document.addEventListener('visibilitychange', () => this.#follow());
		addEventListener('online', () => { this.#close(); this.#follow(); });
	}

	start() {
		this.#isOn = true;
		this.#follow();
	}

	stop() {
		this.#isOn = false;
		this.#close();
	}

	/** `told(kinds)` at most twice a second; returns how to end it. */
	listen(told) {
		this.#listeners.add(told);
		return () => this.#listeners.delete(told);
	}

	onEvent(told) {
		this.#followers.add(told);
		return () => this.#followers.delete(told);
	}

	#close() {
		this.#source?.close();
		this.#source = null;
	}

	#follow() {
		if (document.hidden || !this.#isOn) {
			this.#close();
			return;
		}
		if (this.#source) return;
		this.#source = new EventSource(query('/events', { after: kept('tab', 'seq', null) }));
		this.#source.onopen = () => { this.onLink(true); this.#note('gap'); };
		this.#source.onerror = () => {
			this.onLink(false);
			if (this.#source?.readyState !== EventSource.CLOSED) return;
			// Refused, not cut: the browser would not try again by itself.
			this.#close();
			get('/web/session').catch(() => {});
			setTimeout(() => this.#follow(), 5000);
		};
		for (const type of TYPES) this.#source.addEventListener(type, (event) => this.#take(event));
	}

	#take({ type, lastEventId, data }) {
		if (lastEventId) keep('tab', 'seq', Number(lastEventId));
		if (type !== 'gap') for (const told of [...this.#followers]) told(JSON.parse(data));
		this.#note(type);
	}

	#note(type) {
		this.#kinds.add(type);
		this.#timer ||= setTimeout(() => {
			this.#timer = 0;
			if (!this.#isOn) return;
			const kinds = this.#kinds;
			this.#kinds = new Set();
			for (const told of [...this.#listeners]) told(kinds);
		}, 400);
	}
}

export const changes = new Changes();
