"""`agentsup memory …`: what agents remember."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentsup.cli.client import segment
from agentsup.cli.options import AgentName, AsJson, client_of, group
from agentsup.cli.reads import PAGE
from agentsup.cli.show import Screen, clean, shortened, when

memory = group("What agents remember beyond their sessions.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key it was saved under.")]
Limit = Annotated[int, typer.Option("-n", "--limit", min=1, max=500, help="How many at most.")]
OfScope = Annotated[
    str | None, typer.Option("--scope", help="instance, agent, type or global; else all of them.")
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
    """What an agent remembers: pinned first, then the latest; or what fits a search."""
    asked = {"limit": limit, "q": search, "kind": kind}
    wanted = {name: value for name, value in asked.items() if value is not None}
    document = client_of(ctx).get(f"/agents/{segment(agent)}/memory", wanted)
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    rows = [
        (
            ("★ " if one["pinned"] else "") + one["key"],
            one["kind"],
            _scope(one),
            f"{one['confidence']:g}",
            str(one["use_count"]),
            when(one["updated_at"]),
            shortened(one["content"], 200),
        )
        for one in document["memories"]
    ]
    head = ("key", "kind", "scope", "sure", "uses", "saved", "content")
    screen.table(head, rows, empty=f"{document['agent']} remembers nothing that fits.")
    left = document["total"] - len(rows)
    if left > 0 and search is None and kind is None:
        screen.say(f"{left} more; -n shows more of them.")


@memory.command()
def show(ctx: typer.Context, agent: AgentName, key: Key, as_json: AsJson = False) -> None:
    """One of them, whole."""
    document = client_of(ctx).get(f"/agents/{segment(agent)}/memory", {"key": key})
    screen = Screen()
    if as_json:
        screen.json(document)
        return
    for one in document["memories"]:
        facts = [one["kind"], _scope(one), f"confidence {one['confidence']:g}"]
        facts += [f"recalled {one['use_count']} times", f"saved {when(one['updated_at'])}"]
        facts += ["pinned"] if one["pinned"] else []
        facts += [f"#{tag}" for tag in one["tags"]]
        screen.say(f"{clean(one['key'])} ({clean(', '.join(facts))})")
        screen.say(clean(one["content"]))


@memory.command()
def pin(
    ctx: typer.Context, agent: AgentName, key: Key, scope: OfScope = None, as_json: AsJson = False
) -> None:
    """Keep an entry whatever else is pruned."""
    _change(ctx, agent, "pin", {"key": key, "scope": scope}, f"{key} is pinned", as_json=as_json)


@memory.command()
def unpin(
    ctx: typer.Context, agent: AgentName, key: Key, scope: OfScope = None, as_json: AsJson = False
) -> None:
    """Let an entry be pruned again."""
    body = {"key": key, "scope": scope, "pinned": False}
    _change(ctx, agent, "pin", body, f"{key} is no longer pinned", as_json=as_json)


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
    person: Annotated[
        str | None, typer.Option("--person", help="Only what was saved in that one's work.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let an entry be recalled in more work than its person's."""
    body = {"key": key, "scope": scope, "person": person}
    told = f"{key} is recalled with the scope {scope} now"
    _change(ctx, agent, "share", body, told, as_json=as_json)


@memory.command()
def forget(
    ctx: typer.Context, agent: AgentName, key: Key, scope: OfScope = None, as_json: AsJson = False
) -> None:
    """Drop an entry for good."""
    _change(ctx, agent, "forget", {"key": key, "scope": scope}, "", as_json=as_json)


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


def _scope(one: dict[str, Any]) -> str:
    """Whose work recalls it now."""
    if one["scope"] == "instance" or not one["shared_by"]:
        wish = "" if one["scope"] == "instance" else f" ({one['scope']} once shared)"
        return f"{one['person']}{wish}"
    return str(one["scope"])


def _change(
    ctx: typer.Context, agent: str, verb: str, body: dict[str, Any], told: str, *, as_json: bool
) -> None:
    said = {name: value for name, value in body.items() if value is not None}
    one = client_of(ctx).post(f"/agents/{segment(agent)}/memory/{verb}", said)
    screen = Screen()
    if as_json:
        screen.json(one)
    else:
        screen.say(clean(told) or f"{one['count']} forgotten")
