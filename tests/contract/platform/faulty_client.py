"""A client of a real homeserver whose sends can be made to fail before or after their effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsup.channels.core.sending import HttpPool
from agentsup.channels.matrix.client import MatrixClient


class FaultyMatrixClient(MatrixClient):
    """``before`` and ``after`` hold trouble for new messages (``send``), each used once, in order."""

    def __init__(self, homeserver: str, *, http: HttpPool) -> None:
        super().__init__(homeserver, http=http)
        self.before: dict[str, list[Exception]] = {}
        self.after: dict[str, list[Exception]] = {}

    async def send(
        self,
        room_id: str,
        event_type: str,
        content: Mapping[str, Any],
        *,
        txn_id: str,
        timeout_s: float = 20.0,
    ) -> str:
        is_new = event_type == "m.room.message" and "m.new_content" not in content
        if is_new and (trouble := self.before.get("send")):
            raise trouble.pop(0)
        event_id = await super().send(
            room_id, event_type, dict(content), txn_id=txn_id, timeout_s=timeout_s
        )
        if is_new and (trouble := self.after.get("send")):
            raise trouble.pop(0)
        return event_id
