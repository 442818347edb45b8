// What stands in a conversation, as elements.

import { act, blobOf, get, post } from './api.js';
import { blocksOf, Preview } from './blocks.js';
import { ask, h, icon, press, soft, t, timeOf } from './dom.js';
import { count } from './viewing.js';

const isPicture = (name) => /\.(png|jpe?g|gif|webp)$/i.test(name);

const near = new IntersectionObserver((seen) => {
	for (const { isIntersecting, target } of seen) if (isIntersecting) target.dispatchEvent(new Event('near'));
}, { rootMargin: '400px' });

/** What is at `url`, for as long as `work` needs it: no address alone opens it. */
async function using(url, work) {
	const href = URL.createObjectURL(await blobOf(url));
	await work(href);
	setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

export const save = (url, name) => using(url, (href) => h('a', { href, download: name }).click());

/** A picture is fetched once it is near, another file to be saved. */
function fileLink(url, name) {
	const show = async (src) => {
		const picture = h('img', { src, alt: name });
		await picture.decode();
		link.replaceChildren(picture);
	};
	const onnear = () => { near.unobserve(link); using(url, show).catch(() => {}); };
	const link = press([icon('file'), h('span', name)], (button) => act(button, () => save(url, name)), { class: 'file', onnear });
	if (isPicture(name)) near.observe(link);
	return link;
}

/** Words as they stand; columns keep their places. */
const words = (text) => h('div', { class: /\S {2,}\S/.test(text) ? 'words columns' : 'words' }, text);

const entry = (kind, ...children) => h('li', { class: `entry ${kind}` }, ...children);

const meta = (who, at, ...more) => h('p.meta', h('b', who), ' ', at ? timeOf(at) : '', ...more);

/** A person's message. `show(state, ...)` changes what is said of it. */
export class Mine {
	constructor({ text = '', files = [], who = t`You`, isCommand = false }) {
		this.text = text;
		this.state = '';
		this.who = who;
		this.words = h('div.words', text);
		this.files = h('div.files');
		this.status = h('span.state');
		this.meta = h('p.meta');
		this.li = entry(isCommand ? 'mine command' : 'mine', h('div.bubble', this.words, this.files), this.meta);
		this.attach(files);
		this.at(0);
	}

	/** Its text, if it has nothing else and can be said again. */
	get plain() {
		return this.files.firstChild ? '' : this.text;
	}

	attach(names, links) {
		this.files.replaceChildren(...names.map((name, at) => (links
			? fileLink(links(at), name)
			: h('span.file', icon('file'), h('span', name)))));
	}

	at(ms) {
		this.meta.replaceChildren(h('b', this.who), ' ', ms ? timeOf(ms) : '', this.edited ?? '', this.status);
	}

	edit(text) {
		this.text = text;
		this.words.textContent = text;
		this.edited = h('span.tag', t`edited`);
		this.status.before(this.edited);
	}

	/** `offers`: [label, what to do]. */
	show(text, offers = [], isBad = false) {
		if (text === this.state) return;
		this.state = text;
		this.status.classList.toggle('bad', isBad);
		this.status.replaceChildren(text, ...offers.map(([label, work]) => press(label, work, { class: 'quiet' })));
	}
}

const repeat = (data) => data.possible_repeat && h('span.tag.warn', { title: t`It is not known whether this was delivered before.` }, t`may be a repeat`);

const copying = (text) => navigator.clipboard && text && press(t`Copy`, (it) => act(it, () => navigator.clipboard.writeText(text), t`Copied.`), { class: 'quiet' });

/** `steps`: the list of what was done for it, where this tab saw that. */
export function answer({ at, data }, agent, say, steps, asked) {
	const body = data.blocks ? blocksOf(data.blocks) : [words(data.text ?? '')];
	const done = steps?.firstChild && h('details', h('summary.soft', count(steps.childNodes.length, t`step`, t`steps`)), steps);
	// Only the last one shows it.
	const again = say && asked && press(t`Ask again`, () => say(asked), { class: 'quiet again' });
	return entry('theirs', meta(agent, at, repeat(data), copying(data.text), again), done, h('div.said', body));
}

export function file({ at, data }, agent) {
	const name = data.name || data.path || 'file';
	return entry('theirs', meta(agent, at, repeat(data)), h('div.files', fileLink(`/web/files/${data.outbox_id}`, name)));
}

export function notice({ at, data }, agent, say) {
	const isBad = data.outcome && !['ok', 'cancelled'].includes(data.outcome);
	const again = data.again && say && press(t`Send it again`, (button) => {
		button.disabled = true;
		say(`/again ${data.again}`);
	});
	const offers = say && data.offers?.map(([label, command]) => press(label, (button) => {
		for (const each of button.parentElement.children) each.disabled = true;
		say(command, `offer:${data.outbox_id}`);
	}));
	const row = offers && h('div.row', offers);
	return entry(isBad ? 'notice bad' : 'notice', words(data.text ?? ''), again, row, h('p.meta', timeOf(at), repeat(data)));
}

/** The answer of a command; a press says `command`, under an id that counts once. */
export function reply(frame, isOperator, onPress) {
	const rows = frame.buttons.map((row, at) => h('div.row', row.map((each, column) => (!each.operator || isOperator)
		&& press(each.label, (button) => onPress(each, button, `once:${frame.id}:${at}:${column}`)))));
	return entry(frame.ok ? 'reply' : 'reply bad', words(frame.text), rows);
}

function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		throw new Error(t`The arguments are no JSON.`);
	}
}

/** What nobody sees in a text, or what turns it round. */
const UNSEEN = /(?![\n\x20])[\p{C}\p{Z}\p{DI}\u2800\u{1107f}\u{13441}\u{13442}\u{16fe4}\u{1d159}]/gu;
const escaped = (sign) => [...Array(sign.length).keys()].map((at) => `\\u${sign.charCodeAt(at).toString(16).padStart(4, '0')}`).join('');

/** The answers to a call that waits for approval. An answer names the call that was shown, whole. */
function approval(app, id, answers, { call, digest, whole: all, is_cut: isCut }) {
	const whole = h('div', { hidden: true });
	const allowing = h('div.row', { role: 'group', 'aria-label': t`Answers` });
	let editor = null;
	const fetched = async () => {
		if (!call) ({ call, digest, whole: all } = await get(`/questions/${id}`));
		return call;
	};
	const give = (option, button) => act(button, async () => {
		const args = editor && editor.value !== editor.defaultValue ? parsed(editor.value) : null;
		const confirm = option === 'any' && await ask(t`Every command, always?`,
			h('p', t`This agent may then run whatever it wants, in every conversation, without asking, until somebody takes it back.`), t`Every command`, true);
		if (option !== 'any' || confirm) await post(`/questions/${id}/answer`, { answer: option, args: option === 'deny' ? null : args, digest, confirm });
	});
	/** A pattern is given with its end: what it covers stands above the answers that say until when. */
	const until = (pattern) => {
		const ends = [['run', t`this run`], ['today', t`today`], ['30d', t`30 days`], ['revoked', t`until revoked`]];
		allowing.replaceChildren(
			h('p', h('code', pattern), ' ', pattern.endsWith(' *') ? t`“*” means plain words that stay in the workspace: no operators, redirections or variables.` : t`This line exactly, no word more.`,
				' ', t`Only in this agent's workspace, for the same person's work. Until when?`),
			...ends.map(([end, label]) => press(`${pattern} · ${label}`, (pressed) => give(`pattern:${end}:${pattern}`, pressed))),
			press(t`Back`, offer, { class: 'quiet' }));
		allowing.querySelector('button').focus();
	};
	const button = ([option, label]) => press(label, (pressed) => (option.startsWith('pattern:') ? until(option.slice(8)) : give(option, pressed)));
	const edit = press(t`Edit`, (pressed) => act(pressed, async () => {
		const text = JSON.stringify((await fetched()).args, null, 2).replace(UNSEEN, escaped);
		editor = h('textarea.args', { rows: Math.min(12, text.split('\n').length), 'aria-label': t`Arguments, as JSON`, spellcheck: 'false' }, text);
		pressed.replaceWith(editor);
		editor.focus();
	}), { class: 'quiet' });
	const offer = () => allowing.replaceChildren(
		...answers.filter(([option]) => option !== 'deny').map(button), ...(app.session.is_operator ? [edit] : []));
	const showAll = press(t`Show all of it`, (pressed) => act(pressed, async () => {
		await fetched();
		whole.replaceChildren(h('pre.call', { tabIndex: 0 }, all.replace(/^`{3,}\n/gm, '')));
		whole.hidden = false;
		offer();
	}));
	if (isCut) allowing.append(showAll);
	else offer();
	return h('div.approval', whole, allowing, h('div.row.denial', answers.filter(([option]) => option === 'deny').map(button)));
}

/** What an agent asks, in a chat or a list. */
export class Question {
	constructor(app, { id, text, blocks, options = [], labels = options, offers, tool, deadline_at: until, ...call }) {
		this.id = id;
		this.state = 'open';
		const answers = offers ?? options.map((option, at) => [option, labels[at]]);
		const field = h('input', { 'aria-label': t`Your answer`, required: true, autocomplete: 'off', placeholder: t`Your answer` });
		const give = (answer, button) => act(button, () => post(`/questions/${id}/answer`, { answer }));
		if (tool && answers.length) this.ways = approval(app, id, answers, call);
		else if (labels.length) this.ways = h('div.row', { role: 'group', 'aria-label': t`Answers` }, labels.map((label) => press(label, (button) => give(label, button))));
		else {
			this.ways = h('form.row', { onsubmit: (event) => {
				event.preventDefault();
				if (field.value.trim()) give(field.value, event.submitter ?? field);
			} }, field, h('button.primary', t`Answer`));
		}
		if (!app.may('talk')) this.ways = h('p.soft', t`You may not answer it.`);
		this.until = until ? h('p.soft', t`Answer until `, timeOf(until)) : null;
		this.end = h('p.soft', { hidden: true });
		this.card = h('div.card.question', h('div.said', blocks ? blocksOf(blocks) : words(text)), this.ways, this.until, this.end);
	}

	/** As an entry of a conversation, where the next text is the answer to a free question. */
	by(agent, at) {
		if (this.ways.tagName === 'FORM') this.ways.after(this.hint = h('p.soft', t`Your next message is the answer, too; /skip goes on without one.`));
		this.li = entry('theirs', meta(agent, at), this.card);
		return this;
	}

	close({ state, answer: given, by: who }) {
		this.state = state || 'closed';
		for (const each of this.ways.querySelectorAll('button, input, textarea')) {
			each.disabled = true;
			if (each.textContent === given) each.setAttribute('aria-pressed', 'true');
		}
		if (this.ways.tagName === 'FORM') this.ways.hidden = true;
		for (const each of this.ways.querySelectorAll('.args')) each.remove();
		for (const each of [this.until, this.hint]) if (each) each.hidden = true;
		const words = {
			answered: who ? t`Answered by ${who}: ${given}` : t`Answered: ${given}`,
			expired: who ? t`${who} left it unanswered.` : t`The time was over before somebody answered.`,
			cancelled: t`No longer asked: its work was stopped.`,
		};
		this.end.textContent = words[this.state] ?? t`This question is closed.`;
		this.end.hidden = false;
	}
}

const STEPS = { started: t`running`, finished: t`done`, failed: t`failed` };

/** An answer being written: text and steps so far. */
export class Live {
	constructor(agent, messageId) {
		this.messageId = messageId;
		this.agent = agent;
		this.body = h('div.said');
		this.steps = h('ol.steps');
		this.waiting = h('p.writing.soft');
		this.li = entry('theirs live', meta(agent, 0), this.steps, this.body, this.waiting);
		this.begin();
	}

	begin(turn = {}) {
		this.isOver = false;
		this.text = (turn.shortened ? '…' : '') + (turn.text ?? '');
		this.preview?.end();
		this.preview = new Preview(this.body);
		this.body.replaceChildren();
		this.running = [];
		this.steps.replaceChildren();
		for (const tool of turn.tools ?? []) this.step(tool);
		this.retry(t`${this.agent} is at work`);
		this.isChanged = true;
	}

	retry(text) {
		this.waiting.textContent = text;
		this.waiting.hidden = this.li.hidden = false;
	}

	add(text) {
		this.text += text;
		this.isChanged = true;
	}

	step({ name, state, to = '' }) {
		let at = this.running.findIndex((each) => each.name === name && each.to === to);
		if (state === 'started' || at < 0) {
			const label = soft();
			const item = h('li', h('code', name), ` ${to} `, label);
			this.steps.append(item);
			at = this.running.push({ name, to, label, item }) - 1;
		}
		const { label, item } = this.running[at];
		label.textContent = STEPS[state] ?? state;
		item.className = state;
		if (state !== 'started') this.running.splice(at, 1);
	}

	over() {
		this.isOver = true;
		this.waiting.hidden = true;
		this.li.hidden = !this.text && !this.steps.firstChild;
	}

	draw() {
		if (!this.isChanged) return;
		this.isChanged = false;
		this.preview.show(this.text);
	}
}

/** Marks where another session begins. */
export function divide(li) {
	const last = li.previousElementSibling?.dataset.session;
	li.dataset.session ||= last ?? '';
	li.classList.toggle('apart', Boolean(last && last !== li.dataset.session));
	li.dataset.apart = t`another session`;
}
