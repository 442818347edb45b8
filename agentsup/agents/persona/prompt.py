"""The texts that a model reads: the system prompt and its parts, and the envelope of a message.

A skill is the name of a file ``skills/<name>.md`` in the home, or the text itself. If there is no
file of that name, the name itself is the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from zoneinfo import ZoneInfo

from agentsup.config import timed_reads
from agentsup.kit.safe_files import read_plain
from agentsup.mailbox.mail import DirectoryEntry
from agentsup.model.agent import AgentSpec
from agentsup.model.message import Message, MessageKind
from agentsup.model.name import name_problem

SKILLS = "skills"
"""The folder of skill files in the home."""
MAX_SKILL_BYTES = 64 * 1024
"""A longer file is cut: every turn would pay for it."""
_LIMIT_S = 0.25
_PLACEHOLDERS = re.compile(r"\{(nickname|name|role|team)\}")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_ROLES, ROLE_CHARS = 12, 80
"""The largest number of roles that are named, and of characters shown of each description."""
_IN_ROLES = frozenset({"delegate_task", "task_create", "agent_spawn", "mixture_of_agents"})
_HEAD = "Work can be handed on; whoever gets it sees only what you write to them:"
_ABOUT = {
    "delegate_task": "has a task done for you in the place of another agent or in a role, on your "
    "budget, and brings back the answer",
    "task_create": "begins a task that goes on in the background, now, later or again and again; its "
    "result comes as a message",
    "agent_spawn": "starts a run that you look after with agent_wait, agent_steer and agent_stop",
    "route_to_agent": "gives work to the agent that fits it best",
    "dispatch_team": "gives work to several agents at once and brings back all answers",
    "mixture_of_agents": "puts one question to several agents",
    "broadcast_to_agents": "tells or asks all of them",
}
TOOLS = tuple(_ABOUT)
"""The tools that the notes explain."""


def filled(text: str, spec: AgentSpec) -> str:
    """``text`` with the agent's values for ``{nickname}``, ``{name}``, ``{role}`` and ``{team}``;
    other braces stay as they are."""
    facts = {
        "nickname": spec.called,
        "name": spec.name,
        "role": spec.role or "",
        "team": spec.team or "",
    }
    return _PLACEHOLDERS.sub(lambda found: facts[found[1]], text)


def team_block(spec: AgentSpec, everyone: Iterable[DirectoryEntry]) -> str:
    """The members of the agent's team except itself; empty if it has no team or is alone in it."""
    if not spec.team:
        return ""
    own = spec.name.casefold()
    mates = [
        each
        for each in everyone
        if each.team.casefold() == spec.team.casefold() and each.name.casefold() != own
    ]
    if not mates:
        return ""
    return "\n".join([f"With you in team {spec.team}:", *map(_line, mates)])


def _line(mate: DirectoryEntry) -> str:
    called = mate.nickname or mate.name
    known_as = f" (agent {mate.name})" if called != mate.name else ""
    role = f", {mate.role}" if mate.role else ""
    can = f"; {', '.join(mate.capabilities)}" if mate.capabilities else ""
    about = f": {mate.description}" if mate.description else ""
    return f"- {called}{known_as}{role}{can}{about}"


def skill_texts(folder: Path, skills: Sequence[str]) -> tuple[str, ...]:
    """The text of each skill; changed files are read again. If a file can't be read in time, the
    skill's name is its text. Blocks for 0.25 s at most, and not again while that file hangs."""
    return tuple(_skill(folder, each) for each in skills)


def _skill(folder: Path, skill: str) -> str:
    if name_problem(skill):
        return skill.strip()
    path = folder / f"{skill}.md"
    try:
        return timed_reads().run(partial(_text, path), _LIMIT_S, key=f"{path}") or skill
    except OSError:
        return skill


def _text(path: Path) -> str:
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=256)
def _read(path: Path, mtime_ns: int, size: int) -> str:
    """Read a small file. Its time and size are part of the cache key."""
    del mtime_ns, size
    return read_plain(path, MAX_SKILL_BYTES).decode("utf-8", "replace").strip()


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


@lru_cache(maxsize=256)  # each turn asks, for a few kinds of agents
def delegation_notes(offered: tuple[str, ...], roles: tuple[tuple[str, str], ...] = ()) -> str:
    """A line for each offered tool, then the roles in which work can be done.

    ``roles`` are names and descriptions. Empty if no tool of delegation is offered.
    """
    names = set(offered)
    lines = [f"- {name} {about}." for name, about in _ABOUT.items() if name in names]
    if roles and names & _IN_ROLES:
        described = [
            f"{name} ({_short(about)})" if about else name for name, about in roles[:MAX_ROLES]
        ]
        more = f", and {len(roles) - MAX_ROLES} more" if len(roles) > MAX_ROLES else ""
        lines.append(f"Roles that it can be done in: {'; '.join(described)}{more}.")
    return "\n".join([_HEAD, *lines]) if lines else ""


def _short(text: str) -> str:
    return text.rstrip(".") if len(text) <= ROLE_CHARS else text[: ROLE_CHARS - 1] + "…"
