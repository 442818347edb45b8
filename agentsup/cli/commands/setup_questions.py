"""Questions of ``agentsup setup`` at a terminal; without one, the option that is missing is named."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.show import CommandOutput
from agentsup.kit.terminal import clean

_TRIES: Final = 5
_SHOWN: Final = 15


class SetupEnded(CommandFailed):
    """The person has left the wizard."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks the person at the terminal. ``can_ask`` False: there is nobody to ask."""

    screen: CommandOutput
    can_ask: bool

    @classmethod
    def here(cls, *, is_quiet: bool) -> Questions:
        """Ask at standard input, unless it is no terminal or ``is_quiet``."""
        return cls(CommandOutput(), not is_quiet and sys.stdin.isatty() and sys.stdout.isatty())

    def say(self, text: str) -> None:
        """Print sentences."""
        self.screen.prose(clean(text))

    def text(self, question: str, option: str, default: str = "") -> str:
        """A line of text; ``default`` for an empty one."""
        self._need(option)
        shown = f"{question} [{default}]" if default else question
        return self._line(f"{shown}: ") or default

    def hidden(self, question: str, option: str) -> str:
        """A secret, which is not shown as it is typed."""
        self._need(option)
        try:
            return getpass.getpass(f"{question} (it is not shown): ").strip()
        except (EOFError, KeyboardInterrupt):
            raise self._left() from None

    def agrees(self, question: str, option: str, *, default: bool = True) -> bool:
        """Yes or no."""
        self._need(option)
        said = self._line(f"{question} [{'Y/n' if default else 'y/N'}] ").casefold()
        return default if not said else said in ("y", "yes", "j", "ja")

    def choice(self, question: str, rows: Sequence[tuple[str, str]], option: str) -> str:
        """The name of one of ``rows`` (name, description), by its number or its name."""
        self._need(option)
        self.say(question)
        for number, (name, about) in enumerate(rows, 1):
            self.screen.say(clean(f" {number:>2}  {about or name}"))
        names = [name for name, _ in rows]
        for _ in range(_TRIES):
            said = self._line("Number: ")
            if said.isdecimal() and 1 <= int(said) <= len(rows):
                return names[int(said) - 1]
            if said in names:
                return said
            self.say(f"Type a number from 1 to {len(rows)}.")
        raise self._left()

    def model(self, known: Sequence[str], option: str) -> str:
        """One of many models: by number, name or a part of it."""
        if not self.can_ask:
            more = ", …" if len(known) > _SHOWN else ""
            raise CommandFailed(
                f"{option} is missing; it has {', '.join(known[:_SHOWN])}{more}", exit_code=2
            )
        shown = list(known)
        while True:
            for number, name in enumerate(shown[:_SHOWN], 1):
                self.screen.say(clean(f" {number:>2}  {name}"))
            if len(shown) > _SHOWN:
                self.say(f"… and {len(shown) - _SHOWN} more: type a part of a name to find it.")
            said = self._line("Model (number or name): ")
            if said.isdecimal() and 1 <= int(said) <= min(len(shown), _SHOWN):
                return shown[int(said) - 1]
            if said in known:
                return said
            found = [name for name in known if said.casefold() in name.casefold()]
            if not found:
                from agentsup.engines.providers import near_names

                found = list(near_names(said, known))
                self.say(f"There is no {said!r} here." + (" Like it are:" if found else ""))
            shown = found or list(known)

    def _need(self, option: str) -> None:
        if not self.can_ask:
            raise CommandFailed(
                f"{option} is missing, and there is no terminal to ask at; --yes leaves all as it is "
                "that no option names",
                exit_code=2,
            )

    def _line(self, prompt: str) -> str:
        sys.stdout.write(clean(prompt))
        sys.stdout.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            raise self._left() from None
        if not line:
            raise self._left()
        return line.strip()

    def _left(self) -> SetupEnded:
        sys.stdout.write("\n")
        return SetupEnded(
            "setup has ended; what it said was written stays, and nothing else changed"
        )
