"""Ids as distinct types, so that one can't be passed for another."""

from __future__ import annotations

from typing import NewType

AgentId = NewType("AgentId", str)
InstanceId = NewType("InstanceId", str)
BootId = NewType("BootId", str)
SessionId = NewType("SessionId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
