"""Asks Telegram about the token of a bot that nobody uses yet."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, Final

from agentsup.model.errors import Conflict
from agentsup.model.platforms import TELEGRAM
from agentsup.model.secret import Secret

_CALL_S: Final = 20.0


async def ask_bot(token: Secret, base_url: str) -> str:
    """The user name of the token's bot. Raises ``AgentsupError`` that says what to do."""
    if importlib.util.find_spec(TELEGRAM.library) is None:
        raise Conflict(TELEGRAM.missing_library)
    # As in transports: a home without a bot loads nothing of this.
    module: Any = importlib.import_module("agentsup.channels.telegram.client")
    await module.library()
    http = module.SharedHttp()
    client = module.TelegramClient(token, base_url, http=http)
    try:
        me = await client.call("getMe", timeout_s=_CALL_S)
    finally:
        await client.close()
        await http.close()
    return str(me.get("username") or "?")
