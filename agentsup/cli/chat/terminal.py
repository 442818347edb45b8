"""Chat in a terminal: a prompt that stays usable while answers stream in above it."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from agentsup.cli.chat.conversation import Conversation, Kind, Shown
from agentsup.cli.chat.link import Link
from agentsup.cli.chat.painter import OLD_SHOWN, Painter
from agentsup.cli.client import Client
from agentsup.cli.failure import Failed
from agentsup.cli.locate import Place
from agentsup.cli.show import is_plain, painted
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.kit.tasks import TaskOwner
from agentsup.kit.terminal import clean, clean_painted

HISTORY: Final = "chat.history"
LOCAL: Final = {"/quit": "leave the chat"}
PROMPT: Final = "› "
_COMMAND = re.compile(r"^\s*/([a-z_]+)", re.MULTILINE)


async def chat_in_terminal(place: Place, agent: str, conversation: str, *, warns: bool) -> int:
    """Talk until the person leaves with Ctrl-D or /quit."""
    clock = SystemClock()
    entropy = SystemEntropy(clock)
    talk = Conversation(agent, conversation, lambda: entropy.new_id("say"), warns)
    words = Words(_agent_names(place))
    plain = is_plain(sys.stdout)
    session: PromptSession[str] = PromptSession(
        history=_history(place),
        completer=words,
        complete_while_typing=False,
        # The line being written stands above the prompt; it must not stay behind with each input.
        erase_when_done=True,
    )

    def write(line: str) -> None:
        write_above(session, line)

    def tell(text: str) -> None:
        write(painted(f"* {text}", "dim", plain=plain))

    painter = Painter(write, lambda: shutil.get_terminal_size().columns, plain)
    history: list[Shown] = []

    def show(one: Shown) -> None:
        if one.kind is Kind.COMMANDS:
            words.commands = sorted({f"/{name}" for name in _COMMAND.findall(one.text)})
        elif one.old and one.kind is not Kind.WELCOME:
            history.append(one)
        else:
            for old in history[-OLD_SHOWN:]:
                painter.show(old)
            history.clear()
            painter.show(one)
        session.app.invalidate()

    def message() -> StyleAndTextTuples:
        tail = clean(painter.tail)
        return [("", f"{tail}\n" if tail else ""), ("bold", PROMPT)]

    link = Link(place, talk, clock=clock, show=show, tell=tell)
    tasks = TaskOwner("chat", on_error=lambda task, error: None)
    connected = tasks.spawn(link.run(), name="link:chat")
    asking = tasks.spawn(_ask(session, link, talk, message, write), name="prompt:chat")
    try:
        await asyncio.wait({connected, asking}, return_when=asyncio.FIRST_COMPLETED)
        for task in (connected, asking):
            if task.done():
                task.result()
    finally:
        await tasks.close(2.0)
    if texts := talk.unconfirmed:
        raise Failed(
            f"{len(texts)} text(s) were not confirmed by the daemon and may not have arrived: "
            + "; ".join(text[:60] for text in texts)
        )
    return 0


def write_above(session: PromptSession[str], line: str) -> None:
    """Print a line above the prompt, which is drawn anew below it.

    The terminal stays in raw mode meanwhile: leaving it, as `patch_stdout` does, would for that
    moment turn Ctrl-C into a signal and lose a Ctrl-D.
    """
    line = clean_painted(line)
    app = session.app
    if not app.is_running:
        print(line, flush=True)
        return
    app.renderer.erase()
    app.output.write_raw(line + "\r\n")
    app.output.flush()
    app.renderer.request_absolute_cursor_position()
    app.invalidate()


async def _ask(
    session: PromptSession[str],
    link: Link,
    talk: Conversation,
    message: object,
    write: Callable[[str], None],
) -> None:
    while talk.seq is None:  # what is said first, the greeting or why there is none, comes first
        link.changed.clear()
        await link.changed.wait()
    await link.say("/help", quiet=True)
    while True:
        try:
            text = await session.prompt_async(message)  # type: ignore[arg-type]  # a callable that gives formatted text
        except KeyboardInterrupt:
            continue  # Ctrl-C drops what was typed
        except EOFError:
            return
        if text.strip() in {"/quit", "/exit"}:
            return
        if text.strip():
            write(PROMPT + text)
            await link.say(text)


class Words(Completer):
    """Completes commands at the beginning of the line and agents' names after it."""

    def __init__(self, agents: list[str]) -> None:
        """`agents` are names; commands are learnt from the daemon."""
        self.agents = agents
        self.commands: list[str] = []

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Commands for a word with a slash, names for any other."""
        before = document.text_before_cursor
        word = before.rpartition(" ")[2]
        known = (
            [*self.commands, *LOCAL]
            if before.startswith("/") and " " not in before
            else self.agents
        )
        for each in known:
            if word and each.casefold().startswith(word.casefold()):
                yield Completion(each, start_position=-len(word))


def _agent_names(place: Place) -> list[str]:
    try:
        found = Client.to(place).get("/interagent/agents", timeout_s=2.0)
        return [str(name) for name in found["agents"]]
    except (Failed, KeyError, TypeError):
        return []


def _history(place: Place) -> History:
    """What was typed before, kept in the home, readable by its owner alone."""
    path: Path = place.home.root / HISTORY
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
