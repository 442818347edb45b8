// Messages that were given up, and what to do with them.

import { post, query } from './api.js';
import { ask, h, t, toast } from './dom.js';
import { itemOf, listed } from './items.js';
import { agentChoice, board, count, action, keyed } from './viewing.js';

const countOf = (each) => count(each.length, t`message`, t`messages`);

export async function dead(view, { params }, app) {
	let agent = params.get('agent') ?? '';
	let pages = 1;
	let shown = [];
	const list = h('ul.items');
	const nothing = h('p.empty', { hidden: true }, t`No failed messages. What can’t be answered after several attempts is kept here.`);
	const further = action(t`More`, () => { pages += 1; return frame.look(true); });
	further.hidden = true;

	const does = (message, verb) => post(`/${verb === 'replay' ? 'messages' : 'dead'}/${message.id}/${verb}`);
	const dropping = (what) => ask(t`Drop ${what}?`, t`It will never be answered. This can’t be undone.`, t`Drop`, true);

	async function all(verb, done) {
		const each = [...shown];
		if (verb === 'drop' && !await dropping(countOf(each))) return;
		const refused = [];
		for (const message of each) await does(message, verb).catch((error) => refused.push(error.message));
		await frame.look();
		toast(`${done}: ${each.length - refused.length}.`);
		if (refused.length) toast(t`Refused: ${refused.length}. ${refused[0]}`, true);
	}
	function controls(read) {
		const one = (words, verb, done, kind = '') => ({
			node: action(words, async () => {
				if (verb === 'drop' && !await dropping(t`this message`)) return;
				await does(read(), verb);
				toast(done);
				await frame.look();
			}, '', kind),
			when: () => app.may('steer'),
		});
		return [
			one(t`Requeue`, 'requeue', t`It is back in its queue.`),
			one(t`Replay`, 'replay', t`It runs once more, as a new message.`),
			one(t`Drop`, 'drop', t`Dropped.`, 'danger'),
		];
	}

	const together = h('div.actions', { hidden: true },
		action(t`Requeue all shown`, () => all('requeue', t`Back in the queue`)),
		action(t`Drop all shown`, () => all('drop', t`Dropped`), '', 'danger'));
	const frame = board(view, {
		title: t`Failed messages`,
		tools: agentChoice(app, agent, (value) => {
			agent = value;
			pages = 1;
			app.note(query('#/dead', { agent }));
			frame.look(true);
		}),
		kinds: ['message.'],
		load: () => listed('/dead', { agent }, pages),
		show({ found, more }) {
			shown = found;
			draw(found);
			nothing.hidden = found.length > 0;
			together.hidden = found.length < 2 || !app.may('steer');
			further.hidden = !more;
			return found.length > 0 && (more ? t`${countOf(found)} shown, and more` : countOf(found));
		},
	});
	const draw = keyed(list, (message) => message.id, (message) => itemOf(message, controls));
	frame.body.append(together, list, nothing, further);
	return frame.end;
}
