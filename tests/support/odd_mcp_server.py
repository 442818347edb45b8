"""A small tool server that misbehaves as it is told: ``python -m`` it, over stdio or ``--http``.

It speaks the protocol by hand, so that it can also speak it wrongly. FILE holds JSON that is read
at each request:

moved       where a redirect from /mcp goes
tools       what it lists, instead of the one tool ``echo``
answers     method to what is sent in place of its answer: {"status": 401, "body": "..."},
            {"error": {...}}, {"result": {...}}, {"hang": true}
only        a number: only so many of the answers are replaced, then all is well
forget      a word; sessions that were begun under another word are unknown, and refused as
            {"status": ..., "body": ...} of ``unknown`` says
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ECHO = {
    "name": "echo",
    "description": "give back a text",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


class Odd:
    """What the server does, whatever it is reached by."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file, self._log = file, log
        self._replaced = 0
        self.sessions: dict[str, str] = {}

    @property
    def told(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text()))

    def replacement(self, method: str) -> dict[str, Any] | None:
        """What is sent instead of the right answer, or None."""
        told = self.told
        found = told.get("answers", {}).get(method) or told.get("answers", {}).get("*")
        if found is None or self._replaced >= told.get("only", 1_000_000):
            return None
        self._replaced += 1
        return dict(found)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        method, params = asked.get("method", ""), asked.get("params") or {}
        with self._log.open("a", encoding="utf-8") as log:
            log.write(method + "\n")
        head = {"jsonrpc": "2.0", "id": asked["id"]}
        match method:
            case "initialize":
                return head | {
                    "result": {
                        "protocolVersion": params["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "odd", "version": "1"},
                    }
                }
            case "tools/list":
                return head | {"result": {"tools": self.told.get("tools", [ECHO])}}
            case "tools/call":
                text = f"echo: {params.get('arguments', {}).get('text', '')}"
                return head | {"result": {"content": [{"type": "text", "text": text}]}}
            case "ping":
                return head | {"result": {}}
        return head | {"error": {"code": -32601, "message": "no such method"}}


def over_stdio(odd: Odd) -> None:
    """Serve line by line."""
    said = odd.told.get("says", "")
    if said:
        sys.stdout.write(said)
        sys.stdout.flush()
    for line in sys.stdin:
        if not line.strip():
            continue
        asked = json.loads(line)
        if "id" not in asked:
            continue
        odd_one = odd.replacement(asked.get("method", ""))
        if odd_one is not None and odd_one.get("hang"):
            time.sleep(3600)
        answer = odd.answer(asked) if odd_one is None else {"jsonrpc": "2.0", "id": asked["id"]}
        sys.stdout.write(json.dumps(answer | (odd_one or {})) + "\n")
        sys.stdout.flush()


def over_http(odd: Odd, port: int) -> None:
    """Serve at ``/mcp`` on loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

        def give(self, status: int, body: str = "", **headers: str) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key.replace("_", "-"), value)
            data = body.encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def refuse(self, how: dict[str, Any]) -> None:
            body = how.get("body", "")
            kind = "text/plain" if isinstance(body, str) else "application/json"
            text = body if isinstance(body, str) else json.dumps(body)
            self.give(how["status"], text, Content_Type=how.get("type", kind))

        def do_GET(self) -> None:
            self.give(405)

        def do_DELETE(self) -> None:
            self.give(200)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            session, told = self.headers.get("mcp-session-id", ""), odd.told
            moved = told.get("moved", "/mcp")
            if self.path == "/mcp" and moved != "/mcp":
                self.give(307, Location=moved)
                return
            if self.path not in ("/mcp", moved):
                self.give(404)
                return
            method = asked.get("method", "")
            if session and odd.sessions.get(session) != told.get("forget", ""):
                how = told["unknown"]
                if "status" in how:
                    self.refuse(how)
                elif "id" in asked:
                    self.message({"jsonrpc": "2.0", "id": asked["id"]} | how)
                else:
                    self.give(202)
                return
            if "id" not in asked:
                self.give(202)
                return
            odd_one = odd.replacement(method)
            if odd_one is not None and odd_one.get("hang"):
                time.sleep(3600)
            if odd_one is not None and "status" in odd_one:
                self.refuse(odd_one)
            elif odd_one is not None:
                self.message({"jsonrpc": "2.0", "id": asked["id"]} | odd_one)
            elif method == "initialize":
                new = uuid.uuid4().hex
                odd.sessions[new] = told.get("forget", "")
                self.message(odd.answer(asked), mcp_session_id=new)
            else:
                self.message(odd.answer(asked))

        def message(self, answer: dict[str, Any], **headers: str) -> None:
            self.give(200, json.dumps(answer), Content_Type="application/json", **headers)

    ThreadingHTTPServer.allow_reuse_address = True
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--http", type=int, default=None)
    options = parser.parse_args()
    odd = Odd(options.file, options.log)
    if options.http is None:
        over_stdio(odd)
    else:
        over_http(odd, options.http)


if __name__ == "__main__":
    main()
