// The queue and what runs; what has ended on demand.

import { act, get, post, query } from './api.js';
import { ask, h, t } from './dom.js';
import { isOpen, itemOf, listed } from './items.js';
import { agentChoice, board, choice, count, action, keyed } from './viewing.js';

const SHOWS = [['', t`Open`], ['done', t`Done`], ['dead', t`Given up`], ['cancelled', t`Cancelled`], ['all', t`Everything`]];
const PRIORITIES = ['critical', 'high', 'normal', 'low'].map((each) => [each, t([each])]);
const TOP = { leased: t`running`, parked: t`with a question`, queued: t`waiting` };
/** Of so many that wait the position is asked. */
const POSITIONS = 16;

async function openOnes(agent, pages) {
	const lists = await Promise.all(Object.keys(TOP).map((state) => listed('/messages', { agent, state }, pages)));
	await Promise.all(lists[2].found.slice(-POSITIONS).map(async (message) => {
		const { position, eta_s } = await get(`/messages/${message.id}`).catch(() => ({}));
		Object.assign(message, { position: position ?? undefined, eta_s });
	}));
	return { found: lists.flatMap((list) => list.found), more: lists.some((list) => list.more) };
}

export async function work(view, { params }, app) {
	let agent = params.get('agent') ?? '';
	let shows = params.get('show') ?? '';
	let pages = 1;
	const list = h('ul.items');
	const nothing = h('p.empty', { hidden: true });
	const further = action(t`More`, () => { pages += 1; return frame.look(true); });
	further.hidden = true;

	function chosen() {
		pages = 1;
		app.note(query('#/work', { agent, show: shows }));
		frame.look(true);
	}
	function controls(read) {
		const does = async (verb, body) => {
			await post(`/messages/${read().id}/${verb}`, body);
			await frame.look();
		};
		const cancel = action(t`Cancel`, async () => {
			const isLeft = read().state === 'leased' && !await ask(t`Cancel this?`, t`It is being answered; the answer will be broken off.`, t`Cancel it`, true);
			if (!isLeft) await does('cancel');
		});
		const level = choice(t`Priority`, PRIORITIES, read().priority, (priority, select) => act(select, () => does('reprioritize', { priority })));
		const again = action(t`Replay`, () => does('replay'), t`It runs once more, as a new message.`);
		const steers = app.may('steer');
		return [
			{ node: cancel, when: (message) => isOpen(message) && app.may('talk') && !message.private },
			{
				node: level,
				when(message) {
					const select = level.querySelector('select');
					if (document.activeElement !== select) select.value = message.priority;
					return message.state === 'queued' && steers;
				},
			},
			{ node: again, when: (message) => !isOpen(message) && steers },
		];
	}

	const frame = board(view, {
		title: t`Work`,
		tools: [
			agentChoice(app, agent, (value) => { agent = value; chosen(); }),
			choice(t`Show`, SHOWS, shows, (value) => { shows = value; chosen(); }),
		],
		kinds: ['message.', 'chat.', 'question.', 'stop.'],
		load: () => (shows ? listed('/messages', { agent, state: shows === 'all' ? '' : shows }, pages) : openOnes(agent, pages)),
		show({ found, more }) {
			draw(found);
			nothing.textContent = shows ? t`Nothing here.` : t`Nothing runs and nothing waits.`;
			nothing.hidden = found.length > 0;
			further.hidden = !more;
			if (shows) return found.length > 0 && t`${count(found.length, t`message`, t`messages`)}, newest first`;
			const of = (state) => found.filter((each) => each.state === state).length;
			return Object.entries(TOP).filter(([state]) => of(state)).map(([state, words]) => `${of(state)} ${words}`).join(' · ');
		},
	});
	const draw = keyed(list, (message) => message.id, (message) => itemOf(message, controls));
	frame.body.append(list, nothing, further);
	return frame.end;
}
