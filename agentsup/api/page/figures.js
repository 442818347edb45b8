// Turns, how long they took, and their cost.

import { get, query } from './api.js';
import { duration, h, soft, svg, t } from './dom.js';
import { board, choice, count, redraw, table } from './viewing.js';

const SPANS = [['6', t`6 hours`], ['24', t`24 hours`], ['72', t`3 days`], ['168', t`7 days`], ['720', t`30 days`]];
const HIGH = 48;
const WIDE = 10;
const POLL_MS = 60_000;

const { lang } = document.documentElement;
const date = new Intl.DateTimeFormat(lang, { weekday: 'short', day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' });
const number = new Intl.NumberFormat(lang, { notation: 'compact', maximumFractionDigits: 1 });

function bars({ agent, by_hour: spans }, { since, until }, top) {
	const width = (until - since) / spans.length;
	const at = (index) => date.format(since + index * width);
	const most = Math.max(...spans);
	const all = spans.reduce((sum, each) => sum + each, 0);
	const summary = all ? t`${count(all, t`turn`, t`turns`)}, at most ${most} in ${width === 3_600_000 ? t`an hour` : duration(width / 1000)}` : t`no turns`;
	const rects = spans.map((value, index) => {
		const height = value ? Math.max(2, (value / top) * HIGH) : 0.7;
		return svg('rect', { x: index * WIDE + 1, width: WIDE - 2, y: HIGH - height, height, class: value ? 'on' : '' },
			svg('title', {}, `${at(index)}: ${value}`));
	});
	return h('figure.card.bars',
		h('figcaption', h('strong', agent), soft(summary)),
		svg('svg', {
			viewBox: `0 0 ${spans.length * WIDE} ${HIGH}`, preserveAspectRatio: 'none', role: 'img',
			'aria-label': `${agent}: ${all ? t`${summary}, from ${at(spans.indexOf(most))}` : summary}`,
		}, ...rects),
		h('p.soft', { 'aria-hidden': 'true' }, h('span', at(0)), h('span', t`now`)));
}

const COLUMNS = [t`Agent`, t`Turns`, t`Failed`, t`Cancelled`, t`Median wait`, t`Median duration`, t`95 % within`, t`Tokens in`, t`Tokens out`, t`Cost`];

function line(name, each) {
	const tokens = (value) => (value ? number.format(value) : '–');
	const cost = each.usd === null ? '–' : `$${each.usd.toFixed(each.usd < 1 ? 3 : 2)}${each.unpriced ? ' +' : ''}`;
	const cells = [
		number.format(each.turns), h('span', { class: each.failed ? 'bad' : '' }, number.format(each.failed)), number.format(each.cancelled),
		duration(each.wait_p50_s), duration(each.p50_s), duration(each.p95_s), tokens(each.input_tokens), tokens(each.output_tokens), cost,
	];
	return h('tr', h('th', { scope: 'row' }, name), cells.map((cell) => h('td', cell)));
}

function numbers(all) {
	const total = {};
	for (const name of ['turns', 'failed', 'cancelled', 'input_tokens', 'output_tokens', 'unpriced']) total[name] = all.reduce((sum, each) => sum + each[name], 0);
	total.usd = all.some((each) => each.usd !== null) ? all.reduce((sum, each) => sum + (each.usd ?? 0), 0) : null;
	return table(t`Statistics by agent`, COLUMNS, h('tbody', all.map((each) => line(each.agent, each))),
		all.length > 1 && h('tfoot', line(t`All`, total)));
}

export async function figures(view, { params }, app) {
	let hours = SPANS.find(([value]) => value === params.get('hours'))?.[0] ?? '24';
	const sums = h('div');
	const note = h('p.soft');
	const charts = h('div.cards');
	const frame = board(view, {
		title: t`Statistics`,
		tools: choice(t`Span`, SPANS, hours, (value) => {
			hours = value;
			app.note(query('#/figures', { hours }));
			frame.look(true);
		}),
		kinds: ['message.done', 'message.dead', 'message.cancelled', 'stop.', 'config.applied'],
		everyMs: POLL_MS,
		load: () => get(query('/web/figures', { hours })),
		show(found) {
			const all = found.agents;
			const top = Math.max(1, ...all.flatMap((each) => each.by_hour));
			const unpriced = all.reduce((sum, each) => sum + each.unpriced, 0);
			redraw(sums, all, () => numbers(all));
			redraw(note, unpriced, () => unpriced > 0 && t`Without a price: ${unpriced} reports of usage; the true cost is higher.`);
			redraw(charts, [all, Math.floor(found.until / POLL_MS)], () => all.map((each) => bars(each, found, top)));
		},
	});
	frame.body.append(sums, note, charts);
	return frame.end;
}
