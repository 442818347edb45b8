// Messages that were given up: why, and what to do with each or with all that are shown.

import { post, query } from './api.js';
import { ask, h, toast } from './dom.js';
import { itemOf, listed } from './items.js';
import { agentChoice, board, count, deed, keyed } from './viewing.js';

export async function dead(view, { params }, app) {
	let agent = params.get('agent') ?? '';
	let pages = 1;
	let shown = [];
	const list = h('ul.items');
	const nothing = h('p.empty', { hidden: true }, 'No dead letters. What can’t be answered after several attempts is kept here.');
	const further = deed('More', () => { pages += 1; return frame.look(true); });
	further.hidden = true;

	const does = (message, verb) => post(`/${verb === 'replay' ? 'messages' : 'dead'}/${message.id}/${verb}`);
	const dropping = (what) => ask(`Drop ${what}?`, 'It will never be answered. This can’t be undone.', 'Drop', true);

	async function all(verb, done) {
		const each = [...shown];
		if (verb === 'drop' && !await dropping(count(each.length, 'message'))) return;
		const refused = [];
		for (const message of each) await does(message, verb).catch((error) => refused.push(error.message));
		await frame.look();
		toast(`${done}: ${each.length - refused.length}.`);
		if (refused.length) toast(`Refused: ${refused.length}. ${refused[0]}`, true);
	}
	function controls(read) {
		const one = (words, verb, done, kind = '') => ({
			node: deed(words, async () => {
				if (verb === 'drop' && !await dropping('this message')) return;
				await does(read(), verb);
				toast(done);
				await frame.look();
			}, '', kind),
			when: () => app.may('steer'),
		});
		return [
			one('Requeue', 'requeue', 'It is back in its queue.'),
			one('Replay', 'replay', 'It runs once more, as a new message.'),
			one('Drop', 'drop', 'Dropped.', 'danger'),
		];
	}

	const together = h('div.actions', { hidden: true },
		deed('Requeue all shown', () => all('requeue', 'Back in the queue')),
		deed('Drop all shown', () => all('drop', 'Dropped'), '', 'danger'));
	const frame = board(view, {
		title: 'Dead letters',
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
			return found.length > 0 && `${count(found.length, 'message')}${more ? ' shown, and more' : ''}`;
		},
	});
	const draw = keyed(list, (message) => message.id, (message) => itemOf(message, controls));
	frame.body.append(together, list, nothing, further);
	return frame.end;
}
