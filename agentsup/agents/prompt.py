"""What a model reads: the standing instructions and the envelope of a message. Pure."""

from __future__ import annotations

from agentsup.model.agent import AgentSpec
from agentsup.model.message import Kind, Message


def system_prompt(spec: AgentSpec, *, shared: str, peers: tuple[str, ...]) -> str:
    """The standing instructions: who the agent is, what everyone knows, whom it may ask."""
    blocks = [f"You are {spec.name}, an agent run by agentsup."]
    if spec.description:
        blocks[0] += f" {spec.description}"
    if spec.prompt:
        blocks.append(spec.prompt)
    if peers:
        blocks.append(
            "Other agents you can ask with the tool ask_agent (it waits for the answer) or "
            "ask_agent_async (the answer comes as a message later): " + ", ".join(peers) + "."
        )
    if shared.strip():
        blocks.append(f"Shared knowledge of all agents:\n{shared.strip()}")
    return "\n\n".join(blocks)


def envelope(message: Message) -> str:
    """The message as the model should read it: with its sender, unless a person just chats."""
    sender = message.principal.label
    if message.kind is Kind.REPLY:
        head = f"[Answer to your earlier request {message.in_reply_to}, from agent {sender}]"
    elif message.sender_agent_id:
        head = (
            f"[Message {message.message_id} from agent {sender}"
            f"{f', thread {message.thread_id}' if message.thread_id else ''}. "
            "Your answer goes back to that agent.]"
        )
    else:
        return _with_files(message)
    return f"{head}\n{message.text}"


def _with_files(message: Message) -> str:
    """The text, and where in the workspace the files lie that came with it."""
    files = [
        f"[file: {part.path}" + (f" ({' '.join(part.name.split())})]" if part.name else "]")
        for part in message.parts
        if part.type == "file"
    ]
    return "\n".join([message.text, *files] if message.text else files)


def title_of(text: str) -> str:
    """A session's title: the first line of its first message, at most 60 characters."""
    line = next((each.strip() for each in text.splitlines() if each.strip()), "")
    return line if len(line) <= 60 else line[:59].rstrip() + "…"
