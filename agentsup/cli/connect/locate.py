"""Finds the daemon: by the given home, else by the address in the environment, else by the default
home."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable
from agentsup.config import HOME_VARIABLE, Home
from agentsup.kit import proctable
from agentsup.kit.proctable import read_row

URL_VARIABLE = "AGENTSUP_URL"
TOKEN_VARIABLE = "AGENTSUP_TOKEN"  # noqa: S105 - a variable's name
BOOT_HEADER = "X-Agentsup-Boot"
MISDIRECTED = 421
"""The status of a daemon that is not the one whose boot the header names, but has its port now."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a daemon. ``pid`` is None if only its URL is known."""

    url: str
    token: str
    pid: int | None = None
    boot_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request: the token, and which start of the daemon is meant."""
        meant = {BOOT_HEADER: self.boot_id} if self.boot_id else {}
        return {"Authorization": f"Bearer {self.token}", **meant}


@dataclass(frozen=True, slots=True)
class DaemonLocation:
    """The daemon that the command line and the environment name."""

    home: Home
    url: str = ""
    """Set if the daemon is named by its address and not by a home."""
    token: str = ""

    @classmethod
    def of(cls, given_home: str | None, environ: Mapping[str, str] | None = None) -> DaemonLocation:
        """From ``--home``, ``AGENTSUP_HOME``, ``AGENTSUP_URL`` with ``AGENTSUP_TOKEN``, or ~: the
        first that is set."""
        environ = os.environ if environ is None else environ
        home = Home.resolve(given_home, environ)
        url = environ.get(URL_VARIABLE, "").rstrip("/")
        if given_home or environ.get(HOME_VARIABLE) or not url:
            return cls(home)
        return cls(home, url, environ.get(TOKEN_VARIABLE, ""))

    def address(self) -> Address:
        """The last known address. Raises ``DaemonUnreachable`` if no daemon was started, and
        ``CommandFailed`` if a file of the home can't be read or there is no token."""
        if self.url:
            if not self.token:
                raise CommandFailed(
                    f"{URL_VARIABLE} names a daemon, but {TOKEN_VARIABLE} is not set; set it, or "
                    "name a home with --home"
                )
            return Address(self.url, self.token)
        written = self.written()
        if written is None:
            raise DaemonUnreachable(self.not_running())
        return Address(
            str(written["url"]).rstrip("/"),
            self.operator_token(),
            written.get("pid"),
            str(written.get("boot_id", "")),
        )

    def written(self) -> dict[str, Any] | None:
        """The address file that a daemon wrote into this home; the daemon may have ended since.

        None if the file was written for another home, of which this one is a copy.
        """
        found = self._read()
        return None if found is None or self._is_copied(found) else found

    def _is_copied(self, found: Mapping[str, Any]) -> bool:
        """Whether ``found`` is about another home, or about an earlier start of the machine.

        A home keeps its inode when it is moved and gets another one when it is copied.
        """
        inode, boot = found.get("home_inode"), found.get("machine_boot")
        if not isinstance(inode, list):
            return False  # of a version that did not write it
        now = proctable.boot_id()
        if boot and now and boot != now:
            return True
        try:
            here = self.home.root.stat()
        except OSError:
            return False
        return inode != [here.st_dev, here.st_ino]

    def _copied_from(self) -> str:
        """A part of a sentence that names the home of a copied address file, or empty."""
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
            raise CommandFailed(
                f"{self.home.daemon_json} can't be read: {error.strerror}"
            ) from None
        except ValueError:
            return None
        is_ours = isinstance(found, dict) and isinstance(found.get("url"), str)
        return found if is_ours else None

    def operator_token(self) -> str:
        """The token in the home. Raises ``CommandFailed`` that says why it can't be read."""
        try:
            return self.home.api_token.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise CommandFailed(
                f"{self.home.api_token} is missing; restart the daemon, which makes a new one"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(
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
        """A command line that a person can paste; it names the home if that is not the default."""
        if self.home == Home.resolve(None, os.environ):
            return f"agentsup {words}"
        return f"agentsup --home {self.home.root} {words}"


def holder_of(home: Home) -> int | None:
    """The living process that holds the lock of ``home``, by the number in its lock file.

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
    """Whether a process with that number exists (and is no zombie, if the system tells)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    row = read_row(pid)
    return row is None or row.is_alive
