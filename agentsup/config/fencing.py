"""``[fence]`` of config.toml: the program fence around the programs that agents run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from agentsup.config.fence_paths import expanded
from agentsup.config.fields import Section, as_tuple, setting


def _absolute_path(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise ValueError("a place is named by its whole path, or from ~/ on")
    return path


Paths = Annotated[
    tuple[Annotated[str, AfterValidator(_absolute_path)], ...], BeforeValidator(as_tuple)
]


class FenceSettings(Section):
    """``[fence]``: the program fence around agents' programs.

    They can't reach the home, except the agent's own part of it, nor the paths in ``closed``. They
    write there, in temporary files and in ``writable`` only; everything else they can read.
    ``auto``: the fence is used if the system supports it; ``required``: without it no program is
    run; ``off``. ``sockets``: paths of sockets that programs may connect to; others are closed if
    the kernel can do that.
    """

    mode: Literal["auto", "required", "off"] = setting(
        "auto", "auto: if the system supports it; required: no program without it; off."
    )
    writable: Paths = setting((), "Further paths that programs may write, such as ~/projects.")
    closed: Paths = setting((), "Further paths that programs can't open, such as ~/Documents.")
    sockets: Paths = setting((), "Sockets that programs may connect to, by path.")

    def paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The additional closed paths; ``~`` is the home of the daemon's user."""
        return tuple(expanded(path, environ) for path in self.closed)

    def writable_paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Temporary files and ``writable``; ``~`` is the home of the daemon's user."""
        usual = environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where programs look
        return (usual, *(expanded(path, environ) for path in self.writable))

    def socket_paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Sockets that programs may connect to; ``~`` is the home of the daemon's user."""
        return tuple(expanded(path, environ) for path in self.sockets)
