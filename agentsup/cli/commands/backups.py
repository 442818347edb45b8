"""``backup`` and ``restore``: a whole home as one archive, or the store alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agentsup.cli.connect.failure import CommandFailed, failing_as
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.options import home_location, location_of
from agentsup.cli.output.show import CommandOutput, when
from agentsup.config import Home
from agentsup.kit.terminal import clean_line
from agentsup.model.errors import AgentsupError, StoreUnavailable

if TYPE_CHECKING:
    from agentsup.kit.archive.contents import Contents

_STORE_FILE: Final = ".db"
_GZIP: Final = b"\x1f\x8b"
_SHOWN: Final = 10


def backup(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="Where to. NAME.db: the store alone; without FILE that, into the home's backups/.",
        ),
    ] = None,
) -> None:
    """Copy the whole home into one checked FILE, beside a running daemon or without one.

    Store, agents with their workspaces and memories, roles, settings, keys and tokens. Keep the file
    as you keep your keys. Never copy state.db itself of a running daemon.
    """
    location = location_of(ctx)
    if file is None or file.endswith(_STORE_FILE):
        _back_up_store(location.home, file)
    else:
        back_up_home(location, Path(file).expanduser(), CommandOutput())


def _back_up_store(home: Home, file: str | None) -> None:
    from agentsup.kit.clock import SystemClock
    from agentsup.store import by_hand, copy_to

    if not home.state_db.is_file():
        raise CommandFailed(f"there is no store at {home.state_db}")
    now = SystemClock().now_ms()
    target = Path(file).expanduser() if file else by_hand(home.backups, now)
    with refusing_to_write(target):
        if not file:
            home.backups.mkdir(mode=0o700, exist_ok=True)
        copy_to(home.state_db, target, at_ms=now)
    screen = CommandOutput()
    screen.say(f"made {target} ({_size_text(target.stat().st_size)})")
    screen.prose(
        "It holds the store alone. `agentsup backup FILE` takes the whole home: agents' files, "
        f"agents.json, config.toml, keys and tokens of {home.root} too."
    )


def back_up_home(location: DaemonLocation, target: Path, screen: CommandOutput) -> None:
    """Write the home of ``location`` into the new file ``target``. Raises ``CommandFailed``."""
    from agentsup.cli.archives.home import back_up
    from agentsup.kit.archive.contents import FILE
    from agentsup.kit.clock import SystemClock

    home = location.home
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}")
    with refusing_to_write(target):
        made = back_up(home, target, at_ms=SystemClock().now_ms())
    files = sum(each.kind == FILE for each in made.entries)
    screen.say(f"made {target} ({_size_text(target.stat().st_size)}), and read it back")
    screen.prose(
        f"It holds all of {home.root}: {files} files, with keys and tokens. `agentsup restore {target}` "
        "puts them back, here or on another machine."
    )
    tell_left_out(screen, made.left_out)


def restore(
    ctx: typer.Context,
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[BACKUP]",
            help="A file of backup, or a name in backups/; else the newest copy of the store there.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and tell what would be lost, no more.")
    ] = False,
) -> None:
    """Go back to a backup, of the whole home or of the store; the daemon must be stopped.

    All of the backup is checked first. What was there is moved aside, not removed.
    """
    location, screen = home_location(ctx, "a backup is put into a home"), CommandOutput()
    file = Path(which).expanduser() if which is not None else None
    if file is not None and _is_archive(file):
        _restore_home(location, file, screen, dry_run=dry_run)
    else:
        _restore_store(location, which, screen, dry_run=dry_run)


def _is_archive(file: Path) -> bool:
    from agentsup.kit.safe_files import read_plain

    try:
        return read_plain(file, len(_GZIP)) == _GZIP
    except OSError:
        return False  # a name in backups/, or what that says


def read_archive(file: Path, home: Home, kind: str) -> Contents:
    """Check the archive at ``file``, which must be of that kind. Raises ``CommandFailed``."""
    from agentsup.cli.archives.home import room_for
    from agentsup.kit.archive.contents import ArchiveRefused
    from agentsup.kit.archive.unpacking import check

    with failing_as(f"{file} can't be used", ArchiveRefused, end=". Nothing was changed"):
        contents = check(file, limit=room_for(home))
    found = contents.facts.get("kind")
    if found != kind:
        other = "agentsup import" if found == "agent" else "agentsup restore"
        raise CommandFailed(f"{file} holds no {kind}; `{other} {file}` may take it")
    return contents


def _restore_home(
    location: DaemonLocation, file: Path, screen: CommandOutput, *, dry_run: bool
) -> None:
    from agentsup.cli.archives.home import HOME, replace_home
    from agentsup.kit.archive.contents import FILE, ArchiveRefused
    from agentsup.kit.clock import SystemClock

    home = location.home
    contents = read_archive(file, home, HOME)
    made = when(_number(contents.facts, "made_at"))
    files = sum(each.kind == FILE for each in contents.entries)
    version = str(contents.facts.get("agentsup", "?"))[:20]
    screen.say(f"{file} is whole: a home of {made}, by agentsup {version}")
    screen.say(f"{files} files, {_size_text(contents.total)}")
    tell_left_out(screen, contents.left_out)
    _tell(screen, made, _number(contents.facts, "unfinished"))
    if dry_run:
        return
    unchanged = f". {home.root} is as it was"
    with failing_as(f"{file} can't be put in place", ArchiveRefused, AgentsupError, end=unchanged):
        home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(location):
            aside = replace_home(home, file, contents, at_ms=SystemClock().now_ms())
    if aside is not None:
        screen.say(f"What was there lies in {aside}.")
    screen.prose(f"Restored into {home.root}. Start the daemon with `{location.command('up')}`.")
    screen.prose(
        "If the home that this was copied from still runs somewhere, end that daemon first: two can't "
        "share a bot."
    )


def _restore_store(
    location: DaemonLocation, which: str | None, screen: CommandOutput, *, dry_run: bool
) -> None:
    from agentsup.kit.clock import SystemClock
    from agentsup.store import restoring

    home = location.home
    if not home.root.is_dir():
        raise CommandFailed(f"there is no home at {home.root}")
    chosen = restoring.choose(home.root, which)
    for path, why in chosen.passed_over:
        screen.say(f"passed over {path}: {why}")
    found = chosen.holds
    made = when(found.made_at) if found.made_at else "a time that it does not tell"
    screen.say(f"{chosen.path} is whole: of {made}, {found.messages} messages")
    _tell(screen, made, found.unfinished)
    if dry_run:
        return
    unchanged = (
        f". {home.state_db} is as it was, or lies in {home.backups}; once that is mended, run the same "
        "command again"
    )
    with (
        failing_as("the backup can't be put in place", StoreUnavailable, end=unchanged),
        locked(location),
    ):
        aside = restoring.restore(home.state_db, chosen.path, at_ms=SystemClock().now_ms())
    if aside is not None:
        screen.say(f"The files that were there lie in {aside}.")
    screen.say(
        f"Restored. Start the daemon with `{location.command('up')}` or your service manager."
    )


@contextlib.contextmanager
def locked(location: DaemonLocation) -> Iterator[None]:
    """Keep daemons from the home meanwhile. Raises ``CommandFailed`` if one has it."""
    from agentsup.kit.files import HomeLock, HomeLocked

    try:
        with HomeLock(location.home.lock):
            yield
    except HomeLocked:
        raise CommandFailed(
            f"a daemon runs for {location.home.root}; end it first with `{location.command('stop')}`. "
            "Nothing was changed"
        ) from None


def _tell(screen: CommandOutput, made: str, unfinished: int) -> None:
    screen.prose(
        f"What came after {made} is not in it: messages, answers, tasks, usage, and approvals given "
        "or taken back since. Telegram does not hand out again what it has handed out."
    )
    if unfinished:
        screen.prose(
            f"{unfinished} messages were unfinished then and are worked on again, also where they "
            "have been answered since; `agentsup messages list` shows them."
        )


@contextlib.contextmanager
def refusing_to_write(target: Path) -> Iterator[None]:
    """Raise what keeps ``target`` from being written as ``CommandFailed``."""
    from agentsup.kit.archive.contents import ArchiveRefused

    with failing_as(f"{target} can't be written", ArchiveRefused, AgentsupError):
        try:
            yield
        except FileExistsError:
            raise CommandFailed(f"{target} exists already; nothing was written") from None


def tell_left_out(screen: CommandOutput, left_out: Sequence[str]) -> None:
    """Print what an archive does not have, and why."""
    if left_out:
        screen.prose(f"{len(left_out)} things are not in it:")
    for each in left_out[:_SHOWN]:
        screen.say(clean_line(f"  {each}"))
    if len(left_out) > _SHOWN:
        screen.say(f"  and {len(left_out) - _SHOWN} more")


def _number(facts: Mapping[str, Any], name: str) -> int:
    """A number that an archive claims; 0 if it is none."""
    found = facts.get(name)
    return found if isinstance(found, int) and 0 <= found < 2**43 else 0


def _size_text(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"
