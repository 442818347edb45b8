// Messages that were given up: why, and what to do with each or with all that are shown.

import { post } from './api.js';
import { ask, h, toast } from './dom.js';
import { itemOf, listed } from './items.js';
import { agentChoice, board, count, deed, keyed, place } from './viewing.js';

export async function dead(view, route, app) {
  let agent = route.params.get('agent') ?? '';
  let pages = 1;
  let shown = [];
  const list = h('ul', { class: 'items' });
  const nothing = h('p', { class: 'empty', hidden: true }, 'No dead letters. What can’t be answered after several attempts would be kept here.');
  const further = deed('More', () => { pages += 1; return frame.look(true); });
  further.hidden = true;

  const url = (message, verb) => (verb === 'replay' ? `/messages/${message.id}/replay` : `/dead/${message.id}/${verb}`);
  const dropping = (what) => ask(`Drop ${what}?`, h('p', {}, 'It will never be answered. This can’t be undone.'), 'Drop', true);

  async function all(verb, done) {
    const each = [...shown];
    if (verb === 'drop' && !await dropping(count(each.length, 'message'))) return;
    const refused = [];
    for (const message of each) {
      await post(url(message, verb)).catch((error) => refused.push(error.message));
    }
    await frame.look();
    toast(`${done}: ${each.length - refused.length}.`);
    if (refused.length) toast(`Refused: ${refused.length}. ${refused[0]}`, true);
  }
  function controls(read) {
    const one = (words, verb, done, kind = 'quiet') => deed(words, async () => {
      if (verb === 'drop' && !await dropping('this message')) return;
      await post(url(read(), verb));
      toast(done);
      await frame.look();
    }, { kind });
    const always = () => app.may('steer');
    return [
      { node: one('Requeue', 'requeue', 'It is back in its queue.', ''), when: always },
      { node: one('Replay', 'replay', 'It runs once more, as a new message.'), when: always },
      { node: one('Drop', 'drop', 'Dropped.', 'quiet danger'), when: always },
    ];
  }

  const together = h('div', { class: 'actions', hidden: true },
    deed('Requeue all shown', () => all('requeue', 'Back in the queue')),
    deed('Drop all shown', () => all('drop', 'Dropped'), { kind: 'danger' }));
  const frame = board(view, {
    title: 'Dead letters',
    tools: [agentChoice(app, agent, (value) => {
      agent = value;
      pages = 1;
      app.note(place('dead', { agent }));
      frame.look(true);
    })],
    kinds: ['message.'],
    load: () => listed('/dead', { agent }, pages),
    show({ found, more }) {
      shown = found;
      draw(found);
      nothing.hidden = found.length > 0;
      together.hidden = found.length < 2 || !app.may('steer');
      further.hidden = !more;
      return found.length ? `${count(found.length, 'message')}${more ? ' shown, and more' : ''}` : '';
    },
  });
  const draw = keyed(list, (message) => message.id, (message) => itemOf(message, controls));
  frame.body.append(together, list, nothing, further);
  return frame.end;
}
