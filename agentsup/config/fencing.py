"""`[fence]` of config.toml: what is closed to the programs that agents run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from agentsup.config.fields import as_tuple


def _place(path: str) -> str:
    if not path.startswith(("/", "~/")):
        raise ValueError("a place is named by its whole path, or from ~/ on")
    return path


class FenceSettings(BaseModel):
    """`[fence]`: the home, but for an agent's own part of it, and ``closed`` are out of reach for
    what agents run. ``auto``: where the system can; ``required``: or nothing is run; ``off``.
    ``sockets``: paths of sockets they may connect to, where the kernel can keep them from others."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    mode: Literal["auto", "required", "off"] = "auto"
    closed: Annotated[
        tuple[Annotated[str, AfterValidator(_place)], ...], BeforeValidator(as_tuple)
    ] = ()
    sockets: Annotated[
        tuple[Annotated[str, AfterValidator(_place)], ...], BeforeValidator(as_tuple)
    ] = ()

    def paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """What else is closed, ``~`` being the home of the daemon's user."""
        return _expanded(self.closed, environ)

    def socket_paths(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Sockets that programs may connect to, ``~`` being the home of the daemon's user."""
        return _expanded(self.sockets, environ)


def _expanded(paths: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    user = environ.get("HOME", "")
    return tuple(f"{user}{path[1:]}" if path.startswith("~") and user else path for path in paths)
