"""The load of ``http``, in a process of its own: keep-alive POSTs, one in flight per connection.

``python -m benchmarks.load PORT CONNECTIONS SECONDS TOKEN PATH BODY`` prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter

from benchmarks.figure import percentile


class _Client(asyncio.Protocol):
    """Sends the same request again as soon as its answer has come."""

    def __init__(self, request: bytes, until_s: float, done: asyncio.Event) -> None:
        self._request = request
        self._until_s = until_s
        self._done = done
        self._buffer = b""
        self._sent_s = 0.0
        self.took_ms: list[float] = []
        self.refused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent_s = perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._buffer = b""
        now_s = perf_counter()
        if head.split(b" ", 2)[1] == b"202":
            self.took_ms.append((now_s - self._sent_s) * 1_000)
        else:
            self.refused += 1
        if now_s < self._until_s:
            self._send()
        else:
            self._done.set()
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._done.set()


async def _load(port: int, connections: int, seconds: float, request: bytes) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    until_s = perf_counter() + seconds
    clients = []
    for _ in range(connections):
        done = asyncio.Event()
        _, client = await loop.create_connection(
            lambda done=done: _Client(request, until_s, done),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        clients.append((client, done))
    for _, done in clients:
        await done.wait()
    took_ms = [each for client, _ in clients for each in client.took_ms]
    return {
        "per_s": len(took_ms) / seconds,
        "p50_ms": percentile(took_ms, 0.5),
        "p99_ms": percentile(took_ms, 0.99),
        "refused": sum(client.refused for client, _ in clients),
    }


def main() -> None:
    port, connections, seconds, token, path, body = sys.argv[1:]
    content = body.encode()
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode() + content
    print(json.dumps(asyncio.run(_load(int(port), int(connections), float(seconds), request))))


if __name__ == "__main__":
    main()
