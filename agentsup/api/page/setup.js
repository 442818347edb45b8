// The steps of `agentsup setup`: provider, key, model, a test, then a Telegram bot and its owner.

import { get, post } from './api.js';
import { duration, h, soft, t } from './dom.js';
import { action, choice } from './viewing.js';

const input = (fields) => h('input', { autocomplete: 'off', autocapitalize: 'none', spellcheck: 'false', ...fields });
const telegramId = (node) => (node.value.trim() ? Number(node.value) : null);
const labelled = (words, control) => h('label.choice', soft(words), control);

function spent({ usd }) {
	if (usd === null) return t`its price is not known here`;
	return usd ? t`it cost ${usd.toFixed(6)} US dollars` : t`it costs nothing by the token`;
}

function modelStep(providers) {
	let chosen = providers[0];
	const address = input({ type: 'url', id: 'setup-address' });
	const key = input({ type: 'password', id: 'setup-key', autocomplete: 'new-password' });
	const keyRow = labelled(t`Key`, key);
	const hint = h('p.soft');
	const known = h('datalist', { id: 'setup-models' });
	const model = input({ id: 'setup-model' });
	model.setAttribute('list', 'setup-models');
	const said = h('p', { role: 'status' });
	const rest = h('div', { hidden: true });
	const wanted = () => ({ provider: chosen.name, base_url: address.value.trim(), key: key.value.trim(), model: model.value.trim() });

	function show(name) {
		chosen = providers.find((each) => each.name === name);
		address.value = chosen.base_url;
		key.value = model.value = said.textContent = '';
		key.placeholder = chosen.has_key ? t`the one that is known here` : '';
		rest.hidden = true;
		hint.replaceChildren(...chosen.keys_at ? [t`You get a key at `, h('a', { href: chosen.keys_at, target: '_blank', rel: 'noopener' }, chosen.keys_at)] : []);
	}

	const look = action(t`Show the models`, async () => {
		rest.hidden = true;
		const { where, names } = await post('/setup/models', wanted());
		known.replaceChildren(...names.map((name) => h('option', { value: name })));
		if (names.length === 1) model.value = names[0];
		said.textContent = names.length === 1 ? t`${where} has one model, ${names[0]}.` : t`${where} has ${names.length} models.`;
		rest.hidden = false;
		model.focus();
	}, undefined, 'primary');
	const test = action(t`Try it with one short request`, async () => {
		const done = await post('/setup/test', wanted());
		const answered = t`${done.model} answered in ${duration(done.seconds)}; ${spent(done)}.`;
		said.textContent = [answered, done.problem].join(' ').trim();
	});
	const use = action(t`Use it`, async () => {
		await post('/setup/model', wanted());
		key.value = '';
		said.textContent = t`The agents use ${model.value} now.`;
	}, undefined, 'primary');
	rest.append(labelled(t`Model`, model), known, h('div.actions', test, use));
	const provider = choice(t`Provider`, providers.map(({ name, title }) => [name, title]), chosen.name, show);
	show(chosen.name);
	return h('section.card', { 'aria-labelledby': 'setup-think' }, h('h2', { id: 'setup-think' }, t`The model of your agents`),
		provider, labelled(t`Address`, address), hint, keyRow, h('div.actions', look), rest, said);
}

function programStep(programs) {
	const said = h('p', { role: 'status' });
	const items = programs.map(({ name, title, state, sign_in: how }) => h('li', h('div', h('b', title), h('br'), soft(state, how && ` · ${how}`)), action(t`Use ${title}`, async () => {
		const { others } = await post('/setup/program', { name });
		said.textContent = [t`The agents use ${title} now.`, others.length && t`These name an engine of their own: ${others.join(', ')}.`].filter(Boolean).join(' ');
	})));
	return programs.length > 0 && h('section.card', { 'aria-labelledby': 'setup-programs' }, h('h2', { id: 'setup-programs' }, t`Coding agents that are installed`), h('ul.plain', items), said);
}

const KEPT = {
	systemd: () => t`systemd keeps the daemon running, also after a reboot if it is enabled.`,
	container: () => t`The container keeps the daemon running, if its restart policy says so.`,
	parent: () => t`A small parent process starts the daemon again if it ends. After a reboot nothing does.`,
	nothing: () => t`Nothing starts the daemon again when it ends.`,
};

const keptStep = ({ by, command }) => h('section.card', { 'aria-labelledby': 'setup-kept' }, h('h2', { id: 'setup-kept' }, t`Kept running`),
	h('p', KEPT[by]()), /parent|nothing/.test(by) && h('p', t`To make it a service, run in a terminal: `, h('code', command)));

/** The name of the operator, and a Telegram id; the same in two cards. */
const whoFields = (at) => [input({ id: `setup-person-${at}`, pattern: '[a-z][a-z0-9_\\-]{0,31}', maxlength: 32 }), input({ id: `setup-number-${at}`, inputmode: 'numeric', pattern: '[0-9]+' })];

function whoStep() {
	const [person, number] = whoFields('you');
	const said = h('p', { role: 'status' });
	const add = action(t`Save`, async () => {
		await post('/setup/operator', { person: person.value.trim(), telegram_id: telegramId(number) });
		said.textContent = t`${person.value.trim()} is an operator now.`;
	}, undefined, 'primary');
	return h('section.card', { 'aria-labelledby': 'setup-who' }, h('h2', { id: 'setup-who' }, t`Who you are`),
		h('p.soft', t`Without a Telegram id you are let in later, by your first message or by a link.`),
		labelled(t`Your name here`, person), labelled(t`Your Telegram id, if you know it`, number), h('div.actions', add), said);
}

function botStep() {
	const token = input({ type: 'password', id: 'setup-token', autocomplete: 'new-password' });
	const [person, number] = whoFields('bot');
	const said = h('p', { role: 'status' });
	const connect = action(t`Connect the bot`, async () => {
		const { username } = await post('/setup/bot', { token: token.value.trim(), person: person.value.trim(), telegram_id: telegramId(number) });
		token.value = '';
		said.replaceChildren(t`Telegram knows this bot. Write to `, h('a', { href: `https://t.me/${username}`, target: '_blank', rel: 'noopener' }, `@${username}`),
			person.value ? '.' : t`; then let yourself in under Agents.`);
	}, undefined, 'primary');
	return h('section.card', { 'aria-labelledby': 'setup-bot' }, h('h2', { id: 'setup-bot' }, t`A Telegram bot, to talk from your phone`),
		h('ol', [t`Open https://t.me/BotFather in Telegram and send /newbot.`, t`Send a name for your bot, then a user name that ends with “bot”.`,
			t`BotFather answers with a token; copy it here.`].map((words) => h('li', words))),
		labelled(t`The bot’s token`, token), h('p.soft', t`Who you are, if you know your Telegram id (@userinfobot tells it):`),
		labelled(t`Your name here`, person), labelled(t`Your Telegram id`, number), h('div.actions', connect), said);
}

export async function setup(view) {
	const { providers, programs, restart_info: kept } = await get('/setup');
	view.replaceChildren(h('div.board', h('header', h('h1', { tabindex: '-1' }, t`Setup`)),
		h('p.soft', t`What you type is checked here, kept in files that only the daemon’s user reads, and shown nowhere.`),
		h('div.body', modelStep(providers), programStep(programs), botStep(), whoStep(), keptStep(kept))));
	return () => {};
}
