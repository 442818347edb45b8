// The messages of one conversation. Frames are taken in order, a few milliseconds of them at a time;
// what stands already is changed and never built anew.
//
// An answer stands below what it answers: texts that still wait their turn stay at the bottom.

import { act, ApiError, get, post, query } from './api.js';
import { answer, divide, file, Live, Mine, notice, Question, reply } from './entries.js';
import { ask, dayOf, duration, h } from './dom.js';

const AT_ONCE_MS = 10;
const HISTORY = 50;
const FOLLOWED = 12;
const NEAR_PX = 60;
const ENDED = ['done', 'dead', 'cancelled'];

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
  #isLoading = false;
  #isOver = false;
  #isHere = false;
  #isNew = false;

  /** `app` as views get it; `onHeard(text)` what is to be read out; `onRunning(id|'')`. */
  constructor({ app, agent, conversation, onHeard, onRunning, onSaid }) {
    Object.assign(this, { app, agent, conversation, onHeard, onRunning, onSaid });
    this.list = h('ol', {});
    this.earlier = h('button', { class: 'quiet earlier', type: 'button', hidden: true, onclick: () => this.#loadEarlier() }, 'Earlier messages');
    this.empty = h('p', { class: 'empty', hidden: true }, app.may('talk') ? `Nothing was said yet. Write to ${agent} below.` : 'Nothing was said yet.');
    this.log = h('div', { class: 'messages', role: 'log', 'aria-live': 'off', 'aria-label': `Conversation with ${agent}`, tabindex: '0', onscroll: () => this.#scrolled() },
      h('div', { class: 'column' }, this.earlier, this.empty, this.list));
    this.down = h('button', { class: 'down', type: 'button', hidden: true, onclick: () => this.toEnd() }, '↓ Latest');
    this.observer = new ResizeObserver(() => this.#hold());
    this.observer.observe(this.log);
    this.observer.observe(this.log.firstElementChild);
  }

  close() {
    this.#isOver = true;
    this.observer.disconnect();
  }

  // -- frames -----------------------------------------------------------------------------------------

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
    this.empty.hidden = this.list.childElementCount > 0 || !this.#isHere;
    const running = [...this.#lives.values()].findLast((live) => !live.isOver);
    this.onRunning(running?.messageId ?? '');
    this.down.hidden = this.#isStuck;
    this.down.textContent = this.#isNew ? '↓ New' : '↓ Latest';
  }

  _welcome({ reset, history, live, questions }) {
    if (reset) this.#clear();
    const open = new Set(questions.map(({ id }) => id));
    if (!this.#isHere || reset) {
      this.#build(history, open, this.list);
      this.#oldest = history[0]?.seq ?? null;
      this.earlier.hidden = history.length < HISTORY;
      this.#openUp();
    }
    this.#isHere = true;
    for (const asked of questions) if (!this.#questions.has(asked.id)) this.#addQuestion({ ...asked, at: asked.asked_at });
    this._snapshot({ turns: live });
    this.follow();
  }

  #clear() {
    this.list.replaceChildren();
    for (const each of [this.#mine, this.#lives, this.#questions, this.#closed, this.#ended, this.#outs, this.#open]) each.clear();
    for (const { mine } of this.#says.values()) this.#put(mine.li, '');
  }

  _event({ event }) {
    this.#show(event, true);
  }

  _begin({ message_id: id }) {
    if (this.#ended.get(id) === 'answer') return;
    this.#live(id).begin();
  }

  _delta({ message_id: id, text }) {
    if (this.#ended.get(id) !== 'answer') this.#live(id).add(text);
  }

  _tool({ message_id: id, name, state }) {
    if (this.#ended.get(id) !== 'answer') this.#live(id).step({ name, state });
  }

  _snapshot({ turns }) {
    const running = new Set(turns.map((turn) => turn.message_id));
    for (const [id, live] of this.#lives) if (!running.has(id)) live.over();
    for (const turn of turns) if (this.#ended.get(turn.message_id) !== 'answer') this.#live(turn.message_id).begin(turn);
  }

  _end({ message_id: id }) {
    const live = this.#lives.get(id);
    if (!live) return;
    live.over();
    // Its answer comes as an event. Where none comes, what became of it is asked.
    setTimeout(() => { if (this.#lives.has(id)) this.follow(); }, 1500);
  }

  _accepted({ id, message_id: messageId, position, eta_s: eta }) {
    const said = this.#says.get(id);
    this.#says.delete(id);
    if (this.#ended.has(messageId)) said?.mine.show('');
    if (!said || said.adopted) {
      if (said && this.#open.has(messageId)) this.#tellPlace(messageId, position, eta);
      return;
    }
    if (this.#mine.has(messageId)) said.mine.li.remove();
    else this.#adopt(messageId, said.mine);
    if (!this.#ended.has(messageId)) {
      this.#open.add(messageId);
      this.#tellPlace(messageId, position, eta);
    }
  }

  _reply(frame) {
    const said = this.#says.get(frame.id);
    this.#says.delete(frame.id);
    said?.mine.show('');
    if (said) delete said.mine.li.dataset.waits;
    const li = reply(frame, { isOperator: this.app.session.is_operator, press: (each, button, onceId) => this.#press(each, button, onceId) });
    li.dataset.day = dayOf(Date.now());
    if (said?.mine.li.isConnected) {
      this.#put(said.mine.li, '');
      said.mine.li.after(li);
    } else this.#put(li, '');
    this.#heard(frame.text, true);
  }

  async #press({ command, confirm, once, label }, button, onceId) {
    if (confirm && !await ask(label, h('p', {}, confirm), label)) return;
    if (once) button.disabled = true;
    this.onSaid(command, once ? onceId : undefined);
  }

  // -- what was said ----------------------------------------------------------------------------------

  /** A text of ours that is not accepted yet. */
  pending(said, work) {
    const isCommand = !said.files.length && /^\s*[/!]/.test(said.text);
    let entry = this.#says.get(said.id);
    if (!entry) {
      const mine = new Mine({ text: said.text, files: said.files.map(({ name }) => name), isCommand });
      mine.at(said.at);
      mine.li.dataset.day = dayOf(said.at);
      entry = { said, mine, adopted: false };
      this.#says.set(said.id, entry);
      mine.li.dataset.waits = 'say';
      this.list.append(mine.li);
      divide(mine.li);
      this.empty.hidden = true;
    }
    if (entry.adopted) return;
    if (said.problem) {
      entry.mine.show(`Not sent: ${said.problem} `, [
        ['Try again', () => { work.again(said); this.pending(said, work); }],
        ['Edit', () => { entry.mine.li.remove(); this.#says.delete(said.id); work.edit(said); }],
      ], true);
    } else entry.mine.show(said.sent ? 'sending…' : 'waits for the connection');
  }

  /** Shows an event; `isNow` if it has just happened. `list` is where older ones are built. */
  #show(event, isNow, list = this.list) {
    const { type, message_id: id, data } = event;
    if (type === 'chat.in') this.#said(event, list, isNow);
    else if (type === 'chat.edited') this.#mine.get(id)?.edit(data.text);
    else if (type === 'question.closed') {
      this.#closed.set(data.question_id, data);
      this.#questions.get(data.question_id)?.close(data);
    } else if (type === 'chat.out') this.#out(event, list, isNow);
  }

  #said({ message_id: id, data, at, session_id: session }, list, isNow) {
    const names = data.files ?? [];
    const links = (each) => `/web/sent/${id}/${each}`;
    // Our own words come back; they stand already.
    const held = this.#mine.get(id);
    const own = !held && data.from === this.app.session.who && [...this.#says.values()].find(({ said, adopted }) => !adopted
      && said.text === data.text && said.files.length === names.length && at > said.at - 60_000);
    const mine = held ?? (own ? own.mine : new Mine({ text: data.text ?? '', files: names, links, who: data.from === this.app.session.who ? 'You' : data.from }));
    if (own) own.adopted = true;
    if (names.length && (own || held)) mine.attach(names, links);
    if (!held) this.#adopt(id, mine);
    mine.li.dataset.day = dayOf(at);
    mine.li.dataset.session = session;
    mine.at(at);
    if (!this.#ended.has(id)) {
      this.#open.add(id);
      if (!held) mine.show(isNow ? 'received' : '');
    } else {
      mine.show('');
      delete mine.li.dataset.waits;
    }
    if (!mine.li.isConnected || list !== this.list) {
      // Before the texts that are not accepted yet.
      const after = [...list.children].findLast((li) => li.dataset.waits !== 'say');
      if (after) after.after(mine.li);
      else list.prepend(mine.li);
    }
    this.#divided(mine.li);
  }

  #adopt(id, mine) {
    this.#mine.set(id, mine);
    mine.li.dataset.id = id;
    mine.li.dataset.waits = 'turn';
  }

  #out(event, list, isNow) {
    const { data, message_id: id, session_id: session, at } = event;
    if (this.#outs.has(data.outbox_id)) return;
    this.#outs.add(data.outbox_id);
    const isEnd = data.kind === 'answer' || data.kind === 'file' || data.outcome;
    if (id && isEnd) this.#end(id, data.kind === 'notice' ? 'notice' : 'answer');
    if (data.kind === 'question') {
      this.#addQuestion({ ...data, id: data.question_id, at }, list, id, session);
    } else {
      const talks = this.app.may('talk');
      const made = data.kind === 'answer' ? answer(this.agent, event)
        : data.kind === 'file' ? file(this.agent, event)
          : notice(event, talks && ((command) => this.onSaid(command)));
      made.dataset.day = dayOf(at);
      made.dataset.session = session;
      this.#put(made, id, list);
    }
    if (isNow) this.#heard(data.text ?? data.name ?? '');
  }

  #addQuestion(asked, list = this.list, id = asked.message_id, session = asked.session) {
    const made = new Question(this.agent, asked, this.app.may('talk'));
    this.#questions.set(asked.id, made);
    made.li.dataset.day = dayOf(asked.at);
    made.li.dataset.session = session ?? '';
    this.#put(made.li, id, list);
    if (this.#closed.has(asked.id)) made.close(this.#closed.get(asked.id));
    this.#mine.get(id)?.show('waits for your answer');
  }

  /** The message is over: its running text goes, its state too. */
  #end(id, how) {
    this.#ended.set(id, how);
    this.#open.delete(id);
    this.#unlive(id);
    const mine = this.#mine.get(id);
    if (!mine) return;
    mine.show('');
    delete mine.li.dataset.waits;
  }

  #unlive(id) {
    this.#lives.get(id)?.li.remove();
    this.#lives.delete(id);
  }

  #live(id) {
    let live = this.#lives.get(id);
    if (!live) {
      live = new Live(this.agent, id);
      this.#lives.set(id, live);
      live.li.dataset.day = dayOf(Date.now());
    }
    if (!live.li.isConnected || live.isOver) {
      this.#put(live.li, id);
      this.#mine.get(id)?.show('');
    }
    return live;
  }

  /** Puts an entry about the message `id` above the texts that wait for their turn. */
  #put(li, id, list = this.list) {
    let after = list.lastElementChild;
    while (after && after !== li && (after.dataset.waits || after.classList.contains('live')) && after.dataset.id !== id) after = after.previousElementSibling;
    li.dataset.id = id ?? '';
    if (after === li) return;
    if (after) after.after(li);
    else list.prepend(li);
    this.#divided(li);
  }

  #divided(li) {
    divide(li);
    if (li.nextElementSibling) divide(li.nextElementSibling);
  }

  #heard(text, isOwn = false) {
    this.#isNew = !this.#isStuck;
    this.onHeard(text, isOwn);
  }

  // -- what becomes of what waits ---------------------------------------------------------------------

  /** After a history: only the newest unanswered texts may still be open. */
  #openUp() {
    const unanswered = [...this.#open];
    for (const id of unanswered.slice(0, -FOLLOWED)) {
      this.#open.delete(id);
      delete this.#mine.get(id)?.li.dataset.waits;
    }
  }

  /** Asks the daemon for the place in the queue of what is not answered yet. */
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
      if (ENDED.includes(message.state)) {
        // What it said, if anything, comes as an event; here only the waiting ends.
        this.#open.delete(id);
        const mine = this.#mine.get(id);
        mine?.show(message.state === 'cancelled' ? 'cancelled' : '');
        delete mine?.li.dataset.waits;
        if (message.state !== 'done') this.#unlive(id);
      } else if (message.state === 'queued') this.#tellPlace(id, message.position, message.eta_s);
      else this.#mine.get(id)?.show(message.state === 'parked' ? 'waits for an answer' : this.#lives.has(id) ? '' : 'being answered');
    }));
    this.#settled();
  }

  #tellPlace(id, position, eta) {
    const before = position ? `${position} before it${eta > 5 ? `, about ${duration(eta)}` : ''}` : 'next';
    const cancel = ['Cancel', (button) => act(button, () => post(`/messages/${id}/cancel`))];
    const live = this.#lives.get(id);
    if (live && !live.isOver) return;
    this.#mine.get(id)?.show(`${before} `, this.app.may('talk') ? [cancel] : []);
  }

  // -- earlier ----------------------------------------------------------------------------------------

  #build(events, open, list) {
    for (const event of events) this.#show(event, false, list);
    for (const question of this.#questions.values()) if (question.state === 'open' && !open.has(question.id)) question.close({ state: '' });
  }

  async #loadEarlier() {
    if (this.#isLoading || !this.#oldest) return;
    this.#isLoading = true;
    await act(this.earlier, async () => {
      const { events, more } = await get(query('/web/history', { agent: this.agent, conversation: this.conversation, before: this.#oldest, limit: HISTORY }));
      if (this.#isOver) return;
      const open = new Set(this.#open);
      const older = h('ol', {});
      this.#build(events, new Set([...this.#questions.keys()].filter((id) => this.#questions.get(id).state === 'open')), older);
      for (const id of this.#open) {
        if (open.has(id)) continue;
        this.#open.delete(id);
        delete this.#mine.get(id).li.dataset.waits;
      }
      const first = this.list.firstElementChild;
      const height = this.log.scrollHeight - this.log.scrollTop;
      this.list.prepend(...older.children);
      if (first) divide(first);
      this.log.scrollTop = this.log.scrollHeight - height;
      this.#oldest = events[0]?.seq ?? this.#oldest;
      this.earlier.hidden = !more;
    });
    this.#isLoading = false;
  }

  // -- scrolling --------------------------------------------------------------------------------------

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.log;
    const isUp = scrollTop < this.#top;
    const isNear = scrollHeight - clientHeight - scrollTop < NEAR_PX;
    this.#top = scrollTop;
    // What grows below never moves the text up: only the person does.
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
