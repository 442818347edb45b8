"""Plain ``--json`` reads, answered without the command line library.

The library takes longer to load than the daemon takes to answer. It handles every other form of the
same commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentsup.cli.connect.client import DaemonClient, segment
from agentsup.cli.connect.failure import DaemonUnreachable
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.kit.terminal import clean_json


def engine_notes(agents: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line per reason why engines are worse than what the files name: the agents, and why."""
    found: dict[str, list[str]] = {}
    for one in agents:
        if problem := one.get("engine_problem"):
            found.setdefault(problem, []).append(one["name"])
    return [f"{', '.join(names)}: {problem}" for problem, names in found.items()]


def lost_engines(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A line for each agent whose engine had no problem ``before`` and has one ``now``."""
    earlier = {one["name"]: _engine(one) for one in before if not one.get("engine_problem")}
    lines = []
    for one in now:
        if one.get("engine_problem") and (was := earlier.get(one["name"])):
            then = "can't now" if _engine(one) == was else f"now with {_engine(one)}"
            text = f"{one['name']} thought with {was} before, and {then}: {one['engine_problem']}"
            lines.append(text)
    return lines


def _engine(one: Mapping[str, Any]) -> str:
    from agentsup.model.agent import OFFLINE  # not for every short command

    if one["engine"] == OFFLINE:
        return "the offline engine"
    return f"{one['engine']} and {one['model']}" if one["model"] else str(one["engine"])


PAGE = 20
"""Length of a list unless told otherwise."""

READS: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("agents", "list"): "/agents",
        ("agents", "show", "NAME"): "/agents/{}",
        ("agents", "diff"): "/diff",
        ("memory", "list", "AGENT"): f"/agents/{{}}/memory?limit={PAGE}",
        ("cost",): "/cost",
        ("cost", "AGENT"): "/cost?agent={}",
        ("messages", "list"): f"/messages?limit={PAGE}",
        ("messages", "show", "ID"): "/messages/{}",
        ("messages", "thread", "ID"): "/threads/{}",
        ("failed", "list"): f"/dead?limit={PAGE}",
        ("failed", "show", "ID"): "/messages/{}",
        ("quarantine", "list"): f"/poison?limit={PAGE}",
        ("quarantine", "show", "ID"): "/poison/{}",
        ("trace", "list"): f"/traces?limit={PAGE}",
        ("trace", "show"): "/traces/last",
        ("trace", "show", "ID"): "/traces/{}",
        ("trace", "metrics"): "/traces/metrics",
        ("tasks", "list"): f"/tasks/list?limit={PAGE}",
        ("tasks", "show", "ID"): "/tasks/{}",
        ("tasks", "log", "ID"): f"/tasks/{{}}/log?tail={PAGE}",
        ("questions", "list"): f"/questions?state=open&limit={PAGE}",
        ("questions", "show", "ID"): "/questions/{}",
    }
)
"""Command (an upper-case word stands for one argument) to the path of its document."""


def path_of(words: list[str]) -> str | None:
    """The path that a command (without its ``--json``) reads; None if it is no plain read."""
    for command, path in READS.items():
        pairs = zip(command, words, strict=False)
        if len(command) == len(words) and all(c == w or c.isupper() for c, w in pairs):
            if words[-1].startswith("-"):
                return None
            return path.format(segment(words[-1])) if command[-1].isupper() else path
    return None


def status_of(client: DaemonClient) -> dict[str, Any]:
    """The daemon at a glance, whether it takes work, which probes fail, which engines are worse than
    what the files name, and what waits for a person: open questions and failed messages."""
    one = client.get("/status")
    ready = client.ask("GET", "/readyz")
    found = ready.document if isinstance(ready.document, dict) else {}
    failing = [probe for probe in found.get("probes", ()) if not probe.get("ok")]
    agents = client.ask("GET", "/agents")
    listed = agents.document["agents"] if agents.status == 200 else ()
    return {
        **one,
        "ready": ready.status == 200,
        "failing": failing,
        "engines": engine_notes(listed),
        "questions": _counted(client, "/questions?state=open", "questions"),
        "failed_messages": _counted(client, "/dead", "dead"),
        "degraded": [line for one in listed if (line := _degraded(one))],
    }


def _degraded(one: Mapping[str, Any]) -> str:
    """A text about an agent that is neither well nor only without its engine; else empty."""
    if one["status"] not in ("degraded", "failed", "backoff") or one.get("engine_problem"):
        return ""
    why = one["warnings"][0] if one["warnings"] else one["last_reason"]
    return f"{one['name']} is {one['status']}" + (f": {why}" if why else "")


def _counted(client: DaemonClient, path: str, member: str) -> int:
    """The number of items, at most 500; 0 if this token may not see them."""
    found = client.ask("GET", f"{path}{'&' if '?' in path else '?'}limit=500")
    return len(found.document[member]) if found.status == 200 else 0


def status_at(location: DaemonLocation) -> dict[str, Any]:
    """The same of the daemon of a location, with ``keeper``: what starts it again when it ends (None
    where only its URL is known). Raises ``DaemonUnreachable`` that says what becomes of it."""
    from agentsup.cli.connect.keeping import keeping_of, why_none_runs

    try:
        one = status_of(DaemonClient.to(location))
    except DaemonUnreachable:
        if reason := why_none_runs(location):
            raise DaemonUnreachable(reason) from None
        raise
    keeping = None if location.url else keeping_of(location, one["pid"])
    return {**one, "keeper": keeping and {"kind": keeping.by, "text": keeping.text}}


def agents_of(client: DaemonClient) -> tuple[dict[str, Any], list[str]]:
    """Every agent, and the findings about files of roles that are not used as they are."""
    one = client.get("/agents")
    found = list(client.get("/roles")["findings"])
    return ({**one, "findings": found} if found else one), found


def read_quickly(line: list[str]) -> int | None:
    """Print the document of a plain read; returns its exit code, or None if ``line`` is none.
    Raises ``CommandFailed``."""
    home = line[1] if line[:1] == ["--home"] and len(line) > 1 else None
    words = line[2:] if home is not None else line
    if words.count("--json") != 1 or words[0] == "--json":
        return None
    words = [word for word in words if word != "--json"]
    if words == ["status"]:
        document: Any = status_at(DaemonLocation.of(home))
        code = 0 if document["ready"] else 1
    elif words == ["agents", "list"]:
        document, found = agents_of(DaemonClient.to(DaemonLocation.of(home)))
        code = 1 if found else 0
    else:
        path = path_of(words)
        if path is None:
            return None
        document, code = DaemonClient.to(DaemonLocation.of(home)).get(path), 0
    print(clean_json(json.dumps(document, ensure_ascii=False, indent=2)))
    return code
