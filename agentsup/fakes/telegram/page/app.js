// The page: one person's chats with the bots, kept up to date by long polls.

import { act, changes, look, sendFile } from "./api.js";
import { element } from "./entities.js";
import { askedBy, keyboardOf, placeholderOf } from "./input.js";
import { draftElement, messageElement, summary } from "./messages.js";

const $ = (id) => document.getElementById(id);
const POLL_S = 20;
const ACTION_S = 5;
const NEAR_PX = 120;
const TRIES = ["hello", "report", "choose", "count", "ask writer for a haiku", "/agents"];

const state = {
  bots: [],
  users: [],
  chats: [],
  person: null,
  key: null,
  thread: null, // null: all of a chat; a number: one topic
  view: null,
  about: null, // {kind: "reply" | "edit", record, isAsked: the bot wants the reply}
  asked: new Set(), // "chat key/message id" of what a bot asked a reply to and was offered once
  keysUsed: null, // "chat key/message id" of the keyboard that is folded away
  seen: new Map(), // chat key -> newest message id that was looked at
  shown: new Map(), // message id -> {text of the record, element}
};

// -- small things ------------------------------------------------------------------------------

let toastTimer = 0;
function toast(text) {
  $("toast").textContent = text;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    $("toast").hidden = true;
  }, 4500);
}

async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    toast(String(error.message || error));
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`agentsup.${name}`, value);
  } catch {
    // a private window may refuse; nothing depends on it
  }
}

function recalled(name) {
  try {
    return localStorage.getItem(`agentsup.${name}`);
  } catch {
    return null;
  }
}

// -- who and where -----------------------------------------------------------------------------

function botOf(chat) {
  return state.bots.find((bot) => bot.id === chat?.bot_id);
}

function places() {
  const own = state.bots.map((bot) => {
    const key = `${state.person}@${bot.id}`;
    const known = state.chats.find((chat) => chat.key === key);
    return known || { key, type: "private", user_id: state.person, bot_id: bot.id, topics: {}, isNew: true };
  });
  const groups = state.chats.filter(
    (chat) => chat.type !== "private" && ["creator", "administrator", "member"].includes(chat.members[state.person]),
  );
  return [...own, ...groups];
}

function current() {
  return places().find((chat) => chat.key === state.key) || null;
}

function nameOf(chat) {
  return chat.type === "private" ? botOf(chat)?.first_name || "bot" : chat.title;
}

function hasTopics(chat) {
  return chat.type === "private" ? Boolean(botOf(chat)?.has_topics_enabled) : Boolean(chat.is_forum);
}

function paintFace(node, name) {
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0);
  node.className = `face face-${sum % 6}`;
  node.textContent = [...name][0]?.toUpperCase() || "?";
}

// -- the list ----------------------------------------------------------------------------------

function paintPeople() {
  const select = $("person");
  const wanted = state.users.map((user) => `${user.id} ${user.first_name}`).join("\n");
  if (select.dataset.people !== wanted) {
    select.dataset.people = wanted;
    select.replaceChildren(
      ...state.users.map((user) => {
        const option = element("option", "", user.first_name);
        option.value = user.id;
        return option;
      }),
    );
  }
  select.value = String(state.person ?? "");
}

function paintChats() {
  const rows = places().map((chat) => {
    const row = element("button", "chat-row");
    row.type = "button";
    row.setAttribute("aria-current", String(chat.key === state.key));
    const face = element("span");
    paintFace(face, nameOf(chat));
    face.setAttribute("aria-hidden", "true");
    const text = element("span", "chat-row-text");
    text.append(element("span", "chat-row-name", nameOf(chat)));
    const last = chat.last_message;
    const handle = chat.type === "private" ? `@${botOf(chat)?.username}` : "group";
    text.append(element("span", "chat-row-last", last ? summary(last) : handle));
    row.append(face, text);
    const newest = last?.message_id || 0;
    if (!state.seen.has(chat.key)) state.seen.set(chat.key, newest);
    const isUnread = chat.key !== state.key && newest > state.seen.get(chat.key);
    if (isUnread) row.append(element("span", "unread", String(newest - state.seen.get(chat.key))));
    row.addEventListener("click", () => open(chat.key));
    return row;
  });
  const list = $("chats");
  const focused = [...list.children].indexOf(document.activeElement);
  list.replaceChildren(...rows);
  if (focused >= 0) list.children[focused]?.focus();
  if (!rows.length) list.append(element("p", "bar-note", "No bots yet."));
}

async function open(key) {
  state.key = key;
  state.thread = null;
  state.view = null;
  state.about = null;
  state.asked.clear();
  state.shown.clear();
  $("log").replaceChildren();
  $("app").dataset.view = key ? "chat" : "list";
  $("chat").hidden = !key;
  location.hash = key ? `${state.person}/${encodeURIComponent(key)}` : String(state.person ?? "");
  paintAbout();
  if (key) {
    await attempt(refreshChat);
    toEnd();
    if (matchMedia("(hover: hover)").matches) $("text").focus();
  }
  paintChats();
}

// -- one chat ----------------------------------------------------------------------------------

const hands = {
  get person() {
    return state.person;
  },
  get isGroup() {
    return current()?.type !== "private";
  },
  /** The topic to name beside a message: none where only one is shown. */
  topicOf(record) {
    const id = record.message.message_thread_id;
    return state.thread === null && id ? current()?.topics?.[id]?.name || "" : "";
  },
  command: (text, record) => attempt(() => say(text, { thread: record.message.message_thread_id })),
  react: (record, emoji) =>
    attempt(() => act("react", { chat: state.key, message_id: record.message_id, emoji, user: state.person })),
  reply: (record) => about("reply", record),
  edit: (record) => about("edit", record),
  remove: (record) => attempt(() => act("delete", { chat: state.key, message_id: record.message_id })),
  press: (record, button, key) => attempt(() => press(record, button, key)),
};

async function press(record, button, key) {
  key.setAttribute("aria-busy", "true");
  try {
    const made = await act("press", {
      chat: state.key,
      message_id: record.message_id,
      text: button.text,
      data: button.callback_data,
      user: state.person,
    });
    const answer = await answerTo(made.callback_query_id);
    if (!answer) toast("The bot has not answered yet.");
    else if (answer.text && answer.show_alert) {
      $("alert-text").textContent = answer.text;
      $("alert").showModal();
    } else if (answer.text) toast(answer.text);
  } finally {
    key.removeAttribute("aria-busy");
  }
}

async function answerTo(id) {
  const until = Date.now() + 12000;
  while (Date.now() < until) {
    const { cursor } = await look("clock");
    const found = await look("callback", { id });
    if (found.answer) return found.answer;
    await changes(cursor, 3);
  }
  return null;
}

function inThread(record) {
  return state.thread === null || (record.message_thread_id || record.message?.message_thread_id || 0) === state.thread;
}

function paintTopics(chat) {
  const bar = $("topics");
  const topics = Object.entries(chat.topics || {});
  bar.hidden = !hasTopics(chat) || !topics.length;
  $("new-topic").hidden = !hasTopics(chat);
  const chip = (name, thread) => {
    const made = element("button", "topic", name);
    made.type = "button";
    made.setAttribute("aria-pressed", String(state.thread === thread));
    made.addEventListener("click", () => {
      state.thread = thread;
      paintChat();
      toEnd();
    });
    return made;
  };
  bar.replaceChildren(
    chip("All", null),
    chip("General", 0),
    ...topics.map(([id, topic]) => chip(topic.name, Number(id))),
  );
}

function paintHead(chat) {
  paintFace($("chat-face"), nameOf(chat));
  $("chat-title").textContent = nameOf(chat);
  const note = $("chat-note");
  const action = state.view?.action && inThread(state.view.action) ? state.view.action : null;
  const drafts = (state.view?.drafts || []).filter(inThread);
  const isBusy = Boolean(action) || Boolean(drafts.length);
  note.className = isBusy ? "bar-note busy" : "bar-note";
  const doing = { typing: "is typing …", upload_document: "sends a file …", upload_photo: "sends a picture …" };
  if (isBusy) note.textContent = drafts.length ? "is writing …" : doing[action.action] || "is busy …";
  else if (chat.type === "private") note.textContent = `@${botOf(chat)?.username}`;
  else note.textContent = `${Object.keys(chat.members).length} members`;
}

function paintChat() {
  const chat = current();
  if (!chat) return;
  paintHead(chat);
  paintTopics(chat);
  const log = $("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
  const records = (state.view?.messages || []).filter(inThread);
  const drafts = (state.view?.drafts || []).filter(inThread);
  const wanted = records.map((record) => {
    const text = hands.topicOf(record) + JSON.stringify(record);
    const known = state.shown.get(record.message_id);
    if (known?.text === text) return known.node;
    const node = messageElement(record, hands);
    state.shown.set(record.message_id, { text, node });
    return node;
  });
  wanted.push(...drafts.map(draftElement));
  if (!wanted.length && state.view) wanted.push(chat.type === "private" ? startButton() : mentionHint(chat));
  // Only what differs is touched, so that a selection and an open menu stay.
  let at = log.firstChild;
  for (const node of wanted) {
    if (at === node) at = at.nextSibling;
    else log.insertBefore(node, at);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
  $("tries").hidden = chat.type !== "private" || chat.bot_id !== state.bots[0]?.id;
  paintInput(records);
  if (isAtEnd) toEnd();
  const newest = state.view?.messages.at(-1)?.message_id;
  if (newest && !document.hidden) state.seen.set(chat.key, newest);
}

function startButton() {
  const made = element("button", "start", "Start");
  made.type = "button";
  made.addEventListener("click", () => say("/start"));
  return made;
}

/** What to try with the first bot; each fills the field of the message. */
function paintTries() {
  $("tries").append(
    ...TRIES.map((text) => {
      const made = element("button", "topic", text);
      made.type = "button";
      made.addEventListener("click", () => {
        $("text").value = text;
        $("text").dispatchEvent(new Event("input", { bubbles: true }));
        $("text").focus();
      });
      return made;
    }),
  );
}

/** In a group that is empty: whom to talk to. */
function mentionHint(chat) {
  const made = element("p", "hint", "Agents of this group answer to their names:");
  for (const [handle] of handlesOf(chat)) {
    const button = element("button", "hint-name", handle);
    button.type = "button";
    button.addEventListener("click", () => mention(handle));
    made.append(button);
  }
  return made;
}

function toEnd() {
  const log = $("log");
  log.scrollTop = log.scrollHeight;
  $("down").hidden = true;
}

let fading = 0;
async function refreshChat() {
  const key = state.key;
  if (!key) return;
  const chat = current();
  if (chat?.isNew) await act("private", { user: chat.user_id, bot: chat.bot_id });
  const view = await look("messages", { chat: key });
  if (key !== state.key) return;
  state.view = view;
  const known = state.chats.findIndex((one) => one.key === key);
  if (known >= 0) state.chats[known] = { ...state.chats[known], ...view.chat };
  else state.chats.push(view.chat);
  paintChat();
  // Typing and drafts fade by themselves; no change tells of it.
  clearTimeout(fading);
  if (view.action || view.drafts.length) fading = setTimeout(() => attempt(refreshChat), ACTION_S * 1000 + 300);
}

// -- writing -----------------------------------------------------------------------------------

function about(kind, record, isAsked = false) {
  state.about = kind ? { kind, record, isAsked } : null;
  paintAbout();
  if (kind === "edit") $("text").value = record.message.text ?? record.message.caption ?? "";
  grow();
  const isElsewhere = isAsked && document.activeElement?.matches("input, select");
  if (kind && !isElsewhere) $("text").focus();
}

function neverMind() {
  if (state.about?.kind === "edit") $("text").value = "";
  about(null);
}

function me() {
  return state.users.find((user) => user.id === state.person) || { id: state.person };
}

function placeOf(record) {
  return `${record.chat}/${record.message_id}`;
}

/** What the messages that are there ask of the input, and whether what it is about is still there. */
function paintInput(records) {
  const asked = askedBy(records, me());
  if (state.about) {
    const now = records.find((one) => one.message_id === state.about.record.message_id);
    if (!now || (state.about.isAsked && now !== asked)) neverMind();
    else state.about.record = now;
    paintAbout();
  }
  if (asked && !state.about && !state.asked.has(placeOf(asked))) {
    state.asked.add(placeOf(asked));
    about("reply", asked, true);
  }
  paintKeys(keyboardOf(records, me()));
}

function paintKeys(record) {
  const isUp = Boolean(record) && state.keysUsed !== placeOf(record);
  const box = $("reply-keys");
  $("keys-toggle").hidden = !record;
  $("keys-toggle").setAttribute("aria-expanded", String(isUp));
  box.hidden = !isUp;
  const wanted = record ? `${placeOf(record)} ${JSON.stringify(record.input.keyboard)}` : "";
  if (box.dataset.of !== wanted) {
    box.dataset.of = wanted;
    box.replaceChildren(...(record?.input.keyboard || []).map((row) => keysRow(row, record)));
  }
  const reply = state.about?.kind === "reply" ? placeholderOf(state.about.record) : "";
  $("text").placeholder = reply || (isUp && placeholderOf(record)) || "Message";
}

function keysRow(row, record) {
  const line = element("div", "keys-row");
  for (const { text } of row) {
    const key = element("button", "reply-key", text);
    key.type = "button";
    key.addEventListener("click", () => {
      if (record.input.one_time_keyboard) state.keysUsed = placeOf(record);
      // In a group a bot hears what answers it.
      const replyTo = hands.isGroup ? record.message_id : undefined;
      attempt(() => say(text, { replyTo, thread: record.message.message_thread_id }));
      $("text").focus();
    });
    line.append(key);
  }
  return line;
}

function foldKeys() {
  const record = keyboardOf((state.view?.messages || []).filter(inThread), me());
  if (!record) return;
  state.keysUsed = state.keysUsed === placeOf(record) ? null : placeOf(record);
  paintKeys(record);
}

function paintAbout() {
  $("about").hidden = !state.about;
  if (!state.about) return;
  const verb = state.about.kind === "edit" ? "Edit" : "Reply to";
  $("about-text").textContent = `${verb}: ${summary(state.about.record.message)}`;
}

/** The topic that is open; where all are shown, that of the message replied to. */
function thread() {
  return state.thread ?? state.about?.record.message.message_thread_id;
}

async function say(text, place = {}) {
  const about = state.about?.kind === "reply" ? state.about.record.message_id : undefined;
  await act("say", {
    chat: state.key,
    text,
    user: state.person,
    thread: (place.thread ?? thread()) || undefined,
    reply_to: place.replyTo ?? about,
  });
  state.about = null;
  paintAbout();
  toEnd();
}

async function submit() {
  const text = $("text").value;
  if (!text.trim() || !state.key) return;
  const done = await attempt(async () => {
    if (state.about?.kind === "edit") {
      await act("edit", { chat: state.key, message_id: state.about.record.message_id, text, user: state.person });
      about(null);
    } else await say(text);
    return true;
  });
  if (done) {
    $("text").value = "";
    grow();
    offer();
    toEnd();
  }
}

async function upload(files) {
  for (const file of files) {
    const isPicture = /^image\/(png|jpeg|gif|webp)$/.test(file.type);
    const kind = isPicture ? "photo" : file.type.startsWith("audio/") ? "voice" : "document";
    const caption = $("text").value.trim();
    const facts = { chat: state.key, kind, caption: caption || undefined, user: state.person, thread: thread() || undefined };
    const done = await attempt(() => sendFile(file, facts));
    if (done && caption) {
      $("text").value = "";
      grow();
    }
  }
  toEnd();
}

function grow() {
  const box = $("text");
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight * 0.4)}px`;
}

function commandsOf(chat) {
  const found = new Map();
  const language = state.users.find((user) => user.id === state.person)?.language_code || "";
  const bots = chat.type === "private" ? [botOf(chat)] : state.bots.filter((bot) => chat.members[bot.id]);
  for (const bot of bots) {
    const sets = bot?.commands || {};
    const scope = chat.type === "private" ? "all_private_chats" : "all_group_chats";
    const order = [
      `chat|${chat.id ?? chat.user_id}|${language}`, `chat|${chat.id ?? chat.user_id}|`,
      `${scope}|${language}`, `${scope}|`, `default|${language}`, "default|",
    ];
    const set = order.map((key) => sets[key]).find((one) => one?.length);
    for (const one of set || []) if (!found.has(one.command)) found.set(one.command, one.description);
  }
  return [...found];
}

/** The bots of a group by their handle, which they listen to there. */
function handlesOf(chat) {
  if (!chat || chat.type === "private") return [];
  return state.bots.filter((bot) => chat.members[bot.id]).map((bot) => [`@${bot.username}`, bot.first_name]);
}

function mention(handle) {
  $("text").value = `${$("text").value.replace(/@\w*$/, "")}${handle} `;
  offer();
  $("text").focus();
}

function send(command) {
  $("text").value = "";
  offer();
  attempt(() => say(command));
}

/** What fits what is being typed: commands, in a group also bots. `all`: every command. */
function offer(all = false) {
  const chat = current();
  const text = $("text").value;
  const typed = /^\/\w*$/.exec(text) || /(?:^|\s)(@\w*)$/.exec(text);
  const word = all ? "/" : typed?.at(-1) || "";
  const known = word[0] === "@" ? handlesOf(chat) : commandsOf(chat).map(([name, about]) => [`/${name}`, about]);
  const fits = chat && word ? known.filter(([name]) => name.startsWith(word)) : [];
  const choose = word[0] === "@" ? mention : send;
  const list = $("commands");
  list.hidden = !fits.length;
  $("menu").setAttribute("aria-expanded", String(!list.hidden));
  list.replaceChildren(
    ...fits.map(([name, about]) => {
      const item = element("li");
      const button = element("button");
      button.type = "button";
      button.append(element("b", "", name), element("span", "", about));
      button.addEventListener("click", () => choose(name));
      item.append(button);
      return item;
    }),
  );
  if (all && !fits.length) toast("This bot has not published commands.");
}

// -- staying up to date ------------------------------------------------------------------------

async function refreshAll() {
  [state.bots, state.users, state.chats] = await Promise.all([look("bots"), look("users"), look("chats")]);
  if (!state.users.some((user) => user.id === state.person)) {
    const wanted = Number(location.hash.slice(1).split("/")[0]) || Number(recalled("person"));
    state.person = (state.users.find((user) => user.id === wanted) || state.users[0])?.id ?? null;
  }
  paintPeople();
  paintChats();
  if (state.key && current()) await refreshChat();
}

function connected(isIt, why = "") {
  $("connection").textContent = isIt ? "connected" : why;
  $("connection").className = isIt ? "bar-note" : "bar-note bad";
}

async function follow() {
  let cursor = null;
  for (;;) {
    try {
      if (cursor === null) {
        ({ cursor } = await look("clock"));
        await refreshAll();
        connected(true);
      }
      const told = await changes(cursor, POLL_S);
      if (told.cursor < cursor) {
        cursor = null;
        continue;
      }
      cursor = told.cursor;
      const kinds = new Set(told.changes.map((change) => change.kind));
      if (["bot", "user", "chat", "message"].some((kind) => kinds.has(kind))) await refreshAll();
      else if (told.changes.some((change) => change.chat === state.key)) await refreshChat();
    } catch (error) {
      cursor = null;
      connected(false, "not connected; is the demo still running?");
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
}

// -- the frame ---------------------------------------------------------------------------------

function listen() {
  $("compose").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
    if (event.key === "Escape") {
      neverMind();
      offer();
    }
  });
  $("text").addEventListener("input", () => {
    grow();
    offer();
  });
  $("text").addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) {
      event.preventDefault();
      upload([...event.clipboardData.files]);
    }
  });
  $("menu").addEventListener("click", () => offer($("commands").hidden));
  $("keys-toggle").addEventListener("click", foldKeys);
  $("attach").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", async () => {
    const files = [...$("file").files];
    $("file").value = "";
    await upload(files);
  });
  $("chat").addEventListener("dragover", (event) => event.preventDefault());
  $("chat").addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer) upload([...event.dataTransfer.files]);
  });
  $("about-off").addEventListener("click", neverMind);
  $("back").addEventListener("click", () => open(null));
  $("down").addEventListener("click", toEnd);
  $("log").addEventListener("scroll", () => {
    const log = $("log");
    $("down").hidden = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
  });
  $("new-topic").addEventListener("click", async () => {
    const name = prompt("Name of the new topic");
    if (!name?.trim()) return;
    const made = await attempt(() => act("topic", { chat: state.key, name: name.trim(), user: state.person }));
    if (made) {
      state.thread = made.message_thread_id;
      await attempt(refreshChat);
    }
  });
  $("person").addEventListener("change", () => {
    state.person = Number($("person").value);
    remember("person", String(state.person));
    open(null);
  });
  $("add-person").addEventListener("submit", async (event) => {
    event.preventDefault();
    const name = $("add-person-name").value.trim();
    const made = name && (await attempt(() => act("user", { first_name: name })));
    if (made) {
      $("add-person-name").value = "";
      state.person = made.id;
      remember("person", String(made.id));
      await attempt(refreshAll);
      open(null);
    }
  });
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    remember("theme", root.dataset.theme);
  });
  // The back button of a phone.
  addEventListener("hashchange", () => {
    const key = keyOfHash() || null;
    if (key !== state.key && (key === null || places().some((chat) => chat.key === key))) open(key);
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) attempt(refreshAll);
  });
}

function keyOfHash() {
  return decodeURIComponent(location.hash.slice(1).split("/")[1] || "");
}

async function begin() {
  const theme = recalled("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  listen();
  paintTries();
  await attempt(refreshAll);
  const key = keyOfHash();
  const isWide = matchMedia("(min-width: 44.01rem)").matches;
  const first = places().find((chat) => chat.key === key) || (isWide ? places()[0] : null);
  if (first) await open(first.key);
  await follow();
}

begin();
