"""What one life has opened, and how to be rid of it whatever became of the life itself."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from agentsup.kit.tasks import TaskOwner, stop_task

__all__ = ["Scope"]


class Scope:
    """Things to kill and things to close at the end of a life, newest first.

    `kill` is for what must be gone at once (process groups); `unwind` closes the rest, each step
    with its own limit and its own error, so that one cannot keep another from being closed.
    """

    def __init__(self, owner: TaskOwner) -> None:
        """Closing steps run as tasks of `owner`."""
        self._owner = owner
        self._kills: list[tuple[str, Callable[[], None]]] = []
        self._closers: list[tuple[str, Callable[[], Awaitable[None]]]] = []

    def on_kill(self, name: str, kill: Callable[[], None]) -> Callable[[], None]:
        """Call `kill` (quick, not raising) at the forced end; returns how to take that back."""
        entry = (name, kill)
        self._kills.append(entry)

        def forget() -> None:
            with contextlib.suppress(ValueError):
                self._kills.remove(entry)

        return forget

    def on_close(self, name: str, close: Callable[[], Awaitable[None]]) -> None:
        """Await `close` when the life has ended, after everything registered later."""
        self._closers.append((name, close))

    def kill(self) -> list[str]:
        """Kill everything registered for it; returns what went wrong, in words."""
        problems = []
        while self._kills:
            name, kill = self._kills.pop()
            try:
                kill()
            except Exception as error:  # noqa: BLE001 - supervision boundary: one kill, not all
                problems.append(f"killing {name}: {error!r}")
        return problems

    async def unwind(self, step_limit_s: float) -> list[str]:
        """Close everything, newest first, each within `step_limit_s`; returns what went wrong."""
        problems = []
        while self._closers:
            name, close = self._closers.pop()
            step = self._owner.spawn(_guarded(close), name=f"close:{name}")
            await asyncio.wait({step}, timeout=step_limit_s)
            if not step.done() and not await stop_task(step, timeout_s=step_limit_s):
                problems.append(f"closing {name}: abandoned after {2 * step_limit_s:g} s")
            elif step.cancelled():
                problems.append(f"closing {name}: not done within {step_limit_s:g} s")
            elif (error := step.result()) is not None:
                problems.append(f"closing {name}: {error!r}")
        return problems


async def _guarded(close: Callable[[], Awaitable[Any]]) -> BaseException | None:
    """The error of a closing step, as a value."""
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - supervision boundary: one step, not the unwinding
        return error
    return None
