"""Which places are closed to the programs of agents, and what is done where that can't be."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentsup.engines.failures import EnginesBusy, NotConfigured
from agentsup.kit import seccomp
from agentsup.kit.fence import Fence, FenceUnavailable, rules_of
from agentsup.kit.planted import Folder
from agentsup.kit.pool import BoundedPool

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fencing:
    """``closed``: absolute paths; none: no fence. With ``is_required`` a program is not started
    where the system has no fence; else it runs without, and ``doctor`` says so. ``read_only`` and
    ``sockets``: see ``kit.fence.Fence``. ``programs`` are more that is read-only, looked for in a
    thread at each start."""

    closed: tuple[str, ...] = ()
    is_required: bool = False
    read_only: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    programs: Callable[[], tuple[str, ...]] = tuple

    def with_room(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        """``env`` with a place for temporary files: the usual one, or, where a closed place lies in
        that so that nothing new can be made in it, one in the program's own ``home``. Blocks."""
        usual = os.path.realpath(env.get("TMPDIR") or "/tmp")  # noqa: S108 - where programs look
        kept = (*self.closed, *self.read_only, *self.programs())
        if not any(Path(os.path.realpath(path)).is_relative_to(usual) for path in kept):
            return dict(env)
        Folder(home).clear("tmp", mode=0o700)
        return {**env, "TMPDIR": str(home / "tmp")}

    @asynccontextmanager
    async def around(
        self,
        opened: Iterable[str],
        shown: Iterable[str] = (),
        *,
        files: BoundedPool,
        key: str,
    ) -> AsyncGenerator[int | None]:
        """The rules for one program, to which ``opened`` stays open and ``shown`` can be read. The
        places are looked up in the pool ``files``: they may lie on a disk that does not answer.
        Raises ``NotConfigured``, ``EnginesBusy``."""
        rules: int | None = None
        if self.closed:
            if self.is_required and not seccomp.is_available():
                raise NotConfigured(
                    "programs of agents can't be kept from the daemon's limits, and fence.mode is "
                    f"required: this system ({platform.machine()}) has no filter of system calls"
                )

            def rules_now() -> int:
                read_only = (*self.read_only, *self.programs())
                return rules_of(
                    Fence(self.closed, tuple(opened), read_only, tuple(shown), self.sockets)
                )

            try:
                rules = await files.run(rules_now, key=key, undo=os.close)
            except FenceUnavailable as error:
                if self.is_required:
                    raise NotConfigured(
                        f"programs of agents can't be fenced in, and fence.mode is required: "
                        f"{error.strerror or error}"
                    ) from None
                _log.debug("a program runs without a fence: %s", error)
            except OSError as error:
                # The system has fences: what can't be fenced now is not run without one.
                raise EnginesBusy(
                    f"a program can't be fenced in now, so it is not run: {error.strerror or error}"
                ) from error
        try:
            yield rules
        finally:
            if rules is not None:
                os.close(rules)
