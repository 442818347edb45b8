"""The identity of calls, and the calls that an engine makes by itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agentsup.agents.turn.own_calls import OwnCall, classify
from agentsup.kit.pool import BoundedPool
from agentsup.model.engine import Permission, PermissionRequest
from agentsup.model.hook import CallFacts
from agentsup.model.ids import CallId
from agentsup.model.tool import Effect, Safety


def call_key(name: str, args: dict[str, Any]) -> str:
    """A short digest of a call's content."""
    canonical = json.dumps([name, args], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


async def classified(
    request: PermissionRequest, workspace: str, files: BoundedPool, key: str
) -> OwnCall:
    """Classify a call of the engine's own. It may name any file, so links are resolved in the pool
    ``files``; if the disk does not answer, the call counts as dangerous and blind."""
    tool, args = request.tool, request.args
    try:
        return await files.run(partial(classify, tool, args, workspace), key=key)
    except OSError:
        found = classify(tool, args, workspace, str)
        return replace(found, safety=Safety.DANGEROUS, effect=Effect.BLIND)


@dataclass(slots=True)
class OwnCalls:
    """Calls that the engine makes itself: the answers by request, and the open calls."""

    answered: dict[str, Permission] = field(default_factory=dict)
    asked: dict[str, asyncio.Lock] = field(default_factory=dict)
    under_way: dict[CallId, CallFacts] = field(default_factory=dict)
