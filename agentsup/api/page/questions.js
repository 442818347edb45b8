// What agents ask; on demand, what became of it.

import { get, post, query } from './api.js';
import { h, soft, t, timeOf } from './dom.js';
import { board, count, deed, fromNow, keyed, redraw, tag } from './viewing.js';

const ENDS = { answered: t`answered`, expired: t`nobody answered in time`, cancelled: t`cancelled` };
const MOST = 100;

const head = ({ agent, kind, state, asked_at: asked, deadline_at: deadline }) => [
	state !== 'open' && tag(state, ENDS[state]),
	h('strong', agent),
	kind === 'uncertain' && tag('parked', t`not known whether it happened`),
	h('span', t`asked `, fromNow(asked)),
	state === 'open' && deadline && h('span.warn', t`ends `, fromNow(deadline, 'in')),
];

function openRow({ id, text: asked, options }, look) {
	const top = h('p.top-line');
	const answer = (text) => post(`/questions/${encodeURIComponent(id)}/answer`, { answer: text }).finally(look);
	const done = t`Answered.`;
	const node = h('li.item', top, h('p.words', asked));
	if (options.length) {
		node.append(h('div.actions', { role: 'group', 'aria-label': t`Answers` },
			options.map((option) => deed(option, () => answer(option), done))));
	} else {
		const text = h('input', { id: `answer-${id}`, autocomplete: 'off', required: true });
		const button = deed(t`Answer`, () => answer(text.value), done, 'primary');
		const send = (event) => {
			event.preventDefault();
			if (text.value.trim()) button.click();
		};
		node.append(h('form.answer', { onsubmit: send }, h('label', { for: text.id, class: 'unseen' }, t`Your answer`), text, button));
	}
	return { node, show: (question) => redraw(top, question, () => head(question)) };
}

function closedRow({ text }) {
	const top = h('p.top-line');
	const end = h('p');
	return {
		node: h('li.item', top, h('p.words', text), end),
		show(question) {
			redraw(top, question, () => head(question));
			redraw(end, question, () => question.state === 'answered' && [
				h('strong', question.answer), soft(t` by ${question.answered_by || t`somebody`}, `, timeOf(question.answered_at))]);
		},
	};
}

export async function questions(view) {
	const open = h('ul.items');
	const nothing = h('p.empty', { hidden: true }, t`No agent has a question.`);
	const closed = h('ul.items');
	const earlier = h('details', { ontoggle: () => frame.look(true) }, h('summary', t`Closed questions`), closed);
	const fetched = async (state) => (await get(query('/questions', { state, limit: MOST }))).questions;
	const frame = board(view, {
		title: t`Questions`,
		kinds: ['question.', 'message.', 'stop.'],
		load: () => Promise.all(['open', ...(earlier.open ? Object.keys(ENDS) : [])].map(fetched)),
		show([asked, ...ended]) {
			drawOpen(asked);
			nothing.hidden = asked.length > 0;
			if (ended.length) drawClosed(ended.flat().sort((one, other) => other.asked_at - one.asked_at).slice(0, MOST));
			return asked.length > 0 && count(asked.length, t`open question`, t`open questions`);
		},
	});
	const drawOpen = keyed(open, ({ id }) => id, (question) => openRow(question, () => frame.look()));
	const drawClosed = keyed(closed, ({ id }) => id, closedRow);
	frame.body.append(open, nothing, earlier);
	return frame.end;
}
