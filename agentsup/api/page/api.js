// The daemon's HTTP API, and word of what has changed.

import { t, toast } from './dom.js';
import { keep, kept } from './kept.js';

export class ApiError extends Error {
	constructor(status, problem) {
		super(problem.detail || problem.title || t`the daemon answered ${status}`);
		this.status = status;
		this.code = problem.code ?? '';
		this.problem = problem;
	}
}

let signedOut = () => {};
export const onSignedOut = (told) => { signedOut = told; };

/** One call; resolves to its JSON. Raises ApiError with words for the person. */
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
		throw new ApiError(0, { detail: t`The daemon does not answer.` });
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

/** Does what a control is for, once at a time. True if it went well. */
export async function act(control, work, done) {
	if (control.ariaBusy) return false;
	control.ariaBusy = 'true';
	try {
		await work();
		if (done) toast(done);
		return true;
	} catch (error) {
		toast(error.message, true);
		return false;
	} finally {
		control.ariaBusy = null;
	}
}

/** Events by one stream, closed while the page is hidden. */
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
			// Refused: the browser would not try again.
			this.#close();
			get('/web/session').catch(() => {});
			setTimeout(() => this.#follow(), 5000);
		};
		this.#source.onmessage = ({ data }) => {
			const event = JSON.parse(data);
			if (event.seq) keep('tab', 'seq', event.seq);
			for (const told of [...this.#followers]) told(event);
			this.#note(event.type);
		};
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
