"""The one TLS context for outgoing connections: its roots are read once, off the loop."""

from __future__ import annotations

import asyncio
import ssl
from functools import cache
from threading import Lock

_READING = Lock()


def context() -> ssl.SSLContext:
    """The TLS context. The first call must be made in a thread: it reads every root of the machine,
    which takes 0.1 s or more. ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` count, with their values at
    that time."""
    with _READING:  # concurrent calls wait for the same context
        return _read()


async def loaded() -> ssl.SSLContext:
    """As ``context``, without blocking the loop."""
    return await asyncio.to_thread(context)


@cache
def _read() -> ssl.SSLContext:
    return ssl.create_default_context()
