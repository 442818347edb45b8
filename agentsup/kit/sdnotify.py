"""Notifications to systemd, over the datagram socket that it names; silent anywhere else."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

_US_PER_S = 1_000_000


def notify(state: str, *, env: Mapping[str, str] | None = None) -> bool:
    """Send ``state`` (such as ``READY=1`` or ``STATUS=…``, lines joined by newline) to systemd.

    Returns whether it was sent. Without ``NOTIFY_SOCKET``, or if nothing listens, nothing happens:
    the daemon does not depend on being watched. Never blocks.
    """
    address = (os.environ if env is None else env).get("NOTIFY_SOCKET", "")
    if address[:1] not in {"/", "@"}:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.connect(address)
            sender.send(state.encode("utf-8"))
    except OSError:
        return False
    return True


def watchdog_interval_s(*, env: Mapping[str, str] | None = None) -> float | None:
    """Seconds between sends of ``WATCHDOG=1``: half of systemd's limit; None if it does not watch
    us."""
    ours = os.environ if env is None else env
    limit_us = ours.get("WATCHDOG_USEC", "")
    pid = ours.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or int(limit_us) == 0:
        return None
    if pid and pid != str(os.getpid()):
        return None
    return int(limit_us) / _US_PER_S / 2
