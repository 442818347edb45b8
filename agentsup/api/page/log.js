// The log of one agent.

import { get, query } from './api.js';
import { h, soft, t } from './dom.js';
import { agentChoice, board, choice, action, keyed } from './viewing.js';

const LEVELS = ['debug', 'info', 'warning', 'error', 'critical'];
const LEAST = [['debug', t`All`], ['info', t`Info and above`], ['warning', t`Warnings and errors`], ['error', t`Errors`]];
const MOST = 500;
const POLL_MS = 3000;
const NEAR_PX = 24;
/** Facts that say nothing to a person. */
const PLAIN = ['agent', 'name', 'logger', 'trace', 'session', 'question_id'];

const { lang } = document.documentElement;
const clock = new Intl.DateTimeFormat(lang, { day: '2-digit', month: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' });
const words = (value) => (typeof value === 'string' ? value : JSON.stringify(value));
const joined = (pairs) => pairs.map(([name, value]) => `${name}=${words(value)}`).join(' ');
const whole = ({ at, level, text, facts }) => `${new Date(at).toISOString()} ${level} ${text} ${joined(Object.entries(facts))}`;

function row({ at, level, text, facts }) {
	const pairs = Object.entries(facts).filter(([name, value]) => !PLAIN.includes(name) && value !== '' && value !== null);
	const isLong = ([, value]) => words(value).length > 160 || words(value).includes('\n');
	const short = pairs.filter((pair) => !isLong(pair));
	const node = h('li.line', { data: { level } },
		h('time', { datetime: new Date(at).toISOString() }, clock.format(at)),
		h('span.level', level),
		h('span', text, short.length > 0 && soft(` ${joined(short)}`),
			pairs.filter(isLong).map(([name, value]) => h('details', h('summary', name), h('pre', { tabindex: '0' }, words(value))))));
	return { node, show() {} };
}

export async function log(view, { parts, params }, app) {
	const name = parts[0] || app.session.agents[0];
	app.titled(t`Log of ${name}`);
	let [least, lines] = [params.get('level') ?? 'debug', []];
	const list = h('ol');
	const pane = h('div.lines', { tabindex: '0', role: 'region', 'aria-label': t`Log of ${name}` }, list);
	const nothing = h('p.empty', { hidden: true });
	const follow = h('input', { type: 'checkbox', checked: true, onchange: () => toEnd() });
	const find = h('input', { type: 'search', placeholder: t`Filter`, 'aria-label': t`Filter lines`, oninput: () => filter() });
	const toEnd = () => { if (follow.checked) pane.scrollTop = pane.scrollHeight; };
	pane.addEventListener('scroll', () => { follow.checked = pane.scrollHeight - pane.scrollTop - pane.clientHeight < NEAR_PX; });

	const shown = () => lines.filter((line) => LEVELS.indexOf(line.level) >= LEVELS.indexOf(least) && line.key.toLowerCase().includes(find.value.toLowerCase()));
	function filter() {
		draw(shown());
		nothing.textContent = lines.length ? t`No line fits the filter.` : t`Nothing is written about it yet.`;
		pane.hidden = !list.childElementCount;
		nothing.hidden = !pane.hidden;
		toEnd();
	}
	const frame = board(view, {
		title: t`Log of ${name}`,
		tools: [
			agentChoice(app, name, (value) => app.go(`#/log/${value}`), []),
			choice(t`Level`, LEAST, least, (value) => {
				least = value;
				app.note(query(`#/log/${name}`, { level: value }));
				filter();
			}),
			find,
			h('label.check', follow, t`Follow`),
			navigator.clipboard && action(t`Copy`, () => navigator.clipboard.writeText(shown().map(whole).join('\n')), t`Copied.`),
		],
		kinds: ['agent.', 'message.', 'question.', 'stop.', 'config.'],
		everyMs: POLL_MS,
		load: () => get(`/agents/${encodeURIComponent(name)}/log?limit=${MOST}`),
		show(answer) {
			// Lines have no number: the key is their words and how often they came.
			const seen = new Map();
			lines = answer.lines.map((line) => {
				const key = whole(line);
				seen.set(key, (seen.get(key) ?? 0) + 1);
				return { ...line, key: `${key} ${seen.get(key)}` };
			});
			filter();
		},
	});
	const draw = keyed(list, ({ key }) => key, row);
	frame.body.append(pane, nothing);
	return frame.end;
}
