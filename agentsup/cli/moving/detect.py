"""Detection of the product to which a folder belongs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.moving.foreign_home import ForeignHome
from agentsup.cli.moving.products import hermes, nanobot, openclaw, sygen
from agentsup.cli.moving.source import SourceFolder

_READERS: Final[
    Mapping[str, tuple[Callable[[SourceFolder], bool], Callable[[SourceFolder], ForeignHome]]]
] = MappingProxyType(
    {
        "sygen": (sygen.looks_like, sygen.read),
        "openclaw": (openclaw.looks_like, openclaw.read),
        "hermes": (hermes.looks_like, hermes.read),
        "nanobot": (nanobot.looks_like, nanobot.read),
    }
)
PRODUCTS: Final = tuple(_READERS)


def read_home(source: SourceFolder, product: str | None) -> ForeignHome:
    """Read the home of ``product``; without one, the folder must show which product it is.

    Raises ``CommandFailed``.
    """
    if product is not None and product not in _READERS:
        raise CommandFailed(f"--from is one of {', '.join(PRODUCTS)}", exit_code=2)
    fitting = [name for name, (looks_like, _) in _READERS.items() if looks_like(source)]
    if product is None:
        if len(fitting) != 1:
            seen = (
                f"it could be of {' or '.join(fitting)}" if fitting else "no known file lies there"
            )
            raise CommandFailed(
                f"{source.root}: {seen}; say which with --from {'|'.join(PRODUCTS)}", exit_code=2
            )
        product = fitting[0]
    elif product not in fitting:
        raise CommandFailed(
            f"{source.root} is no home of {product}: "
            + (f"it looks like one of {fitting[0]}" if fitting else "none of its files lies there")
        )
    source.skipped.clear()
    return _READERS[product][1](source)
