// What the browser keeps. Nothing here raises: it only forgets.

let owner = '';

/** Kept under who is signed in: nobody finds another's words. */
export const ownedBy = (session) => { owner = `${session.node_id}:${session.who}:`; };

/** What opens the daemon: unlike a cookie, for this port alone. */
export const SECRET = 'agentsup:secret';
export let secret = '';

/** Who is signed in in this tab, or was: [node, person]. */
export const LAST = 'agentsup:last';

const at = (key) => (/^agentsup:/.test(key) ? key : owner + key);

/** Takes what is kept now: another tab may have signed in or out. */
export const takeSecret = () => { secret = stored('browser', SECRET, ''); };

export const keepSecret = (given) => keep('browser', SECRET, secret = given);

const stores = { tab: 'sessionStorage', browser: 'localStorage' };

function using(where, work, otherwise) {
	try {
		return work(window[stores[where]]);
	} catch { // full, or forbidden
		return otherwise;
	}
}

/** `where`: `tab` (until it is closed) or `browser`. */
export const keep = (where, key, value) => using(where, (store) => (
	value === null || value === '' ? store.removeItem(at(key)) : store.setItem(at(key), JSON.stringify(value))));

export const stored = (where, key, otherwise) => using(where, (store) => JSON.parse(store.getItem(at(key))) ?? otherwise, otherwise);

export const keysOf = (where, start) => using(where, (store) => Object.keys(store)
	.filter((key) => key.startsWith(owner + start)).map((key) => key.slice(owner.length)), []);

/** Who signs out leaves nothing behind. */
export function forget(session) {
	ownedBy(session);
	for (const where of Object.keys(stores)) for (const key of keysOf(where, '')) keep(where, key, null);
}
