"""Spans as lines of a terminal, and costs below their table."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from agentsup.cli.commands.trace import cost, length, line
from agentsup.cli.output import declared
from agentsup.cli.output.show import width_of


def span(**more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "kind": "tool",
        "name": "exec",
        "depth": 3,
        "state": "failed",
        "code": "not_found",
        "detail": '{"cmd": "ls"}',
        "attributes": {"effect": "blind"},
        "offset_ms": 1500,
        "duration_ms": 0.25,
        "message_id": "msg_1",
    }
    return {**given, **more}


def test_a_span_says_what_it_was_and_how_it_ended() -> None:
    assert line(span(), None) == (
        '      tool exec: failed, 0.2 ms, +1.5 s, not_found  {"cmd": "ls"}'
    )
    engine = span(
        kind="engine",
        name="llm",
        state="ok",
        code="",
        detail="",
        attributes={"input_tokens": 3, "output_tokens": 4, "usd": 0.5},
    )
    assert line(engine, None).endswith("+1.5 s, 3+4 tokens, $0.5000")


@pytest.mark.parametrize("width", [24, 40, 60, 200])
def test_a_narrow_terminal_keeps_one_line_for_each_span(width: int) -> None:
    shown = line(span(depth=30, detail="x\ny\x1b[31m" * 50), width)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert width_of(shown) <= max(width, 24)


@pytest.mark.parametrize(
    "ms, wanted",
    [
        (None, "-"),
        (0, "0.0 ms"),
        (9.96, "10.0 ms"),
        (250, "250 ms"),
        (2_500, "2.5 s"),
        (600_000, "10.0 min"),
    ],
)
def test_lengths_are_short(ms: float | None, wanted: str) -> None:
    assert length(ms) == wanted


def test_what_is_estimated_counts_for_an_agent_of_any_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    span: dict[str, Any] = {
        "usd": 0.0,
        "input_tokens": 7,
        "output_tokens": 0,
        "estimated_tokens": 7,
        "unpriced": 1,
    }
    spent = {"day": span, "month": span, "total": span, "budgets": []}
    document = {"agents": [{"agent": name, **spent} for name in ("ann", "all")], "all": spent}
    client = MagicMock(get=lambda path, query, timeout_s: document)
    monkeypatch.setattr(declared, "client_of", lambda ctx: client)
    cost(MagicMock())
    told = capsys.readouterr().out
    assert "14 tokens of this month are estimated" in told
    assert "2 turns of this month have no known price" in told
