// Text with entities to DOM nodes. Everything goes in as text, never as markup.
// Offsets count UTF-16 units, which is what JavaScript strings count too.

const LINKS = new Set(["http:", "https:", "mailto:", "tg:"]);

export function element(name, className = "", text = undefined) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function link(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return element("span");
  }
  if (!LINKS.has(url.protocol)) return element("span");
  const made = element("a");
  made.href = url.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}

/** The outer and the inner element that an entity becomes. */
function wrapper(entity, text, onCommand) {
  const covered = text.slice(entity.offset, entity.offset + entity.length);
  const plain = { bold: "b", italic: "i", underline: "u", strikethrough: "s", code: "code" };
  if (plain[entity.type]) {
    const made = element(plain[entity.type]);
    return [made, made];
  }
  if (entity.type === "pre") {
    const pre = element("pre");
    pre.tabIndex = 0; // so that a keyboard can scroll long lines
    if (entity.language) pre.append(element("span", "language", entity.language));
    const code = element("code");
    pre.append(code);
    return [pre, code];
  }
  if (entity.type === "blockquote" || entity.type === "expandable_blockquote") {
    const quote = element("blockquote");
    if (entity.type === "expandable_blockquote") {
      quote.className = "folded";
      quote.title = "Show all";
      quote.addEventListener("click", () => quote.classList.toggle("folded"));
    }
    return [quote, quote];
  }
  if (entity.type === "spoiler") {
    const made = element("span", "spoiler");
    made.title = "Show";
    made.addEventListener("click", () => made.classList.add("seen"));
    return [made, made];
  }
  if (entity.type === "bot_command" && onCommand) {
    const made = element("button", "command");
    made.type = "button";
    made.addEventListener("click", () => onCommand(covered));
    return [made, made];
  }
  let made = element("span");
  if (entity.type === "text_link") made = link(entity.url || "");
  else if (entity.type === "url") made = link(/^\w+:/.test(covered) ? covered : `https://${covered}`);
  else if (entity.type === "email") made = link(`mailto:${covered}`);
  return [made, made];
}

function fill(parent, text, begin, end, entities, onCommand) {
  let at = begin;
  let index = 0;
  while (index < entities.length) {
    const entity = entities[index];
    const from = Math.max(entity.offset, at);
    const to = Math.min(entity.offset + entity.length, end);
    index += 1;
    if (to <= from) continue;
    if (from > at) parent.append(text.slice(at, from));
    const inside = [];
    const after = [];
    for (const other of entities.slice(index)) {
      const otherEnd = other.offset + other.length;
      if (other.offset < to) inside.push(other);
      // One that reaches over the edge goes on behind it.
      if (otherEnd > to) after.push(other.offset < to ? { ...other, offset: to, length: otherEnd - to } : other);
    }
    const [outer, inner] = wrapper(entity, text, onCommand);
    fill(inner, text, from, to, inside, onCommand);
    parent.append(outer);
    at = to;
    // A block ends its line by itself.
    const isBlock = outer.tagName === "PRE" || outer.tagName === "BLOCKQUOTE";
    if (isBlock && at < end && text[at] === "\n") at += 1;
    entities = after;
    index = 0;
  }
  if (at < end) parent.append(text.slice(at, end));
}

/** An element that shows `text` with its `entities`. `onCommand(text)`: a command was chosen. */
export function words(text, entities = [], onCommand = null) {
  const made = element("div", "words");
  made.dir = "auto";
  const sorted = [...entities]
    .filter((one) => Number.isInteger(one.offset) && Number.isInteger(one.length))
    .sort((a, b) => a.offset - b.offset || b.length - a.length);
  fill(made, text, 0, text.length, sorted, onCommand);
  return made;
}
