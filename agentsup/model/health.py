"""States of agents, and results of health probes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AgentState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    BACKOFF = "backoff"
    FAILED = "failed"


class Desired(StrEnum):
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of all probes, as ``/readyz`` and ``doctor`` show it."""

    ok: bool
    probes: tuple[ProbeResult, ...]
