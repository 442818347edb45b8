// The frame: signing in, the views, and what stands above them.

import { act, ApiError, changes, get, onSignedOut, post } from './api.js';
import { ask, by, closeDialog, fill, h, icon, press, scannable, soft, speak, t, tell, timeOf, toast } from './dom.js';
import { forget, keep, keepSecret, stored, LAST, ownedBy, SECRET, secret, takeSecret } from './storage.js';
import { endRest, sendRest } from './socket.js';

const VIEWS = { chat: 'Chat', agents: 'Agents', work: 'Work', tasks: 'Tasks', questions: 'Questions', dead: 'Failed messages', figures: 'Statistics', log: 'Log', setup: 'Setup' };

const app = {
	session: null,
	open: '',
	composers: new Map(),
	may: (word) => app.session?.may.includes(word) ?? false,
	go: (hash) => { location.hash = hash; },
	note: (hash) => { history.replaceState(null, '', hash); current.hash = location.hash; },
	agents: () => agents,
	onAgents: (work) => { listeners.add(work); return () => listeners.delete(work); },
	unread: (count) => { unread = count; nameTab(); },
	link: (part, isUp) => { links.set(part, isUp); showLink(); },
};

let agents = [];
let status = null;
let unread = 0;
let heading = '';
let learnt = '';
let shown = 0;
let ended = '';
const listeners = new Set();
const links = new Map();
const current = { name: '', hash: '', dispose: null };

/** The one-time code, removed from the address at once. */
function takeCode() {
	const [, code] = /^#code=(.+)$/.exec(location.hash) ?? [];
	if (code) history.replaceState(null, '', '/');
	return code;
}

async function start() {
	const code = takeCode();
	await learn(navigator.language);
	return code ? signIn({ code }) : resume();
}

/** Goes on as who is signed in now, which another tab may have changed; the last call counts. */
async function resume() {
	leave();
	takeSecret();
	const mine = shown;
	if (app.session || secret) ended = t`You were signed out. Sign in again; what you had typed is kept.`;
	app.session = null;
	if (!secret) return showSignIn(ended);
	const found = await get('/web/session', { quiet: true }).catch((error) => error);
	if (mine !== shown) return;
	if (found instanceof Error) showSignIn(found.status === 401 ? ended : found.message);
	else await enter(found, () => showSignIn(t`${found.who} is signed in in this browser.`));
}

async function learn(language) {
	if (language === learnt) return;
	const found = await get(`/web/words/${language}`, { quiet: true }).catch(() => ({ language: 'en', words: {} }));
	learnt = language;
	speak(found.language === language.slice(0, 2) ? language : found.language, found.words);
}

async function signIn(how) {
	leave();
	takeSecret();
	try {
		const { secret: given, ...session } = await post('/web/login', how, { quiet: true });
		keepSecret(given);
		if (how.token || how.replace) keep('tab', LAST, null);
		await enter(session, () => signOut('/web/logout', { session }));
		if (app.session) toast(t`You are signed in as ${session.who}.`);
	} catch (error) {
		if (error.code === 'other_session') {
			const { signed_in: now, would_be: then } = error.problem;
			if (await consent(now, then)) return signIn({ ...how, replace: true });
			return resume();
		}
		if (how.code && error.code === 'login_failed') {
			const why = t`This link was used before or has expired.`;
			await resume();
			if (app.session) toast(t`${why} You are signed in already.`);
			else showSignIn(t`${why} Run “agentsup link” where the daemon runs and open the new one, or sign in with the token.`);
		} else {
			showSignIn(error.code === 'login_failed' ? t`This is not the operator’s token.` : error.message);
			if (how.code) by('sign-in-why').append(' ', press(t`Try the link again`, (button) => act(button, () => signIn(how))));
		}
	}
}

const consent = (now, then) => ask(t`Sign in as ${then}?`, h('p', t`You wrote here as ${now}. From now on you would write as ${then}. Go on only if you asked for it.`), t`Sign in as ${then}`, true);

function showSignIn(why) {
	leave();
	app.session = null;
	by('shell').hidden = true;
	by('sign-in').hidden = false;
	by('sign-in-why').textContent = why;
	by('token').value = '';
	by('token').focus();
	document.title = `${t`Sign in`} · agentsup`;
}

function leave() {
	changes.stop();
	endRest();
	closeDialog();
	shown += 1;
	current.dispose?.();
	Object.assign(current, { name: '', hash: '', dispose: null });
	links.clear();
	app.composers.clear();
	by('view').replaceChildren();
}

/** Asks first where the tab was somebody else’s. The last call counts. */
async function enter(session, refused) {
	const mine = ++shown;
	const { node_id: node, who } = session;
	const [at, last] = stored('tab', LAST, []);
	if (at === node && last !== who && !await consent(last, who)) return mine === shown && refused();
	keep('tab', LAST, [node, who]);
	await learn(session.language || navigator.language);
	if (mine !== shown) return;
	app.session = session;
	ended = '';
	ownedBy(session);
	by('sign-in').hidden = true;
	by('shell').hidden = false;
	by('who').textContent = who;
	by('version').textContent = `agentsup ${session.version}, ${session.role}`;
	by('stop-all').hidden = by('open-setup').hidden = !app.may('steer');
	fill(by('views'), Object.keys(VIEWS).slice(0, -2).filter((name) => name !== 'tasks' || app.may('work')).map(navItem));
	changes.start();
	changes.listen(look);
	look(new Set(['gap']));
	show(false);
}

function navItem(name) {
	return h('li', h('a', { href: `#/${name}` }, icon(name), t([VIEWS[name]]),
		name === 'questions' && h('span.count', { id: 'open-questions', hidden: true })));
}

function readHash() {
	const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
	const [name, ...parts] = path.split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
	const isKnown = name in VIEWS && (!['log', 'setup', 'tasks'].includes(name) || app.may('steer'));
	return { name: isKnown ? name : 'chat', parts: isKnown ? parts.filter(Boolean) : [], params: new URLSearchParams(search) };
}

/** Shows the view of the address; one whose `moved(route)` is true has done so by itself. */
async function show(isMoved = true) {
	if (!app.session) return;
	const route = readHash();
	const hash = location.hash;
	if (isMoved && hash === current.hash && current.name) return;
	for (const link of document.querySelectorAll('#views a')) link.ariaCurrent = link.hash === `#/${route.name}` ? 'page' : null;
	current.hash = hash;
	if (current.name === route.name && current.dispose?.moved?.(route)) return;
	const mine = ++shown;
	current.dispose?.();
	sendRest(app.open);
	Object.assign(current, { name: route.name, dispose: null });
	app.link('chat', true);
	const label = t([VIEWS[route.name]]);
	const place = h('div', { class: `view ${route.name}` }, h('p.soft.loading', t`Loading…`));
	by('view').replaceChildren(place);
	app.titled(label);
	try {
		const module = await import(`./${route.name}.js`);
		if (mine !== shown) return;
		const dispose = await module[route.name](place, route, app);
		if (mine === shown) current.dispose = dispose;
		else dispose?.();
	} catch (error) {
		if (mine !== shown) return;
		if (!(error instanceof ApiError)) console.error(error);
		place.replaceChildren(
			h('h1', label), h('p', { role: 'alert' }, error.message),
			press(t`Try again`, () => (error instanceof ApiError ? show(false) : location.reload())),
		);
	}
	if (isMoved && mine === shown) focusHeading(place);
}

function focusHeading(place) {
	if (place.contains(document.activeElement)) return;
	const title = place.querySelector('h1') ?? by('view');
	title.tabIndex = -1;
	title.focus({ preventScroll: true });
}

app.titled = (text) => { heading = text; nameTab(); };

function nameTab() {
	document.title = `${unread ? `(${unread}) ` : ''}${heading} · agentsup`;
}

let looking = false;
let isMissed = false;

/** Fetches what the frame shows; a change meanwhile afterwards, once. */
async function look(kinds) {
	if (looking) {
		isMissed = true;
		return;
	}
	[looking, isMissed] = [true, false];
	const has = (fits) => fits.test([...kinds]);
	await Promise.all([
		has(/gap|agent|config|message|chat.in|stop/) && lookAtAgents(),
		has(/gap|daemon|config/) && lookAtStatus(),
		has(/gap|question|cancelled|stop/) && lookAtQuestions(),
	]).catch(() => {});
	looking = false;
	if (isMissed && app.session) look(new Set(['gap']));
}

async function lookAtAgents() {
	({ agents } = await get('/agents'));
	for (const work of [...listeners]) work(agents);
}

async function lookAtStatus() {
	status = await get('/status');
	showLink();
}

async function lookAtQuestions() {
	const { questions } = await get('/questions?state=open&limit=100');
	const count = by('open-questions');
	count.hidden = !questions.length;
	count.replaceChildren(String(questions.length), h('span.unseen', t` open`));
}

let lostSince = 0;

function showLink() {
	if (!app.session) return;
	const isUp = [...links.values()].every(Boolean);
	const dot = by('link');
	dot.className = `dot ${isUp ? 'up' : 'lost'}`;
	by('shell').classList.toggle('away', !isUp);
	dot.ariaLabel = dot.title = isUp ? t`connected` : t`not connected`;
	if (isUp) lostSince = 0;
	else if (!lostSince) {
		lostSince = performance.now();
		setTimeout(showLink, 2100);
	}
	const banner = by('banner');
	let notice = '';
	if (!isUp && performance.now() - lostSince > 2000) notice = t`No connection to the daemon. What you write is kept.`;
	else if (isUp && status?.state === 'draining') notice = t`The daemon is shutting down and takes no new work.`;
	else if (isUp && status?.config_error && app.session.is_operator) notice = t`The configuration has an error: ${status.config_error}`;
	tell(banner, notice);
}

changes.onLink = (isUp) => {
	app.link('changes', isUp);
	if (!isUp || !app.session) return;
	lookAtStatus().catch(() => {});
	sendRest(app.open);
};

async function stopAll() {
	await lookAtAgents().catch(() => {});
	const sum = (field) => agents.reduce((total, each) => total + (each[field] ?? 0), 0);
	const body = h('p', t`This ends what runs (${sum('running')}) and drops what waits (${sum('queued') + sum('parked')}). It will not be done later.`);
	if (!await ask(t`Stop everything?`, body, t`Stop everything`, true)) return;
	await act(by('stop-all'), async () => {
		const { running, queued, parked } = await post('/stop_all');
		toast(t`Stopped: ${running} running, ${queued + parked} waiting.`);
	});
}

async function newLink() {
	const { people } = app.may('steer') ? await get('/web/people').catch(() => ({ people: [] })) : { people: [] };
	const whom = h('select', { id: 'link-for' }, h('option', { value: '' }, t`Me (${app.session.who})`),
		people.map(({ name, role }) => h('option', { value: name }, `${name} (${role})`)));
	const made = h('div', { role: 'status' });
	const make = press(t`Make a link`, (button) => act(button, async () => {
		const link = await post('/web/links', { person: whom.value || null, qr: true });
		made.replaceChildren(
			h('p', t`Open this link on the other device. It works once, until `, timeOf(link.expires_at), '.'),
			...scannable(link.url, link.doubts.includes('here') ? '' : link.qr),
			...link.warnings.map((each) => h('p', soft(each))),
		);
	}), { class: 'primary' });
	await ask(t`Link for another device`, h('div', h('label', { for: 'link-for' }, t`Who will use it`), h('p.row', whom, make), made));
}

async function signOut(path, { session } = app) {
	if (app.session) keep('tab', LAST, null);
	app.session = null;
	for (const composer of app.composers.values()) composer.abort();
	leave();
	await post(path, undefined, { quiet: true }).catch(() => {});
	keepSecret('');
	forget(session);
	showSignIn(t`You are signed out.`);
}

function wire() {
	by('skip').addEventListener('click', (event) => { event.preventDefault(); by('view').focus(); });
	const chosen = (id, work) => by(id).addEventListener('click', () => { by('account').hidePopover(); work(); });
	chosen('stop-all', stopAll);
	chosen('open-setup', () => app.go('#/setup'));
	chosen('new-link', newLink);
	chosen('sign-out', () => signOut('/web/logout'));
	chosen('sign-out-all', () => signOut('/web/logout_everywhere'));
	by('sign-in-form').addEventListener('submit', (event) => {
		event.preventDefault();
		act(event.submitter, () => signIn({ token: by('token').value.trim() }));
	});
	addEventListener('hashchange', () => {
		const code = takeCode();
		if (code) signIn({ code });
		else show();
	});
	onSignedOut(() => { if (app.session) resume(); });
	addEventListener('storage', ({ key }) => { if (!key || key === SECRET) resume(); });
}

wire();
start();
