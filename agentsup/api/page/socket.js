// One conversation's socket: it comes back, misses nothing, and says each text once.

import { get } from './api.js';
import { newId, t, toast } from './dom.js';
import { keep, stored, keysOf, secret } from './storage.js';

const SILENCE_MS = 25_000;
const PONG_MS = 5_000;
const LONGEST_MS = 10_000;
const isCommand = ({ text, files }) => !files.length && /^\s*[/!]/.test(text);

const UNSENT = 'unsent:';

export const keyOf = (agent, conversation) => `${UNSENT}${agent}:${conversation}`;

let isSending = false;
let opened = '';
let rest = {};

export const endRest = () => rest.end?.();

/** Says what waits in other conversations than the open one, one by one. */
export async function sendRest(open) {
	opened = open;
	if (rest.key === open) endRest();
	if (isSending) return;
	isSending = true;
	for (const key of keysOf('tab', UNSENT)) if (key !== opened) await sendAll(key);
	isSending = false;
}

const sendAll = (key) => new Promise((resolve) => {
	const [, agent, conversation] = /:(.*):(.*)$/.exec(key);
	const end = () => { socket.close(); rest = {}; resolve(); };
	const warn = (why) => why && toast(`${agent}: ${why}`, true);
	rest = { key, end };
	const look = () => { if (socket.unsent.every(({ problem }) => problem)) end(); };
	const socket = new ChatSocket({
		agent, conversation,
		onUnsent: ({ problem }) => { warn(problem); look(); },
		onFrame: ({ type, text }) => {
			if (type === 'reply') toast(`${agent}: ${text}`);
			look();
		},
		onLink: (isUp, why) => { warn(why); if (!isUp) end(); },
	});
});

export class ChatSocket {
	#socket = null;
	#seq = null;
	#tries = 0;
	#timer = 0;
	#watch = 0;
	#over = new AbortController();
	#isWelcome = false;
	#problem = null;
	#key;
	/** Texts that are not accepted yet: {id, text, files, at, sent, problem}. */
	unsent;

	constructor({ agent, conversation, session = '', onFrame, onLink, onUnsent }) {
		Object.assign(this, { agent, conversation, session, onFrame, onLink, onUnsent });
		this.#key = keyOf(agent, conversation);
		this.unsent = stored('tab', this.#key, []).map((say) => ({ ...say, sent: false }));
		const { signal } = this.#over;
		for (const type of ['online', 'offline']) addEventListener(type, () => this.#hurry(), { signal });
		document.addEventListener('visibilitychange', () => this.#hurry(), { signal });
		this.#connect();
	}

	close() {
		this.#over.abort();
		this.#drop();
	}

	/** Says a text now, or as soon as the daemon is there; what is said. */
	say(text, files = [], id = newId()) {
		const said = { id, text, files, at: Date.now(), sent: false, problem: '' };
		this.discard(id);
		// A stop holds for what was said before it.
		for (const each of /^\s*[/!]stop/.test(text) ? this.unsent : []) {
			if (each.sent || isCommand(each)) continue;
			each.problem = t`Not sent: ${text}`;
			this.onUnsent(each);
		}
		this.unsent.push(said);
		this.again(said);
		return said;
	}

	again(said) {
		said.problem = '';
		this.#keep();
		this.#next();
	}

	discard(id) {
		this.unsent = this.unsent.filter((each) => each.id !== id);
		this.#keep();
	}

	/** Says what waits: commands at once, a text when what is before it is done. */
	#next() {
		let isBehind = false;
		for (const said of this.#isWelcome ? this.unsent : []) {
			const { id, text, files } = said;
			if (said.problem || (isBehind && !isCommand(said))) continue;
			isBehind = true;
			if (said.sent) continue;
			said.sent = true;
			this.#keep();
			this.#socket.send(JSON.stringify({ type: 'say', id, text, files }));
		}
	}

	#keep() {
		// A command that was sent may be done: a reload does not send it again.
		const lasting = this.unsent.filter((said) => !(isCommand(said) && said.sent));
		keep('tab', this.#key, lasting.length ? lasting : null);
	}

	#connect() {
		clearTimeout(this.#timer);
		this.#problem = null;
		const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/ws`, ['agentsup', `bearer.${secret}`]);
		this.#socket = socket;
		let isOpen = false;
		socket.onopen = () => {
			isOpen = true;
			socket.send(JSON.stringify({ type: 'hello', agent: this.agent, channel: 'web', conversation: this.conversation, session: this.session, after: this.#seq }));
		};
		socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
		socket.onclose = ({ code }) => {
			// A socket that never opened does not say why; a call does.
			if (!isOpen || code === 4401) get('/web/session').catch(() => {});
			this.#lost(code);
		};
		this.#watchFor(LONGEST_MS);
	}

	#watchFor(ms, then = () => this.#lost(0)) {
		clearTimeout(this.#watch);
		this.#watch = setTimeout(then, ms);
	}

	#ping() {
		if (!this.#isWelcome) return;
		this.#socket.send('{"type":"ping"}');
		this.#watchFor(PONG_MS);
	}

	#take(frame) {
		this.#watchFor(SILENCE_MS, () => this.#ping());
		if (frame.type === 'welcome') this.#welcome(frame);
		else if (frame.type === 'event') this.#seq = Math.max(this.#seq ?? 0, frame.seq);
		else if (frame.type === 'accepted' || frame.type === 'reply') {
			this.discard(frame.id);
			this.#next();
		} else if (frame.type === 'error' && frame.id) {
			this.#refused(frame);
			return;
		} else if (frame.type === 'error') this.#problem = frame.problem;
		this.onFrame(frame);
	}

	#welcome(frame) {
		if (this.#seq === null || frame.reset) this.#seq = frame.seq;
		this.#isWelcome = true;
		this.#tries = 0;
		this.onLink(true, '');
		queueMicrotask(() => this.#next());
	}

	#refused({ id, problem }) {
		const said = this.unsent.find((each) => each.id === id);
		if (!said) return;
		if (!isCommand(said) && (problem.status === 503 || problem.queue === 'ws.says')) {
			said.sent = false;
			setTimeout(() => this.#next(), 1000 * (problem.retry_after_s ?? 1));
		} else said.problem = t`Not sent: ${problem.detail}`;
		this.#keep();
		if (said.problem) this.#next();
		this.onUnsent(said);
	}

	#drop() {
		clearTimeout(this.#timer);
		clearTimeout(this.#watch);
		const socket = this.#socket;
		this.#socket = null;
		this.#isWelcome = false;
		if (!socket) return;
		socket.onopen = socket.onmessage = socket.onclose = null;
		socket.close();
	}

	#lost(code) {
		this.#drop();
		if (this.#over.signal.aborted) return;
		for (const said of this.unsent) {
			if (!said.sent) continue;
			if (isCommand(said)) said.problem = t`The connection broke. Look whether it was done before you try again.`;
			said.sent = false;
			this.onUnsent(said);
		}
		this.#keep();
		const isRefused = code === 4400 || code === 4429;
		this.onLink(false, isRefused ? this.#problem?.detail ?? '' : '');
		if (this.#over.signal.aborted) return;
		const base = code === 4408 ? 0 : Math.min(LONGEST_MS, 250 * 2 ** this.#tries);
		this.#tries += 1;
		this.#timer = setTimeout(() => this.#connect(), isRefused ? LONGEST_MS : base * (0.5 + Math.random() / 2));
	}

	/** The network or the person is back. */
	#hurry() {
		if (document.hidden) return;
		if (this.#isWelcome) this.#ping();
		else if (!this.#socket) this.#connect();
	}
}
