"""Reads the JSON log: its last lines, new lines as they are written, and a line as text."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.output.show import painted
from agentsup.config import AppliedHome, Home
from agentsup.kit.terminal import clean

LOOK_S: Final = 0.25
_HEAD: Final = ("at", "level", "event", "agent", "logger", "exception", "stack")
_COLOURS: Final = {"warning": "yellow", "error": "red", "critical": "red"}


def tail_log(path: Path, count: int, agent: str | None) -> list[str]:
    """The last ``count`` lines, of ``agent`` if one is named, from rotated files too."""
    last: deque[str] = deque(maxlen=count)
    pieces = sorted(
        (p for p in path.parent.glob(path.name + ".*") if p.suffix[1:].isdigit()),
        key=lambda p: int(p.suffix[1:]),
    )
    for piece in (path, *pieces):
        room = count - len(last)
        if room <= 0:
            break
        try:
            with piece.open(encoding="utf-8", errors="replace") as file:
                found = deque((s for line in file if is_of(s := line.rstrip("\n"), agent)), room)
        except FileNotFoundError:
            continue
        last.extendleft(reversed(found))
    return list(last)


def refuse_unknown(home: Home, agent: str) -> None:
    """Raise ``CommandFailed`` if no agent has that name; the log has no line of it either."""
    from agentsup.config import load
    from agentsup.model.errors import ConfigErrors, NotFound

    for each in (home, AppliedHome(home.root)):
        try:
            load(each).require(agent)
        except ConfigErrors:
            continue  # a running daemon uses what was applied last
        except NotFound as error:
            raise CommandFailed(f"the log has no line of {agent!r}: {error.message}") from None
        return
    raise CommandFailed(f"the log has no line of {agent!r}")


def is_of(line: str, agent: str | None) -> bool:
    """Whether a line is about ``agent``; for None any line is."""
    if not line:
        return False
    if agent is None:
        return True
    name = _parsed(line).get("agent")
    return isinstance(name, str) and name.casefold() == agent.casefold()


def follow_log(path: Path, agent: str | None, show: Callable[[str], None]) -> None:
    """Call ``show`` with lines as they are written, across rotation, until interrupted."""
    for line in _growth(path):
        if is_of(line, agent):
            show(line)


def _growth(path: Path) -> Iterator[str]:
    file = path.open(encoding="utf-8", errors="replace")
    try:
        file.seek(0, os.SEEK_END)
        rest = ""
        while True:
            rest += file.read()
            *whole, rest = rest.split("\n")
            yield from whole
            if _was_replaced(path, file.fileno()):
                yield from (rest + file.read()).split("\n")
                rest = ""
                file.close()
                file = path.open(encoding="utf-8", errors="replace")
                continue
            select.select([], [], [], LOOK_S)
    finally:
        file.close()


def _was_replaced(path: Path, descriptor: int) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (now.st_dev, now.st_ino) != (ours.st_dev, ours.st_ino)


def text_of(line: str, *, plain: bool) -> str:
    """A line as text: local time, level, agent, event and its facts. A line that is no JSON stays
    as it is."""
    facts = _parsed(line)
    if "event" not in facts:
        return clean(line)
    level = str(facts.get("level", ""))
    head = [_time(facts.get("at")), painted(f"{level:<7}", _COLOURS.get(level, "dim"), plain=plain)]
    if agent := facts.get("agent"):
        head.append(painted(f"[{clean(agent)}]", "cyan", plain=plain))
    head.append(clean(facts["event"]))
    pairs = [f"{k}={_value(v)}" for k, v in facts.items() if k not in _HEAD]
    if pairs:
        head.append(painted(" ".join(pairs), "dim", plain=plain))
    below = [clean(facts[name]) for name in ("exception", "stack") if facts.get(name)]
    return "\n".join([" ".join(head), *below])


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _time(at: object) -> str:
    try:
        return datetime.fromisoformat(str(at)).astimezone().strftime("%m-%d %H:%M:%S")
    except ValueError:
        return clean(at)


def _value(value: object) -> str:
    return clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
