// Building elements, words for times and sizes, and what is said to the person.

/** An element: `h('a', {href, class: 'x', onclick}, ...children)`. Text is always text. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'class') made.className = value;
    else if (name === 'data') Object.assign(made.dataset, value);
    else if (name in made && typeof value !== 'string') made[name] = value;
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const by = (id) => document.getElementById(id);

/** Puts the children of `parent` into this order, and touches only what differs. */
export function fill(parent, children) {
  const wanted = children.filter(Boolean);
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
}

const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { weekday: 'short', day: 'numeric', month: 'short' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

export const dayOf = (ms) => day.format(ms);

/** A <time> with the hour, and the day where it isn't today. */
export function timeOf(ms) {
  if (!ms) return '';
  const isToday = new Date(ms).toDateString() === new Date().toDateString();
  const words = isToday ? clock.format(ms) : `${day.format(ms)} ${clock.format(ms)}`;
  return h('time', { datetime: new Date(ms).toISOString(), title: full.format(ms) }, words);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 10) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  const step = Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${(count / 1000 ** step).toPrecision(3)} ${['', 'kB', 'MB', 'GB'][step]}`;
}

/** Says something for a while, and to screen readers. */
export function toast(text, isBad = false) {
  const shown = h('p', { class: isBad ? 'toast bad' : 'toast' }, text);
  by('toasts').append(shown);
  setTimeout(() => shown.remove(), isBad ? 9000 : 4000);
}

/** Asks before something is done; resolves to whether it may be. `body` is text or an element. */
export function ask(title, body, yes, isDanger = false) {
  const dialog = by('ask');
  by('ask-title').textContent = title;
  by('ask-body').replaceChildren(body);
  by('ask-yes').textContent = yes ?? '';
  by('ask-yes').hidden = !yes;
  by('ask-yes').className = isDanger ? 'danger' : 'primary';
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), { once: true });
  });
}

export const closeDialog = () => by('ask').close('');

/** A random name for something of ours; works without a secure context, too. */
export function newId() {
  const drawn = crypto.getRandomValues(new Uint8Array(16));
  return [...drawn].map((each) => each.toString(16).padStart(2, '0')).join('');
}
