"""The text of a call for a person's decision, in which it can't look like another call. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from agentsup.kit.text import visible
from agentsup.model.question import AskedCall

CARD_CHARS = 3_000
"""A call up to this length is shown whole on its card."""
WHOLE_CHARS = 64 * 1024
"""The longest call that a person is asked about."""
VALUE_CHARS = 600
MOST_ARGUMENTS = 12
_NAME_CHARS = 120
_MAX_DEPTH = 64
_FENCE = re.compile("`+")


class CallTooLong(ValueError):
    """The call can't be shown whole."""


def shown(
    tool: str,
    title: str,
    args: Mapping[str, Any],
    digest: str,
    redact: Callable[[str], str] = str,
    workspace: str = "",
) -> tuple[str, AskedCall]:
    """The text of a card, and the call to store with the question, both with secrets masked.

    ``workspace`` is where it runs its commands.

    The card has the whole call if that has ``CARD_CHARS`` or less. Raises ``CallTooLong``.
    """
    masked = _masked(dict(args), redact, 0)
    tool, title = redact(tool), redact(title)
    facts = {"tool": tool, "title": title, "args": masked}
    if workspace:
        facts["workspace"] = redact(workspace)
    document = json.dumps(facts, ensure_ascii=False, default=repr)
    if len(document) > WHOLE_CHARS:
        raise CallTooLong(f"{len(document)} characters; the most are {WHOLE_CHARS}")
    document = document.encode("utf-8", "backslashreplace").decode()
    whole = _block(tool, title, masked)
    if len(whole) <= CARD_CHARS:
        return whole, AskedCall(document, digest)
    return summary(tool, title, masked), AskedCall(document, digest, whole)


def summary(tool: str, title: str, args: Mapping[str, Any]) -> str:
    """The shortened text of a long call: tool and arguments, one line each."""
    return _block(
        tool, title, args, name_chars=_NAME_CHARS, value_chars=VALUE_CHARS, most=MOST_ARGUMENTS
    )


def _block(
    tool: str,
    title: str,
    args: Mapping[str, Any],
    *,
    name_chars: int = 0,
    value_chars: int = 0,
    most: int = 0,
) -> str:
    """One line for each argument, in a Markdown code block; a limit of 0 is none.

    ``title`` is the engine's name of the call, and is put in quotes.
    """
    lines = [_bounded(visible(tool), name_chars)]
    if title:
        lines.append(f"“{_bounded(visible(title), name_chars)}”")
    for name, value in list(args.items())[: most or len(args)]:
        text = visible(json.dumps(value, ensure_ascii=False, default=repr))
        lines.append(f"  {_bounded(visible(str(name)), name_chars)}: {_bounded(text, value_chars)}")
    if most and len(args) > most:
        lines.append(f"  … {len(args) - most} more")
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in _FENCE.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _masked(value: Any, redact: Callable[[str], str], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise CallTooLong(f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {
            redact(str(name)): _masked(inner, redact, depth + 1) for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(inner, redact, depth + 1) for inner in value]
    return value


def plain_name(text: str) -> str:
    """A person's name for a sentence, without characters that Markdown interprets."""
    return "".join(c for c in _bounded(visible(text), 60) if c not in "`*_[]()<>#~|!\\")


def _bounded(text: str, most: int) -> str:
    if not most or len(text) <= most:
        return text
    half = most // 2
    cut = f"{text[:half]} … {len(text) - 2 * half} characters not shown … {text[-half:]}"
    return cut if len(cut) < len(text) else text
