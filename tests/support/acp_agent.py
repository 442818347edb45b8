"""An agent that speaks the Agent Client Protocol and does as a script says; run as a program.

    python acp_agent.py SCRIPT.json

It is strict: what comes in the wrong order, or with a field of the wrong kind, is refused and noted
in the journal beside the script. It uses the standard library alone, so that it starts quickly and
shares no bug with the library at the other end. The script is one JSON object:

    {"turns": [[step, …], …], "load": false, "resume": false, "auth": "", "version": 1}

Each prompt plays the next turn (the last one again when they are used up, also by later
processes). Steps are objects with one key of ``Turn.STEPS``.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

_METHODS = {"initialize", "authenticate", "session/new", "session/load", "session/resume"}


class Refused(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class Cancelled(Exception):
    """The client asked for the end of the turn."""


class Agent:
    """The protocol's state: what came already, the open session, requests of our own."""

    def __init__(self, script: Path) -> None:
        self.script: dict[str, Any] = json.loads(script.read_text())
        self.journal = script.with_suffix(".journal")
        self.kept = script.with_suffix(".kept")
        self.inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.is_initialized = False
        self.is_signed_in = not self.script.get("auth")
        self.session_id = ""
        self._last_id = 0

    # -- the outside -------------------------------------------------------------------------------

    def note(self, kind: str, **facts: Any) -> None:
        """Write a line that the test reads."""
        with self.journal.open("a") as file:
            file.write(json.dumps({"kind": kind, "pid": os.getpid(), **facts}) + "\n")

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def update(self, **update: Any) -> None:
        params = {"sessionId": self.session_id, "update": update}
        self.send({"method": "session/update", "params": params})

    def listen(self) -> None:
        """Read messages in a thread; None is the end of the input."""
        for line in sys.stdin.buffer:
            self.inbox.put(json.loads(line))
        self.inbox.put(None)

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """A request to the client, and its answer."""
        self._last_id += 1
        self.send({"id": f"a{self._last_id}", "method": method, "params": params})
        while True:
            message = self.next()
            if message.get("id") == f"a{self._last_id}":
                return message

    def next(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message within a turn. Raises ``Cancelled``, ``queue.Empty``."""
        message = self.inbox.get(timeout=timeout_s)
        if message is None:
            self.note("eof")
            os._exit(0)
        if message.get("method") == "session/cancel":
            self.note("cancel", session=message["params"].get("sessionId"))
            if not self.script.get("ignore_cancel"):
                raise Cancelled
        elif "method" in message:
            self.violation(f"{message['method']} came while a turn was running")
        return message

    def pause(self, seconds: float) -> None:
        """Wait, and hear a cancellation."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self.next(left)
            except queue.Empty:
                return

    def violation(self, text: str) -> None:
        self.note("violation", text=text)

    # -- requests ----------------------------------------------------------------------------------

    def serve(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        self.note("started", argv=sys.argv, env=dict(os.environ), cwd=str(Path.cwd()))
        while (message := self.inbox.get()) is not None:
            method = message.get("method", "")
            if not method or "id" not in message:
                if method == "session/cancel":
                    self.note("cancel", late=True)
                continue
            try:
                result = self.handle(method, message.get("params") or {})
            except Refused as refused:
                self.send({"id": message["id"], "error": refused.error})
            else:
                self.send({"id": message["id"], "result": result})
        self.note("eof")

    def handle(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != "initialize" and not self.is_initialized:
            self.violation(f"{method} came before initialize")
            raise Refused(-32600, "initialize comes first")
        self.note("request", method=method, params=params)
        if method == "initialize":
            return self.initialize(params)
        if method == "authenticate":
            if params.get("methodId") != self.script.get("auth"):
                raise Refused(-32602, "there is no such sign-in")
            self.is_signed_in = True
            return {}
        if method in _METHODS:
            return self.open_session(method, params)
        if method == "session/prompt":
            return self.prompt(params)
        if method == "session/set_config_option":
            return {"configOptions": []}
        raise Refused(-32601, "Method not found", {"method": method})

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.is_initialized:
            self.violation("initialize came twice")
        if params.get("protocolVersion") != 1:
            raise Refused(-32602, "protocolVersion is not 1")
        self.is_initialized = True
        if delay_s := self.script.get("start_delay_s"):
            time.sleep(delay_s)
        able: dict[str, Any] = {
            "loadSession": bool(self.script.get("load")),
            "mcpCapabilities": {"http": bool(self.script.get("mcp_http"))},
        }
        if self.script.get("sees"):
            able["promptCapabilities"] = {"image": True}
        if self.script.get("resume"):
            able["sessionCapabilities"] = {"resume": {}}
        methods = [{"id": self.script["auth"], "name": "key"}] if self.script.get("auth") else []
        return {
            "protocolVersion": self.script.get("version", 1),
            "agentCapabilities": able,
            "authMethods": methods,
        }

    def open_session(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not self.is_signed_in:
            raise Refused(-32000, "Authentication required")
        if not Path(str(params.get("cwd"))).is_absolute() or "mcpServers" not in params:
            self.violation(f"{method} without an absolute cwd or without mcpServers")
            raise Refused(-32602, "Invalid params")
        kept = self.remembered()
        opened: dict[str, Any] = {"configOptions": self.script.get("config_options", [])}
        if method == "session/new":
            self.session_id = f"s{len(kept['sessions']) + 1}"
            kept["sessions"][self.session_id] = []
            self.remember(kept)
            return opened | {"sessionId": self.session_id}
        allowed = self.script.get("load" if method == "session/load" else "resume")
        if not allowed:
            self.violation(f"{method} was not advertised")
            raise Refused(-32601, "Method not found")
        known = kept["sessions"].get(params.get("sessionId"))
        if known is None:
            raise Refused(-32002, "Resource not found")
        self.session_id = params["sessionId"]
        for text in known if method == "session/load" else ():
            self.update(sessionUpdate="agent_message_chunk", content=_text(f"(earlier: {text})"))
        return opened

    def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        if not self.session_id or params.get("sessionId") != self.session_id:
            self.violation("session/prompt for a session that is not open")
            raise Refused(-32602, "no such session")
        blocks = params.get("prompt") or []
        texts = [block for block in blocks if block.get("type") == "text"]
        known = texts if not self.script.get("sees") else blocks
        if not texts or blocks != known or any(not _is_block(each) for each in blocks):
            raise Refused(
                -32602, "a prompt is a list of text blocks, and of pictures if advertised"
            )
        kept = self.remembered()
        number = kept["turns"]
        kept["turns"] += 1
        kept["sessions"][self.session_id].append(texts[-1]["text"])
        self.remember(kept)
        turns = self.script["turns"]
        turn = Turn(self, "".join(block["text"] for block in texts), number)
        try:
            for step in turns[min(number, len(turns) - 1)]:
                turn.play(step)
        except Cancelled:
            turn.stop = "cancelled"
        return {"stopReason": turn.stop, **turn.extra}

    def remembered(self) -> dict[str, Any]:
        if self.kept.exists():
            kept: dict[str, Any] = json.loads(self.kept.read_text())
            return kept
        return {"turns": 0, "sessions": {}}

    def remember(self, kept: dict[str, Any]) -> None:
        self.kept.write_text(json.dumps(kept))


class Turn:
    """One prompt, step by step."""

    STEPS: ClassVar[dict[str, str]] = {
        "say": "text, or a list of pieces `every_s` apart; $prompt and $answer are replaced",
        "think": "a thought",
        "update": "any update as it is",
        "tool": "a call of its own, told as it is: name, args, ok, result",
        "ask": "leave for a call: kind, title, input, and `write`: a file to write when allowed",
        "request": "a request of that method to the client; its answer becomes $answer",
        "usage": "input and output tokens of the turn",
        "stop": "the stop reason of the turn",
        "error": "answer the prompt with an error: code, message, data",
        "exit": "end the process with that code",
        "kill": "end the process by a signal",
        "sleep": "seconds to wait, hearing a cancellation",
        "deaf": "seconds to wait, hearing nothing",
        "stderr": "bytes to write to the error output",
        "raw": "bytes for the output, as hexadecimal digits",
        "long": "one message of so many bytes",
        "grandchild": "start a child of its own that sleeps",
        "ignore_term": "ignore SIGTERM from now on",
    }

    def __init__(self, agent: Agent, prompt: str, number: int) -> None:
        self.agent = agent
        self.stop = "end_turn"
        self.extra: dict[str, Any] = {}
        self._prompt = prompt
        self._answer = ""
        self._calls = number * 1000

    def play(self, step: dict[str, Any]) -> None:
        name = next(key for key in step if key in self.STEPS)
        getattr(self, f"do_{name}")(step[name], step)

    def fill(self, text: str) -> str:
        return text.replace("$prompt", self._prompt).replace("$answer", self._answer)

    def do_say(self, value: str | list[str], step: dict[str, Any]) -> None:
        pieces = [value] if isinstance(value, str) else value
        for index, piece in enumerate(pieces):
            if index and step.get("every_s"):
                self.agent.pause(step["every_s"])
            content = _text(self.fill(piece))
            self.agent.update(sessionUpdate="agent_message_chunk", content=content)

    def do_think(self, value: str, step: dict[str, Any]) -> None:
        self.agent.update(sessionUpdate="agent_thought_chunk", content=_text(value))

    def do_update(self, value: dict[str, Any], step: dict[str, Any]) -> None:
        self.agent.update(**value)

    def do_tool(self, value: dict[str, Any], step: dict[str, Any]) -> None:
        self._calls += 1
        self._answer = value["result"]
        call = {"toolCallId": f"call-{self._calls}", "kind": value["name"], "title": value["name"]}
        self.agent.update(
            sessionUpdate="tool_call", status="in_progress", rawInput=value["args"], **call
        )
        self.agent.update(
            sessionUpdate="tool_call_update",
            toolCallId=call["toolCallId"],
            status="completed" if value["ok"] else "failed",
            content=[{"type": "content", "content": _text(value["result"])}],
        )

    def do_ask(self, value: dict[str, Any], step: dict[str, Any]) -> None:
        """Told, asked for, done if allowed, and told how it went."""
        self._calls += 1
        call = {
            "toolCallId": f"call-{self._calls}",
            "kind": value.get("kind", "edit"),
            "title": value.get("title", "write a file"),
            "rawInput": value.get("input", {}),
        }
        self.agent.update(sessionUpdate="tool_call", status="pending", **call)
        kinds = value.get("options", ["allow_always", "allow_once", "reject_once"])
        options = [{"optionId": f"own-{kind}", "name": kind, "kind": kind} for kind in kinds]
        params = {"sessionId": self.agent.session_id, "toolCall": call, "options": options}
        reply = self.agent.ask("session/request_permission", params)
        outcome = (reply.get("result") or {}).get("outcome") or {}
        self.agent.note("permission", outcome=outcome)
        chosen = outcome.get("optionId", outcome.get("outcome", "none"))
        if chosen not in {"cancelled", *(option["optionId"] for option in options)}:
            self.agent.violation(f"a permission was answered with {outcome}")
        is_allowed = chosen.startswith("own-allow")
        if is_allowed and value.get("write"):
            with Path(value["write"]).open("a") as file:
                file.write("done\n")
        self._answer = "allowed" if is_allowed else "denied"
        self.agent.update(
            sessionUpdate="tool_call_update",
            toolCallId=call["toolCallId"],
            status="completed" if is_allowed else "failed",
            content=[{"type": "content", "content": _text(self._answer)}],
        )
        if not is_allowed and value.get("give_up"):
            raise Cancelled

    def do_request(self, value: str, step: dict[str, Any]) -> None:
        params = {"sessionId": self.agent.session_id, **step.get("params", {})}
        self._answer = json.dumps(self.agent.ask(value, params))

    def do_usage(self, value: dict[str, int], step: dict[str, Any]) -> None:
        tokens_in, tokens_out = value.get("input", 0), value.get("output", 0)
        self.extra["usage"] = {
            "totalTokens": tokens_in + tokens_out,
            "inputTokens": tokens_in,
            "outputTokens": tokens_out,
        }

    def do_stop(self, value: str, step: dict[str, Any]) -> None:
        self.stop = value

    def do_error(self, value: dict[str, Any], step: dict[str, Any]) -> None:
        raise Refused(value.get("code", -32603), value["message"], value.get("data"))

    def do_exit(self, value: int, step: dict[str, Any]) -> None:
        sys.stdout.flush()
        os._exit(value)

    def do_kill(self, value: int, step: dict[str, Any]) -> None:
        os.kill(os.getpid(), value)

    def do_sleep(self, value: float, step: dict[str, Any]) -> None:
        self.agent.pause(value)

    def do_deaf(self, value: float, step: dict[str, Any]) -> None:
        time.sleep(value)

    def do_stderr(self, value: int, step: dict[str, Any]) -> None:
        text = step.get("text", "noise on the error output ") * 40
        for _ in range(0, value, len(text)):
            os.write(2, text.encode())

    def do_raw(self, value: str, step: dict[str, Any]) -> None:
        self.agent.write(bytes.fromhex(value))

    def do_long(self, value: int, step: dict[str, Any]) -> None:
        self.agent.update(sessionUpdate="agent_message_chunk", content=_text("x" * value))

    def do_grandchild(self, value: float, step: dict[str, Any]) -> None:
        child = subprocess.Popen(["sleep", str(value)])
        self.agent.note("grandchild", child=child.pid)

    def do_ignore_term(self, value: bool, step: dict[str, Any]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _is_block(block: dict[str, Any]) -> bool:
    if block.get("type") == "image":
        return block.get("mimeType") == "image/jpeg" and isinstance(block.get("data"), str)
    return block.get("type") == "text"


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


if __name__ == "__main__":
    Agent(Path(sys.argv[1])).serve()
