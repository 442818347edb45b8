// The chat: whom one talks to, what was said, and where one writes.

import { act, changes, get, post, query } from './api.js';
import { Composer } from './compose.js';
import { ask, closeDialog, fill, h, timeOf, toast } from './dom.js';
import { keep, kept } from './kept.js';
import { ChatSocket } from './socket.js';
import { Talk } from './talk.js';

const HEARD_CHARS = 400;
const isFine = matchMedia('(pointer: fine)');
const path = (agent, conversation) => ['#/chat', agent, conversation].filter(Boolean).map((part, at) => (at ? encodeURIComponent(part) : part)).join('/');

/** The view. One conversation is open at a time; the list of agents stays. */
export async function chat(view, route, app) {
  const unread = new Map(Object.entries(kept('tab', 'unread', {})));
  const rows = new Map();
  const list = h('ul', { class: 'agents' });
  const pick = h('select', { 'aria-label': 'Agent', onchange: () => app.go(path(pick.value)) });
  const title = h('h1', {});
  const state = h('p', { class: 'soft' });
  const sessions = h('button', { type: 'button', onclick: () => showSessions() }, 'Sessions');
  const heard = h('div', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
  const place = h('div', { class: 'place' });
  view.replaceChildren(
    h('nav', { class: 'side', 'aria-label': 'Agents' }, list),
    h('section', { class: 'talk', 'aria-label': 'Chat' },
      h('header', { class: 'head' }, h('div', { class: 'whom' }, title, pick, state), sessions), place, heard),
  );
  let open = null;

  // -- the agents -----------------------------------------------------------------------------------

  function showAgents(agents) {
    const known = agents.length ? agents : app.session.agents.map((name) => ({ name, status: '' }));
    fill(list, known.map((agent) => row(agent).li));
    for (const name of rows.keys()) if (!known.some((agent) => agent.name === name)) rows.delete(name);
    const names = known.map(({ name }) => name);
    if (names.join() !== [...pick.options].map((option) => option.value).join()) pick.replaceChildren(...names.map((name) => h('option', { value: name }, name)));
    for (const option of pick.options) {
      const count = unread.get(option.value);
      const words = count ? `${option.value} (${count} new)` : option.value;
      if (option.textContent !== words) option.textContent = words;
    }
    if (open) {
      pick.value = open.agent;
      const agent = known.find(({ name }) => name === open.agent);
      state.replaceChildren(h('span', { class: `dot ${agent?.status ?? ''}` }), ' ', open.problem || told(agent));
    }
  }

  function told(agent) {
    if (!agent?.status) return '';
    const waits = agent.queued ? `, ${agent.queued} waiting` : '';
    const reason = ['running', 'starting'].includes(agent.status) || !agent.last_reason ? '' : `: ${agent.last_reason}`;
    return `${agent.running ? 'at work' : agent.status === 'running' ? 'ready' : agent.status}${waits}${reason}`;
  }

  function row(agent) {
    let held = rows.get(agent.name);
    if (!held) {
      const [dot, status, count] = [h('span', {}), h('span', { class: 'unseen' }), h('span', { class: 'count' })];
      const link = h('a', { href: path(agent.name) }, dot, h('span', { class: 'name' }, agent.name), status, count);
      held = { li: h('li', {}, link), link, dot, status, count };
      rows.set(agent.name, held);
    }
    held.dot.className = `dot ${agent.status}${agent.running ? ' busy' : ''}`;
    const words = `, ${agent.running ? 'at work' : agent.status}`;
    if (held.status.textContent !== words) held.status.textContent = words;
    const news = unread.get(agent.name) ?? 0;
    held.count.hidden = !news;
    const counted = String(news);
    if (held.count.textContent !== counted) held.count.textContent = counted;
    held.count.title = `${news} new`;
    if (open?.agent === agent.name) held.link.setAttribute('aria-current', 'page');
    else held.link.removeAttribute('aria-current');
    return held;
  }

  function countNews(agent, more) {
    if (more) unread.set(agent, (unread.get(agent) ?? 0) + more);
    else unread.delete(agent);
    keep('tab', 'unread', Object.fromEntries(unread));
    app.unread([...unread.values()].reduce((sum, each) => sum + each, 0));
    showAgents(app.agents());
  }

  /** An answer was given somewhere: it is news unless one looks at it. */
  function onEvent({ type, agent, conversation, data }) {
    if (type !== 'chat.out' || conversation !== `web:${app.session.conversation}`) return;
    if (data.kind === 'echo' || (open?.agent === agent && !document.hidden)) return;
    countNews(agent, 1);
  }

  const seen = () => { if (!document.hidden && open && unread.has(open.agent)) countNews(open.agent, 0); };

  // -- one conversation -----------------------------------------------------------------------------

  function enter(agent, conversation) {
    open?.close();
    title.textContent = agent;
    const isOwn = conversation === app.session.conversation;
    if (!isOwn) title.append(' ', h('small', { class: 'soft' }, conversation));
    app.titled(agent);
    const say = (text, files, id) => {
      talk.pending(socket.say(text, files, id), work);
      talk.toEnd();
    };
    const talk = new Talk({
      app, agent, conversation,
      onHeard: (text) => { heard.textContent = text.length > HEARD_CHARS ? `${text.slice(0, HEARD_CHARS)}…` : text; },
      onRunning: (id) => { running = id; composer.stop.hidden = !id || !app.may('talk'); },
      onSaid: (text, id) => say(text, [], id),
    });
    let running = '';
    const composer = new Composer({
      app, agent, conversation, onSay: say,
      onStop: (button) => act(button, () => post(`/messages/${running}/cancel`)),
    });
    const socket = new ChatSocket({
      agent, conversation,
      onFrame: (frame) => {
        if (frame.type === 'welcome') composer.offers(frame.commands ?? []);
        talk.take(frame);
      },
      onLink: (isUp, problem) => {
        app.link('chat', isUp || Boolean(problem));
        open.problem = problem;
        showAgents(app.agents());
      },
      onUnsent: (said) => talk.pending(said, work),
    });
    const work = {
      again: (said) => socket.again(said),
      edit: (said) => { socket.discard(said.id); composer.put(said); },
    };
    const mayTalk = app.may('talk');
    place.replaceChildren(talk.log, talk.down, mayTalk ? composer.form : h('p', { class: 'composer soft' }, 'You may look, but not write.'));
    place.ondragover = (event) => {
      if (!mayTalk || !event.dataTransfer.types.includes('Files')) return;
      event.preventDefault();
      place.classList.add('drop');
    };
    place.ondragleave = (event) => { if (!place.contains(event.relatedTarget)) place.classList.remove('drop'); };
    place.ondrop = (event) => {
      place.classList.remove('drop');
      if (!mayTalk || !event.dataTransfer.files.length) return;
      event.preventDefault();
      composer.add([...event.dataTransfer.files]);
    };
    const stop = changes.listen((kinds) => {
      if ([...kinds].some((kind) => kind.startsWith('message.') || ['gap', 'stop.applied', 'chat.in'].includes(kind))) talk.follow();
    });
    open = {
      agent, conversation, composer, problem: '',
      close: () => { stop(); socket.close(); talk.close(); },
    };
    for (const said of socket.unsent) talk.pending(said, work);
    countNews(agent, 0);
    keep('browser', 'agent', agent);
  }

  // -- sessions -------------------------------------------------------------------------------------

  async function showSessions() {
    const where = { agent: open.agent, conversation: open.conversation };
    const body = h('div', { class: 'sessions' }, h('p', { class: 'soft' }, 'Loading…'));
    const done = ask(`Sessions of ${where.agent}`, body);
    const change = (button, url, fields, words) => act(button, async () => {
      await post(url, { ...where, ...fields });
      closeDialog();
      toast(words);
    });
    try {
      const { sessions: found } = await get(query('/web/sessions', where));
      const items = found.map((each) => {
        const name = each.title || (each.key.startsWith('chat:') ? `Chat in ${each.key.slice(5)}` : each.key);
        const go = h('button', { type: 'button', onclick: () => change(go, '/web/sessions/switch', { session: each.id }, `You go on with “${name}”.`), 'aria-label': `Switch to ${name}` }, 'Switch');
        return h('li', {}, h('div', {}, h('b', {}, name), h('p', { class: 'soft' }, timeOf(each.updated_at), ` · ${each.id.slice(-6)}`)),
          each.is_current ? h('span', { class: 'tag' }, 'current') : app.may('talk') && go);
      });
      const name = h('input', { 'aria-label': 'Name of the new session', placeholder: 'Name (may be left out)', maxlength: '100' });
      const begin = h('button', { class: 'primary', type: 'button', onclick: () => change(begin, '/web/sessions', name.value.trim() ? { title: name.value.trim() } : {}, 'A new session has begun. The agent remembers nothing of the earlier ones.') }, 'New session');
      body.replaceChildren(
        h('p', { class: 'soft' }, 'A session is what the agent remembers of a conversation.'),
        items.length ? h('ul', { class: 'plain' }, items) : h('p', {}, 'There is none yet; the first message begins one.'),
        app.may('talk') ? h('p', { class: 'row' }, name, begin) : '',
      );
    } catch (error) {
      body.replaceChildren(h('p', { role: 'alert' }, error.message));
    }
    await done;
  }

  // -- the address ----------------------------------------------------------------------------------

  function moved({ parts }) {
    const names = app.session.agents.concat(app.agents().map(({ name }) => name));
    const last = kept('browser', 'agent', '');
    const agent = parts[0] ?? (names.includes(last) ? last : names[0]);
    const conversation = parts[1] ?? app.session.conversation;
    if (!agent) {
      title.textContent = 'Chat';
      place.replaceChildren(h('p', { class: 'empty' }, 'There is no agent yet. Add one to agents.json.'));
    } else if (agent !== open?.agent || conversation !== open.conversation) {
      enter(agent, conversation);
      if (isFine.matches && app.may('talk')) open.composer.focus();
    }
    return true;
  }

  const ends = [app.onAgents(showAgents), changes.onEvent(onEvent)];
  document.addEventListener('visibilitychange', seen);
  moved(route);
  showAgents(app.agents());
  const dispose = () => {
    for (const end of ends) end();
    document.removeEventListener('visibilitychange', seen);
    open?.close();
  };
  dispose.moved = moved;
  return dispose;
}
