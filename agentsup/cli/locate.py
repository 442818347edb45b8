"""Where the daemon is: the home given, else the address in the environment, else the usual home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.cli.failure import Failed, Unreachable
from agentsup.config.home import HOME_VARIABLE, Home
from agentsup.kit import machine

URL_VARIABLE = "AGENTSUP_URL"
TOKEN_VARIABLE = "AGENTSUP_TOKEN"  # noqa: S105 - a variable's name
BOOT_HEADER = "X-Agentsup-Boot"
MISDIRECTED = 421
"""A daemon that is not the one whose boot the header names answers so: another one got its port."""


@dataclass(frozen=True, slots=True)
class Address:
    """A daemon to talk to. `pid` is None where only its URL is known."""

    url: str
    token: str
    pid: int | None = None
    boot_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Of every request: who asks, and which daemon is meant."""
        meant = {BOOT_HEADER: self.boot_id} if self.boot_id else {}
        return {"Authorization": f"Bearer {self.token}", **meant}


@dataclass(frozen=True, slots=True)
class Place:
    """What the command line and the environment say about whom to talk to."""

    home: Home
    url: str = ""
    """Set where the daemon is named by its address and not by a home."""
    token: str = ""

    @classmethod
    def of(cls, given_home: str | None, environ: Mapping[str, str] | None = None) -> Place:
        """`--home`, else `AGENTSUP_HOME`, else `AGENTSUP_URL` (+ `AGENTSUP_TOKEN`), else ~."""
        environ = os.environ if environ is None else environ
        home = Home.resolve(given_home, environ)
        url = environ.get(URL_VARIABLE, "").rstrip("/")
        if given_home or environ.get(HOME_VARIABLE) or not url:
            return cls(home)
        return cls(home, url, environ.get(TOKEN_VARIABLE, ""))

    def address(self) -> Address:
        """Where the daemon was last known. Raises `Unreachable` where none was started."""
        if self.url:
            if not self.token:
                raise Failed(
                    f"{URL_VARIABLE} names a daemon, but {TOKEN_VARIABLE} is not set; set it, or "
                    "name a home with --home"
                )
            return Address(self.url, self.token)
        written = self.written()
        if written is None:
            raise Unreachable(self.not_running())
        return Address(
            str(written["url"]).rstrip("/"),
            self.operator_token(),
            written.get("pid"),
            str(written.get("boot_id", "")),
        )

    def written(self) -> dict[str, Any] | None:
        """What a daemon wrote about itself into this home; it may have ended since.

        None where that was written for another home, of which this one is a copy.
        """
        found = self._read()
        return None if found is None or self._is_copied(found) else found

    def _is_copied(self, found: Mapping[str, Any]) -> bool:
        """Whether `found` speaks of a home elsewhere, or of an earlier start of the machine.

        A home keeps its inode when it is moved and gets another one when it is copied.
        """
        inode, boot = found.get("home_inode"), found.get("machine_boot")
        if not isinstance(inode, list):
            return False  # of a version that did not write it
        now = machine.boot_id()
        if boot and now and boot != now:
            return True
        try:
            here = self.home.root.stat()
        except OSError:
            return False
        return inode != [here.st_dev, here.st_ino]

    def _copied_from(self) -> str:
        """The home that a copied address speaks of, as words for a sentence, or nothing."""
        found = None if self.url else self._read()
        if found is None or not self._is_copied(found) or found.get("home") == str(self.home.root):
            return ""
        return f" (its {self.home.daemon_json.name} is a copy of that in {found.get('home')})"

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self.home.daemon_json.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Failed(f"{self.home.daemon_json} can't be read: {error.strerror}") from None
        except ValueError:
            return None
        is_ours = isinstance(found, dict) and isinstance(found.get("url"), str)
        return found if is_ours else None

    def operator_token(self) -> str:
        """The token in the home. Raises `Failed` that says why it can't be had."""
        try:
            return self.home.api_token.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise Failed(
                f"{self.home.api_token} is missing; restart the daemon, which makes a new one"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise Failed(
                f"{self.home.api_token} can't be read ({error}); run this as the user who owns "
                "the home"
            ) from None

    def not_running(self) -> str:
        """The sentence for a home without a daemon."""
        if self.url:
            return f"no daemon answers at {self.url} ({URL_VARIABLE}); is it running?"
        return (
            f"no daemon runs for {self.home.root}{self._copied_from()}; start one with `{self.command('up')}` "
            f"(in the background, with a chat) or `{self.command('run')}`"
        )

    def command(self, words: str) -> str:
        """A command line a person can paste, naming the home where it is not the usual one."""
        if self.home == Home.resolve(None, os.environ):
            return f"agentsup {words}"
        return f"agentsup --home {self.home.root} {words}"


def holder_of(home: Home) -> int | None:
    """The living process that holds the lock of `home`, by the number in its lock file.

    The lock file of a copied home names the daemon of the original, so the lock is tried too.
    """
    try:
        text = home.lock.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    pid = int(text) if text.isdigit() else 0
    if pid <= 1 or not is_alive(pid):
        return None
    from agentsup.kit.files import is_locked

    return pid if is_locked(home.lock) else None


def is_alive(pid: int) -> bool:
    """Whether a process with that number exists (not a zombie, where the system tells)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a kernel file
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True
