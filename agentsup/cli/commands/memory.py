"""``agentsup memory …``: what agents remember."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.connect.client import segment
from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.options import AgentName, AsJson, Limit, agree, client_of, group, read
from agentsup.cli.output.reads import PAGE
from agentsup.cli.output.show import Column, CommandOutput, shortened, when
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


@memory.command("list")
def list_(
    ctx: typer.Context,
    agent: AgentName,
    search: Annotated[str | None, typer.Option("--search", help="Words to look for.")] = None,
    kind: Annotated[str | None, typer.Option(help="pattern, preference, fact or skill.")] = None,
    limit: Limit = PAGE,
    as_json: AsJson = False,
) -> None:
    """List an agent's memories: pinned first, then the latest; or those that fit a search."""
    asked = {"limit": limit, "q": search, "kind": kind}
    document, screen = read(ctx, f"/agents/{segment(agent)}/memory", as_json, asked)
    columns: dict[str, Column] = {
        "key": lambda one: ("★ " if one["pinned"] else "") + one["key"],
        "kind": "kind",
        "scope": _scope,
        "sure": lambda one: f"{one['confidence']:g}",
        "uses": "use_count",
        "saved": lambda one: when(one["updated_at"]),
        "content": lambda one: shortened(one["content"], 200),
    }
    empty = f"{document['agent']} remembers nothing that fits."
    screen.listing(document["memories"], columns, empty=empty)
    left = document["total"] - len(document["memories"])
    if left > 0 and search is None and kind is None:
        screen.say(f"{left} more; -n shows more of them.")


@memory.command()
def show(ctx: typer.Context, agent: AgentName, key: Key, as_json: AsJson = False) -> None:
    """One of them, whole."""
    document, screen = read(ctx, f"/agents/{segment(agent)}/memory", as_json, {"key": key})
    screen.say("\n\n".join(_whole(one) for one in document["memories"]))


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
        body = _chosen(ctx, agent, key, scope, memory_id, updated_at, question)
        text = f"{key} {outcome}" if outcome else ""
        _change(ctx, agent, request or verb, {**body, **more}, text, as_json=as_json)

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
    client, path = client_of(ctx), f"/agents/{segment(agent)}/memory"
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
    path = f"/agents/{segment(agent)}/memory"
    found = client_of(ctx).get(path, {"key": key})["memories"]
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


@memory.command()
def prune(
    ctx: typer.Context,
    agent: AgentName,
    below: Annotated[
        float,
        typer.Option(min=0, max=1, help="Confidence, halved every 90 days, and use together."),
    ] = 0.1,
    as_json: AsJson = False,
) -> None:
    """Drop what is worth little and not pinned."""
    _change(ctx, agent, "prune", {"below": below}, "", as_json=as_json)


def _whole(one: dict[str, Any]) -> str:
    """All of an entry, with the options that name it."""
    facts = [one["kind"], _scope(one), f"confidence {one['confidence']:g}"]
    facts += [f"recalled {one['use_count']} times", f"saved {when(one['updated_at'])}"]
    facts += ["pinned"] if one["pinned"] else []
    facts += [f"#{tag}" for tag in one["tags"]]
    named = f"--id {one['id']} --updated-at {one['updated_at']}"
    return f"{clean(one['key'])} ({clean(', '.join(facts))})\n{clean(one['content'])}\n{named}"


def _scope(one: dict[str, Any]) -> str:
    """A text with the people in whose work the entry is recalled now."""
    if one["scope"] == "instance" or not one["shared_by"]:
        wish = "" if one["scope"] == "instance" else f" ({one['scope']} once shared)"
        return f"{one['person']}{wish}"
    return str(one["scope"])


def _change(
    ctx: typer.Context, agent: str, verb: str, body: dict[str, Any], text: str, *, as_json: bool
) -> None:
    said = {name: value for name, value in body.items() if value is not None}
    one = client_of(ctx).post(f"/agents/{segment(agent)}/memory/{verb}", said)
    CommandOutput().done(one, clean(text) or f"{one['count']} forgotten", as_json=as_json)
