// One message, draft or service line as DOM.

import { fileUrl } from "./api.js";
import { element, words } from "./entities.js";

const QUICK = ["👍", "❤", "🔥", "👀", "👌", "🤔", "👎"];

export function summary(message) {
  if (!message) return "";
  const text = message.text || message.caption;
  if (text) return text.replace(/\s+/g, " ");
  if (message.document) return `📄 ${message.document.file_name || "file"}`;
  if (message.photo) return "🖼 picture";
  if (message.voice) return "🎤 voice message";
  return service(message) || "message";
}

export function service(message) {
  const who = message.from ? message.from.first_name : "someone";
  const names = (people) => people.map((one) => one.first_name).join(", ");
  if (message.forum_topic_created) return `${who} opened the topic “${message.forum_topic_created.name}”`;
  if (message.forum_topic_edited) return `the topic is called “${message.forum_topic_edited.name}” now`;
  if (message.forum_topic_closed) return "the topic was closed";
  if (message.forum_topic_reopened) return "the topic was opened again";
  if (message.new_chat_members) return `${names(message.new_chat_members)} joined`;
  if (message.left_chat_member) return `${message.left_chat_member.first_name} left`;
  if (message.migrate_to_chat_id) return "this group became a supergroup";
  if (message.migrate_from_chat_id) return "a group became this supergroup";
  return "";
}

function size(bytes) {
  if (!bytes) return "";
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 1024)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

function attached(message) {
  if (message.photo && message.photo.length) {
    const best = message.photo[message.photo.length - 1];
    const made = element("img", "photo");
    made.src = fileUrl(best.file_unique_id);
    made.alt = message.caption || "picture";
    if (best.width && best.height) {
      made.width = best.width;
      made.height = best.height;
    }
    made.style.height = "auto";
    return made;
  }
  if (message.voice) {
    const made = element("audio");
    made.controls = true;
    made.src = fileUrl(message.voice.file_unique_id);
    return made;
  }
  if (message.document) {
    const name = message.document.file_name || "file";
    const made = element("a", "file");
    made.href = fileUrl(message.document.file_unique_id);
    made.download = name;
    made.append(element("span", "file-mark", "↓"));
    const text = element("span");
    text.append(element("span", "file-name", name));
    text.append(element("span", "file-size", size(message.document.file_size)));
    made.append(text);
    return made;
  }
  return null;
}

function keyboard(record, hands) {
  const rows = record.message.reply_markup?.inline_keyboard || [];
  if (!rows.length) return null;
  const made = element("div", "keys");
  for (const row of rows) {
    const line = element("div", "keys-row");
    for (const button of row) {
      const isLink = Boolean(button.url) && /^(https?|tg):/.test(button.url);
      const key = element(isLink ? "a" : "button", "key", button.text);
      if (isLink) {
        key.href = button.url;
        key.target = "_blank";
        key.rel = "noopener noreferrer";
      } else {
        key.type = "button";
        key.addEventListener("click", () => hands.press(record, button, key));
      }
      line.append(key);
    }
    made.append(line);
  }
  return made;
}

function reactions(record, hands) {
  const counts = new Map();
  const own = new Set();
  for (const [who, given] of Object.entries(record.reactions || {})) {
    for (const one of given) {
      counts.set(one.emoji, (counts.get(one.emoji) || 0) + 1);
      if (who === String(hands.person)) own.add(one.emoji);
    }
  }
  if (!counts.size) return null;
  const made = element("div", "reactions");
  for (const [emoji, count] of counts) {
    const chip = element("button", own.has(emoji) ? "reaction own" : "reaction");
    chip.type = "button";
    chip.textContent = count > 1 ? `${emoji} ${count}` : emoji;
    chip.addEventListener("click", () => hands.react(record, own.has(emoji) ? [] : [emoji]));
    made.append(chip);
  }
  return made;
}

function actions(record, hands) {
  const made = element("div", "actions");
  const add = (text, label, act) => {
    const one = element("button", "action", text);
    one.type = "button";
    if (label) one.setAttribute("aria-label", label);
    one.addEventListener("click", () => {
      made.remove();
      act();
    });
    made.append(one);
  };
  for (const emoji of QUICK) add(emoji, `react with ${emoji}`, () => hands.react(record, [emoji]));
  add("Reply", "", () => hands.reply(record));
  if (String(record.by) === String(hands.person)) {
    if ((record.message.text ?? record.message.caption) !== undefined) add("Edit", "", () => hands.edit(record));
    add("Delete", "", () => hands.remove(record));
  }
  return made;
}

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** Whether an edit changed the words; one of the buttons alone is not told, as in Telegram. */
function wasReworded(record) {
  const now = record.message.text ?? record.message.caption ?? "";
  return (record.history || []).some((one) => (one.text ?? one.caption ?? "") !== now);
}

/** A record of the control plane as an element. `hands` are the things a person can do. */
export function messageElement(record, hands) {
  const message = record.message;
  const told = service(message);
  if (told) return element("div", "service", told);
  const isMine = String(record.by) === String(hands.person);
  const made = element("article", isMine ? "message mine" : "message");
  const bubble = element("div", "bubble");
  const sender = !isMine && hands.isGroup ? message.from?.first_name || "" : "";
  const topic = hands.topicOf(record);
  if (sender || topic) {
    const head = element("div", "sender", sender);
    if (topic) head.append(element("span", "in-topic", sender ? ` in ${topic}` : `in ${topic}`));
    bubble.append(head);
  }
  const quoted = message.reply_to_message;
  if (quoted && !quoted.forum_topic_created) bubble.append(element("div", "quote-of", summary(quoted)));
  const file = attached(message);
  if (file) bubble.append(file);
  const text = message.text ?? message.caption;
  if (text) bubble.append(words(text, message.entities || message.caption_entities, (command) => hands.command(command, record)));
  const foot = element("div", "foot");
  if (wasReworded(record)) foot.append(element("span", "", "edited"));
  foot.append(element("time", "", clock(message.date)));
  const more = element("button", "more", "⋯");
  more.type = "button";
  more.setAttribute("aria-label", "What to do with this message");
  more.addEventListener("click", () => {
    const open = made.querySelector(".actions");
    if (open) open.remove();
    else made.append(actions(record, hands));
  });
  foot.append(more);
  bubble.append(foot);
  made.append(bubble);
  for (const part of [keyboard(record, hands), reactions(record, hands)]) if (part) made.append(part);
  return made;
}

/** A text that is being written. */
export function draftElement(draft) {
  const made = element("article", "message");
  const bubble = element("div", "bubble draft");
  if (draft.text) bubble.append(words(draft.text, draft.entities || []));
  const foot = element("div", "foot");
  foot.append(element("span", "dots", "writing "));
  bubble.append(foot);
  made.append(bubble);
  return made;
}
