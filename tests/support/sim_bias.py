"""What histories of the simulation meet more often than it comes by itself.

A rare bug needs a rare situation. A leaning makes a situation more frequent without making one
that could not come anyway: it only changes how often what is drawn in every history is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HistoryBias:
    """Weights that differ from the usual ones; as it comes by default."""

    deaths: tuple[str, ...] = ()
    """Fault points at which the process dies where it dies at one; empty for all alike."""
    acts: Mapping[str, int] = field(default_factory=dict)
    """Weights of what people and programs do, by the names of ``Actors``."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Weights of what a turn does, by the names of ``draw_script``."""
    late: float = 0.06
    """Share of the work that does not obey when it is ended."""


PLAIN = HistoryBias()
