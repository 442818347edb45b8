"""``demo``: two agents behind a fake Telegram with a chat page, to try it without a token.

The only module that may import ``agentsup.fakes``. Everything runs on the loopback, in a home of
its own that is removed at the end unless ``--home`` names one. The daemon never outlives this
program: it reads from a pipe whose other end only this program holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agentsup.cli.connect.failure import CommandFailed, DaemonUnreachable, failing_as
from agentsup.cli.connect.locate import DaemonLocation, is_alive
from agentsup.cli.output.show import CommandOutput
from agentsup.config import TEMPORARY_MARK, Home
from agentsup.kit.clock import SystemClock
from agentsup.kit.terminal import clean

if TYPE_CHECKING:
    from agentsup.fakes.telegram import FakeTelegram

PAGE_PORT: Final = 8780
"""The port of the page, unless it is taken or ``--port`` names another one."""
RULES: Final = "demo-telegram-rules.yaml"
FAKE: Final = "telegram"
"""The folder in a demo home with the state of the fake; it also marks the home as a demo's."""
BOTS: Final = (
    ("main", "Main", "700001:AAdemo-main-only-the-fake-knows-it0"),
    ("writer", "Writer", "700002:AAdemo-writer-only-the-fake-knows-0"),
)
PERSON: Final = "You"
GROUP: Final = "Household"
SETTLE_S: Final = 5.0
"""Seconds that running turns may take to end if the home is removed anyway."""
DRAIN_S: Final = 60.0
LEAST_LIFE_S: Final = 3.0
MOST_EARLY_ENDS: Final = 3
"""A daemon that ends so often in a row, each time within ``LEAST_LIFE_S``, is not started again."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRY: Final = """\
Try, in the chat with Main:
  hello                     what there is
  report                    a long answer with a table and code, written while you watch
  choose                    a question with buttons
  count                     and /stop while it counts
  ask writer for a haiku    one agent asks another
  /agents                   the agents, with buttons
  @main_demo_bot hello      in the group, where agents answer to their names
Send a file, edit a message, open a topic with +, or add another person: a stranger gets a code, and
  /pair CODE                in the chat with Main lets that person in
Kill the daemon while it counts (kill -9 {pid}): it is started again, and the answer comes once.

Ctrl-C ends the demo."""


def run_demo(home: str | None, port: int | None) -> int:
    """Run the demo until it is ended; returns the exit code. Raises ``CommandFailed``.

    ``home`` None: a new one that is removed afterwards.
    """
    _check_extra()
    with _demo_home(home) as location:
        return asyncio.run(_Demo(location, keeps=home is not None, port=port).run())


def _check_extra() -> None:
    if importlib.util.find_spec("telegram") is None:
        raise CommandFailed(
            'the demo needs the extra "telegram", which is not installed: '
            "pip install 'agentsup[telegram]'"
        )


@contextlib.contextmanager
def _demo_home(given: str | None) -> Iterator[DaemonLocation]:
    """The home of the demo: ``given``, which stays, or a new one that is removed afterwards."""
    if given is None:
        root = Path(tempfile.mkdtemp(prefix="agentsup-demo-"))
        try:
            (root / TEMPORARY_MARK).touch()  # the daemon removes it if we can't
            yield DaemonLocation(Home(root))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return
    location = DaemonLocation(Home.resolve(given))
    root = location.home.root
    with failing_as(f"{root} can't be used as a home"):
        is_new = not root.exists() or not any(root.iterdir())
    if not is_new and not (root / FAKE).is_dir():
        raise CommandFailed(
            f"{root} is not the home of a demo; name a new directory, or leave --home out for one "
            "that is removed at the end"
        )
    yield location


class _Demo:
    """One run: the fake Telegram in this process, the daemon in the background."""

    def __init__(self, location: DaemonLocation, *, keeps: bool, port: int | None) -> None:
        self._location = location
        self._keeps = keeps
        self._port = port
        self._screen = CommandOutput()
        self._clock = SystemClock()
        self._woken = asyncio.Event()
        self._is_to_end = False
        self._signals = 0
        self._pid: int | None = None
        self._tether: tuple[int, int] | None = None

    async def run(self) -> int:
        """Run until a signal or the daemon's own end; returns the exit code. Raises
        ``CommandFailed``."""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._signalled)
        await asyncio.to_thread(self._refuse_if_running)
        fake = await self._start_fake()
        self._tether = os.pipe()
        try:
            await asyncio.to_thread(self._write_home, fake)
            try:
                code = await self._live(fake)
            finally:
                await self._end_daemon()
        finally:
            await fake.stop()
            for descriptor in self._tether:
                os.close(descriptor)
            for number in _ENDING:
                loop.remove_signal_handler(number)
        lasting_home = self._location.home.root if self._keeps else None
        self._say(
            f"The demo has ended; its home is {lasting_home}."
            if lasting_home
            else "The demo has ended."
        )
        return code

    # -- beginning ---------------------------------------------------------------------------------

    def _refuse_if_running(self) -> None:
        from agentsup.cli.commands.background import answering

        if answering(self._location) is not None:
            raise CommandFailed(
                f"a daemon runs for {self._location.home.root} already; end that demo first "
                f"(`{self._location.command('stop')}` if it was killed)"
            )

    async def _start_fake(self) -> FakeTelegram:
        from agentsup.fakes.telegram import FakeTelegram
        from agentsup.kit.files import HomeLocked

        folder = self._location.home.root / FAKE
        with failing_as(f"{folder} can't be made"):
            folder.mkdir(parents=True, exist_ok=True)
        wanted = (PAGE_PORT, 0) if self._port is None else (self._port,)
        reason: OSError | None = None
        for port in wanted:
            fake = FakeTelegram(folder, port=port)
            try:
                await fake.start()
            except HomeLocked as error:
                raise CommandFailed(
                    f"another demo (pid {error.pid}) uses {self._location.home.root} already"
                ) from None
            except OSError as error:
                await fake.stop()
                reason = error
            else:
                return fake
        raise CommandFailed(
            f"the page can't be served at 127.0.0.1:{wanted[-1]}: "
            f"{os.strerror(reason.errno) if reason and reason.errno else reason}; name another "
            "port with --port, or leave it out"
        )

    def _write_home(self, fake: FakeTelegram) -> None:
        """Make people and bots of the fake, and a home whose agents use them. Raises
        ``CommandFailed``."""
        from agentsup.cli.commands.home_files import TEMPLATES, write_home

        person, group = _people(fake)
        home = self._location.home
        files = {
            home.agents_json: f"{json.dumps(_agents(person, group), indent=2)}\n".encode(),
            home.root / RULES: (TEMPLATES / RULES).read_bytes(),
            home.shared_memory: (TEMPLATES / "SHAREDMEMORY.md").read_bytes(),
        }
        # The port may be another one each time, so config.toml is the demo's own.
        write_home(home, files, {home.config_toml: _config(fake.url, person).encode()})

    # -- while it runs -----------------------------------------------------------------------------

    async def _live(self, fake: FakeTelegram) -> int:
        is_first, early = True, 0
        while True:
            await self._start_daemon()
            ready_at = self._clock.monotonic()
            if self._is_to_end:
                return 0
            if is_first:
                self._say(f"\nThe page: {fake.url}/\n\n{TRY.format(pid=self._pid)}\n")
            else:
                self._say(f"The daemon is up again (pid {self._pid}).")
            is_first = False
            code = await self._until_it_ends()
            if code is None:
                return 0
            if code == 0:
                self._say("The daemon was stopped.")
                return 0
            early = early + 1 if self._clock.monotonic() - ready_at < LEAST_LIFE_S else 0
            if early >= MOST_EARLY_ENDS:
                raise CommandFailed(
                    f"the daemon ended with code {code} soon after its start, again and again; see "
                    f"{self._location.home.logs}"
                    + ("" if self._keeps else " (give --home to keep it)")
                )
            self._say(f"The daemon ended with code {code}; starting it again …")

    async def _start_daemon(self) -> None:
        from agentsup.cli.commands.background import ensure_running

        assert self._tether is not None
        client = await asyncio.to_thread(
            ensure_running, self._location, self._screen, port=0, tether=self._tether[0]
        )
        self._pid = client.address.pid

    async def _until_it_ends(self) -> int | None:
        """The daemon's exit code, or None if this program was asked to end first."""
        from agentsup.kit.detached import exit_code_of

        assert self._pid is not None
        loop = asyncio.get_running_loop()
        self._woken.clear()
        descriptor = os.pidfd_open(self._pid)
        loop.add_reader(descriptor, self._woken.set)
        try:
            if not self._is_to_end:
                await self._woken.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        if self._is_to_end:
            return None
        code = exit_code_of(self._pid)
        self._pid = None
        return -1 if code is None else code

    # -- the end -----------------------------------------------------------------------------------

    def _signalled(self) -> None:
        self._signals += 1
        self._end()
        if self._signals > 1 and self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _end(self) -> None:
        self._is_to_end = True
        self._woken.set()

    async def _end_daemon(self) -> None:
        from agentsup.cli.commands.background import stop_daemon
        from agentsup.kit.detached import exit_code_of

        pid = self._pid
        if pid is None or not is_alive(pid):
            return
        self._say("\nEnding …" + (" (Ctrl-C again: at once)" if self._keeps else ""))
        grace_s = DRAIN_S if self._keeps else SETTLE_S
        with contextlib.suppress(CommandFailed, DaemonUnreachable):
            await asyncio.to_thread(stop_daemon, self._location, grace_s)
        if is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while is_alive(pid):
            await self._clock.sleep(0.02)
        exit_code_of(pid)

    def _say(self, text: str) -> None:
        try:
            print(clean(text), flush=True)
        except BrokenPipeError:
            # Nobody reads the output any more; the demo must not go on unnoticed.
            self._end()
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _people(fake: FakeTelegram) -> tuple[int, int]:
    """Make the bots, one person and a group with topics, once; returns the person's and the group's
    id."""
    world = fake.world
    for name, shown, token in BOTS:
        fake.bot(token, username=f"{name}_demo_bot", name=shown, has_topics_enabled=True)
    known = world.setting("demo", None)
    if known is None:
        person = int(world.add_user(first_name=PERSON, language_code="en")["id"])
        members = {str(person): "creator"}
        members |= {token.partition(":")[0]: "administrator" for _, _, token in BOTS}
        group = int(world.add_group("supergroup", GROUP, members, is_forum=True)["id"])
        known = {"person": person, "group": group}
        world.set_setting("demo", known)
    return int(known["person"]), int(known["group"])


def _agents(person: int, group: int) -> list[dict[str, object]]:
    described = {
        "main": "Answers first, and asks the writer where words count.",
        "writer": "Writes short texts for people and for other agents.",
    }
    return [
        {
            "name": name,
            "description": described[name],
            "engine": "scripted",
            "engine_options": {"script": f"file:{RULES}"},
            "telegram_token": token,
            "allowed_user_ids": [person],
            "allowed_group_ids": [group],
        }
        for name, _, token in BOTS
    ]


def _config(url: str, person: int) -> str:
    return (
        "# Written by `agentsup demo` at each start.\n"
        "[agent_defaults]\n"
        f'telegram_base_url = "{url}"\n'
        "\n"
        "[people.you]\n"
        'role = "manager"\n'
        f"telegram = [{person}]\n"
    )
