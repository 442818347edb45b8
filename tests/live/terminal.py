"""A terminal in which a test types and reads what a person sees: a window of a tmux of its own."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.bound import BOUND_S
from tests.support.socket_folder import socket_folder

TMUX: Final = shutil.which("tmux")
_PROMPT: Final = "READY> "
_LOOK_S: Final = 0.1
_COLUMNS, _ROWS = 160, 50


class TerminalShows(AssertionError):
    """What was awaited did not come; the text is the screen."""


class Terminal:
    """``bash`` with nothing but ``env`` around it, in a home of its own.

    async with Terminal(home, {"PATH": …}) as terminal:
        await terminal.enter("agentsup setup")
        found = await terminal.shows(r"Number:")
    """

    def __init__(self, home: Path, env: Mapping[str, str]) -> None:
        self._home = home
        self._env = {"HOME": str(home), "LANG": "C.UTF-8", "PS1": _PROMPT, **env}
        self._folder = ""
        self._read = 0
        self._everything = ""

    @property
    def everything(self) -> str:
        """All that was shown, as it was last looked at; words with one space between them."""
        return self._everything

    async def enter(self, text: str) -> None:
        """Type a line and press Enter."""
        if text:
            await self._tmux("send-keys", "-t", "0", "-l", text)
        await self._tmux("send-keys", "-t", "0", "Enter")

    async def press(self, key: str) -> None:
        """Press one key, such as ``C-d``."""
        await self._tmux("send-keys", "-t", "0", key)

    async def shows(self, pattern: str, *, within_s: float = BOUND_S) -> re.Match[str]:
        """Wait until the screen shows ``pattern`` after what was found before.

        Lines that were broken to fit are one line for it. Raises ``TerminalShows``.
        """
        wanted = re.compile(pattern)
        try:
            async with asyncio.timeout(within_s):
                while True:
                    text = await self._tmux("capture-pane", "-t", "0", "-p", "-J", "-S", "-")
                    self._everything = " ".join(text.split())
                    found = wanted.search(self._everything, self._read)
                    if found is not None:
                        self._read = found.end()
                        return found
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise TerminalShows(f"{pattern!r} is not in: {self._everything[-3000:]}") from None

    async def run(self, line: str, *, within_s: float = BOUND_S) -> str:
        """Type a command, wait for the next prompt; what was shown between."""
        await self.enter(line)
        await self.shows(re.escape(" ".join(line.split())[-60:]))
        begun = self._read
        await self.shows(re.escape(_PROMPT.strip()), within_s=within_s)
        return self._everything[begun : self._read - len(_PROMPT.strip())]

    async def __aenter__(self) -> Self:
        self._folder = socket_folder("tmux-")
        words = [f"{name}={value}" for name, value in self._env.items()]
        shell = shlex.join(["env", "-i", "TERM=screen", *words, "bash", "--norc", "--noprofile"])
        await self._tmux(
            *("-f", "/dev/null", "-u", "set-option", "-g", "history-limit", "20000", ";"),
            *("new-session", "-d", "-x", str(_COLUMNS), "-y", str(_ROWS), "-c", str(self._home)),
            shell,
        )
        await self.shows(re.escape(_PROMPT.strip()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the window with what still runs in it."""
        await self._tmux("kill-server", fails=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _tmux(self, *words: str, fails: bool = False) -> str:
        assert TMUX is not None, "no tmux; run `make tmux` (Debian: apt-get install tmux)"
        process = await asyncio.create_subprocess_exec(
            *(TMUX, "-S", f"{self._folder}/socket", *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        said, problem = await process.communicate()
        if process.returncode and not fails:
            raise TerminalShows(f"tmux {words[0]}: {problem.decode()} {self._everything[-3000:]}")
        return said.decode()
