"""A port for a server of a test."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

_FIRST: Final = 20_000
_AFTER_LAST: Final = 32_768
"""Where Linux begins with the ports that it gives to connections (``ip_local_port_range``)."""


def free_port() -> int:
    """A port of the loopback that nobody has now, and that the system gives to no connection: a
    server that is killed finds it free again."""
    for port in random.SystemRandom().sample(range(_FIRST, _AFTER_LAST), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise OSError(errno.EADDRINUSE, "a hundred ports are all in use")
