// What the browser keeps for a person. Nothing here raises: it only forgets.

let owner = '';

/** Everything is kept under the name of who is signed in, so that nobody finds another's words. */
export const ownedBy = (session) => { owner = `${session.node_id}:${session.who}:`; };

const stores = { tab: 'sessionStorage', browser: 'localStorage' };

/** `where`: `tab` (a reload finds it) or `browser` (so does another tab, tomorrow). */
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

/** Who signs out leaves nothing behind. */
export function forget(session) {
	ownedBy(session);
	for (const name of Object.values(stores)) {
		try {
			const store = window[name];
			for (const key of Object.keys(store)) if (key.startsWith(owner)) store.removeItem(key);
		} catch { /* forbidden */ }
	}
}
