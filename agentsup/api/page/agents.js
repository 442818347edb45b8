// Every agent: what state it is in and why, what it works on, and how it is started and stopped.

import { get, post } from './api.js';
import { ask, h, toast } from './dom.js';
import { board, count, deed, facts, fromNow, keyed, place, redraw, say, scrolling } from './viewing.js';

const STATES = {
  running: 'running', starting: 'starting', degraded: 'running with trouble', stopping: 'stopping',
  backoff: 'waits before it tries again', failed: 'given up', stopped: 'stopped',
};
const isUp = (agent) => agent.status === 'running' || agent.status === 'degraded';

function stateLine(agent) {
  const since = isUp(agent) && agent.uptime !== null ? Date.now() - agent.uptime * 1000 : 0;
  return [
    h('strong', {}, STATES[agent.status] ?? agent.status),
    since && [' ', fromNow(since, 'for')],
    agent.next_retry_at && [', tries again ', fromNow(agent.next_retry_at, 'in')],
    agent.restarts > 0 && ` · ${count(agent.restarts, 'restart')}`,
  ].flat();
}

function workLine(agent) {
  const parts = [
    agent.running && `${agent.running} running${agent.work.length ? ` (${agent.work.join(', ')})` : ''}`,
    agent.queued && `${agent.queued} waiting`,
    agent.parked && `${count(agent.parked, 'open question')}`,
  ].filter(Boolean);
  return parts.join(' · ') || 'nothing to do';
}

async function stop(agent) {
  const running = agent.running ? `${count(agent.running, 'turn')} under way may end first, but not for long. ` : '';
  const waiting = agent.queued ? `${count(agent.queued, 'message')} that ${agent.queued === 1 ? 'waits' : 'wait'} will be kept. ` : '';
  const body = h('p', {}, `${running}${waiting}It stays stopped until it is started again.`);
  if (!await ask(`Stop ${agent.name}?`, body, 'Stop it', true)) return;
  await post(`/agents/${encodeURIComponent(agent.name)}/stop`);
  toast(`${agent.name} is stopped.`);
}

async function values(name) {
  const { values: all } = await get(`/agents/${encodeURIComponent(name)}/explain`);
  const rows = h('tbody');
  const only = h('input', { type: 'checkbox', checked: true, onchange: () => draw() });
  const words = (value) => (value === null ? '–' : typeof value === 'string' ? value : JSON.stringify(value));
  function draw() {
    const shown = all.filter((each) => !only.checked || each.origin !== 'built-in');
    rows.replaceChildren(...shown.map((each) => h('tr', {},
      h('th', { scope: 'row' }, each.field), h('td', {}, words(each.value)), h('td', { class: 'soft' }, each.origin))));
  }
  draw();
  const heads = ['Setting', 'Value', 'From'].map((each) => h('th', { scope: 'col' }, each));
  await ask(`Settings of ${name}`, h('div', {},
    h('label', { class: 'check' }, only, 'Only what is set in a file or from chat'),
    scrolling('Settings', h('table', {}, h('thead', {}, h('tr', {}, heads)), rows))), '');
}

function card(first, app, look) {
  let now = first;
  const url = (verb) => `/agents/${encodeURIComponent(now.name)}/${verb}`;
  const id = `agent-${first.agent_id}`;
  const dot = h('span', { class: 'dot' });
  const state = h('p', {});
  const told = h('div', {});
  const notes = h('ul', { class: 'notes' });
  const work = h('p', {}, h('a', { href: place('work', { agent: first.name }) }));
  const start = deed('Start', async () => { await post(url('start')); look(); });
  const halt = deed('Stop', async () => { await stop(now); look(); });
  const restart = deed('Restart', async () => { await post(url('restart')); look(); });
  const explain = deed('Settings', () => values(now.name));
  const steers = app.may('steer');
  const node = h('article', { class: 'card agent', 'aria-labelledby': id, data: { row: first.agent_id } },
    h('h2', { id }, dot, h('span', {}, first.name)), state, told, work, notes,
    h('div', { class: 'actions' },
      h('a', { class: 'button', href: place('chat', first.name) }, 'Chat'),
      steers && [h('a', { class: 'button', href: place('log', first.name) }, 'Log'), explain, start, restart, halt]));

  function show(agent) {
    now = agent;
    dot.className = `dot ${agent.status}`;
    // The uptime goes on by itself; only a new life is drawn.
    redraw(state, [agent.status, agent.instance_id, agent.next_retry_at, agent.restarts], () => stateLine(agent));
    redraw(told, [agent.role, agent.engine, agent.model, agent.is_main], () => [
      agent.role && h('p', {}, agent.role),
      facts([['Engine', agent.engine], ['Model', agent.model], ['Main agent', agent.is_main ? 'yes' : '']]),
    ]);
    say(work.firstChild, workLine(agent));
    const why = agent.last_reason || agent.last_crash_error;
    redraw(notes, [why, agent.last_crash_error, agent.warnings, agent.pending, agent.status], () => [
      agent.pending && h('li', { class: 'warn' }, `Edit pending: ${agent.pending}`),
      why && h('li', { class: isUp(agent) ? 'soft' : 'bad' }, isUp(agent) ? `Before: ${why}` : why),
      agent.last_crash_error && agent.last_crash_error !== why && h('li', { class: 'soft' }, agent.last_crash_error),
      ...agent.warnings.map((each) => h('li', { class: 'warn' }, each)),
    ]);
    const rests = ['stopped', 'failed', 'backoff'].includes(agent.status);
    start.hidden = !rests;
    say(start, agent.status === 'backoff' ? 'Try now' : 'Start');
    start.hidden = !rests;
    restart.hidden = rests;
    halt.hidden = agent.is_main || agent.status === 'stopped';
  }
  return { node, show };
}

function edits(diff) {
  const list = (title, lines, kind = '') => lines.length > 0 && h('section', { class: kind },
    h('h3', {}, title), h('ul', {}, lines.map((each) => h('li', {}, each))));
  const parts = [
    diff.config_error && h('p', { class: 'bad' }, `The files are not taken: ${diff.config_error}`),
    list('Taken at the next chance', diff.pending),
    list('Taken when the daemon is started again', diff.process),
    list('Set from chat, over the files', diff.overrides),
  ].filter(Boolean);
  return parts.length ? [h('h2', {}, 'Edits'), ...parts] : [];
}

export async function agents(view, route, app) {
  const steers = app.may('steer');
  const edited = h('section', { class: 'card edits', hidden: true });
  const cards = h('div', { class: 'cards' });
  const frame = board(view, {
    title: 'Agents',
    kinds: ['agent.', 'config.', 'message.', 'chat.in', 'question.', 'stop.', 'daemon.'],
    load: () => Promise.all([get('/agents'), steers ? get('/diff') : null]),
    show([{ agents: all }, diff]) {
      draw(all);
      if (diff) redraw(edited, diff, () => edits(diff));
      return `${all.filter(isUp).length} of ${count(all.length, 'agent')} up`;
    },
  });
  const draw = keyed(cards, (agent) => agent.agent_id, (agent) => card(agent, app, frame.look));
  frame.body.append(edited, cards);
  return frame.end;
}
