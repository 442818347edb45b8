// What agents ask and wait for; on demand, what became of it.

import { get, post, query } from './api.js';
import { h, timeOf } from './dom.js';
import { badge, board, count, deed, fromNow, keyed, place, redraw } from './viewing.js';

const CLOSED = ['answered', 'expired', 'cancelled'];
const MOST_CLOSED = 100;

function head(question) {
  return [
    h('strong', {}, question.agent),
    question.kind === 'uncertain' && badge('parked', 'not known whether it happened'),
    h('span', {}, ['asked ', fromNow(question.asked_at)]),
    question.state === 'open' && question.deadline_at && h('span', { class: 'warn' }, ['ends ', fromNow(question.deadline_at, 'in')]),
  ];
}

function openRow(first, app, look) {
  const top = h('p', { class: 'item-head' });
  const send = (answer) => post(`/questions/${encodeURIComponent(first.id)}/answer`, { answer });
  const answer = async (text) => {
    await send(text).finally(look);
  };
  const id = `answer-${first.id}`;
  const node = h('li', { class: 'item card', data: { row: first.id } }, top, h('p', { class: 'words question' }, first.text));
  if (!app.may('talk')) node.append(h('p', { class: 'soft' }, 'You may look, not answer.'));
  else if (first.options.length) {
    node.append(h('div', { class: 'actions', role: 'group', 'aria-label': 'Answers' },
      first.options.map((option) => deed(option, () => answer(option), { done: 'Answered.' }))));
  } else {
    const text = h('input', { id, type: 'text', autocomplete: 'off', required: true });
    const button = deed('Answer', () => answer(text.value), { done: 'Answered.', kind: 'primary' });
    button.addEventListener('click', (event) => {
      if (text.value.trim()) return;
      event.stopImmediatePropagation();
      text.focus();
    }, { capture: true });
    const form = h('form', { class: 'answer', onsubmit: (event) => { event.preventDefault(); button.click(); } },
      h('label', { for: id, class: 'unseen' }, 'Your answer'), text, button);
    node.append(form);
  }
  return { node, show: (question) => redraw(top, [question.deadline_at, question.agent], () => head(question)) };
}

const ENDS = { answered: 'answered', expired: 'nobody answered in time', cancelled: 'cancelled' };

function closedRow(first) {
  const top = h('p', { class: 'item-head' });
  const end = h('p', {});
  const node = h('li', { class: 'item', data: { row: first.id } }, top, h('p', { class: 'words' }, first.text), end);
  return {
    node,
    show(question) {
      redraw(top, question.state, () => [badge(question.state, ENDS[question.state]), ...head(question)]);
      redraw(end, [question.answer, question.answered_at], () => (question.state === 'answered'
        ? [h('strong', {}, question.answer), h('span', { class: 'soft' }, ` by ${question.answered_by || 'somebody'}, `, timeOf(question.answered_at))] : []));
    },
  };
}

export async function questions(view, route, app) {
  const open = h('ul', { class: 'items' });
  const nothing = h('p', { class: 'empty', hidden: true }, 'No agent has a question.');
  const closed = h('ul', { class: 'items' });
  const none = h('p', { class: 'empty', hidden: true }, 'None yet.');
  const earlier = h('details', { class: 'earlier', open: route.params.has('closed'), ontoggle: () => {
    app.note(place('questions', { closed: earlier.open ? '1' : '' }));
    if (earlier.open) frame.look(true);
  } }, h('summary', {}, 'Closed questions'), closed, none);
  const fetched = async (state, limit) => (await get(query('/questions', { state, limit }))).questions;

  const frame = board(view, {
    title: 'Questions',
    kinds: ['question.', 'message.', 'stop.'],
    load: async () => {
      const lists = await Promise.all(['open', ...(earlier.open ? CLOSED : [])].map((state) => fetched(state, MOST_CLOSED)));
      return lists;
    },
    show([asked, ...ended]) {
      drawOpen(asked);
      nothing.hidden = asked.length > 0;
      if (ended.length) {
        const all = ended.flat().sort((one, other) => other.asked_at - one.asked_at).slice(0, MOST_CLOSED);
        drawClosed(all);
        none.hidden = all.length > 0;
      }
      return asked.length ? `${count(asked.length, 'open question')}` : '';
    },
  });
  const drawOpen = keyed(open, (question) => question.id, (question) => openRow(question, app, () => frame.look()));
  const drawClosed = keyed(closed, (question) => question.id, closedRow);
  frame.body.append(open, nothing, earlier);
  return frame.end;
}
