// The messages of one conversation. An answer stands below what it answers, what waits at the bottom.

import { act, ApiError, get, post, query } from './api.js';
import { answer, divide, file, Live, Mine, notice, Question, reply } from './entries.js';
import { ask, duration, h, press, t } from './dom.js';

const AT_ONCE_MS = 10;
const HISTORY = 50;
const FOLLOWED = 12;
const MOST = 400;
const LEFT = 300;

export class Talk {
	#queue = [];
	#isScheduled = false;
	#mine = new Map();
	#says = new Map();
	#outs = new Set();
	#lives = new Map();
	#questions = new Map();
	#closed = new Map();
	#ended = new Map();
	#open = new Set();
	#oldest = null;
	#isStuck = true;
	#top = 0;
	#isOver = false;
	#isHere = false;
	#isNew = false;

	constructor({ app, agent, conversation, session, onLive, onRunning, onSaid, onSwitch }) {
		Object.assign(this, { app, agent, conversation, session, onLive, onRunning, onSaid, onSwitch });
		this.list = h('ol');
		this.earlier = press(t`Earlier messages`, () => this.#loadEarlier(), { class: 'quiet earlier', hidden: true });
		this.empty = h('p.empty', { hidden: true });
		this.log = h('div.messages', { role: 'log', 'aria-live': 'off', 'aria-label': t`Conversation with ${agent}`, tabindex: '0', onscroll: () => this.#scrolled() },
			h('div.column', this.earlier, this.empty, this.list));
		this.down = press(t`↓ Latest`, () => this.toEnd(), { class: 'down', hidden: true });
		this.observer = new ResizeObserver(() => this.#hold());
		this.observer.observe(this.log);
		this.observer.observe(this.log.firstElementChild);
	}

	close() {
		this.#isOver = true;
		this.observer.disconnect();
	}

	take(frame) {
		this.#queue.push(frame);
		this.#schedule();
	}

	#schedule() {
		if (this.#isScheduled || this.#isOver) return;
		this.#isScheduled = true;
		const run = () => { this.#isScheduled = false; this.#flush(); };
		// A hidden tab draws nothing, but must not fall behind.
		if (document.hidden) setTimeout(run, 200);
		else requestAnimationFrame(run);
	}

	#flush() {
		if (this.#isOver) return;
		const until = performance.now() + AT_ONCE_MS;
		let at = 0;
		while (at < this.#queue.length && (at === 0 || performance.now() < until)) {
			const frame = this.#queue[at];
			at += 1;
			this[`_${frame.type}`]?.(frame);
		}
		this.#queue.splice(0, at);
		for (const live of this.#lives.values()) live.draw();
		if (this.#queue.length) this.#schedule();
		else this.#settled();
	}

	#settled() {
		if (this.#isStuck && this.list.childElementCount > MOST) this.#trim();
		this.empty.hidden = this.list.childElementCount > 0 || !this.#isHere;
		const running = [...this.#lives.values()].findLast((live) => !live.isOver);
		this.onRunning(running?.messageId ?? '');
		this.down.hidden = this.#isStuck;
		this.down.textContent = this.#isNew ? t`↓ New` : t`↓ Latest`;
	}

	/** Lets go of the oldest; they come back as earlier messages. */
	#trim() {
		for (const li of [...this.list.children].slice(0, -LEFT)) {
			const { id, out, seq, waits } = li.dataset;
			const asked = [...this.#questions.values()].find((each) => each.li === li);
			if (waits || !seq || asked?.state === 'open') continue;
			this.#oldest = Math.max(this.#oldest ?? 0, Number(seq) + 1);
			this.#outs.delete(Number(out));
			if (this.#mine.get(id)?.li === li) this.#mine.delete(id);
			this.#questions.delete(asked?.id);
			li.remove();
		}
		this.earlier.hidden = false;
	}

	_welcome({ reset, history, more, live, questions, session_id: session, terminal_session: terminal }) {
		const begin = [t`What can you do?`, t`Remember that my bike is blue.`, '/help'];
		this.empty.replaceChildren(t`Nothing was said yet. Write something, or begin with:`,
			h('span.begin', this.app.may('talk') && [...begin.map((text) => press(text, () => this.onSaid(text))),
				terminal && terminal !== session && press(t`Continue your terminal chat`, (button) => this.onSwitch(button, terminal))]));
		if (reset) this.#clear();
		const open = new Set(questions.map(({ id }) => id));
		if (!this.#isHere || reset) {
			if (this.session !== session) this.session = '';
			this.#build(history, open, this.list);
			this.#oldest = history[0]?.seq ?? null;
			this.earlier.hidden = !more;
			// Only the newest unanswered texts may still be open.
			for (const id of [...this.#open].slice(0, -FOLLOWED)) this.#forgo(id);
		}
		this.#isHere = true;
		for (const asked of questions) this.#addQuestion({ ...asked, at: asked.asked_at, session_id: asked.session });
		this._snapshot({ turns: live });
		this.follow();
	}

	#clear() {
		this.list.replaceChildren();
		for (const each of [this.#mine, this.#lives, this.#questions, this.#closed, this.#ended, this.#outs, this.#open]) each.clear();
		for (const { mine } of this.#says.values()) this.list.append(mine.li);
	}

	_event({ event }) {
		this.#show(event, true);
	}

	_begin({ message_id: id }) {
		this.#live(id)?.begin();
	}

	_delta({ message_id: id, text }) {
		this.#live(id)?.add(text);
	}

	_tool(frame) {
		this.#live(frame.message_id)?.step(frame);
	}

	_retry({ message_id: id, text }) {
		this.#live(id)?.retry(text);
	}

	_snapshot({ turns }) {
		const running = new Set(turns.map((turn) => turn.message_id));
		for (const [id, live] of this.#lives) if (!running.has(id)) live.over();
		for (const turn of turns) this.#live(turn.message_id)?.begin(turn);
	}

	_end({ message_id: id }) {
		const live = this.#lives.get(id);
		if (!live) return;
		live.over();
		// Its answer comes as an event; where none comes, one asks.
		setTimeout(() => { if (this.#lives.has(id)) this.follow(); }, 1500);
	}

	_accepted({ id, message_id: to, position, eta_s: eta, waits_for: asked }) {
		const said = this.#says.get(id);
		this.#says.delete(id);
		if (!said) return;
		if (!said.adopted) {
			if (this.#mine.has(to)) said.mine.li.remove();
			else this.#adopt(to, said.mine);
		}
		if (this.#ended.has(to)) said.mine.show('');
		else {
			this.#open.add(to);
			this.#tellPlace(to, position, eta, asked);
		}
	}

	_reply(frame) {
		const said = this.#says.get(frame.id);
		this.#says.delete(frame.id);
		const li = reply(frame, this.app.session.is_operator, (...pressed) => this.#press(...pressed));
		if (said) {
			this.#rest(said.mine);
			said.mine.li.remove();
			this.#put(said.mine.li, {});
		}
		this.#put(li, {});
		this.#speak(frame.text);
	}

	async #press({ command, confirm, once, label }, button, onceId) {
		if (confirm && !await ask(label, h('p', confirm), label)) return;
		if (once) button.disabled = true;
		this.onSaid(command, once ? onceId : undefined);
	}

	pending(said, work) {
		const isCommand = !said.files.length && /^\s*[/!]/.test(said.text);
		let entry = this.#says.get(said.id);
		if (!entry) {
			const mine = new Mine({ text: said.text, files: said.files.map(({ name }) => name), isCommand });
			mine.at(said.at);
			entry = { said, mine, adopted: false };
			this.#says.set(said.id, entry);
			mine.li.dataset.waits = 'say';
			this.list.append(mine.li);
			divide(mine.li);
			this.empty.hidden = true;
		}
		if (entry.adopted) return;
		if (said.problem) {
			entry.mine.show(`${said.problem} `, [
				[t`Try again`, () => { work.again(said); this.pending(said, work); }],
				[t`Edit`, () => { entry.mine.li.remove(); this.#says.delete(said.id); work.edit(said); }],
			], true);
		} else entry.mine.show(said.sent ? t`sending…` : t`waits for the connection`);
	}

	/** Shows an event; `isNow` if it just happened; older ones are built in `list`. */
	#show(event, isNow, list = this.list) {
		const { type, data } = event;
		if (type === 'chat.in') this.#said(event, list, isNow);
		else if (type === 'chat.edited') this.#mine.get(event.message_id)?.edit(data.text);
		else if (type === 'question.closed') {
			this.#closed.set(data.question_id, data);
			this.#questions.get(data.question_id)?.close(data);
		} else if (type === 'chat.out') this.#out(event, list, isNow);
	}

	#said({ message_id: id, data, at, seq, session_id: session }, list, isNow) {
		const names = data.files ?? [];
		const isMine = data.from === this.app.session.who;
		const held = this.#mine.get(id);
		const own = !held && this.#says.get(data.say_id);
		const mine = held ?? (own ? own.mine : new Mine({ text: data.text, who: isMine ? t`You` : data.from }));
		if (own) own.adopted = true;
		mine.attach(names, (each) => `/web/sent/${id}/${each}`);
		if (!held) this.#adopt(id, mine);
		Object.assign(mine.li.dataset, { session, seq });
		mine.at(at);
		if (!this.#ended.has(id)) {
			this.#open.add(id);
			if (!held) mine.show(isNow ? t`received` : '');
		} else this.#rest(mine);
		if (!mine.li.isConnected || list !== this.list) {
			const after = [...list.children].findLast((li) => li.dataset.waits !== 'say');
			if (after) after.after(mine.li);
			else list.prepend(mine.li);
		}
		this.#divided(mine.li);
	}

	#adopt(id, mine) {
		this.#mine.set(id, mine);
		Object.assign(mine.li.dataset, { id, waits: 'turn' });
	}

	#out(event, list, isNow) {
		const { data, message_id: id } = event;
		if (this.#outs.has(data.outbox_id)) return;
		this.#outs.add(data.outbox_id);
		const isEnd = data.kind === 'answer' || data.kind === 'file' || data.outcome;
		const steps = this.#lives.get(id)?.steps;
		if (id && isEnd) this.#end(id, data.kind === 'notice' ? 'notice' : 'answer');
		if (data.kind === 'question') {
			this.#addQuestion({ ...event, ...data, id: data.question_id }, list);
		} else {
			const make = { answer, file }[data.kind] ?? notice;
			const li = make(event, this.agent, this.app.may('talk') && this.onSaid, steps, this.#mine.get(id)?.plain);
			if (data.of_work !== undefined) li.classList.add('of-work');
			// What comes from elsewhere, a task's result or a note, begins no other session here.
			const isTalk = isEnd && data.kind !== 'notice' && data.of_work === undefined;
			this.#put(li, isTalk ? event : { ...event, session_id: '' }, list);
		}
		if (isNow) this.#speak(data.text ?? data.name ?? '');
	}

	#addQuestion(asked, list) {
		if (this.#questions.has(asked.id)) return;
		const made = new Question(this.app, asked).by(this.agent, asked.at);
		this.#questions.set(asked.id, made);
		this.#put(made.li, asked, list);
		if (this.#closed.has(asked.id)) made.close(this.#closed.get(asked.id));
		this.#mine.get(asked.message_id)?.show(t`waits for your answer`);
	}

	#end(id, how) {
		this.#ended.set(id, how);
		this.#open.delete(id);
		this.#unlive(id);
		this.#rest(this.#mine.get(id));
	}

	#rest(mine, state = '') {
		mine?.show(state);
		delete mine?.li.dataset.waits;
	}

	#unlive(id) {
		this.#lives.get(id)?.li.remove();
		this.#lives.delete(id);
	}

	/** The running text of a message; none if its answer was seen. */
	#live(id) {
		if (this.#ended.get(id) === 'answer') return null;
		let live = this.#lives.get(id);
		if (!live) {
			live = new Live(this.agent, id);
			this.#lives.set(id, live);
		}
		if (!live.li.isConnected || live.isOver) {
			this.#put(live.li, { message_id: id });
			this.#mine.get(id)?.show('');
		}
		return live;
	}

	/** Puts an entry above the texts that wait. */
	#put(li, { message_id: id = '', session_id: session = '', seq = '', data = {} }, list = this.list) {
		let after = list.lastElementChild;
		while (after && after !== li && (after.dataset.waits || after.classList.contains('live')) && after.dataset.id !== id) after = after.previousElementSibling;
		Object.assign(li.dataset, { id, session, seq, out: data.outbox_id });
		if (after === li) return;
		if (after) after.after(li);
		else list.prepend(li);
		this.#divided(li);
	}

	#divided(li) {
		divide(li);
		if (li.nextElementSibling) divide(li.nextElementSibling);
	}

	#speak(text) {
		this.#isNew = !this.#isStuck;
		this.onLive(text);
	}

	#forgo(id) {
		this.#open.delete(id);
		this.#rest(this.#mine.get(id));
	}

	/** What becomes of what is not answered yet. */
	async follow() {
		const asked = new Set([...this.#open, ...[...this.#lives.values()].filter((live) => live.isOver).map((live) => live.messageId)]);
		await Promise.all([...asked].slice(-FOLLOWED).map(async (id) => {
			let message;
			try {
				message = await get(`/messages/${id}`);
			} catch (error) {
				if (!(error instanceof ApiError) || error.status !== 404) return;
				message = { state: 'done' };
			}
			if (this.#isOver || this.#ended.has(id)) return;
			if (/done|dead|cancelled/.test(message.state)) {
				this.#open.delete(id);
				this.#rest(this.#mine.get(id), message.state === 'cancelled' ? 'cancelled' : '');
				if (message.state !== 'done') this.#unlive(id);
			} else if (message.state === 'queued') this.#tellPlace(id, message.position, message.eta_s, message.waits_for);
			else this.#mine.get(id)?.show(message.state === 'parked' ? t`waits for an answer` : this.#lives.has(id) ? '' : t`being answered`);
		}));
		this.#settled();
	}

	#tellPlace(id, position, eta, asked) {
		const before = asked ? t`waits until “${asked.text.slice(0, 80)}” is answered` : position ? (eta > 5 ? t`${t`${position} before it`}, about ${duration(eta)}` : t`${position} before it`) : t`next`;
		const cancel = [t`Cancel`, (button) => act(button, () => post(`/messages/${id}/cancel`))];
		const live = this.#lives.get(id);
		if (live && !live.isOver) return;
		this.#mine.get(id)?.show(`${before} `, this.app.may('talk') ? [cancel] : []);
	}

	#build(events, open, list) {
		for (const event of events) this.#show(event, false, list);
		for (const question of this.#questions.values()) if (question.state === 'open' && !open.has(question.id)) question.close({ state: '' });
	}

	async #loadEarlier() {
		if (!this.#oldest) return;
		await act(this.earlier, async () => {
			const { events, more } = await get(query('/web/history', { agent: this.agent, conversation: this.conversation, session: this.session, before: this.#oldest, limit: HISTORY }));
			if (this.#isOver) return;
			const open = new Set(this.#open);
			const older = h('ol');
			const asked = [...this.#questions.values()].filter(({ state }) => state === 'open').map(({ id }) => id);
			this.#build(events, new Set(asked), older);
			for (const id of this.#open) if (!open.has(id)) this.#forgo(id);
			const [first] = this.list.children;
			const height = this.log.scrollHeight - this.log.scrollTop;
			this.list.prepend(...older.children);
			if (first) divide(first);
			this.log.scrollTop = this.log.scrollHeight - height;
			this.#oldest = events[0]?.seq ?? this.#oldest;
			this.earlier.hidden = !more;
		});
	}

	#scrolled() {
		const { scrollTop, scrollHeight, clientHeight } = this.log;
		const isUp = scrollTop < this.#top;
		const isNear = scrollHeight - clientHeight - scrollTop < 60;
		this.#top = scrollTop;
		// Only a person moves the text up.
		if (isNear) this.#isStuck = true;
		else if (isUp) this.#isStuck = false;
		if (this.#isStuck) this.#isNew = false;
		if (this.#isStuck === !this.down.hidden) this.#settled();
		if (isUp && scrollTop < 200 && !this.earlier.hidden) this.#loadEarlier();
	}

	#hold() {
		if (!this.#isStuck) return;
		this.log.scrollTop = this.log.scrollHeight;
		this.#top = this.log.scrollTop;
	}

	toEnd() {
		this.#isStuck = true;
		this.#isNew = false;
		this.#hold();
		this.#settled();
	}
}
