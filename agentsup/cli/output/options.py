"""Options that commands share: the location of the daemon, and those that mean the same
everywhere."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import DaemonClient, listed_now
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.help import ReadableCommand, ReadableGroup

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    """The agents whose names begin so, for the shell; none if no daemon answers."""
    names = _listed(ctx, "/interagent/agents", "agents")
    return [name for name in names if name.startswith(incomplete)]


def complete_task(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tasks whose ids begin so, for the shell; none if no daemon answers."""
    found = _listed(ctx, "/tasks/list", "tasks")
    return [one["id"] for one in found if one["id"].startswith(incomplete)]


def _listed(ctx: typer.Context, path: str, key: str) -> list[Any]:
    location = DaemonLocation.of(ctx.find_root().params.get("home"))  # no command has begun
    return listed_now(location, path, key, timeout_s=1.0)


AgentName = Annotated[
    str, typer.Argument(metavar="AGENT", help="Its name.", autocompletion=complete_agent)
]
MaybeAgent = Annotated[
    str | None,
    typer.Argument(metavar="[AGENT]", help="Its name.", autocompletion=complete_agent),
]


Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]


def agree(question: str, refusal: str) -> None:
    """Ask at the terminal. Raises ``CommandFailed`` with ``refusal`` for any answer but yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise CommandFailed(refusal)


def location_of(ctx: typer.Context) -> DaemonLocation:
    """The home or address that this command line is about."""
    location = ctx.find_object(DaemonLocation)
    return location if location is not None else DaemonLocation.of(None)


def client_of(ctx: typer.Context) -> DaemonClient:
    """A client of the daemon that this command line is about. Raises ``CommandFailed`` if none is
    known."""
    return DaemonClient.to(location_of(ctx))


class _Commands(typer.Typer):
    """Declares commands with our help."""

    def command(self, *args: Any, **options: Any) -> Any:
        return super().command(*args, **{"cls": ReadableCommand, **options})


def group(help_text: str, *, completion: bool = False) -> typer.Typer:
    """A group of commands; alone it prints its help. ``completion``: offer it for the shell."""
    return _Commands(
        cls=ReadableGroup,
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=completion,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
