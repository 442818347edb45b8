"""The daemon's own state as documents."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentsup.api.documents.document import Document, DoneDocument


class Alive(Document):
    status: Literal["ok"]
    version: str


class Probe(Document):
    name: str
    ok: bool
    detail: str | None = Field(None, description="for the operator's token only")


class Ready(Document):
    ready: bool
    draining: bool
    probes: list[Probe]


class Draining(DoneDocument):
    state: Literal["draining"]


class Restarting(DoneDocument):
    state: Literal["restarting"]


class StatusDocument(Document):
    version: str
    boot_id: str
    node_id: str
    pid: int
    home: str
    started_at: int
    uptime_s: float
    state: str
    url: str
    agents_up: int
    agents_total: int
    config_error: str
    warnings: list[str]
    conservation: dict[str, int]


class HookDocument(Document):
    phase: str
    priority: int = Field(description="lower ones run first within a phase")
    name: str
    on: bool
    fixed: bool = Field(description="it has no switch")
    about: str


class HookList(Document):
    hooks: list[HookDocument]
