"""`agentsup memory …`: what agents remember."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentsup.cli.client import segment
from agentsup.cli.failure import Failed
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
    screen.say("\n\n".join(_whole(one) for one in document["memories"]))


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
    memory_id: Annotated[
        str | None, typer.Option("--id", help="The entry, where the key has several; from `show`.")
    ] = None,
    updated_at: Annotated[
        int | None,
        typer.Option("--updated-at", help="Of what you have seen, from `show`; else it is asked."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let one entry be recalled in more work than its person's. On a terminal it is shown first."""
    client, path = client_of(ctx), f"/agents/{segment(agent)}/memory"
    if memory_id is None or updated_at is None:
        one = _meant(client.get(path, {"key": key})["memories"], memory_id)
        if not sys.stdin.isatty():
            raise Failed(
                "say which entry you have seen: "
                f"--id {one['id']} --updated-at {one['updated_at']} (look: agentsup memory show)"
            )
        sys.stderr.write(f"{_whole(one)}\nIs this to be shared ({clean(scope)})? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            raise Failed("nothing was shared")
        memory_id, updated_at = one["id"], one["updated_at"]
    body = {"id": memory_id, "updated_at": updated_at, "scope": scope}
    done = client.post(f"{path}/share", body)
    screen = Screen()
    if as_json:
        screen.json(done)
        return
    screen.say(_whole(done["memory"]))
    if done["replaced"]:
        screen.say("It takes the place of what the same person had there under this key.")


def _meant(found: list[dict[str, Any]], memory_id: str | None) -> dict[str, Any]:
    """The one entry of a key that is to be shared: named by its id, or the only one."""
    named = [one for one in found if memory_id in (None, one["id"])]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Failed(f"there is no memory {memory_id} under that key")
    each = "\n".join(f"  --id {one['id']}: {shortened(one['content'], 60)}" for one in named)
    raise Failed(f"several entries have that key; say which one is meant:\n{each}")


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


def _whole(one: dict[str, Any]) -> str:
    """All of an entry, with what names it."""
    facts = [one["kind"], _scope(one), f"confidence {one['confidence']:g}"]
    facts += [f"recalled {one['use_count']} times", f"saved {when(one['updated_at'])}"]
    facts += ["pinned"] if one["pinned"] else []
    facts += [f"#{tag}" for tag in one["tags"]]
    named = f"--id {one['id']} --updated-at {one['updated_at']}"
    return f"{clean(one['key'])} ({clean(', '.join(facts))})\n{clean(one['content'])}\n{named}"


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
