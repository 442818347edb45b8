"""How a bot is; the same for all channels."""

from __future__ import annotations

from agentsup.channels.report import ChannelReport, ChannelState

__all__ = ["ChannelReport", "ChannelState"]
