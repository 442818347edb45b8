"""What ``agentsup cost`` says under its table."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from agentsup.cli.commands import trace


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
    client = MagicMock(get=lambda path, query=None: document)
    monkeypatch.setattr(trace, "client_of", lambda ctx: client)
    trace.cost(MagicMock(), None)
    told = capsys.readouterr().out
    assert "14 tokens of this month are estimated" in told
    assert "2 turns of this month have no known price" in told
