"""The plain `--json` reads, answered without the command line library, which takes longer to load
than the daemon takes to answer. Every other form of the same commands goes the usual way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentsup.cli.client import Client, segment
from agentsup.cli.locate import Place
from agentsup.kit.terminal import clean_json

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
        ("dead", "list"): f"/dead?limit={PAGE}",
        ("dead", "show", "ID"): "/messages/{}",
        ("poison", "list"): f"/poison?limit={PAGE}",
        ("poison", "show", "ID"): "/poison/{}",
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
    """The path that a command without `--json` reads; None where it is no plain read."""
    for command, path in READS.items():
        pairs = zip(command, words, strict=False)
        if len(command) == len(words) and all(c == w or c.isupper() for c, w in pairs):
            if words[-1].startswith("-"):
                return None
            return path.format(segment(words[-1])) if command[-1].isupper() else path
    return None


def status_of(client: Client) -> dict[str, Any]:
    """The daemon at a glance, whether it takes work, and which probes fail."""
    one = client.get("/status")
    ready = client.ask("GET", "/readyz")
    found = ready.document if isinstance(ready.document, dict) else {}
    failing = [probe for probe in found.get("probes", ()) if not probe.get("ok")]
    return {**one, "ready": ready.status == 200, "failing": failing}


def agents_of(client: Client) -> tuple[dict[str, Any], list[str]]:
    """Every agent, and the files of roles that are not used as they stand."""
    one = client.get("/agents")
    found = list(client.get("/roles")["findings"])
    return ({**one, "findings": found} if found else one), found


def read_quickly(line: list[str]) -> int | None:
    """Print the document of a plain read; its exit code, or None where it is none. Raises `Failed`."""
    home = line[1] if line[:1] == ["--home"] and len(line) > 1 else None
    words = line[2:] if home is not None else line
    if words.count("--json") != 1 or words[0] == "--json":
        return None
    words = [word for word in words if word != "--json"]
    if words == ["status"]:
        document: Any = status_of(Client.to(Place.of(home)))
        code = 0 if document["ready"] else 1
    elif words == ["agents", "list"]:
        document, found = agents_of(Client.to(Place.of(home)))
        code = 1 if found else 0
    else:
        path = path_of(words)
        if path is None:
            return None
        document, code = Client.to(Place.of(home)).get(path), 0
    print(clean_json(json.dumps(document, ensure_ascii=False, indent=2)))
    return code
