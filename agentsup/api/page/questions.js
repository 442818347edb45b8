// What agents ask; on demand, what became of it.

import { get, query } from './api.js';
import { h, t } from './dom.js';
import { Question } from './entries.js';
import { board, count, fromNow, keyed, redraw, tag } from './viewing.js';

const ENDS = ['answered', 'expired', 'cancelled'];
const MOST = 100;

const head = ({ agent, kind, state, asked_at: asked, deadline_at: deadline }) => [
	h('strong', agent),
	kind === 'uncertain' && tag('parked', t`not known whether it happened`),
	h('span', t`asked `, fromNow(asked)),
	state === 'open' && deadline && h('span.warn', t`ends `, fromNow(deadline, 'in')),
];

function rowOf(app, first) {
	const top = h('p.top-line');
	const question = new Question(app, { ...first, deadline_at: null });
	return {
		node: h('li.item', top, question.card),
		show(now) {
			redraw(top, now, () => head(now));
			const { state, answer_label: answer, answered_by: by } = now;
			if (state !== 'open') question.close({ state, answer, by });
		},
	};
}

export async function questions(view, route, app) {
	const open = h('ul.items');
	const nothing = h('p.empty', { hidden: true }, t`No agent has a question.`);
	const closed = h('ul.items');
	const earlier = h('details', { ontoggle: () => frame.look(true) }, h('summary', t`Closed questions`), closed);
	const fetched = async (state) => (await get(query('/questions', { state, limit: MOST }))).questions;
	const frame = board(view, {
		title: t`Questions`,
		kinds: ['question.', 'message.', 'stop.'],
		load: () => Promise.all(['open', ...(earlier.open ? ENDS : [])].map(fetched)),
		show([asked, ...ended]) {
			drawOpen(asked);
			nothing.hidden = asked.length > 0;
			if (ended.length) drawClosed(ended.flat().sort((one, other) => other.asked_at - one.asked_at).slice(0, MOST));
			return asked.length > 0 && count(asked.length, t`open question`, t`open questions`);
		},
	});
	const rows = (list) => keyed(list, ({ id }) => id, (question) => rowOf(app, question));
	const [drawOpen, drawClosed] = [rows(open), rows(closed)];
	frame.body.append(open, nothing, earlier);
	return frame.end;
}
