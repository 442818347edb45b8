"""Carries a plan out: all of it or nothing.

Files that are new are written first, then agents.json, and last one transaction of the store. If a
step fails, what the earlier ones made is taken back. After a kill the same command brings the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath

from agentsup.agents.memory import MemoryOwner, MemoryScope, append_tx, draft, rows
from agentsup.cli.commands.home_files import change_file, create_home, errors_of
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.moving.foreign_home import ForeignAgent, ForeignChat
from agentsup.cli.moving.plan import MovePlan
from agentsup.cli.moving.source import MAX_FILE
from agentsup.config import Home, listed, with_entry, with_fields
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import Entropy, SystemEntropy
from agentsup.kit.files import HomeLock, HomeLocked, write_atomic
from agentsup.kit.safe_files import GuardedFolder
from agentsup.mailbox.messages import chat_key, sessions
from agentsup.model.errors import AgentsupError
from agentsup.model.principal import OPERATORS
from agentsup.store import Database, StoreRecord, Tx, agents
from agentsup.tasks import imported

_MAIN_ONLY = """{
  "$schema": "./agents.schema.json",
  "agents": [
    {
      "name": "main"
    }
  ]
}
"""


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of an import."""

    files: int
    memories: int
    tasks: int
    chats: int
    backup: str = ""
    """The copy of the old agents.json."""


def apply_move(plan: MovePlan, home: Home) -> Brought:
    """Bring everything of the plan. Raises ``CommandFailed``; then nothing has changed."""
    with contextlib.ExitStack() as undo:
        try:
            _make_home(home, undo)
            with HomeLock(home.lock):
                _write_files(plan, home, undo)
                backup = _write_entries(plan, home, undo)
                brought = asyncio.run(_write_store(plan, home))
        except HomeLocked:
            raise CommandFailed(
                f"a daemon runs for {home.root}; end it first with `agentsup stop`. Nothing was changed"
            ) from None
        except OSError as error:
            where = error.filename or home.root
            why = error.strerror or error
            raise CommandFailed(f"{where} can't be written: {why}. Nothing was changed") from None
        except AgentsupError as error:
            raise CommandFailed(f"{error}. Nothing was changed") from error
        undo.pop_all()  # everything is durable: nothing is taken back
    return replace(brought, files=len(plan.files), backup=backup)


def check_plan(plan: MovePlan, home: Home) -> None:
    """Raise ``CommandFailed`` if agents.json would be wrong with the new entries."""
    data = _content(GuardedFolder(home.root), home.agents_json.name) if home.root.is_dir() else None
    text = data.decode("utf-8-sig") if data is not None else _MAIN_ONLY
    if errors := errors_of(home, _with_entries(text, plan).encode()):
        raise CommandFailed(f"agents.json would not be right with this: {errors[0]}")


# -- files -----------------------------------------------------------------------------------------


def _make_home(home: Home, undo: contextlib.ExitStack) -> None:
    """Make the home if there is none: with main alone, as the others come from elsewhere."""
    if any(path.exists() for path in home.watched):
        return
    if not home.root.exists():
        undo.callback(shutil.rmtree, home.root, ignore_errors=True)
    home.create()
    write_atomic(home.agents_json, _MAIN_ONLY.encode())
    for path in (home.agents_json, *create_home(home)):
        undo.callback(path.unlink, missing_ok=True)


def _write_files(plan: MovePlan, home: Home, undo: contextlib.ExitStack) -> None:
    """Write the new files. Agents may have planted links among theirs; none is followed."""
    folder = GuardedFolder(home.root)
    for name, data in plan.files.items():
        for parent in reversed(PurePath(name).parents[:-1]):
            if not folder.has(str(parent)):
                folder.make(str(parent), mode=0o700)
                undo.callback(_remove_if_empty, folder, str(parent))
        undo.callback(_put_back, folder, name, _content(folder, name))
        folder.write(name, data, mode=0o700 if name in plan.executable else 0o600)


def _content(folder: GuardedFolder, name: str) -> bytes | None:
    try:
        return folder.head(name, MAX_FILE)[0]
    except FileNotFoundError:
        return None


def _remove_if_empty(folder: GuardedFolder, name: str) -> None:
    with contextlib.suppress(OSError):
        folder.remove(name)


def _put_back(folder: GuardedFolder, name: str, old: bytes | None) -> None:
    if old is None:
        folder.remove(name)
    else:
        folder.write(name, old, mode=0o600)


def _write_entries(plan: MovePlan, home: Home, undo: contextlib.ExitStack) -> str:
    """Add what is new to agents.json by one checked edit; returns the copy of the old one."""
    if not any(plan.fields.values()) and not plan.new_agents:
        return ""
    folder, name = GuardedFolder(home.root), home.agents_json.name
    undo.callback(_put_back, folder, name, _content(folder, name))
    return change_file(home, lambda text: _with_entries(text, plan))


def _with_entries(text: str, plan: MovePlan) -> str:
    known = {name.casefold() for name in listed(text).names}
    for name, fields in plan.fields.items():
        if name.casefold() in known:
            text = with_fields(text, name, fields)
        else:
            text = with_entry(text, {"name": name, **fields})
    return text


# -- the store -------------------------------------------------------------------------------------


async def _write_store(plan: MovePlan, home: Home) -> Brought:
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    record = StoreRecord(home.state_db, now_ms=clock.now_ms, new_id=lambda: entropy.new_id("store"))
    database = await Database.open(home.state_db, clock=clock, record=record)
    try:
        return await database.write(partial(_put_tx, plan, entropy, clock.now_ms()), name="moving")
    finally:
        await database.close()


def _put_tx(plan: MovePlan, entropy: Entropy, now: int, tx: Tx) -> Brought:
    """Put in everything that is not here yet, in one transaction."""
    ids = {each.name: _agent_id_tx(tx, each.name, entropy, now) for each in plan.found.agents}
    memories = sum(
        _memories_tx(tx, each, ids[each.name], entropy, now) for each in plan.found.agents
    )
    tasks = 0
    for each, new in plan.tasks:
        agent_id = ids[each.agent]
        chat = new.deliver_to and replace(new.deliver_to, agent_id=agent_id)
        task = replace(new, deliver_to=chat)
        tasks += imported.put_tx(tx, each.task_id, agent_id, task, at=now, is_paused=each.is_paused)
    chats = sum(_chat_tx(tx, chat, ids[chat.agent], entropy, now) for chat in plan.chats)
    return Brought(0, memories, tasks, chats)


def _agent_id_tx(tx: Tx, name: str, entropy: Entropy, now: int) -> str:
    for agent_id, known in agents.names(tx).items():
        if known.casefold() == name.casefold():
            return agent_id
    agent_id = entropy.new_id("agt")
    agents.put_tx(tx, agent_id, name, desired="up", is_present=True, overrides="{}", at=now)
    return agent_id


def _memories_tx(tx: Tx, agent: ForeignAgent, agent_id: str, entropy: Entropy, now: int) -> int:
    owner = MemoryOwner(agent_id, person=OPERATORS)
    count = 0
    for each in agent.memories:
        wanted = draft(each.key, each.content, scope=MemoryScope.AGENT.value, tags=each.tags)
        if rows.under_key(tx, agent_id, wanted.key):
            continue
        saved = rows.save_tx(tx, owner, wanted, entropy.new_id("mem"), now)
        # Its owner was everybody's memory there, and an operator has asked for this.
        rows.share_tx(tx, agent_id, saved.entry.seen, MemoryScope.AGENT, OPERATORS, now)
        count += 1
    return count


def _chat_tx(tx: Tx, chat: ForeignChat, agent_id: str, entropy: Entropy, now: int) -> int:
    """Let the chat go on where it was, unless there is one already."""
    key = chat_key(chat.channel, chat.conversation)
    if sessions.current(tx, agent_id, key) is not None:
        return 0
    session = sessions.new_tx(tx, agent_id, key, at=now, entropy=entropy, title=chat.title[:200])
    for line in chat.lines:
        append_tx(
            tx, session_id=session, message_id="", role=line.role, text=line.text, at=line.at or now
        )
    return 1
