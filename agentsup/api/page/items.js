// Messages as rows, for work and failed messages.

import { get, query } from './api.js';
import { duration, h, t, timeOf } from './dom.js';
import { count, facts, fromNow, redraw, say, tag } from './viewing.js';

const PAGE = 100;
const WORDS = { queued: t`waiting`, leased: t`running`, parked: t`has a question`, done: t`done`, dead: t`given up`, cancelled: t`cancelled` };

export const isOpen = ({ state }) => ['queued', 'leased', 'parked'].includes(state);

/** The first `pages` pages of a list: `{found, more}`. */
export async function listed(path, fields, pages) {
	const found = [];
	let cursor = null;
	for (let page = 0; page < pages && (cursor || !page); page += 1) {
		const answer = await get(query(path, { ...fields, cursor, limit: PAGE }));
		found.push(...(answer.messages ?? answer.dead));
		cursor = answer.next_cursor;
	}
	return { found, more: Boolean(cursor) };
}

const asked = ({ text, parts }) => text || parts.map((part) => part.text || part.name).filter(Boolean).join(' · ');
const hasFailed = ({ state, outcome }) => state === 'dead' || outcome === 'failed';

function head(message) {
	const { state, position, eta_s: eta, not_before: notBefore } = message;
	const shown = state === 'done' && hasFailed(message) ? ['dead', t`failed`] : [state, WORDS[state]];
	const ahead = position ? t`${position} before it` : t`next`;
	return [
		tag(...shown),
		h('strong', message.agent),
		message.sender && h('span', t`from ${message.sender}`),
		message.priority !== 'normal' && h('span', t`${t([message.priority])} priority`),
		message.attempts > 1 && h('span', count(message.attempts, t`attempt`, t`attempts`)),
		state === 'leased' ? fromNow(message.started_at ?? message.accepted_at, 'for') : fromNow(message.finished_at ?? message.accepted_at),
		state === 'queued' && notBefore > Date.now() && h('span', t`again `, fromNow(notBefore, 'in')),
		state === 'queued' && position !== undefined && h('span', eta > 5 ? t`${ahead}, about ${duration(Math.round(eta))}` : ahead),
	];
}

function more(message) {
	const { started_at: started, finished_at: finished } = message;
	const piece = (title, text) => text && h('section', h('h2.soft', title), h('p.words', text));
	return [
		piece(t`Asked`, asked(message)),
		piece(t`Answer`, message.result_text),
		piece(t`Error`, message.error),
		facts([
			[t`Files`, message.parts.filter((part) => part.type === 'file').map((part) => part.name).join(', ')],
			[t`Kind`, message.kind !== 'chat' && message.kind],
			[t`Accepted`, timeOf(message.accepted_at)],
			[t`Started`, timeOf(started)],
			[t`Ended`, timeOf(finished)],
			[t`Took`, started && finished && duration((finished - started) / 1000)],
			[t`Expires`, isOpen(message) && timeOf(message.expires_at)],
			[t`Replay of`, message.replay_of],
			[t`Session`, message.session],
			[t`Message`, message.id],
		]),
	];
}

/** A row; `actions(read)` makes its controls, each `{node, when(message)}`. */
export function itemOf(first, actions) {
	let now = first;
	const top = h('p.top-line');
	const words = h('span.clamp', { id: `words-${first.id}` });
	const inside = h('div.more');
	const why = h('p.bad');
	const details = h('details', { ontoggle: () => draw() }, h('summary', words), inside);
	const controls = actions(() => now);
	for (const { node: each } of controls) (each.control ?? each).setAttribute('aria-describedby', words.id);
	const node = h('li.item', top, details, why, h('div.actions', controls.map((each) => each.node)));
	const draw = () => details.open && redraw(inside, now, () => more(now));

	function show(message) {
		now = message;
		const { error, error_code: code } = message;
		redraw(top, message, () => head(message));
		redraw(words, [message.private, asked(message)], () => (message.private ? h('em', t`Somebody else’s words`) : asked(message).slice(0, 400) || h('em', t`No text`)));
		say(why, hasFailed(message) ? (error || code).slice(0, 500) : '');
		for (const control of controls) control.node.hidden = !control.when(message);
		draw();
	}
	return { node, show };
}
