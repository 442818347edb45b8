"""The texts that a model reads: the system prompt and the envelope of a message. Pure."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from agentsup.agents.persona.profile import filled
from agentsup.model.agent import AgentSpec
from agentsup.model.message import Message, MessageKind

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def system_prompt(
    spec: AgentSpec,
    *,
    shared: str,
    peers: tuple[str, ...],
    team: str = "",
    skills: tuple[str, ...] = (),
) -> str:
    """The system prompt: who the agent is, its skills, its team, the agents that it may ask, and
    the shared memory."""
    known_as = f" (agent {spec.name})" if spec.called != spec.name else ""
    blocks = [f"You are {spec.called}{known_as}, an agent run by agentsup."]
    if spec.description:
        blocks[0] += f" {spec.description}"
    if spec.prompt:
        blocks.append(filled(spec.prompt, spec))
    if skills:
        blocks.append("\n\n".join(["What you can:", *skills]))
    if team:
        blocks.append(team)
    if peers:
        blocks.append(
            "Other agents you can ask with the tool ask_agent (it waits for the answer) or "
            "ask_agent_async (the answer comes as a message later): " + ", ".join(peers) + "."
        )
    if shared.strip():
        blocks.append(f"Shared knowledge of all agents:\n{shared.strip()}")
    return "\n\n".join(blocks)


def joined(*parts: str) -> str:
    """The parts that are not empty, as one text."""
    return "\n\n".join(part for part in parts if part)


def now(at: int, zone: str) -> str:
    """The time ``at`` (wall-clock ms) as the model reads it, in the time zone of that name.

    It stands after the message, so that the system prompt stays the same and can be cached.
    """
    here = datetime.fromtimestamp(at / 1000, ZoneInfo(zone))
    return f"[Now: {_WEEKDAYS[here.weekday()]} {here:%Y-%m-%d %H:%M} {zone}]"


def envelope(message: Message) -> str:
    """The message as the model reads it: with its sender, except for a person's chat message."""
    sender, thread = message.principal.label, message.thread_id or message.root_id
    if message.kind is MessageKind.TASK:
        what = message.summary or f"run {message.message_id}"
        head = (
            f"[Work handed on to you by {sender}: {what}, message {message.message_id}. Your answer "
            "is its result and goes back by itself.]"
        )
    elif message.kind is MessageKind.DIRECTIVE and message.deliver_to.kind == "question":
        what = message.summary or f"run {message.in_reply_to}"
        head = f"[Question about {what}, from agent {sender}. Your answer goes back to that work.]"
    elif message.kind is MessageKind.DIRECTIVE:
        what = message.summary or f"run {message.in_reply_to}"
        head = f"[Note on {what}, from {sender}]"
    elif message.kind is MessageKind.REPLY and message.summary:
        head = f"[Result of {message.summary}, from agent {sender}]"
    elif message.kind is MessageKind.REPLY:
        head = (
            f"[Answer to your earlier request {message.in_reply_to}, from agent {sender}; message "
            f"{message.message_id}, thread {thread}]"
        )
    elif message.kind is MessageKind.BROADCAST:
        head = (
            f"[Broadcast, message {message.message_id} from {sender}, thread {thread}. "
            "Nobody waits for an answer.]"
        )
    elif message.kind is MessageKind.EVENT:
        head = f"[Event, message {message.message_id}. Nobody waits for an answer.]"
    elif message.sender_agent_id:
        head = (
            f"[Message {message.message_id} from agent {sender}, thread {thread}. "
            "Your answer goes back to that agent.]"
        )
    else:
        return _with_files(message)
    return f"{head}\n{message.text}"


def _with_files(message: Message) -> str:
    """The text, and the workspace paths of the files that came with it."""
    files = [
        f"[file: {part.path}" + (f" ({' '.join(part.name.split())})]" if part.name else "]")
        for part in message.parts
        if part.type == "file"
    ]
    return "\n".join([message.text, *files] if message.text else files)
