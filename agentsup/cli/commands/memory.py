"""``agentsup memory …``: what agents remember."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.declared import Request, asks, listing, read, submit
from agentsup.cli.output.options import AgentName, AsJson, Limit, agree, client_of, group
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Columns, CommandOutput, at, brief, shortened, when
from agentsup.kit.terminal import clean
from agentsup.model.principal import OPERATORS

memory = group("What agents remember beyond their sessions.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key it was saved under.")]
OfScope = Annotated[
    str | None, typer.Option("--scope", help="instance, agent, type or global; else all of them.")
]

ById = Annotated[
    str | None, typer.Option("--id", help="The entry, where the key has several; from `show`.")
]
ByTime = Annotated[
    int | None,
    typer.Option("--updated-at", help="Of what you have seen, from `show`; else it is asked."),
]


def _path(agent: str) -> str:
    return f"/agents/{segment(agent)}/memory"


def _scope(one: dict[str, Any]) -> str:
    """A text with the people in whose work the entry is recalled now."""
    if one["scope"] == "instance" or not one["shared_by"]:
        wish = "" if one["scope"] == "instance" else f" ({one['scope']} once shared)"
        return f"{one['person']}{wish}"
    return str(one["scope"])


COLUMNS: Columns = (
    ("key", lambda one: ("★ " if one["pinned"] else "") + one["key"]),
    "kind",
    ("scope", _scope),
    ("sure", lambda one: f"{one['confidence']:g}"),
    ("uses", "use_count"),
    ("saved", at("updated_at")),
    ("content", brief("content")),
)
MEMORIES = listing("memories", COLUMNS, "{agent} remembers nothing that fits.")


def _listed(screen: CommandOutput, one: dict[str, Any]) -> None:
    """The memories, and how many more there are."""
    MEMORIES(screen, one)
    left = one["total"] - len(one["memories"])
    if left > 0 and one["search"] is None and one["kind"] is None:
        screen.say(f"{left} more; -n shows more of them.")


@asks(_listed, memory, "list")
def list_(
    agent: AgentName,
    search: Annotated[str | None, typer.Option("--search", help="Words to look for.")] = None,
    kind: Annotated[str | None, typer.Option(help="pattern, preference, fact or skill.")] = None,
    limit: Limit = PAGE,
) -> Request:
    """List an agent's memories: pinned first, then the latest; or those that fit a search."""
    return read(_path(agent), limit=limit, q=search, kind=kind)


def _whole(one: dict[str, Any]) -> str:
    """All of an entry, with the options that name it."""
    facts = [one["kind"], _scope(one), f"confidence {one['confidence']:g}"]
    facts += [f"recalled {one['use_count']} times", f"saved {when(one['updated_at'])}"]
    facts += ["pinned"] if one["pinned"] else []
    facts += [f"#{tag}" for tag in one["tags"]]
    named = f"--id {one['id']} --updated-at {one['updated_at']}"
    return f"{clean(one['key'])} ({clean(', '.join(facts))})\n{clean(one['content'])}\n{named}"


@asks(lambda screen, one: screen.say("\n\n".join(map(_whole, one["memories"]))), memory)
def show(agent: AgentName, key: Key) -> Request:
    """One of them, whole."""
    return read(_path(agent), key=key)


def _add_change(
    verb: str, about: str, *, done: str, outcome: str = "", request: str = "", **more: bool
) -> None:
    """Add a command that changes the operators' own entries of a key, or one entry shown first.

    ``request`` is its name in the API if that is not ``verb``, ``more`` what it sends besides.
    """

    def change(
        ctx: typer.Context,
        agent: AgentName,
        key: Key,
        scope: OfScope = None,
        memory_id: ById = None,
        updated_at: ByTime = None,
        as_json: AsJson = False,
    ) -> None:
        question = f"Is this to be {done}?"
        body = {**_chosen(ctx, agent, key, scope, memory_id, updated_at, question), **more}
        said = {name: value for name, value in body.items() if value is not None}
        one = client_of(ctx).post(f"{_path(agent)}/{request or verb}", said)
        text = f"{key} {outcome}" if outcome else f"{one['count']} forgotten"
        CommandOutput().done(one, clean(text), as_json=as_json)

    memory.command(verb, help=about)(change)


_add_change(
    "pin",
    "Keep what is yours under a key whatever else is pruned; or one entry, shown first.",
    done="pinned",
    outcome="is pinned",
)
_add_change(
    "unpin",
    "Let an entry be pruned again.",
    done="unpinned",
    outcome="is no longer pinned",
    request="pin",
    pinned=False,
)


@memory.command()
def share(
    ctx: typer.Context,
    agent: AgentName,
    key: Key,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            help="agent (all work of the agent), type, global, or instance: its person only.",
        ),
    ] = "agent",
    memory_id: ById = None,
    updated_at: ByTime = None,
    as_json: AsJson = False,
) -> None:
    """Let one entry be recalled in more work than its person's. On a terminal it is shown first."""
    client, path = client_of(ctx), _path(agent)
    body: dict[str, Any] = {"id": memory_id, "updated_at": updated_at}
    if memory_id is None or updated_at is None:
        one = _meant(client.get(path, {"key": key})["memories"], memory_id)
        body = _agreed(one, f"Is this to be shared ({clean(scope)})?")
    done = client.post(f"{path}/share", {**body, "scope": scope})
    screen = CommandOutput.unless_json(done, as_json)
    screen.say(_whole(done["memory"]))
    if done["replaced"]:
        screen.say("It replaces what the same person had there under this key.")


def _chosen(
    ctx: typer.Context,
    agent: str,
    key: str,
    scope: str | None,
    memory_id: str | None,
    updated_at: int | None,
    question: str,
) -> dict[str, Any]:
    """The body of a change: it names the operators' own entries of the key, or one seen entry."""
    if memory_id is not None and updated_at is not None:
        return {"id": memory_id, "updated_at": updated_at}
    found = client_of(ctx).get(_path(agent), {"key": key})["memories"]
    found = [one for one in found if scope in (None, one["scope"])]
    if memory_id is None and any(one["person"] == OPERATORS for one in found):
        return {"key": key, "scope": scope}
    return _agreed(_meant(found, memory_id), question)


def _agreed(one: dict[str, Any], question: str) -> dict[str, Any]:
    """The body that names the entry, once a person at a terminal has seen it and agreed."""
    named = {"id": one["id"], "updated_at": one["updated_at"]}
    if not sys.stdin.isatty():
        raise CommandFailed(
            "say which entry you have seen: "
            f"--id {one['id']} --updated-at {one['updated_at']} (look: agentsup memory show)"
        )
    agree(f"{_whole(one)}\n{question}", "nothing was done")
    return named


def _meant(found: list[dict[str, Any]], memory_id: str | None) -> dict[str, Any]:
    """The one entry of a key that is meant: named by its id, or the only one."""
    named = [one for one in found if memory_id in (None, one["id"])]
    if len(named) == 1:
        return named[0]
    if not named:
        raise CommandFailed(
            f"there is no {f'memory {memory_id}' if memory_id else 'such memory'} under that key"
        )
    each = "\n".join(f"  --id {one['id']}: {shortened(one['content'], 60)}" for one in named)
    raise CommandFailed(f"several entries have that key; say which one is meant:\n{each}")


_add_change(
    "forget",
    "Drop what is yours under a key for good; or one entry of somebody else's, shown first.",
    done="forgotten",
)


@asks("{count} forgotten", memory)
def prune(
    agent: AgentName,
    below: Annotated[
        float,
        typer.Option(min=0, max=1, help="Confidence, halved every 90 days, and use together."),
    ] = 0.1,
) -> Request:
    """Drop what is worth little and not pinned."""
    return submit(f"{_path(agent)}/prune", below=below)
