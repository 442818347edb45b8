"""Reading the JSON log: its end, its growth, and a line as people read it."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from agentsup.cli.failure import Failed
from agentsup.cli.show import clean, painted
from agentsup.config.home import Home

LOOK_S: Final = 0.25
_HEAD: Final = ("at", "level", "event", "agent", "logger", "exception", "stack")
_COLOURS: Final = {"warning": "yellow", "error": "red", "critical": "red"}


def tail_log(path: Path, count: int, agent: str | None) -> list[str]:
    """The last `count` lines, of `agent` where one is named, the rotated pieces included."""
    kept: deque[str] = deque(maxlen=count)
    pieces = sorted(
        (p for p in path.parent.glob(path.name + ".*") if p.suffix[1:].isdigit()),
        key=lambda p: int(p.suffix[1:]),
    )
    for piece in (path, *pieces):
        room = count - len(kept)
        if room <= 0:
            break
        try:
            with piece.open(encoding="utf-8", errors="replace") as file:
                found = deque((s for line in file if is_of(s := line.rstrip("\n"), agent)), room)
        except FileNotFoundError:
            continue
        kept.extendleft(reversed(found))
    return list(kept)


def refuse_unknown(home: Home, agent: str) -> None:
    """Raise `Failed` where no agent has that name; the log has no line of it either."""
    from agentsup.config.snapshot import load
    from agentsup.model.errors import ConfigErrors, NotFound

    try:
        load(home).require(agent)
    except ConfigErrors:
        return  # nobody can tell now
    except NotFound as error:
        raise Failed(f"{error.message}; the log has no line of it either") from None


def is_of(line: str, agent: str | None) -> bool:
    """Whether a line is about `agent`; any line is where none is named."""
    if not line:
        return False
    if agent is None:
        return True
    name = _parsed(line).get("agent")
    return isinstance(name, str) and name.casefold() == agent.casefold()


def follow_log(path: Path, agent: str | None, show: Callable[[str], None]) -> None:
    """Hand over lines as they are written, across rotation, until interrupted."""
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
                yield from (file.read()).split("\n")
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
    """Local time, level, agent, what happened and its facts; a line that is no JSON as it is."""
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
