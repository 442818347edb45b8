"""Answers of servers in the form that the library accepts, where their meaning is plain. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def begun(result: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to ``initialize``: what a server need not say about itself is filled in."""
    info = result.get("serverInfo")
    given = info if isinstance(info, dict) else {}
    texts = {key: value for key, value in given.items() if isinstance(value, str)}
    made = {**result, "serverInfo": {"name": "unnamed", "version": "unknown", **texts}}
    if not isinstance(result.get("capabilities"), dict):
        made["capabilities"] = {}
    return made


def called(result: Mapping[str, Any], is_block: Callable[[Any], bool]) -> dict[str, Any]:
    """The result of a call, whose work is done: a part that can't be read costs itself.

    ``is_block`` says whether a part is one that the library reads.
    """
    if result.get("resultType", "complete") != "complete" or "task" in result:
        return dict(result)  # a form of its own, which the library judges
    content = result.get("content")
    if isinstance(content, str | dict):
        content = [content]
    elif content is None and result:
        content = [] if "structuredContent" in result else [dict(result)]
    if not isinstance(content, list):
        return dict(result)
    made = {**result, "content": [each if is_block(each) else _as_text(each) for each in content]}
    if not isinstance(made.get("isError", False), bool):
        made["isError"] = bool(made["isError"])
    if not isinstance(made.get("structuredContent", {}), dict):
        made["structuredContent"] = {"value": made["structuredContent"]}
    return made


def _as_text(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        text = part
    elif isinstance(part, dict) and isinstance(part.get("text"), str):
        text = part["text"]
    elif isinstance(part, dict) and isinstance(part.get("type"), str) and "data" in part:
        text = f"[{part['type'][:40]}, not shown]"
    else:
        text = json.dumps(part, ensure_ascii=False)
    return {"type": "text", "text": text}
