// What stands in a conversation, as elements. Nothing here knows of the socket.

import { act, post } from './api.js';
import { blocksOf, Preview } from './blocks.js';
import { bytes, h, icon, timeOf } from './dom.js';

const isPicture = (name) => /\.(png|jpe?g|gif|webp)$/i.test(name);

/** A file to save; a picture is shown. */
export function fileLink(url, name, size) {
  const words = [icon('file'), h('span', { class: 'name' }, name), size ? h('span', { class: 'soft' }, bytes(size)) : ''];
  const link = h('a', { class: 'file', href: url, download: name }, words);
  if (!isPicture(name)) return link;
  const picture = h('img', { src: url, alt: name, loading: 'lazy', decoding: 'async', onerror: () => link.replaceChildren(...words) });
  link.replaceChildren(picture);
  return link;
}

/** Plain words as they stand; columns keep their places. */
const words = (text) => h('div', { class: /\S {2,}\S/.test(text) ? 'words columns' : 'words' }, text);

const entry = (kind, ...children) => h('li', { class: `entry ${kind}` }, ...children);

const meta = (who, at, ...more) => h('p', { class: 'meta' }, h('b', {}, who), ' ', at ? timeOf(at) : '', ...more);

/** A person's message. `show(state, ...)` changes what is said of it. */
export class Mine {
  constructor({ text, files = [], who = 'You', isCommand = false, links = null }) {
    this.text = text;
    this.state = '';
    this.who = who;
    this.words = h('div', { class: 'words' }, text);
    this.files = h('div', { class: 'files' });
    this.told = h('span', { class: 'state' });
    this.meta = h('p', { class: 'meta' });
    this.li = entry(isCommand ? 'mine command' : 'mine', h('div', { class: 'bubble' }, this.words, this.files), this.meta);
    this.attach(files, links);
    this.at(0);
  }

  attach(names, links) {
    this.words.hidden = !this.text;
    this.files.hidden = !names.length;
    this.files.replaceChildren(...names.map((name, at) => (links
      ? fileLink(links(at), name)
      : h('span', { class: 'file' }, icon('file'), h('span', { class: 'name' }, name)))));
  }

  at(ms) {
    this.meta.replaceChildren(h('b', {}, this.who), ' ', ms ? timeOf(ms) : '', this.edited ?? '', this.told);
  }

  edit(text) {
    this.text = text;
    this.words.textContent = text;
    this.words.hidden = !text;
    this.edited = h('span', { class: 'tag' }, 'edited');
    this.told.before(this.edited);
  }

  /** `offers`: [label, what to do]. Nothing is touched where nothing changed. */
  show(text, offers = [], isBad = false) {
    const state = `${text}|${offers.map(([label]) => label)}`;
    if (state === this.state) return;
    this.state = state;
    this.told.classList.toggle('bad', isBad);
    this.told.replaceChildren(text, ...offers.map(([label, work]) => {
      const button = h('button', { type: 'button', class: 'quiet', onclick: () => work(button) }, label);
      return button;
    }));
  }
}

const repeat = (data) => data.possible_repeat && h('span', { class: 'tag warn', title: 'The daemon could not know whether this was delivered before.' }, 'may be a repeat');

/** An agent's answer. */
export function answer(agent, { at, data }) {
  const body = data.blocks ? blocksOf(data.blocks) : [words(data.text ?? '')];
  return entry('theirs', meta(agent, at, repeat(data)), h('div', { class: 'said' }, body));
}

export function file(agent, { at, data }) {
  const name = data.name || data.path || 'file';
  return entry('theirs', meta(agent, at, repeat(data)), h('div', { class: 'files' }, fileLink(`/web/files/${data.outbox_id}`, name)));
}

/** What the daemon says by itself. `say` is there if the person may write. */
export function notice({ at, data }, say) {
  const isBad = data.outcome && !['ok', 'cancelled'].includes(data.outcome);
  const again = data.again && say && h('button', { type: 'button', onclick: (event) => {
    event.currentTarget.disabled = true;
    say(`/again ${data.again}`);
  } }, 'Send it again');
  return entry(isBad ? 'notice bad' : 'notice', words(data.text ?? ''), again, h('p', { class: 'meta' }, timeOf(at), repeat(data)));
}

/** The answer of a command; a press says `command` under an id that counts once where it must. */
export function reply(frame, { isOperator, press }) {
  const rows = (frame.buttons ?? []).map((row, at) => row.map((each, column) => {
    if (each.operator && !isOperator) return null;
    const button = h('button', { type: 'button', onclick: () => press(each, button, `once:${frame.id}:${at}:${column}`) }, each.label);
    return button;
  }).filter(Boolean)).filter((row) => row.length);
  return entry(frame.ok ? 'reply' : 'reply bad', words(frame.text), rows.map((row) => h('div', { class: 'row' }, row)));
}

/** A question, which ends here or elsewhere. */
export class Question {
  constructor(agent, { id, text, blocks, options = [], deadline_at: until, at }, mayAnswer) {
    this.id = id;
    this.state = 'open';
    const give = (words_, button) => act(button, async () => {
      await post(`/questions/${id}/answer`, { answer: words_ });
    });
    const field = h('input', { 'aria-label': 'Your answer', required: true, autocomplete: 'off', placeholder: 'Your answer' });
    const ways = options.length
      ? h('div', { class: 'row', role: 'group', 'aria-label': 'Answers' }, options.map((option) => {
        const button = h('button', { type: 'button', onclick: () => give(option, button) }, option);
        return button;
      }))
      : h('form', { class: 'row', onsubmit: (event) => {
        event.preventDefault();
        if (field.value.trim()) give(field.value, event.submitter ?? field);
      } }, field, h('button', { class: 'primary' }, 'Answer'));
    this.ways = mayAnswer ? ways : h('p', { class: 'soft' }, 'You may not answer it.');
    this.until = until ? h('p', { class: 'soft' }, 'Answer until ', timeOf(until)) : null;
    this.end = h('p', { class: 'soft', hidden: true });
    this.li = entry('theirs', meta(agent, at), h('div', { class: 'card question' },
      h('div', { class: 'said' }, blocks ? blocksOf(blocks) : words(text)), this.ways, this.until, this.end));
  }

  close({ state, answer: given, by: who }) {
    this.state = state || 'closed';
    for (const each of this.ways.querySelectorAll('button, input')) {
      each.disabled = true;
      if (each.textContent === given) each.setAttribute('aria-pressed', 'true');
    }
    if (this.ways.tagName === 'FORM') this.ways.hidden = true;
    if (this.until) this.until.hidden = true;
    const told = {
      answered: `Answered${who ? ` by ${who}` : ''}: ${given}`,
      expired: 'The time was over before somebody answered.',
      cancelled: 'No longer asked: its work was stopped.',
    };
    this.end.textContent = told[this.state] ?? 'This question is closed.';
    this.end.hidden = false;
  }
}

const STEPS = { started: 'running', finished: 'done', failed: 'failed' };

/** An answer that is being written: its text so far, its steps. */
export class Live {
  constructor(agent, messageId) {
    this.messageId = messageId;
    this.agent = agent;
    this.body = h('div', { class: 'said' });
    this.steps = h('ol', { class: 'steps', hidden: true });
    this.waiting = h('p', { class: 'writing soft' }, `${agent} is at work`);
    this.li = entry('theirs live', meta(agent, 0), this.steps, this.body, this.waiting);
    this.begin();
  }

  begin(turn = {}) {
    this.isOver = false;
    this.text = (turn.shortened ? '…' : '') + (turn.text ?? '');
    this.preview?.show('');
    this.preview = new Preview(this.body);
    this.body.replaceChildren();
    this.running = [];
    this.steps.replaceChildren();
    this.steps.hidden = true;
    for (const tool of turn.tools ?? []) this.step(tool);
    this.waiting.hidden = false;
    this.li.hidden = false;
    this.isChanged = true;
  }

  add(text) {
    this.text += text;
    this.isChanged = true;
  }

  step({ name, state }) {
    this.steps.hidden = false;
    let at = this.running.findIndex((each) => each.name === name);
    if (state === 'started' || at < 0) {
      const told = h('span', { class: 'soft' });
      const item = h('li', {}, h('code', {}, name), ' ', told);
      this.steps.append(item);
      at = this.running.push({ name, told, item }) - 1;
    }
    const { told, item } = this.running[at];
    told.textContent = STEPS[state] ?? state;
    item.className = state;
    if (state !== 'started') this.running.splice(at, 1);
  }

  over() {
    this.isOver = true;
    this.waiting.hidden = true;
    this.li.hidden = !this.text && this.steps.hidden;
  }

  /** Shows what has come since the last time; once for each frame of the screen. */
  draw() {
    if (!this.isChanged) return;
    this.isChanged = false;
    this.preview.show(this.text);
  }
}

/** Rows above a day's first message and where another session begins. */
export function divide(li) {
  const before = li.previousElementSibling;
  const { day = '', session = '' } = li.dataset;
  const last = before?.dataset ?? {};
  const told = [];
  if (day && day !== (last.day ?? '')) told.push(day);
  if (session && last.session && session !== last.session) told.push('another session');
  const text = told.join(' · ');
  const held = li.querySelector(':scope > .divider');
  if ((held?.textContent ?? '') === text) return;
  held?.remove();
  if (text) li.prepend(h('p', { class: 'divider' }, text));
}

