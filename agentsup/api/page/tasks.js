// Background work and its times: start, pause, cancel, delete.

import { get, post, query } from './api.js';
import { ask, duration, h, soft, t, timeOf, toast } from './dom.js';
import { action, agentChoice, board, choice, count, facts, fromNow, keyed, redraw, say, tag } from './viewing.js';

const PAGE = 100;
const WORKS = ['queued', 'running', 'waiting'];
const WORDS = { todo: t`not started`, queued: t`waiting`, running: t`running`, waiting: t`has a question`, done: t`done`, failed: t`failed`, cancelled: t`cancelled` };
const LOOKS = { running: 'leased', waiting: 'parked', done: 'done', failed: 'dead' };
const SHOWS = [['', t`All`], [['todo', ...WORKS].join(), t`Open`], ['done', t`Done`], ['failed', t`Failed`], ['cancelled', t`Cancelled`]];

const works = ({ state }) => WORKS.includes(state);
const mayCome = ({ schedule }) => Boolean(schedule && (schedule.paused || schedule.next_at));

function timesOf({ kind, spec, timezone: zone }) {
	if (kind === 'every') return t`every ${duration(Number(spec))}`;
	return kind === 'cron' ? `${spec} (${zone})` : spec;
}

function head(task) {
	const { state, schedule, percent } = task;
	return [
		tag(LOOKS[state] ?? state, WORDS[state]),
		schedule?.paused && tag('parked', t`schedule paused`),
		h('strong', task.agent),
		percent !== null && works(task) && h('span', `${percent} %`),
		task.runs > 1 && h('span', count(task.runs, t`run`, t`runs`)),
		works(task) && task.started_at ? fromNow(task.started_at, 'for') : fromNow(task.finished_at ?? task.created_at),
		schedule?.next_at && !schedule.paused && h('span', t`next run `, timeOf(schedule.next_at)),
	];
}

function more(task) {
	const piece = (title, text) => text && h('section', h('h2.soft', title), h('p.words', text));
	return [
		piece(t`To do`, task.prompt),
		piece(t`Result`, task.result),
		facts([
			[t`Times`, task.schedule && timesOf(task.schedule)],
			[t`Owner`, task.owner],
			[t`Created`, timeOf(task.created_at)],
			[t`Started`, timeOf(task.started_at)],
			[t`Ended`, timeOf(task.finished_at)],
			[t`Task`, task.id],
		]),
	];
}

async function create(app) {
	const prompt = h('textarea', { rows: '4', maxlength: '100000' });
	const times = h('input', { placeholder: '30 8 * * MON-FRI', autocomplete: 'off', spellcheck: 'false', onkeydown: (event) => event.key === 'Enter' && event.preventDefault() });
	let agent = app.agents()[0]?.name;
	const form = h('div.board', h('label.choice', soft(t`To do`), prompt),
		agentChoice(app, agent, (name) => { agent = name; }, []),
		h('label.choice', soft(t`Times, as in cron; empty: now, once`), times));
	if (!await ask(t`New task`, form, t`Create`)) return;
	const cron = times.value.trim();
	const { timeZone: timezone } = Intl.DateTimeFormat().resolvedOptions();
	await post('/tasks/create', { prompt: prompt.value, agent, schedule: cron ? { cron, timezone } : null });
	toast(t`Task created. Its result is shown here.`);
}

function row(first, frame) {
	let now = first;
	const top = h('p.top-line');
	const words = h('span.clamp', { id: `task-${first.id}` });
	const inside = h('div.more');
	const why = h('p.bad');
	const draw = async () => {
		if (!details.open) return;
		const whole = await get(`/tasks/${now.id}`).catch(() => null);
		if (whole) redraw(inside, whole, () => more(whole));
	};
	const details = h('details', { ontoggle: draw }, h('summary', words), inside);
	const does = async (verb, fields) => {
		await post(`/tasks/${verb}`, { task_id: now.id, ...fields });
		await frame.look();
	};
	const agreed = async (title, text, yes, verb) => {
		if (!await ask(title, text, yes, true)) return;
		details.open = details.open && verb !== 'delete'; // what is gone is not asked for again
		await does(verb);
	};
	const controls = [
		[action(t`Run now`, async () => does('resume', { prompt: (await get(`/tasks/${now.id}`)).prompt })), () => !works(now) && now.does === 'turn'],
		[action(t`Pause`, () => does('update', { paused: true })), () => now.schedule?.next_at && !now.schedule.paused],
		[action(t`Go on`, () => does('update', { paused: false })), () => now.schedule?.paused],
		[action(t`Cancel`, () => agreed(t`Cancel this task?`, t`What runs is broken off, and its times end.`, t`Cancel it`, 'cancel')), () => works(now) || mayCome(now)],
		[action(t`Delete`, () => agreed(t`Delete this task?`, t`Its folder is kept in tasks/.deleted.`, t`Delete`, 'delete'), '', 'danger'), () => !works(now)],
	];
	for (const [button] of controls) button.setAttribute('aria-describedby', words.id);
	const node = h('li.item', top, details, why, h('div.actions', controls.map(([button]) => button)));

	function show(task) {
		now = task;
		redraw(top, task, () => head(task));
		say(words, task.name);
		say(why, task.state === 'failed' ? task.error || task.error_code : '');
		for (const [button, when] of controls) button.hidden = !when();
		draw();
	}
	return { node, show };
}

export async function tasks(view, { params }, app) {
	let agent = params.get('agent') ?? '';
	let state = params.get('state') ?? '';
	let pages = 1;
	const list = h('ul.items');
	const nothing = h('p.empty', { hidden: true }, t`No tasks. Create one here, or write /task new TEXT or /remind 20:00 TEXT in a chat.`);
	const further = action(t`More`, () => { pages += 1; return frame.look(true); });
	further.hidden = true;
	function chosen() {
		pages = 1;
		app.note(query('#/tasks', { agent, state }));
		frame.look(true);
	}
	async function load() {
		let [found, cursor] = [[], null];
		for (let page = 0; page < pages && (cursor || !page); page += 1) {
			const answer = await get(query('/tasks/list', { agent, state, cursor, limit: PAGE }));
			[found, cursor] = [[...found, ...answer.tasks], answer.next_cursor];
		}
		return { found, cursor };
	}
	const frame = board(view, {
		title: t`Tasks`,
		tools: [
			agentChoice(app, agent, (value) => { agent = value; chosen(); }),
			choice(t`Show`, SHOWS, state, (value) => { state = value; chosen(); }),
			action(t`New task`, async () => { await create(app); await frame.look(); }),
		],
		kinds: ['task.', 'message.', 'question.', 'stop.'],
		load,
		show({ found, cursor }) {
			draw(found);
			nothing.hidden = found.length > 0;
			further.hidden = !cursor;
			return found.length > 0 && count(found.length, t`task`, t`tasks`);
		},
	});
	const draw = keyed(list, (task) => task.id, (task) => row(task, frame));
	frame.body.append(list, nothing, further);
	return frame.end;
}
