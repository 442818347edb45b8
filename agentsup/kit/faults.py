"""Fault points: named places at which a test may kill the process; inactive in production.

Code calls ``point("mailbox.claimed")`` at the instants that matter for durability. With
``AGENTSUP_FAULT="mailbox.claimed:3"`` in the environment the process sends itself SIGKILL at the
third pass of that point. With ``AGENTSUP_FAULT_LOG=path`` the first pass of each name is appended
to that file, so that a test run can prove that it reached all of them. Serves P1, P2 and P8.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

CORE_POINTS: frozenset[str] = frozenset(
    {
        "store.before_commit",
        "store.after_commit",
        "mailbox.accept.before_insert",
        "mailbox.claimed",
        "turn.before_engine",
        "turn.after_engine",
        "turn.complete.before_commit",
        "turn.completed",
        "journal.after_intent",
        "journal.after_effect",
        "journal.after_result",
        "outbox.before_deliver",
        "outbox.after_deliver",
        "question.parked",
        "question.answered",
        "stop.before_commit",
        "stop.after_commit",
        "bus.before_accept",
        "bus.after_accept",
    }
)
"""The points that a daemon without outside channels passes."""

_OF_A_PLATFORM = ("before_commit", "after_commit", "before_handle", "after_handle")
TELEGRAM_POINTS: frozenset[str] = frozenset(f"telegram.{step}" for step in _OF_A_PLATFORM)
MATRIX_POINTS: frozenset[str] = frozenset(f"matrix.{step}" for step in _OF_A_PLATFORM)

BOT_POINTS: frozenset[str] = frozenset(
    {"bot.bound", "bot.token_kept", "bot.in_file", "bot.before_taken", "bot.taken"}
)
"""The points of main's bot while a bot that somebody created becomes an agent's."""

RECOVERY_POINTS: frozenset[str] = frozenset({"turn.attempt_failed", "turn.nudged"})
"""The points of turns whose engine failed, or is asked once more."""

TASK_POINTS: frozenset[str] = frozenset(
    {
        "run.before_start",
        "run.after_start",
        "task.before_commit",
        "task.after_commit",
        "schedule.before_commit",
        "schedule.after_commit",
    }
)
"""The points of a daemon whose agents delegate work or have tasks."""

POINTS = CORE_POINTS | TASK_POINTS | TELEGRAM_POINTS | MATRIX_POINTS | RECOVERY_POINTS | BOT_POINTS
"""Every known point; the kill tests cover all of them."""


class FaultPlan:
    """The actions at points: kill at the n-th pass of one, log first passes."""

    def __init__(
        self, kill_at: str | None = None, nth: int = 1, log_path: Path | None = None
    ) -> None:
        """Raises ``ValueError`` if ``kill_at`` is no known point or ``nth`` is below 1."""
        if kill_at is not None and kill_at not in POINTS:
            raise ValueError(f"AGENTSUP_FAULT names an unknown fault point: {kill_at!r}")
        if nth < 1:
            raise ValueError(f"AGENTSUP_FAULT needs a passing count of at least 1, got {nth}")
        self.is_active = kill_at is not None or log_path is not None
        self._kill_at = kill_at
        self._nth = nth
        self._log_path = log_path
        self._passings: Counter[str] = Counter()
        self._lock = threading.Lock()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> FaultPlan:
        """Read ``AGENTSUP_FAULT`` ("name" or "name:n") and ``AGENTSUP_FAULT_LOG`` from ``env``."""
        log = env.get("AGENTSUP_FAULT_LOG")
        name, _, count = env.get("AGENTSUP_FAULT", "").partition(":")
        if count and not count.isdecimal():
            raise ValueError(f"AGENTSUP_FAULT={name}:{count}: the part after ':' must be a number")
        return cls(name or None, int(count or "1"), Path(log) if log else None)

    def pass_point(self, name: str) -> None:
        """Count one pass of ``name``, log it if it is the first, kill if it is the chosen one."""
        with self._lock:
            self._passings[name] += 1
            passing = self._passings[name]
            if self._log_path is not None and passing == 1:
                with self._log_path.open("a", encoding="ascii") as log:
                    log.write(f"{name}\n")
            if name == self._kill_at and passing == self._nth:
                os.kill(os.getpid(), signal.SIGKILL)


_plan = FaultPlan.from_env(os.environ)


def point(name: str) -> None:
    """Mark that execution has reached the point ``name``; does nothing in production.

    Raises ``ValueError`` for a name that is not in ``POINTS``, so that a typo is noticed.
    """
    if name not in POINTS:
        raise ValueError(f"unknown fault point {name!r}: add it to agentsup.kit.faults.POINTS")
    if _plan.is_active:
        _plan.pass_point(name)


def platform_point(channel: str, step: str) -> None:
    """Mark that receiving on ``channel`` has reached ``step``; does nothing in production.

    A platform need not be known here. Raises ``ValueError`` for an unknown step.
    """
    if step not in _OF_A_PLATFORM:
        raise ValueError(f"unknown step {step!r} of a platform")
    if _plan.is_active:
        _plan.pass_point(f"{channel}.{step}")
