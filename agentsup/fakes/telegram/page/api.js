// The control plane of the fake: the only thing this page talks to.

async function result(response) {
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Error(`the server answered ${response.status}`);
  }
  if (!body.ok) throw new Error(body.description || `the server answered ${response.status}`);
  return body.result;
}

function told(facts) {
  return Object.fromEntries(
    Object.entries(facts).filter(([, value]) => value !== undefined && value !== null),
  );
}

/** A view: bots, users, chats, messages, callback, clock. */
export async function look(view, query = {}) {
  const words = new URLSearchParams(told(query)).toString();
  return result(await fetch(`/_fake/${view}${words ? `?${words}` : ""}`, { cache: "no-store" }));
}

/** An action of a person: say, edit, press, react, delete, topic, user, private. */
export async function act(action, body) {
  return result(
    await fetch(`/_fake/${action}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(told(body)),
    }),
  );
}

/** A person sends a file; facts: chat, kind, caption, user, thread. */
export async function sendFile(file, facts) {
  const form = new FormData();
  for (const [name, value] of Object.entries(told(facts))) form.append(name, String(value));
  form.append("file", file, file.name);
  return result(await fetch("/_fake/send_file", { method: "POST", body: form }));
}

/** What changed after `cursor`; waits up to `seconds` for it. */
export function changes(cursor, seconds) {
  return look("wait", { after: cursor, timeout_s: seconds });
}

/** Where the bytes of a file are. */
export function fileUrl(unique) {
  return `/_fake/file/${encodeURIComponent(unique)}`;
}
