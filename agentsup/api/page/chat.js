// The chat: with whom, what was said, and where one writes.

import { act, changes, get, post, query } from './api.js';
import { Composer } from './compose.js';
import { ask, closeDialog, fill, h, press, soft, t, tell, timeOf } from './dom.js';
import { keep, stored } from './storage.js';
import { ChatSocket, keyOf, sendRest } from './socket.js';
import { Talk } from './talk.js';

const isFine = matchMedia('(pointer: fine)');
const path = (agent) => `#/chat/${encodeURIComponent(agent)}`;
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
		const talk = new Talk({
			app, agent, conversation,
			onLive: (text) => { live.textContent = text.slice(0, 400); },
			onRunning: (id) => { running = id; composer.stop.hidden = !id; },
			onSaid: (text, id) => say(text, [], id),
		});
		const key = keyOf(agent, conversation);
		// With its files, also those that are on their way.
		const composer = app.composers.get(key) ?? new Composer({ app, agent, conversation });
		app.composers.set(key, composer);
		composer.onSay = say;
		composer.onStop = (button) => act(button, () => post(`/messages/${running}/cancel`));
		const socket = new ChatSocket({
			agent, conversation,
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

	async function showSessions() {
		const { agent, conversation } = open;
		const body = h('div', h('p.soft', t`Loading…`));
		ask(t`Sessions of ${agent}`, body);
		const change = async (button, way, fields, words) => {
			if (await act(button, () => post(`/web/sessions${way}`, { agent, conversation, ...fields }), words)) closeDialog();
		};
		try {
			const { sessions } = await get(query('/web/sessions', { agent, conversation }));
			const items = sessions.map((each) => {
				const name = each.title || each.key.replace(/^chat:/, t`Chat in `);
				const go = app.may('talk') && press(t`Switch`, (button) => change(button, '/switch', { session: each.id }, t`You go on with “${name}”.`), { 'aria-label': t`Switch to ${name}` });
				return h('li', h('div', h('b', name), h('br'), soft(timeOf(each.updated_at), ` · ${each.id.slice(-6)}`)), each.is_current ? h('span.tag', t`current`) : go);
			});
			const name = h('input', { 'aria-label': t`Name of the new session`, placeholder: t`Name (may be left out)`, maxlength: '100' });
			const begin = press(t`New session`, (button) => change(button, '', name.value.trim() && { title: name.value.trim() }, t`A new session has begun.`), { class: 'primary' });
			body.replaceChildren(
				soft(t`A session is what the agent remembers of a conversation.`),
				items.length ? h('ul.plain', items) : h('p', t`There is none yet; the first message begins one.`),
				app.may('talk') ? h('div.row', name, begin) : '',
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
