"""The program fence: the paths that are closed to agents' programs, and what happens without it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentsup.engines.failures import EnginesBusy, NotConfigured
from agentsup.kit.fence import Fence, FenceUnavailable, rules_of
from agentsup.kit.log import get_logger
from agentsup.kit.planted import GuardedFolder
from agentsup.kit.pool import BoundedPool

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fencing:
    """The settings of the program fence.

    ``closed``: absolute paths; none: no fence. With ``is_required`` a program is not started if
    the system has no fence; else it runs without one, and ``doctor`` says so. ``writable`` and
    ``sockets``: see ``kit.fence.Fence``.
    """

    closed: tuple[str, ...] = ()
    is_required: bool = False
    writable: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()

    def with_room(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        """Return ``env`` with a usable directory for temporary files; blocks.

        It is the usual one if programs may write there, and nothing in it is closed: nothing new
        could be made there. Otherwise ``TMPDIR`` names a directory in the program's own ``home``.
        """
        usual = _real(env.get("TMPDIR") or "/tmp")  # noqa: S108 - where programs look
        closed, writable = map(_real, self.closed), map(_real, self.writable)
        is_closed = any(path.is_relative_to(usual) or usual.is_relative_to(path) for path in closed)
        is_writable = any(usual.is_relative_to(path) for path in writable)
        if not self.closed or (is_writable and not is_closed):
            return dict(env)
        GuardedFolder(home).clear("tmp", mode=0o700)
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
        """Yield the fence rules (a file descriptor) for one program, or None if it has no fence.

        ``opened`` paths stay open to the program, ``shown`` ones can be read. Paths are looked up
        in the pool ``files``, as they may lie on a disk that does not answer. Raises
        ``NotConfigured`` if a required fence is not available, ``EnginesBusy`` if it can't be made
        now.
        """
        rules: int | None = None
        if self.closed:

            def rules_now() -> int:
                return rules_of(
                    Fence(self.closed, tuple(opened), self.writable, tuple(shown), self.sockets)
                )

            try:
                rules = await files.run(rules_now, key=key, undo=os.close)
            except FenceUnavailable as error:
                if self.is_required:
                    raise NotConfigured(
                        f"programs of agents can't be fenced in, and fence.mode is required: "
                        f"{error.strerror or error}"
                    ) from None
                _log.debug(f"a program runs without a fence: {error}")
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


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))
