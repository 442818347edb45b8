"""A real tool server, written with the official library, for proofs: ``python -m`` it.

--effects FILE      what its tools did, one JSON line each
--http PORT         listen on loopback instead of standard input and output
--misbehave KIND    silent: never answers; garbage: writes what is no protocol, then works;
                    flood: writes nonsense for ever; dying: ends at once, with a word on stderr;
                    deaf: works, but reads no more after the handshake
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from agentsup.kit.loading import loading

with loading():
    import mcp_types as types
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

FLOOD = b"\x1b[31mthis is no protocol at all\n" * 2_000


def main() -> None:
    """Run one server until its input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--effects", type=Path, default=None)
    parser.add_argument("--http", type=int, default=None)
    parser.add_argument("--token", default=None, help="name of a variable: what clients must show")
    parser.add_argument("--misbehave", default="")
    options = parser.parse_args()
    if options.effects is not None:
        _note(options.effects, "started", str(os.getpid()))
    match options.misbehave:
        case "silent":
            time.sleep(3600)
        case "dying":
            sys.stderr.write(f"no database, and the key is {os.environ.get('API_KEY', '-')}\n")
            sys.exit(3)
        case "flood":
            while True:
                os.write(1, FLOOD)
        case "garbage":
            os.write(1, b'hello, I am a server!\n{"jsonrpc": "1.0"}\n\n[1, 2\n\xff\xfe\n')
    server = _server(options.effects)
    if options.http is None:
        server.run("stdio")
        return
    asyncio.run(_serve_http(server, options.http, os.environ.get(options.token or "", "")))


def _note(effects: Path | None, what: str, text: str) -> None:
    if effects is not None:
        with effects.open("a", encoding="utf-8") as file:
            file.write(json.dumps([what, text]) + "\n")


def _server(effects: Path | None) -> MCPServer:
    server = MCPServer("proof", log_level="ERROR")
    reads = types.ToolAnnotations(read_only_hint=True)

    @server.tool(annotations=reads, structured_output=False)
    def echo(text: str) -> str:
        """Give back a text."""
        return f"echo: {text}"

    @server.tool(structured_output=False)
    def note(text: str) -> str:
        """Write a line down, each time it is called."""
        _note(effects, "note", text)
        return f"noted: {text}"

    @server.tool(structured_output=False)
    async def wait(seconds: float, text: str) -> str:
        """Take some time."""
        _note(effects, "begin", text)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            _note(effects, "cancelled", text)
            raise
        _note(effects, "end", text)
        return f"waited: {text}"

    @server.tool(structured_output=False)
    def crash() -> str:
        """End the program in the middle of the call."""
        os._exit(7)

    @server.tool(structured_output=False)
    async def freeze(seconds: float) -> str:
        """Block the whole program."""
        time.sleep(seconds)  # that is the point
        return "thawed"

    @server.tool(structured_output=False)
    def big(chars: int) -> str:
        """Return a long text."""
        return "x" * chars

    @server.tool(structured_output=False)
    def fail(text: str) -> str:
        """Fail with a text."""
        raise ToolError(text)

    @server.tool(structured_output=False)
    async def grow(context: Context[Any, Any]) -> str:
        """Offer one more tool from now on."""

        def grown() -> str:
            """New."""
            return "grown"

        server.add_tool(grown, structured_output=False)
        await context.session.send_tool_list_changed()
        return "there is one more"

    @server.tool(structured_output=False)
    def surroundings(name: str) -> str:
        """Tell about the program: where it is, what it knows, the value of one variable."""
        facts = {
            "cwd": str(Path.cwd()),
            "home": os.environ.get("HOME"),
            "names": sorted(os.environ),
        }
        return json.dumps({**facts, "value": os.environ.get(name)})

    return server


async def _serve_http(server: MCPServer, port: int, token: str) -> None:
    uvicorn = importlib.import_module("uvicorn")  # most servers of a test need none
    app = server.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        shown = dict(scope.get("headers") or ()).get(b"authorization", b"").decode()
        if scope["type"] == "http" and token and shown != f"Bearer {token}":
            start = {"type": "http.response.start", "status": 401, "headers": []}
            await send(start)
            await send({"type": "http.response.body", "body": b"no"})
            return
        await app(scope, receive, send)

    config = uvicorn.Config(guarded, host="127.0.0.1", port=port, log_level="error")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    main()
