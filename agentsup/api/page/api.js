// The daemon's HTTP API, and word of what has changed.

import { t, toast } from './dom.js';
import { keep, stored, secret } from './storage.js';

export class ApiError extends Error {
	constructor(status, problem) {
		super(problem.detail || problem.title || t`the daemon answered ${status}`);
		this.status = status;
		this.code = problem.code ?? '';
		this.problem = problem;
	}
}

let signedOut = () => {};
export const onSignedOut = (work) => { signedOut = work; };

const gone = () => { throw new ApiError(0, { detail: t`The daemon does not answer.` }); };

/** One request; resolves to its response. Raises ApiError with words for the person. */
async function send(method, path, { quiet = false, headers = {}, ...rest } = {}) {
	if (secret) headers.Authorization = `Bearer ${secret}`;
	const response = await fetch(path, { method, headers, cache: 'no-store', ...rest }).catch(gone);
	if (response.ok) return response;
	if (response.status === 401 && !quiet) signedOut();
	throw new ApiError(response.status, await response.json().catch(() => ({})));
}

/** One call; resolves to its JSON. Raises ApiError. */
export async function call(method, path, body, options) {
	const sent = !body || body instanceof Blob ? { body } : { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } };
	return (await send(method, path, { ...sent, ...options })).json().catch(() => ({}));
}

/** The bytes of a file. Raises ApiError. */
export const blobOf = async (path) => (await send('GET', path)).blob().catch(gone);

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
	#over = null;
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

	/** `work(kinds)` at most twice a second; returns how to end it. */
	listen(work) {
		this.#listeners.add(work);
		return () => this.#listeners.delete(work);
	}

	onEvent(work) {
		this.#followers.add(work);
		return () => this.#followers.delete(work);
	}

	#close() {
		this.#over?.abort();
		this.#over = null;
	}

	/** An EventSource could show no secret. */
	async #follow() {
		if (document.hidden || !this.#isOn) return this.#close();
		if (this.#over) return;
		const over = this.#over = new AbortController();
		try {
			const { body } = await send('GET', query('/events', { after: stored('tab', 'seq', null) }), { signal: over.signal });
			this.onLink(true);
			this.#note('gap');
			const reader = body.pipeThrough(new TextDecoderStream()).getReader();
			let rest = '';
			for (let got = await reader.read(); !got.done; got = await reader.read()) {
				const frames = (rest + got.value).split('\n\n');
				rest = frames.pop();
				for (const frame of frames) {
					const [, data] = /^data: (.*)$/m.exec(frame) ?? [];
					if (data) queueMicrotask(() => this.#take(JSON.parse(data)));
				}
			}
		} catch { /* begins anew */ }
		if (this.#over !== over) return;
		this.#close();
		this.onLink(false);
		setTimeout(() => this.#follow(), 3000);
	}

	#take(event) {
		if (!this.#isOn) return;
		if (event.seq) keep('tab', 'seq', event.seq);
		for (const work of [...this.#followers]) work(event);
		this.#note(event.type);
	}

	#note(type) {
		this.#kinds.add(type);
		this.#timer ||= setTimeout(() => {
			this.#timer = 0;
			if (!this.#isOn) return;
			const kinds = this.#kinds;
			this.#kinds = new Set();
			for (const work of [...this.#listeners]) work(kinds);
		}, 400);
	}
}

export const changes = new Changes();
