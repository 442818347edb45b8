"""How calls are known, and those that an engine makes by itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from agentsup.model.engine import Permission
from agentsup.model.ids import CallId


def call_key(name: str, args: dict[str, Any]) -> str:
    """A short digest of a call's content."""
    canonical = json.dumps([name, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@dataclass(slots=True)
class OwnCalls:
    """Calls that the engine makes itself: what was answered, and which are under way."""

    answered: dict[str, Permission] = field(default_factory=dict)
    asked: dict[str, asyncio.Lock] = field(default_factory=dict)
    under_way: dict[CallId, str] = field(default_factory=dict)
