// The chat: with whom, what was said, and where one writes.

import { act, changes, get, post, query } from './api.js';
import { Composer } from './compose.js';
import { save } from './entries.js';
import { ask, closeDialog, fill, h, press, soft, t, tell, timeOf } from './dom.js';
import { keep, stored } from './storage.js';
import { ChatSocket, keyOf, sendRest } from './socket.js';
import { Talk } from './talk.js';

const isFine = matchMedia('(pointer: fine)');
const path = (agent) => `#/chat/${encodeURIComponent(agent)}`;
const PLATFORMS = { telegram: 'Telegram', matrix: 'Matrix' };
const sessionKey = (agent, conversation) => `session:${agent}:${conversation}`;
const stateOf = ({ status, running }) => (running ? t`at work` : t([status]));

export async function chat(view, route, app) {
	const unread = new Map(Object.entries(stored('tab', 'unread', {})));
	const rows = new Map();
	const list = h('ul.agents');
	const pick = h('select', { 'aria-label': t`Agent`, onchange: () => app.go(path(pick.value)) });
	const title = h('h1');
	const state = h('p.soft');
	const live = h('div.unseen', { role: 'status' });
	const trouble = h('p.trouble', { role: 'status', hidden: true });
	const place = h('div.place', { data: { drop: t`Drop the files to send them` } });
	view.replaceChildren(
		h('nav.side', { 'aria-label': t`Agents` }, list),
		h('section.talk', { 'aria-label': t`Chat` },
			h('header.head', h('div.whom', title, pick, state), press(t`Sessions`, showSessions)), place, live),
	);
	let open = null;

	function showAgents(agents) {
		const known = agents.length ? agents : app.session.agents.map((name) => ({ name, status: '' }));
		const shown = known.map(row);
		fill(list, shown.map(({ li }) => li));
		fill(pick, shown.map(({ option }) => option));
		if (!open) return;
		pick.value = open.agent;
		const agent = known.find(({ name }) => name === open.agent) ?? { status: '' };
		const words = [stateOf(agent), agent.queued && t`${agent.queued} waiting`, agent.status !== 'running' && agent.last_reason];
		state.replaceChildren(h('span', { class: `dot ${agent.status}` }), ' ', open.problem || words.filter(Boolean).join(', '));
		trouble.hidden = !agent.engine_problem;
		const cure = app.may('steer') ? [' ', h('a', { href: '#/setup' }, t`Set up a model`)] : [];
		// Only what is new is drawn, since it is read aloud then.
		if (trouble.dataset.why !== agent.engine_problem) trouble.replaceChildren(agent.engine_problem ?? '', ...cure);
		trouble.dataset.why = agent.engine_problem ?? '';
	}

	function row(agent) {
		let held = rows.get(agent.name);
		if (!held) {
			const [dot, status, count] = [h('span'), h('span.unseen'), h('span.count', { title: t`new` })];
			const link = h('a', { href: path(agent.name) }, dot, h('span.name', agent.name), status, count);
			held = { li: h('li', link), option: h('option', { value: agent.name }), link, dot, status, count };
			rows.set(agent.name, held);
		}
		const news = unread.get(agent.name) ?? 0;
		held.dot.className = `dot ${agent.status}${agent.running ? ' busy' : ''}`;
		tell(held.status, `, ${stateOf(agent)}`);
		tell(held.count, String(news));
		tell(held.option, news ? t`${agent.name} (${news} new)` : agent.name);
		held.count.hidden = !news;
		held.link.ariaCurrent = open?.agent === agent.name ? 'page' : null;
		return held;
	}

	function countNews(agent, more) {
		if (more) unread.set(agent, (unread.get(agent) ?? 0) + more);
		else unread.delete(agent);
		keep('tab', 'unread', unread.size ? Object.fromEntries(unread) : null);
		app.unread([...unread.values()].reduce((sum, each) => sum + each, 0));
		showAgents(app.agents());
	}

	/** An answer was given somewhere: it is news unless one looks at it. */
	function onEvent({ type, agent, conversation }) {
		const isHere = open?.agent === agent && !document.hidden;
		if (type === 'chat.out' && conversation === `web:${app.session.conversation}` && !isHere) countNews(agent, 1);
	}

	const seen = () => { if (!document.hidden && unread.has(open?.agent)) countNews(open.agent, 0); };

	function enter(agent, conversation) {
		open?.close();
		title.replaceChildren(agent, conversation === app.session.conversation ? '' : soft(` ${conversation}`));
		app.titled(agent);
		const mayTalk = app.may('talk');
		let running = '';
		const say = (text, files, id) => {
			talk.pending(socket.say(text, files, id), work);
			talk.toEnd();
		};
		const key = keyOf(agent, conversation);
		const session = stored('tab', sessionKey(agent, conversation), '');
		const talk = new Talk({
			app, agent, conversation, session,
			onLive: (text) => { live.textContent = text.slice(0, 400); },
			onRunning: (id) => { running = id; composer.stop.hidden = !id; },
			onSaid: (text, id) => say(text, [], id),
			onSwitch: (button, id) => act(button, () => switchTo(id), t`You go on with your terminal chat.`),
		});
		// With its files, also those that are on their way.
		const composer = app.composers.get(key) ?? new Composer({ app, agent, conversation });
		app.composers.set(key, composer);
		composer.onSay = say;
		composer.onStop = (button) => act(button, () => post(`/messages/${running}/cancel`));
		const socket = new ChatSocket({
			agent, conversation, session,
			onFrame: (frame) => {
				if (frame.type === 'welcome') composer.offers(frame.commands);
				talk.take(frame);
			},
			onLink: (isUp, problem) => {
				app.link('chat', isUp || Boolean(problem));
				open.problem = problem;
				showAgents(app.agents());
			},
			onUnsent: (said) => talk.pending(said, work),
		});
		const work = {
			again: (said) => socket.again(said),
			edit: (said) => { socket.discard(said.id); composer.put(said); },
		};
		place.replaceChildren(talk.log, talk.down, trouble, mayTalk ? composer.form : h('p.composer.soft', t`You may look, but not write.`));
		const drop = (event) => {
			if (!mayTalk || !event.dataTransfer.types.includes('Files')) return;
			event.preventDefault();
			place.classList.toggle('drop', event.type === 'dragover');
			if (event.type === 'drop') composer.add([...event.dataTransfer.files]);
		};
		Object.assign(place, { ondragover: drop, ondrop: drop, ondragleave: () => place.classList.remove('drop') });
		const stop = changes.listen((kinds) => { if (/message|gap|stop|chat.in/.test([...kinds])) talk.follow(); });
		app.open = key;
		open = { agent, conversation, composer, problem: '', close: () => { stop(); socket.close(); talk.close(); app.open = ''; } };
		sendRest(key);
		for (const said of socket.unsent) talk.pending(said, work);
		countNews(agent, 0);  // and shows the agents as they are
		keep('browser', 'agent', agent);
	}

	/** Goes on with a session, and shows what was said in it. */
	async function switchTo(session) {
		const { agent, conversation } = open;
		await post('/web/sessions/switch', { agent, conversation, session });
		keep('tab', sessionKey(agent, conversation), session);
		enter(agent, conversation);
	}

	/** Where a session was begun; empty: in this conversation. */
	function placeOf(key) {
		const [, kind, channel, name] = /^(\w+)[:-]([^:]*):?(.*)$/.exec(key) ?? [];
		if (kind !== 'chat') return kind === 'ia' ? t`asked by ${channel}` : t`other work`;
		if (channel === 'console') return t`Terminal`;
		return channel !== 'web' ? PLATFORMS[channel] ?? channel : name === open.conversation ? '' : name;
	}

	async function showSessions() {
		const { agent, conversation } = open;
		const body = h('div', h('p.soft', t`Loading…`));
		ask(t`Sessions of ${agent}`, body);
		const change = async (button, work, words) => { if (await act(button, work, words)) closeDialog(); };
		const item = ({ id, key, title: given, updated_at: at, is_current: isHere }) => {
			const where = placeOf(key);
			const name = given || where || t`Untitled`;
			const go = app.may('talk') && press(t`Switch`, (button) => change(button, () => switchTo(id), t`You go on with “${name}”.`), { 'aria-label': t`Switch to ${name}` });
			const field = h('input', { 'aria-label': t`New name of ${name}`, value: given, maxlength: '100', hidden: true, onkeydown: (event) => event.key === 'Enter' && event.preventDefault() });
			const rename = app.may('talk') && press(t`Rename`, (button) => {
				if (!field.hidden) return change(button, () => post('/web/sessions/rename', { agent, conversation, session: id, title: field.value.trim() }), t`Renamed.`);
				[field.hidden, button.textContent, button.ariaLabel] = [false, t`Save`, null];
				field.focus();
			}, { class: 'quiet', 'aria-label': t`Rename ${name}` });
			return h('li', h('div', h('b', name), h('br'), soft(timeOf(at), where && ` · ${where}`), ' ', rename, field), isHere ? h('span.tag', t`current`) : go);
		};
		try {
			const { sessions } = await get(query('/web/sessions', { agent, conversation }));
			const isChat = ({ key }) => key.startsWith('chat:');
			const items = sessions.filter(isChat).map(item);
			const others = sessions.filter((each) => !isChat(each)).map(item);
			const name = h('input', { 'aria-label': t`Name of the new session`, placeholder: t`Name (may be left out)`, maxlength: '100' });
			const started = () => post('/web/sessions', { agent, conversation, ...(name.value.trim() && { title: name.value.trim() }) });
			const begin = press(t`New session`, (button) => change(button, started, t`A new session has begun.`), { class: 'primary' });
			const file = query('/web/export', { agent, conversation });
			body.replaceChildren(
				soft(t`A session is what the agent remembers of a conversation.`),
				items.length ? h('ul.plain', items) : h('p', t`There is none yet; the first message begins one.`),
				others.length ? h('details', h('summary', t`Work for other agents`), h('ul.plain', others)) : '',
				app.may('talk') ? h('div.row', name, begin) : '',
				h('p', press(t`Export this conversation`, (button) => act(button, () => save(file, `${agent}.md`)), { class: 'quiet' })),
			);
		} catch (error) {
			body.replaceChildren(h('p', { role: 'alert' }, error.message));
		}
	}

	function moved({ parts }) {
		const names = app.session.agents.concat(app.agents().map(({ name }) => name));
		const last = stored('browser', 'agent', '');
		const agent = parts[0] ?? (names.includes(last) ? last : names[0]);
		const conversation = parts[1] ?? app.session.conversation;
		if (!agent) {
			title.textContent = t`Chat`;
			place.replaceChildren(h('p.empty', t`There is no agent yet. Add one to agents.json.`));
		} else if (agent !== open?.agent || conversation !== open.conversation) {
			enter(agent, conversation);
			if (isFine.matches && app.may('talk')) open.composer.focus();
		}
		return true;
	}

	const ends = [app.onAgents(showAgents), changes.onEvent(onEvent)];
	document.addEventListener('visibilitychange', seen);
	moved(route);
	showAgents(app.agents());
	const dispose = () => {
		for (const end of ends) end();
		document.removeEventListener('visibilitychange', seen);
		open?.close();
	};
	return Object.assign(dispose, { moved });
}
