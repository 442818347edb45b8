"""Chat in a terminal: a prompt that stays usable while answers stream in above it."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from agentsup.cli.chat.conversation import ChatState, ShownItem, ShownKind
from agentsup.cli.chat.link import ChatConnection, is_file
from agentsup.cli.chat.painter import OLD_SHOWN, Painter
from agentsup.cli.connect.client import listed_now
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.show import is_plain, painted
from agentsup.kit.clock import Clock
from agentsup.kit.terminal import clean, clean_painted

HISTORY: Final = "chat.history"
LOCAL: Final = {
    "/file PATH [TEXT]": "send a file",
    "Alt+Enter, or \\ at the end of a line": "go on in a new line; pasted lines are one message",
    "/quit, Ctrl-D": "leave the chat; Ctrl-C drops what was typed",
}
"""Commands of this chat alone; ``/help`` ends with them."""
PROMPT: Final = "› "
OWN: Final = ("/file", "/quit")
CONTINUED: Final = "  "
"""Begins the further lines of a text, below the prompt."""
_TAIL_ROWS: Final = 6
"""Rows that are drawn of a paragraph that is being written: a taller prompt would hide the
screen."""
_TAIL_CHARS: Final = 4_000
_COMMAND = re.compile(r"^\s*/([a-z_]+)", re.MULTILINE)


async def chat_in_terminal(location: DaemonLocation, talk: ChatState, clock: Clock) -> None:
    """Talk until the person leaves with Ctrl-D or /quit."""
    names = listed_now(location, "/interagent/agents", "agents", timeout_s=2.0)
    words = CommandCompleter(names)
    plain = is_plain(sys.stdout)
    session: PromptSession[str] = PromptSession(
        history=_history(location),
        completer=words,
        complete_while_typing=False,
        # The unfinished line is drawn with the prompt; it must not remain after each input.
        erase_when_done=True,
        key_bindings=line_breaks(),
        prompt_continuation=CONTINUED,
    )

    def write(line: str) -> None:
        write_above(session, line)

    def tell(text: str) -> None:
        write(painted(f"* {text}", "dim", plain=plain))

    painter = Painter(write, _columns, plain, renders=not plain)
    history: list[ShownItem] = []
    own_help = [f"{keys} - {meaning}" for keys, meaning in LOCAL.items()]

    def show(one: ShownItem) -> None:
        if one.kind is ShownKind.COMMANDS:
            words.commands = sorted({f"/{name}" for name in _COMMAND.findall(one.text)})
        elif one.old and one.kind is not ShownKind.WELCOME:
            history.append(one)
        else:
            for old in history[-OLD_SHOWN:]:
                painter.show(old)
            history.clear()
            painter.show(one)
            if one.kind is ShownKind.HELP:
                painter.show(replace(one, text="\n".join(["In this terminal", *own_help])))
        session.app.invalidate()

    def message() -> StyleAndTextTuples:
        tail = last_rows(clean(painter.tail[-_TAIL_CHARS:]).rstrip("\n"), _columns())
        return [("", f"{tail}\n" if tail else ""), ("bold", PROMPT)]

    link = ChatConnection(location, talk, clock=clock, show=show, tell=tell)
    await link.run_until(_ask(session, link, talk, message, write))
    if texts := talk.unconfirmed:
        raise CommandFailed(
            f"{len(texts)} text(s) were not confirmed by the daemon and may not have arrived: "
            + "; ".join(text[:60] for text in texts)
        )


def write_above(session: PromptSession[str], line: str) -> None:
    """Print a line above the prompt, which is drawn again below it.

    The terminal stays in raw mode meanwhile: leaving it, as ``patch_stdout`` does, would for that
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
    link: ChatConnection,
    talk: ChatState,
    message: object,
    write: Callable[[str], None],
) -> None:
    while talk.seq is None:  # the welcome, or the reason why there is none, must be printed first
        link.changed.clear()
        await link.changed.wait()
    await link.say("/help all", quiet=True)
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
            write(PROMPT + text.replace("\n", "\n" + CONTINUED))
            await (link.say_file(text) if is_file(text) else link.say(text))


def line_breaks() -> KeyBindings:
    """The keys that begin a new line, where Enter sends the text."""
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        typed = event.current_buffer
        if typed.document.text_before_cursor.endswith("\\"):
            typed.delete_before_cursor()
            typed.insert_text("\n")
        else:
            typed.validate_and_handle()

    return keys


def last_rows(text: str, columns: int) -> str:
    """The end of a text that is being written, in at most ``_TAIL_ROWS`` rows."""
    rows: list[str] = []
    for line in text.split("\n")[-_TAIL_ROWS:]:
        rows += textwrap.wrap(line, max(20, columns - 1), drop_whitespace=False) or [""]
    return "\n".join(rows[-_TAIL_ROWS:])


def _columns() -> int:
    return shutil.get_terminal_size().columns


class CommandCompleter(Completer):
    """Completes commands at the beginning of the line and agents' names after it."""

    def __init__(self, agents: list[str]) -> None:
        """``agents`` are names; the commands come from the daemon later."""
        self.agents = agents
        self.commands: list[str] = []

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Commands for a word with a slash, names for any other."""
        before = document.text_before_cursor
        word = before.rpartition(" ")[2]
        known = (
            [*self.commands, *OWN] if before.startswith("/") and " " not in before else self.agents
        )
        for each in known:
            if word and each.casefold().startswith(word.casefold()):
                yield Completion(each, start_position=-len(word))


def _history(location: DaemonLocation) -> History:
    """The inputs of earlier chats, stored in the home and readable by its owner alone."""
    path: Path = location.home.root / HISTORY
    try:
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
