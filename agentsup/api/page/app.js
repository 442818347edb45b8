// The page's frame: signing in, the views and how one moves between them, what stands above them.

import { act, ApiError, changes, get, onSignedOut, post } from './api.js';
import { ask, by, closeDialog, fill, h, icon, timeOf, toast } from './dom.js';
import { forget, ownedBy } from './kept.js';

const VIEWS = [
  { name: 'chat', label: 'Chat', file: './chat.js' },
  { name: 'agents', label: 'Agents', file: './agents.js' },
  { name: 'work', label: 'Work', file: './work.js' },
  { name: 'questions', label: 'Questions', file: './questions.js' },
  { name: 'dead', label: 'Dead letters', file: './dead.js' },
  { name: 'figures', label: 'Figures', file: './figures.js' },
  { name: 'log', label: 'Log', file: './log.js', may: 'steer', isAside: true },
];

/** What a view is given. See `show` for what it gives back. */
const app = {
  session: null,
  may: (word) => app.session?.may.includes(word) ?? false,
  /** Go to another place of the page; `note` only writes it into the address (a filter). */
  go: (hash) => { location.hash = hash; },
  note: (hash) => { history.replaceState(null, '', hash); current.hash = location.hash; },
  /** The latest list of `/agents`, and word of each newer one; returns how to end it. */
  agents: () => agents,
  onAgents: (told) => { listeners.add(told); return () => listeners.delete(told); },
  /** Above the title of the tab: how much is unread. */
  unread: (count) => { unread = count; nameTab(); },
  /** The page's own opinion of the connection, where a view knows better. */
  link: (part, isUp) => { links.set(part, isUp); showLink(); },
};

let agents = [];
let status = null;
let unread = 0;
let heading = '';
let shown = 0;
const listeners = new Set();
const links = new Map();
const current = { name: '', hash: '', dispose: null };

// -- signing in -----------------------------------------------------------------------------------

/** The one-time code of the address, which is removed from it at once. */
function takeCode() {
  const found = /^#code=(.+)$/.exec(location.hash);
  if (!found) return '';
  history.replaceState(null, '', location.pathname);
  return decodeURIComponent(found[1]);
}

async function start() {
  const code = takeCode();
  if (code) {
    await signIn({ code });
    return;
  }
  try {
    enter(await get('/web/session', { quiet: true }));
  } catch (error) {
    if (error.status === 401) showSignIn('');
    else showSignIn(`${error.message} Reload the page to try again.`);
  }
}

async function signIn(how) {
  try {
    enter(await post('/web/login', how, { quiet: true }));
  } catch (error) {
    if (how.code && error.code === 'login_failed') {
      // Perhaps somebody signed in already opened an old link.
      const session = await get('/web/session', { quiet: true }).catch(() => null);
      if (session) {
        enter(session);
        toast('This link was used before or has expired. You are signed in already.');
        return;
      }
      showSignIn('This link was used before or has expired. A link works once, for ten minutes. Run “agentsup link” where the daemon runs and open the new one, or sign in with the token.');
    } else if (error.code === 'login_failed') showSignIn('This is not the operator’s token. Look into the file api.token of the daemon’s home.');
    else showSignIn(error.message);
  }
}

function showSignIn(why) {
  leave();
  app.session = null;
  by('shell').hidden = true;
  by('sign-in').hidden = false;
  by('sign-in-why').textContent = why;
  by('token').value = '';
  by('token').focus();
  document.title = 'Sign in · agentsup';
}

/** The daemon no longer knows us. What was typed stays for when we are back. */
function signedOut() {
  if (!app.session) return;
  showSignIn('You were signed out: the session ended. Sign in again; what you had typed is kept.');
}

function leave() {
  changes.stop();
  if (by('ask').open) closeDialog();
  current.dispose?.();
  Object.assign(current, { name: '', hash: '', dispose: null });
  links.clear();
  by('view').replaceChildren();
}

function enter(session) {
  app.session = session;
  ownedBy(session);
  by('sign-in').hidden = true;
  by('shell').hidden = false;
  by('who').textContent = session.who;
  by('version').textContent = `agentsup ${session.version}, signed in as ${session.role}`;
  by('stop-all').hidden = !app.may('steer');
  by('new-link').hidden = !session.is_operator;
  fill(by('views'), VIEWS.filter((each) => !each.isAside).map(navItem));
  changes.start();
  changes.listen(onChange);
  look(new Set(['gap']));
  show(false);
}

// -- moving between views -------------------------------------------------------------------------

function navItem({ name, label }) {
  return h('li', {}, h('a', { href: `#/${name}`, data: { view: name } }, icon(name), h('span', {}, label.split(' ')[0], h('i', {}, label.slice(label.split(' ')[0].length))),
    name === 'questions' && h('span', { class: 'count', id: 'open-questions', hidden: true })));
}

/** `#/work/main?state=dead` as `{name: 'work', parts: ['main'], params}`. */
function readHash() {
  const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
  const [name, ...parts] = path.split('/').map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const known = VIEWS.find((each) => each.name === name && app.may(each.may ?? 'look'));
  return { name: known?.name ?? 'chat', parts: known ? parts.filter(Boolean) : [], params: new URLSearchParams(search) };
}

/** Shows the view the address names. A view is `async (element, route, app) => dispose`; a dispose
    with a `moved(route)` that returns true has taken a new route of the same view by itself. */
async function show(isMoved = true) {
  if (!app.session) return;
  const route = readHash();
  const hash = location.hash;
  if (isMoved && hash === current.hash && current.name) return;
  for (const link of document.querySelectorAll('#views a')) {
    if (link.dataset.view === route.name) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  current.hash = hash;
  if (current.name === route.name && current.dispose?.moved?.(route)) return;
  const mine = ++shown;
  current.dispose?.();
  Object.assign(current, { name: route.name, dispose: null });
  app.link('chat', true);
  const { label, file } = VIEWS.find((each) => each.name === route.name);
  const place = h('div', { class: `view ${route.name}` }, h('p', { class: 'soft loading' }, 'Loading…'));
  by('view').replaceChildren(place);
  app.titled(label);
  try {
    const module = await import(file);
    if (mine !== shown) return;
    const dispose = await module[route.name](place, route, app);
    if (mine === shown) current.dispose = dispose;
    else dispose?.();
  } catch (error) {
    if (mine !== shown) return;
    if (!(error instanceof ApiError)) console.error(error);
    place.replaceChildren(
      h('h1', {}, label), h('p', { role: 'alert' }, error.message),
      h('button', { onclick: () => show(false) }, 'Try again'),
    );
  }
  if (isMoved && mine === shown) focusHeading(place);
}

function focusHeading(place) {
  if (place.contains(document.activeElement)) return;
  const title = place.querySelector('h1');
  title?.setAttribute('tabindex', '-1');
  (title ?? by('view')).focus({ preventScroll: true });
}

app.titled = (text) => { heading = text; nameTab(); };

function nameTab() {
  document.title = `${unread ? `(${unread}) ` : ''}${heading} · agentsup`;
}

// -- what goes on ---------------------------------------------------------------------------------

let looking = false;
let again = null;

const onChange = (kinds) => look(kinds);

/** Fetches what the frame shows; a change meanwhile is fetched afterwards, once. */
async function look(kinds) {
  if (looking) {
    again = new Set([...(again ?? []), ...kinds]);
    return;
  }
  looking = true;
  const isNew = kinds.has('gap');
  const has = (...starts) => isNew || [...kinds].some((kind) => starts.some((start) => kind.startsWith(start)));
  try {
    await Promise.all([
      has('agent.', 'config.', 'message.', 'chat.in', 'stop.') && lookAtAgents(),
      has('daemon.', 'config.') && lookAtStatus(),
      has('question.', 'message.cancelled', 'stop.') && lookAtQuestions(),
    ]);
  } catch {
    // The view that is shown says what is wrong; the next change tries again.
  }
  looking = false;
  const missed = again;
  again = null;
  if (missed && app.session) look(missed);
}

async function lookAtAgents() {
  ({ agents } = await get('/agents'));
  for (const told of [...listeners]) told(agents);
}

async function lookAtStatus() {
  status = await get('/status');
  showLink();
}

async function lookAtQuestions() {
  const { questions } = await get('/questions?state=open&limit=100');
  const count = by('open-questions');
  count.hidden = !questions.length;
  count.replaceChildren(String(questions.length), h('span', { class: 'unseen' }, ' open'));
}

let lostSince = 0;

/** The dot and the banner: what of the daemon is not as it should be. */
function showLink() {
  if (!app.session) return;
  const isUp = [...links.values()].every(Boolean);
  const dot = by('link');
  const words = isUp ? 'connected' : 'not connected';
  dot.className = `dot ${isUp ? 'up' : 'lost'}`;
  dot.setAttribute('aria-label', words);
  dot.title = words;
  if (isUp) lostSince = 0;
  else if (!lostSince) {
    lostSince = performance.now();
    setTimeout(showLink, 2100);
  }
  const banner = by('banner');
  let told = '';
  if (!isUp && performance.now() - lostSince > 2000) told = 'No connection to the daemon. Trying again; what you write is kept.';
  else if (isUp && status?.state === 'draining') told = 'The daemon is shutting down and takes no new work.';
  else if (isUp && status?.config_error && app.session.is_operator) told = `The configuration has an error, the earlier one holds: ${status.config_error}`;
  if (banner.textContent !== told) banner.textContent = told;
  banner.hidden = !told;
}

changes.onLink = (isUp) => {
  app.link('changes', isUp);
  if (isUp && app.session) lookAtStatus().catch(() => {});
};

// -- the account's menu ---------------------------------------------------------------------------

const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;

async function stopAll() {
  await lookAtAgents().catch(() => {});
  const sum = (field) => agents.reduce((total, each) => total + (each[field] ?? 0), 0);
  const body = h('p', {}, `This ends ${counted(sum('running'), 'running turn', 'running turns')} and ${counted(sum('queued') + sum('parked'), 'waiting message', 'waiting messages')} of ${counted(agents.length, 'agent', 'agents')}. What is ended is not done later.`);
  if (!await ask('Stop everything?', body, 'Stop everything', true)) return;
  await act(by('stop-all'), async () => {
    const ended = await post('/stop_all');
    toast(`Stopped: ${counted(ended.running, 'running turn', 'running turns')}, ${counted(ended.queued + ended.parked, 'waiting message', 'waiting messages')}.`);
  });
}

async function newLink() {
  const { people } = await get('/web/people').catch(() => ({ people: [] }));
  const whom = h('select', { id: 'link-for' }, h('option', { value: '' }, 'Me (operator)'),
    people.map(({ name, role }) => h('option', { value: name }, `${name} (${role})`)));
  const made = h('div', { role: 'status' });
  const make = h('button', { type: 'button', class: 'primary', onclick: () => act(make, async () => {
    const link = await post('/web/links', { person: whom.value || null });
    const url = h('input', { readonly: true, value: link.url, 'aria-label': 'The link', onfocus: () => url.select() });
    const copy = h('button', { type: 'button', onclick: async () => {
      url.select();
      try { await navigator.clipboard.writeText(link.url); toast('Copied.'); } catch { toast('Copy it with the keyboard: it is selected.'); }
    } }, 'Copy');
    const isNear = /^(localhost|127\.|\[::1\])/.test(location.hostname);
    made.replaceChildren(
      h('p', {}, 'Open this link on the other device. It works once, until ', timeOf(link.expires_at), '.'),
      h('p', { class: 'row' }, url, copy),
      isNear ? h('p', { class: 'soft' }, 'This address leads to this computer only. To use it from another device, open this page by an address that device can reach.') : '',
    );
  }) }, 'Make a link');
  await ask('Link for another device', h('div', {}, h('label', { for: 'link-for' }, 'Who will use it'), h('p', { class: 'row' }, whom, make), made));
}

async function signOut(path) {
  await post(path, undefined, { quiet: true }).catch(() => {});
  forget(app.session);
  showSignIn('You are signed out.');
}

function wire() {
  const account = by('account');
  const chosen = (id, work) => by(id).addEventListener('click', () => { account.open = false; work(); });
  chosen('stop-all', stopAll);
  chosen('new-link', newLink);
  chosen('sign-out', () => signOut('/web/logout'));
  chosen('sign-out-all', () => signOut('/web/logout_everywhere'));
  document.addEventListener('click', (event) => { if (!account.contains(event.target)) account.open = false; });
  account.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !account.open) return;
    account.open = false;
    account.querySelector('summary').focus();
  });
  by('sign-in-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const button = event.submitter ?? by('sign-in-form').querySelector('button');
    act(button, () => signIn({ token: by('token').value.trim() }));
  });
  addEventListener('hashchange', () => {
    if (location.hash.startsWith('#code=')) {
      const code = takeCode();
      signIn({ code });
    } else show();
  });
  onSignedOut(signedOut);
}

wire();
start();
