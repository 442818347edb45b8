// What the browser keeps. Nothing here raises: it only forgets.

let owner = '';

/** Kept under who is signed in: nobody finds another's words. */
export const ownedBy = (session) => { owner = `${session.node_id}:${session.who}:`; };

const stores = { tab: 'sessionStorage', browser: 'localStorage' };

/** `where`: `tab` (until it is closed) or `browser`. */
export function keep(where, key, value) {
	try {
		const store = window[stores[where]];
		if (value === null || value === '') store.removeItem(owner + key);
		else store.setItem(owner + key, JSON.stringify(value));
	} catch { /* full, or forbidden */ }
}

export function kept(where, key, otherwise) {
	try {
		const found = window[stores[where]].getItem(owner + key);
		return found === null ? otherwise : JSON.parse(found);
	} catch {
		return otherwise;
	}
}

export function keysOf(where, start) {
	try {
		const keys = Object.keys(window[stores[where]]);
		return keys.filter((key) => key.startsWith(owner + start)).map((key) => key.slice(owner.length));
	} catch {
		return [];
	}
}

/** Who signs out leaves nothing behind. */
export function forget(session) {
	ownedBy(session);
	for (const where of Object.keys(stores)) for (const key of keysOf(where, '')) keep(where, key, null);
}
