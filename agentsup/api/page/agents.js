// Every agent: its state and why, its work; start and stop.

import { ApiError, get, post, query } from './api.js';
import { ask, h, scannable, soft, t, timeOf, toast } from './dom.js';
import { strangers } from './strangers.js';
import { action, board, count, facts, fromNow, keyed, redraw, say, table } from './viewing.js';

const isUp = ({ status }) => status === 'running' || status === 'degraded';
const path = (name, verb) => `/agents/${encodeURIComponent(name)}/${verb}`;

const stateLine = (agent) => [
	h('strong', t([agent.status])),
	...(isUp(agent) && agent.uptime !== null ? [' ', fromNow(Date.now() - agent.uptime * 1000, 'for')] : []),
	...(agent.next_retry_at ? [t`, tries again `, fromNow(agent.next_retry_at, 'in')] : []),
	agent.restarts > 0 && ` · ${count(agent.restarts, t`restart`, t`restarts`)}`,
];

const workLine = (agent) => [
	agent.running && t`${agent.running} running` + (agent.work.length ? ` (${agent.work.join(', ')})` : ''),
	agent.queued && t`${agent.queued} waiting`,
	agent.parked && count(agent.parked, t`open question`, t`open questions`),
].filter(Boolean).join(' · ') || t`idle`;

async function stop({ name, running, queued }) {
	const what = t`Turns under way: ${running}; they may end first, but not for long. Waiting: ${queued}; this is kept. It stays stopped until it is started again.`;
	if (!await ask(t`Stop ${name}?`, what, t`Stop it`, true)) return;
	await post(path(name, 'stop'));
	toast(t`${name} is stopped.`);
}

async function bot(name) {
	const offer = await post(path(name, 'bot'));
	const how = t`Open this link on a device with Telegram and create the bot there, until `;
	await ask(t`Telegram bot of ${name}`, h('div', h('p', how, timeOf(offer.expires_at), '.'), ...scannable(offer.link, offer.qr)));
}

/** Adds an agent, and offers to create its bot where main's bot may do that. */
async function add(app) {
	const name = h('input', { maxlength: '64', autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false' });
	const about = h('textarea', { rows: '2', maxlength: '2000' });
	const form = h('div.board', h('label.choice', soft(t`Name`), name), h('label.choice', soft(t`What it is for`), about));
	if (!await ask(t`New agent`, form, t`Add`)) return;
	const { name: added } = await post('/agents', { name: name.value.trim(), description: about.value.trim() });
	toast(t`${added} is there.`);
	try {
		if (app.may('steer')) await bot(added);
	} catch (error) {
		if (!(error instanceof ApiError)) throw error;
		if (error.code === 'may_not_manage_bots') toast(error.message);
	}
}

/** A control for a field that may be set here; empty: the files say it. */
function control({ field, value, choices }) {
	const now = String(value ?? '');
	const props = { 'data-was': now, onkeydown: (event) => event.key === 'Enter' && event.preventDefault() };
	const options = [...new Set(['', now, ...choices])];
	const node = choices.length ? h('select', props, options.map((each) => h('option', { value: each, selected: each === now }, each || t`as in the files`)))
		: h('input', { ...props, value: now, autocomplete: 'off', spellcheck: 'false', placeholder: t`as in the files` });
	return { node, field, isNumber: typeof value === 'number' };
}

async function change(name, controls) {
	const changed = controls.filter(({ node }) => node.value.trim() !== node.dataset.was);
	for (const { node, field, isNumber } of changed) {
		const given = node.value.trim();
		const value = isNumber && given ? Number(given) : given || null;
		const { raises_rights: raises } = await post(path(name, 'overrides'), { field, value });
		if (raises) toast(t`${name} may now do more without asking.`);
	}
	if (changed.length) toast(t`Saved.`);
}

async function settings(name) {
	const [{ values }, { fields }] = await Promise.all(['explain', 'overrides'].map((verb) => get(path(name, verb))));
	const controls = fields.map(control);
	const form = h('div.board', controls.map(({ node }, at) => {
		const { field, origin, doc } = fields[at];
		node.setAttribute('aria-describedby', `about-${field}`);
		return h('div', h('label.choice', soft(field, origin === 'override' && t` (set here)`), node), h('p.soft.about', { id: `about-${field}` }, doc));
	}));
	const words = (value) => (typeof value === 'string' ? value : value == null ? '–' : JSON.stringify(value));
	const isSet = ({ origin }) => origin !== 'built-in';
	const rows = values.sort((one, other) => isSet(other) - isSet(one)).map(({ field, value, origin }) => h('tr',
		h('th', { scope: 'row' }, field), h('td', words(value)), h('td', origin)));
	const all = h('details', h('summary', t`All settings`), table(t`Settings`, [t`Setting`, t`Value`, t`From`], h('tbody', rows)));
	if (await ask(t`Settings of ${name}`, h('div', form, all), t`Save`)) await change(name, controls);
}

function card(first, app, look) {
	let now = first;
	const id = `agent-${first.agent_id}`;
	const dot = h('span');
	const state = h('p');
	const details = h('div');
	const notes = h('ul.notes');
	const work = h('a', { href: query('#/work', { agent: first.name }) });
	const begin = action(t`Start`, async () => { await post(path(now.name, rests(now) ? 'start' : 'restart')); look(); });
	const halt = action(t`Stop`, async () => { await stop(now); look(); });
	const node = h('article.card.agent', { 'aria-labelledby': id }, h('h2', { id }, dot, first.name), state, details, h('p', work), notes,
		h('div.actions', h('a.button', { href: `#/chat/${first.name}` }, t`Chat`),
			app.may('steer') && [
				h('a.button', { href: `#/log/${first.name}` }, t`Log`), action(t`Settings`, () => settings(now.name)),
				!now.is_main && action(t`Telegram bot`, () => bot(now.name)), begin, halt]));
	const rests = ({ status }) => ['stopped', 'failed', 'backoff'].includes(status);

	function show(agent) {
		now = agent;
		dot.className = `dot ${agent.status}`;
		// The uptime goes on by itself; only a new life is drawn.
		redraw(state, [agent.status, agent.instance_id, agent.next_retry_at, agent.restarts], () => stateLine(agent));
		redraw(details, [agent.role, agent.engine, agent.model], () => [
			h('p', agent.role), facts([[t`Engine`, agent.engine], [t`Model`, agent.model]])]);
		say(work, workLine(agent));
		const { last_reason: why, last_crash_error: crash, warnings, pending } = agent;
		redraw(notes, [why, crash, warnings, pending, agent.engine_problem, isUp(agent)], () => [
			pending && h('li.warn', t`Edit: ${pending}`),
			...[...new Set([why, crash])].map((each) => each && h('li', { class: isUp(agent) ? 'soft' : 'bad' }, `${isUp(agent) ? t`Before: ` : ''}${each}`)),
			...warnings.map((each) => h('li.warn', each)),
			agent.engine_problem && app.may('steer') && h('li', h('a', { href: '#/setup' }, t`Set up a model`)),
		]);
		say(begin, agent.status === 'backoff' ? t`Try now` : rests(agent) ? t`Start` : t`Restart`);
		halt.hidden = agent.is_main || agent.status === 'stopped';
	}
	return { node, show };
}

function edits(diff) {
	const list = (title, lines) => lines.length > 0 && h('section', h('h3', title), h('ul', lines.map((each) => h('li', each))));
	const parts = [
		diff.config_error && h('p.bad', t`The files are not taken: ${diff.config_error}`),
		list(t`Taken at the next chance`, diff.pending),
		list(t`Taken when the daemon is started again`, diff.process),
		list(t`Set from chat, over the files`, diff.overrides),
	].filter(Boolean);
	return parts.length ? [h('h2', t`Edits`), ...parts] : [];
}

export async function agents(view, route, app) {
	const edited = h('section.card', { hidden: true });
	const asking = h('section', { hidden: true });
	const cards = h('div.cards');
	const frame = board(view, {
		title: t`Agents`,
		tools: app.may('steer') ? [action(t`Add agent`, async () => { await add(app); frame.look(); })] : [],
		kinds: ['agent.', 'config.', 'message.', 'chat.in', 'question.', 'stop.', 'daemon.', 'stranger.'],
		load: () => Promise.all([get('/agents'), ...app.may('steer') ? [get('/diff'), get('/pairings')] : []]),
		show([{ agents: all }, diff, asks]) {
			draw(all);
			if (diff) redraw(edited, diff, () => edits(diff));
			if (asks) redraw(asking, asks.pairings, () => strangers(asks.pairings, frame.look));
			return t`${all.filter(isUp).length} of ${count(all.length, t`agent`, t`agents`)} up`;
		},
	});
	const draw = keyed(cards, (agent) => agent.agent_id, (agent) => card(agent, app, frame.look));
	frame.body.append(asking, edited, cards);
	return frame.end;
}
