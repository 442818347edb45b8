// Strangers who wrote to a bot and were given a code: an operator lets them in, or not.

import { post } from './api.js';
import { h, soft, t, toast } from './dom.js';
import { action } from './viewing.js';

const WHERE = { telegram: 'Telegram', matrix: 'Matrix' };

function asking({ code, agent, channel, user_id: number, name }, look) {
	const id = `stranger-${code}`;
	const role = h('select', { 'aria-label': t`Role` }, ['viewer', 'user', 'operator'].map((each) => h('option', { value: each, selected: each === 'user' }, each)));
	const known = h('input', { 'aria-label': t`Name here`, placeholder: t`Name here`, pattern: '[a-z][a-z0-9_\\-]{0,31}', maxlength: 32, autocapitalize: 'none' });
	const letIn = action(t`Let in`, async () => {
		const done = await post('/pairings/let_in', { code, role: role.value, name: known.value.trim() || null });
		toast(done.is_everywhere ? t`${done.person} may talk to every agent now.` : t`${done.person} may talk to ${agent} now.`);
		look();
	}, undefined, 'primary');
	const refuse = action(t`Refuse`, async () => {
		await post('/pairings/refuse', { code });
		look();
	});
	return h('article.card', { 'aria-labelledby': id }, h('h3', { id }, t`“${name}” wrote to ${agent}`),
		h('p', `${WHERE[channel] ?? channel} ${number} · `, h('code', code)), h('p.row', role, known), h('div.actions', letIn, refuse));
}

/** What is shown of those who ask; nothing if nobody does. */
export const strangers = (pairings, look) => (pairings.length ? [
	h('h2', t`Who wants to be let in`),
	h('p', soft(t`Names can be faked: let in only a person who gave you this code. A user may talk to that agent alone, an operator to all.`)),
	...pairings.map((each) => asking(each, look)),
] : []);
