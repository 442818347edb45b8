"""`backup` and `restore`: copies of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsup.cli.failure import Failed
from agentsup.cli.options import place_of
from agentsup.cli.show import Screen, when
from agentsup.config.home import Home
from agentsup.model.errors import StoreUnavailable


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command()(backup)
    app.command()(restore)


def backup(
    ctx: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="Where to; without it into the home's backups/."),
    ] = None,
) -> None:
    """Copy the store into one checked file, beside a running daemon or without one.

    Never copy state.db itself of a running daemon: what came last stands in state.db-wal.
    """
    from agentsup.kit.clock import SystemClock
    from agentsup.store.backup import by_hand
    from agentsup.store.restoring import copy_to

    home = place_of(ctx).home
    if not home.state_db.is_file():
        raise Failed(f"there is no store at {home.state_db}")
    now = SystemClock().now_ms()
    target = Path(file).expanduser() if file else by_hand(home.backups, now)
    try:
        if not file:
            home.backups.mkdir(mode=0o700, exist_ok=True)
        copy_to(home.state_db, target, at_ms=now)
    except FileExistsError:
        raise Failed(f"{target} exists already; nothing was written") from None
    except OSError as error:
        raise Failed(f"{target} can't be written: {error.strerror or error}") from None
    screen = Screen()
    screen.say(f"made {target} ({target.stat().st_size / 1_000_000:.1f} MB)")
    screen.prose(
        "It holds the store. Agents' files, agents.json, config.toml and api.token are in "
        f"{home.root} beside it."
    )


def restore(
    ctx: typer.Context,
    which: Annotated[
        str | None,
        typer.Argument(metavar="[BACKUP]", help="A name in backups/ or a file; else the newest."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and tell what would be lost, no more.")
    ] = False,
) -> None:
    """Go back to a backup of the store; the daemon must be stopped. The files that are there are
    moved aside, not removed."""
    from agentsup.kit.clock import SystemClock
    from agentsup.kit.files import HomeLock, HomeLocked
    from agentsup.store import restoring

    place = place_of(ctx)
    home, screen = place.home, Screen()
    if not home.root.is_dir():
        raise Failed(f"there is no home at {home.root}")
    chosen = restoring.choose(home.root, which)
    for path, why in chosen.passed_over:
        screen.say(f"passed over {path}: {why}")
    found = chosen.holds
    made = when(found.made_at) if found.made_at else "a time that it does not tell"
    screen.say(f"{chosen.path} is whole: of {made}, {found.messages} messages")
    _tell(screen, made, found.unfinished)
    if dry_run:
        return
    try:
        with HomeLock(home.lock):
            done = restoring.restore(home.state_db, chosen.path, at_ms=SystemClock().now_ms())
    except HomeLocked:
        raise Failed(
            f"a daemon runs for {home.root}; end it first with `{place.command('stop')}`. Nothing "
            "was changed"
        ) from None
    except (OSError, StoreUnavailable) as error:
        raise Failed(_cut(home, error)) from None
    if done.aside is not None:
        screen.say(f"The files that were there lie in {done.aside}.")
    screen.say(f"Restored. Start the daemon with `{place.command('up')}` or your service manager.")


def _tell(screen: Screen, made: str, unfinished: int) -> None:
    screen.prose(
        f"What came after {made} is not in it: messages, answers, tasks, usage, and approvals given "
        "or taken back since. Telegram does not hand out again what it has handed out."
    )
    if unfinished:
        screen.prose(
            f"{unfinished} messages were unfinished then and are worked on again, also where they "
            "have been answered since; `agentsup messages list` shows them."
        )


def _cut(home: Home, error: OSError | StoreUnavailable) -> str:
    why = getattr(error, "strerror", None) or error
    return (
        f"the backup can't be put in place: {why}. {home.state_db} is as it was, "
        f"or lies in {home.backups}; once that is mended, run the same command again"
    )
