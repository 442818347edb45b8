// Where one writes: text, commands with completion, files.

import { ApiError, call, query } from './api.js';
import { bytes, h, icon, press, soft, t, toast } from './dom.js';
import { keep, stored } from './storage.js';

const MOST_FILES = 10;
const isFine = matchMedia('(pointer: fine)');

export class Composer {
	#files = [];
	#commands = [];
	#offered = [];
	#chosen = 0;
	#last = Promise.resolve();
	#key;
	onSay;
	onStop;

	constructor({ app, agent, conversation }) {
		Object.assign(this, { app, agent });
		this.#key = `draft:${agent}:${conversation}`;
		this.text = h('textarea', {
			id: 'say', rows: 1, autocomplete: 'off', placeholder: t`Message ${agent}`, 'aria-label': t`Message to ${agent}`,
			'aria-autocomplete': 'list', 'aria-haspopup': 'listbox',
			oninput: () => this.#typed(), onkeydown: (event) => this.#key_(event), onpaste: (event) => this.#pasted(event), onblur: () => this.#offer([]),
		});
		this.pick = h('input', { type: 'file', multiple: true, hidden: true, onchange: () => { this.add([...this.pick.files]); this.pick.value = ''; } });
		this.list = h('ul.offers', { id: 'offers', role: 'listbox', 'aria-label': t`Commands` });
		this.chips = h('ul.chips', { 'aria-label': t`Files to send` });
		this.send = h('button.primary.round', { 'aria-label': t`Send` }, icon('send'));
		this.stop = press(icon('stop'), (button) => this.onStop(button), { class: 'danger round stop', 'aria-label': t`Stop the running answer`, hidden: true });
		this.form = h('form.composer', { onsubmit: (event) => { event.preventDefault(); this.#submit(); } },
			this.list, this.chips, h('div.writing-line',
				press(icon('clip'), () => this.pick.click(), { class: 'quiet round', 'aria-label': t`Attach files` }),
				this.pick, this.text, this.stop, this.send));
		this.text.value = stored('browser', this.#key, '');
		for (const done of stored('tab', this.#key, [])) this.#chip({ ...done, done });
		this.#ready();
		queueMicrotask(() => this.#grow());
	}

	focus() { this.text.focus({ preventScroll: true }); }

	/** Ends uploads: what comes later would be kept. */
	abort() { for (const file of this.#files) file.abort?.abort(); }

	offers(commands) { this.#commands = commands; }

	put({ text, files = [] }) {
		this.text.value = [this.text.value, text].filter(Boolean).join('\n');
		for (const done of files) this.#chip({ ...done, done });
		this.#typed();
		this.focus();
	}

	#typed() {
		keep('browser', this.#key, this.text.value);
		this.#grow();
		this.#ready();
		const typed = /^[/!](\S*)$/.exec(this.text.value);
		const found = typed ? this.#commands.filter(({ name }) => name.startsWith(typed[1])) : [];
		this.#offer(found.length === 1 && found[0].name === typed[1] ? [] : found);
	}

	#grow() {
		this.text.style.height = 'auto';
		this.text.style.height = `${this.text.scrollHeight + 2}px`;
	}

	#ready() {
		const done = this.#files.flatMap((file) => file.done ?? []);
		keep('tab', this.#key, done.length ? done : null);
		const isLoading = this.#files.some((file) => !file.done);
		this.send.disabled = isLoading || !(this.text.value.trim() || this.#files.length);
	}

	#submit() {
		if (this.send.disabled) return;
		const files = this.#files.map(({ done }) => done);
		const text = this.text.value.trim();
		this.#files = [];
		this.#showChips();
		this.text.value = '';
		this.#typed();
		this.onSay(text, files);
		this.focus();
	}

	#key_(event) {
		if (event.isComposing) return;
		const isOffered = this.#offered.length > 0;
		const steps = { ArrowDown: 1, ArrowUp: -1 };
		if (isOffered && steps[event.key]) {
			event.preventDefault();
			this.#choose((this.#chosen + steps[event.key] + this.#offered.length) % this.#offered.length);
		} else if (isOffered && event.key === 'Escape') {
			event.preventDefault();
			this.#offer([]);
		} else if (isOffered && (event.key === 'Tab' || event.key === 'Enter') && !event.shiftKey) {
			event.preventDefault();
			this.#take(this.#offered[this.#chosen]);
		} else if (event.key === 'Enter' && !event.shiftKey && isFine.matches) {
			event.preventDefault();
			this.#submit();
		}
	}

	#offer(commands) {
		this.#offered = commands;
		this.list.replaceChildren(...commands.map((command, at) => h('li', {
			role: 'option', id: `offer-${at}`,
			// Before the blur that would take the list away.
			onpointerdown: (event) => { event.preventDefault(); this.#take(command); },
		}, h('b', `/${command.name} ${command.usage}`), ' ', soft(command.help))));
		if (commands.length) {
			this.text.setAttribute('aria-controls', 'offers');
			this.#choose(0);
		} else for (const name of ['aria-activedescendant', 'aria-controls']) this.text.removeAttribute(name);
	}

	#choose(at) {
		this.#chosen = at;
		const { children } = this.list;
		for (const each of children) each.ariaSelected = String(each === children[at]);
		children[at].scrollIntoView({ block: 'nearest' });
		this.text.setAttribute('aria-activedescendant', `offer-${at}`);
	}

	#take({ name, usage }) {
		this.text.value = `/${name}${usage ? ' ' : ''}`;
		this.#typed();
		this.#offer([]);
	}

	#pasted(event) {
		const files = [...event.clipboardData.files];
		if (!files.length) return;
		event.preventDefault();
		this.add(files);
	}

	add(files) {
		const most = this.app.session.max_upload_bytes;
		for (const file of files) {
			if (this.#files.length >= MOST_FILES) {
				toast(t`A message takes ${MOST_FILES} files at most.`, true);
				return;
			}
			if (file.size > most) toast(t`${file.name} has ${bytes(file.size)}; ${bytes(most)} is the most a file may have.`, true);
			else this.#upload(file);
		}
		this.focus();
	}

	#chip(file) {
		this.#files.push(file);
		file.status = soft(file.size ? bytes(file.size) : '');
		file.li = h('li', icon('file'), h('span', file.name), file.status, press('×', () => {
			this.#files = this.#files.filter((each) => each !== file);
			file.abort?.abort();
			this.#showChips();
			this.focus();
		}, { class: 'quiet', 'aria-label': t`Remove ${file.name}` }));
		this.#showChips();
		return file;
	}

	#showChips() {
		this.chips.replaceChildren(...this.#files.map(({ li }) => li));
		this.#ready();
	}

	#upload(given) {
		const file = this.#chip({ name: given.name || 'picture.png', size: given.size, abort: new AbortController() });
		const load = async () => {
			file.status.replaceChildren(t`uploading…`);
			try {
				const path = query('/web/uploads', { agent: this.agent, name: file.name });
				const { path: at, name } = await call('POST', path, given, { signal: file.abort.signal });
				file.done = { path: at, name };
				file.status.replaceChildren(bytes(file.size));
			} catch (error) {
				if (file.abort.signal.aborted || !(error instanceof ApiError)) return;
				file.status.replaceChildren(h('span.bad', error.message), ' ', press(t`Try again`, load, { class: 'quiet' }));
			}
			this.#ready();
		};
		// One by one: several at once would take the places of others.
		this.#last = this.#last.then(load);
	}
}
