// What bots ask of the person's input: a keyboard of their own, or a reply to a message.

function concerns(record, person, username) {
  if (!record.input.selective) return true;
  const { message } = record;
  if (message.reply_to_message?.from?.id === person) return true;
  const text = message.text ?? message.caption ?? "";
  return (message.entities || message.caption_entities || []).some((one) => {
    if (one.type === "text_mention") return one.user?.id === person;
    const covered = text.slice(one.offset, one.offset + one.length);
    return one.type === "mention" && Boolean(username) && covered.toLowerCase() === `@${username.toLowerCase()}`;
  });
}

/** The record whose keys are to be shown, or null. The last word of each bot counts. */
export function keyboardOf(records, { id, username }) {
  const decided = new Set();
  for (const record of [...records].reverse()) {
    const { input } = record;
    if (!input || decided.has(record.by) || !concerns(record, id, username)) continue;
    if (input.keyboard) return record;
    if (input.remove_keyboard) decided.add(record.by);
  }
  return null;
}

/** The record that waits for a reply of this person, or null. Whatever they say since ends it. */
export function askedBy(records, { id, username }) {
  for (const record of [...records].reverse()) {
    if (record.by === id) return null;
    if (record.input?.force_reply && concerns(record, id, username)) return record;
  }
  return null;
}

/** What the empty text field says. */
export function placeholderOf(record) {
  return record?.input?.input_field_placeholder || "";
}
