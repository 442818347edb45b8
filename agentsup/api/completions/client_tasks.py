"""Requests of chat clients for a title, tags and follow-up questions, besides the conversation.

Open WebUI asks for these after each answer, in requests of their own that hold the talk as a text. A
turn of an agent for each would cost as much as the talk, and would leave sessions and memories of
words that nobody said. So they are answered here, without a model. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from agentsup.api.completions.request import CompletionPrompt

_TITLE_CHARS: Final = 50
_QUERY_CHARS: Final = 200
_TASK = re.compile(
    r"\s*### Task:\n.*?^### Output:\n[^{]{0,200}\{\s*"
    r'"(?P<wanted>title|tags|follow_ups|queries)"\s*:'
    r".*<chat_history>(?P<talk>.*)</chat_history>\s*",
    re.DOTALL | re.MULTILINE,
)
_SAID = re.compile(r"^USER:(.*?)(?=^(?:USER|ASSISTANT):|\Z)", re.DOTALL | re.MULTILINE)


def client_task_answer(asked: CompletionPrompt) -> str:
    """The answer to such a request; empty if it is none. A title is how the talk began, and what to
    search for is the person's last text. Tags and questions are not made up."""
    if asked.files or not all(one.is_instruction for one in asked.earlier):
        return ""
    found = _TASK.fullmatch(asked.typed)
    if found is None:
        return ""
    said = [" ".join(text.split()) for text in _SAID.findall(found["talk"])] or [""]
    answers: dict[str, Any] = {
        "title": _shortened(said[0], _TITLE_CHARS),
        "tags": [],
        "follow_ups": [],
        "queries": [said[-1][:_QUERY_CHARS]] if said[-1] else [],
    }
    return json.dumps({found["wanted"]: answers[found["wanted"]]}, ensure_ascii=False)


def _shortened(text: str, most: int) -> str:
    """The first words of a text."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rpartition(' ')[0] or text[: most - 1]}…"
