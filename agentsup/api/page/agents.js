// Every agent: what state it is in and why, what it works on, and how it is started and stopped.

import { get, post, query } from './api.js';
import { ask, h, toast } from './dom.js';
import { board, count, deed, facts, fromNow, keyed, redraw, say, table } from './viewing.js';

const STATES = { degraded: 'running with trouble', backoff: 'failed', failed: 'given up' };
const isUp = ({ status }) => status === 'running' || status === 'degraded';
const path = (name, verb) => `/agents/${encodeURIComponent(name)}/${verb}`;

const stateLine = (agent) => [
	h('strong', STATES[agent.status] ?? agent.status),
	...(isUp(agent) && agent.uptime !== null ? [' ', fromNow(Date.now() - agent.uptime * 1000, 'for')] : []),
	...(agent.next_retry_at ? [', tries again ', fromNow(agent.next_retry_at, 'in')] : []),
	agent.restarts > 0 && ` · ${count(agent.restarts, 'restart')}`,
];

const workLine = (agent) => [
	agent.running && `${agent.running} running${agent.work.length ? ` (${agent.work.join(', ')})` : ''}`,
	agent.queued && `${agent.queued} waiting`,
	agent.parked && count(agent.parked, 'open question'),
].filter(Boolean).join(' · ') || 'nothing to do';

async function stop({ name, running, queued }) {
	const ends = running ? `${count(running, 'turn')} under way may end first, but not for long. ` : '';
	const stays = queued ? `${count(queued, 'message')} that ${queued === 1 ? 'waits' : 'wait'} will be kept. ` : '';
	if (!await ask(`Stop ${name}?`, `${ends}${stays}It stays stopped until it is started again.`, 'Stop it', true)) return;
	await post(path(name, 'stop'));
	toast(`${name} is stopped.`);
}

async function settings(name) {
	const { values } = await get(path(name, 'explain'));
	const rows = h('tbody');
	const only = h('input', { type: 'checkbox', checked: true, onchange: () => draw() });
	const words = (value) => (typeof value === 'string' ? value : JSON.stringify(value ?? '–'));
	const draw = () => rows.replaceChildren(...values.filter((each) => !only.checked || each.origin !== 'built-in')
		.map(({ field, value, origin }) => h('tr', h('th', { scope: 'row' }, field), h('td', words(value)), h('td', origin))));
	draw();
	await ask(`Settings of ${name}`, h('div',
		h('label.check', only, 'Only what is set in a file or from chat'),
		table('Settings', [['Setting'], ['Value'], ['From']], rows)), '');
}

function card(first, app, look) {
	let now = first;
	const id = `agent-${first.agent_id}`;
	const dot = h('span');
	const state = h('p');
	const told = h('div');
	const notes = h('ul.notes');
	const work = h('a', { href: query('#/work', { agent: first.name }) });
	const begin = deed('Start', async () => { await post(path(now.name, rests(now) ? 'start' : 'restart')); look(); });
	const halt = deed('Stop', async () => { await stop(now); look(); });
	const node = h('article.card.agent', { 'aria-labelledby': id }, h('h2', { id }, dot, first.name), state, told, h('p', work), notes,
		h('div.actions', h('a.button', { href: `#/chat/${first.name}` }, 'Chat'),
			app.may('steer') && [
				h('a.button', { href: `#/log/${first.name}` }, 'Log'), deed('Settings', () => settings(now.name)), begin, halt]));
	const rests = ({ status }) => ['stopped', 'failed', 'backoff'].includes(status);

	function show(agent) {
		now = agent;
		dot.className = `dot ${agent.status}`;
		// The uptime goes on by itself; only a new life is drawn.
		redraw(state, [agent.status, agent.instance_id, agent.next_retry_at, agent.restarts], () => stateLine(agent));
		redraw(told, [agent.role, agent.engine, agent.model], () => [
			h('p', agent.role), facts([['Engine', agent.engine], ['Model', agent.model]])]);
		say(work, workLine(agent));
		const { last_reason: why, last_crash_error: crash, warnings, pending } = agent;
		redraw(notes, [why, crash, warnings, pending, isUp(agent)], () => [
			pending && h('li.warn', `Edit: ${pending}`),
			...[...new Set([why, crash])].map((each) => each && h('li', { class: isUp(agent) ? 'soft' : 'bad' }, `${isUp(agent) ? 'Before: ' : ''}${each}`)),
			...warnings.map((each) => h('li.warn', each)),
		]);
		say(begin, agent.status === 'backoff' ? 'Try now' : rests(agent) ? 'Start' : 'Restart');
		halt.hidden = agent.is_main || agent.status === 'stopped';
	}
	return { node, show };
}

function edits(diff) {
	const list = (title, lines) => lines.length > 0 && h('section', h('h3', title), h('ul', lines.map((each) => h('li', each))));
	const parts = [
		diff.config_error && h('p.bad', `The files are not taken: ${diff.config_error}`),
		list('Taken at the next chance', diff.pending),
		list('Taken when the daemon is started again', diff.process),
		list('Set from chat, over the files', diff.overrides),
	].filter(Boolean);
	return parts.length ? [h('h2', 'Edits'), ...parts] : [];
}

export async function agents(view, route, app) {
	const edited = h('section.card', { hidden: true });
	const cards = h('div.cards');
	const frame = board(view, {
		title: 'Agents',
		kinds: ['agent.', 'config.', 'message.', 'chat.in', 'question.', 'stop.', 'daemon.'],
		load: () => Promise.all([get('/agents'), app.may('steer') ? get('/diff') : null]),
		show([{ agents: all }, diff]) {
			draw(all);
			if (diff) redraw(edited, diff, () => edits(diff));
			return `${all.filter(isUp).length} of ${count(all.length, 'agent')} up`;
		},
	});
	const draw = keyed(cards, (agent) => agent.agent_id, (agent) => card(agent, app, frame.look));
	frame.body.append(edited, cards);
	return frame.end;
}
