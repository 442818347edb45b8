"""A program that plays scenes in the place of a real one; run it, never import it.

    python -S -E program_stub.py command SCENES.json
    python -S -E program_stub.py claude SCENES.json -p --input-format stream-json ...

``SCENES.json`` is a list of steps; each run goes on where the last one ended, and ends with a
``say``, an ``ask`` or a ``fail``. It is strict: what the real program would refuse ends it with a
message and exit code 2, and is written to ``SCENES.json.wrong``. Only the standard library is
imported, as it is started for every test.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

_SLEEPY = "import signal,time,sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"


def write(data: bytes) -> None:
    """Everything to standard output, at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message: dict[str, Any]) -> None:
    """One JSON line."""
    write(json.dumps(message).encode() + b"\n")


def use_tool(name: str, args: dict[str, Any]) -> tuple[bool, str]:
    """The stub's own tools."""
    if name == "add":
        return True, str(args["a"] + args["b"])
    if name == "echo":
        return True, str(args["text"])
    if name == "slow":
        time.sleep(args.get("seconds", 1.2))
        return True, "at last"
    if name == "broken":
        return False, "the shelf is empty"
    return False, f"there is no tool {name}"


class Stub:
    """The scenes, and what every program does alike; how it speaks is the voice's."""

    def __init__(self, scenes: Path) -> None:
        self.scenes, self.steps = scenes, json.loads(scenes.read_text())
        self.at_file = Path(f"{scenes}.at")
        self.at = int(self.at_file.read_text()) if self.at_file.exists() else 0
        self.result = self.prompt = ""
        self.received: dict[str, Any] = {}

    def wrong(self, what: str) -> NoReturn:
        """The caller did something that the real program refuses."""
        Path(f"{self.scenes}.wrong").write_text(what)
        sys.stderr.write(what + "\n")
        sys.exit(2)

    def play(self) -> None:
        """Steps until one that ends the turn."""
        while self.at < len(self.steps):
            step = self.steps[self.at]
            self.at += 1
            self.at_file.write_text(str(self.at))
            if getattr(self, f"do_{step['do']}")(step):
                return

    def filled(self, chunks: list[str]) -> list[str]:
        """``$result`` is what the last call brought."""
        return [chunk.replace("$result", self.result) for chunk in chunks]

    # -- what every program does alike; True ends the turn -------------------------------------------

    def do_hang(self, step: dict[str, Any]) -> bool:
        """Say nothing for ever."""
        self.pause(3600)
        return True

    def do_raw(self, step: dict[str, Any]) -> None:
        """Bytes as they are, given in Latin-1."""
        write(step["text"].encode("latin-1"))

    def do_huge(self, step: dict[str, Any]) -> None:
        """A line of many bytes."""
        write(b'{"type":"text","text":"' + b"x" * step["bytes"] + b'"}\n')

    def do_stderr(self, step: dict[str, Any]) -> None:
        """Words, or a flood, on standard error."""
        sys.stderr.write("e" * 99 + "\n")
        for _ in range(step.get("bytes", 0) // 100):
            sys.stderr.write("e" * 99 + "\n")
        sys.stderr.write(step.get("last", ""))
        sys.stderr.flush()

    def do_exit(self, step: dict[str, Any]) -> None:
        """End without another word."""
        sys.stdout.flush()
        os._exit(step["code"])

    def do_kill(self, step: dict[str, Any]) -> None:
        """Die in the middle."""
        os.kill(os.getpid(), signal.SIGKILL)

    def do_ignore_term(self, step: dict[str, Any]) -> None:
        """Obey no SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def do_family(self, step: dict[str, Any]) -> None:
        """Descendants that ignore SIGTERM and hold our output open; one leaves the group."""
        for is_away in (False, True):
            subprocess.Popen([sys.executable, "-S", "-E", "-c", _SLEEPY], start_new_session=is_away)

    def do_eat(self, step: dict[str, Any]) -> None:
        """Take memory and keep it."""
        self.eaten = b"m" * (step["mib"] * 1024 * 1024)

    def do_look(self, step: dict[str, Any]) -> None:
        """Make the result what the stub sees of its surroundings."""
        seen = {
            "env": dict(os.environ),
            "cmdline": Path(f"/proc/{os.getpid()}/cmdline").read_text(),
            "cwd": str(Path.cwd()),
            "prompt": self.prompt,
            "received": self.received,
        }
        self.result = json.dumps(seen[step["what"]])

    def do_effect(self, step: dict[str, Any]) -> None:
        """Something that the world can count: a line in a file."""
        with Path(step["path"]).open("a") as file:
            file.write("once\n")

    def pause(self, seconds: float) -> None:
        """Wait; a voice that listens meanwhile may end the turn."""
        time.sleep(seconds)


class Command(Stub):
    """Speaks as a program of the engine ``command``."""

    def run(self) -> None:
        """Read the envelope, play, end."""
        raw = sys.stdin.buffer.read()
        try:
            self.received = json.loads(raw)
            self.prompt = self.received["prompt"]
        except (ValueError, TypeError, KeyError):
            self.prompt = raw.decode("utf-8", "replace")
        resume = self.received.get("resume")
        if resume and resume["answer"] is not None:
            if resume["checkpoint"] != {"asked": True}:
                self.wrong(f"the checkpoint came back as {resume['checkpoint']!r}")
            self.result = resume["answer"]
        self.play()

    def do_say(self, step: dict[str, Any]) -> bool:
        """The answer; ends the turn."""
        for number, chunk in enumerate(self.filled(step["chunks"])):
            if number:
                self.pause(step.get("every_s", 0))
            send({"type": "text", "text": chunk})
        send({"type": "usage", "input": 11, "output": 7})
        if step.get("last_words", True):
            send({"type": "done", "state": step.get("state")})
            send({"type": "text", "text": " and more after the end"})
        return bool(step.get("last_words", True))

    def do_use(self, step: dict[str, Any]) -> None:
        """A call of its own."""
        send({"type": "tool", "name": step["tool"], "args": step["args"]})
        ok, self.result = use_tool(step["tool"], step["args"])
        send({"type": "tool_result", "name": step["tool"], "ok": ok, "preview": self.result})
        send({"type": "usage", "input": 11, "output": 7})

    def do_ask(self, step: dict[str, Any]) -> bool:
        """A question; ends the run."""
        send(
            {
                "type": "ask",
                "text": step["text"],
                "options": step["options"],
                "checkpoint": {"asked": True},
            }
        )
        return True

    def do_fail(self, step: dict[str, Any]) -> bool:
        """A failure with a sentence; ends the turn."""
        send({"type": "fail", "error": step["text"]})
        return True


_SWITCHES = " -p --verbose --include-partial-messages --strict-mcp-config "
_FLAGS = (
    " --input-format --output-format --permission-prompt-tool --permission-mode --setting-sources"
    " --session-id --resume --model --mcp-config --fallback-model --effort --max-turns"
    " --max-budget-usd --allowed-tools --disallowed-tools "
)


class Claude(Stub):
    """Speaks as Claude Code with a stream of JSON in both directions."""

    def __init__(self, scenes: Path, argv: list[str]) -> None:
        super().__init__(scenes)
        self.flags = self.read_flags(argv)
        self.inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.number = 0
        self.denials: list[dict[str, Any]] = []
        self.used = [0, 0]
        self.text = ""
        self.session = self.flags.get("--resume") or self.flags["--session-id"]

    def read_flags(self, argv: list[str]) -> dict[str, str]:
        """Flags and their values; an unknown one is refused as the real program does."""
        found: dict[str, str] = {}
        rest = list(argv)
        while rest:
            name, equals, value = rest.pop(0).partition("=")
            is_known = f" {name} " in _SWITCHES + _FLAGS
            if not is_known or name == os.environ.get("STUB_UNKNOWN_FLAG"):
                sys.stderr.write(f"error: unknown option '{name}'\n")
                sys.exit(1)
            found[name] = value if equals else rest.pop(0) if f" {name} " in _FLAGS else ""
        if "-p" not in found or found.get("--output-format") != "stream-json":
            self.wrong("only the stream of JSON is played")
        if ("--resume" in found) == ("--session-id" in found):
            self.wrong("either --resume or --session-id")
        return found

    def run(self) -> None:
        """Sign in, read the prompt, play, wait for the end of the input."""
        threading.Thread(target=self.listen, daemon=True).start()
        kept = Path(os.environ["HOME"]) / ".claude" / "sessions" / self.session
        if "--session-id" in self.flags and kept.exists():
            sys.stderr.write(f"Error: Session ID {self.session} is already in use.\n")
            sys.exit(1)
        if "--resume" in self.flags and not kept.exists():
            self.finish(
                subtype="error_during_execution",
                is_error=True,
                errors=[f"No conversation found with session ID: {self.session}"],
            )
            sys.exit(1)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.touch()
        self.received["flags"] = self.flags
        if "--mcp-config" in self.flags:
            config = Path(self.flags["--mcp-config"])
            self.received["mcp"] = json.loads(config.read_text())
            self.received["mcp_mode"] = oct(config.stat().st_mode & 0o777)
        while (message := self.inbox.get()) is not None:
            if message["type"] == "user":
                self.prompt = message["message"]["content"][0]["text"]
                self.received["pictures"] = [
                    block["source"] for block in message["message"]["content"][1:]
                ]
                break
        send({"type": "system", "subtype": "init", "session_id": self.session})
        self.play()
        while self.inbox.get() is not None:
            pass

    def listen(self) -> None:
        """Standard input, line by line; its end is a None."""
        for line in sys.stdin.buffer:
            message = json.loads(line)
            request = message.get("request", {})
            if request.get("subtype") == "initialize":
                self.received["system"] = request.get("appendSystemPrompt", "")
                answer = {"subtype": "success", "request_id": message["request_id"]}
                send({"type": "control_response", "response": {**answer, "response": {}}})
            else:
                self.inbox.put(message)
        self.inbox.put(None)

    def pause(self, seconds: float) -> None:
        """Wait, and obey an interruption meanwhile."""
        with contextlib.suppress(queue.Empty):
            self.obeyed(self.inbox.get(timeout=seconds))

    def obeyed(self, message: dict[str, Any] | None) -> dict[str, Any]:
        """The message, unless it or the end of the input ends this run."""
        if message is None:
            sys.exit(0)
        if message.get("request", {}).get("subtype") == "interrupt":
            self.finish(subtype="error_during_execution", is_error=True)
            sys.exit(0)
        return message

    # -- what it says --------------------------------------------------------------------------------

    def partial(self, event: dict[str, Any]) -> None:
        """A raw event of the model's API."""
        send({"type": "stream_event", "event": event, "parent_tool_use_id": None})

    def begin(self) -> str:
        """A message of the model begins."""
        self.number += 1
        message_id = f"m{self.number}"
        self.partial(
            {
                "type": "message_start",
                "message": {"id": message_id, "usage": {"input_tokens": 11, "output_tokens": 1}},
            }
        )
        self.used[0] += 11
        return message_id

    def end(self) -> None:
        """And ends."""
        self.used[1] += 7
        self.partial({"type": "message_delta", "usage": {"output_tokens": 7}})
        self.partial({"type": "message_stop"})

    def finish(self, **more: Any) -> None:
        """The result of the turn."""
        found = {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": self.text,
            "session_id": self.session,
            "total_cost_usd": 0.25,
            "usage": {"input_tokens": self.used[0], "output_tokens": self.used[1]},
            "permission_denials": self.denials,
        }
        send(found | more)

    def do_say(self, step: dict[str, Any]) -> bool:
        """The answer; ends the turn."""
        message_id = self.begin()
        self.partial({"type": "content_block_start", "content_block": {"type": "text"}})
        chunks = self.filled(step["chunks"])
        for number, chunk in enumerate(chunks):
            if number:
                self.pause(step.get("every_s", 0))
            delta = {"type": "text_delta", "text": chunk}
            self.partial({"type": "content_block_delta", "delta": delta})
        self.text = "".join(chunks)
        self.speak(message_id, {"type": "text", "text": self.text})
        self.end()
        if step.get("last_words", True):
            self.finish()
            send(
                {
                    "type": "assistant",
                    "message": {
                        "id": "x",
                        "content": [{"type": "text", "text": " and more after the end"}],
                    },
                }
            )
        return bool(step.get("last_words", True))

    def speak(self, message_id: str, block: dict[str, Any], **more: Any) -> None:
        """A whole message of the model."""
        send({"type": "assistant", "message": {"id": message_id, "content": [block]}, **more})

    def do_use(self, step: dict[str, Any]) -> None:
        """A call that needs no leave."""
        message_id = self.begin()
        call = {"type": "tool_use", "id": f"call_{self.number}", "name": step["tool"]}
        self.speak(message_id, {**call, "input": step["args"]})
        self.end()
        ok, self.result = use_tool(step["tool"], step["args"])
        self.tool_result(str(call["id"]), ok)

    def tool_result(self, call_id: str, ok: bool) -> None:
        """What a call brought."""
        block = {"type": "tool_result", "tool_use_id": call_id, "is_error": not ok}
        content = [{**block, "content": self.result}]
        send({"type": "user", "message": {"role": "user", "content": content}})

    def do_permit(self, step: dict[str, Any]) -> None:
        """A call that needs leave: done with the arguments that come back, or not at all."""
        message_id = self.begin()
        call_id = f"call_{self.number}"
        call = {"type": "tool_use", "id": call_id, "name": step["tool"], "input": step["args"]}
        self.speak(message_id, call)
        self.end()
        request = {
            "subtype": "can_use_tool",
            "tool_name": step["tool"],
            "input": step["args"],
            "tool_use_id": call_id,
        }
        send({"type": "control_request", "request_id": f"q{self.number}", "request": request})
        decision = self.decision(f"q{self.number}")
        is_allowed = decision["behavior"] == "allow"
        if is_allowed:
            self.result = json.dumps(decision["updatedInput"])
            if "path" in decision["updatedInput"]:
                self.do_effect(decision["updatedInput"])
        else:
            self.result = decision["message"]
            self.denials.append({"tool_name": step["tool"], "tool_use_id": call_id})
        self.tool_result(call_id, is_allowed)

    def decision(self, request_id: str) -> dict[str, Any]:
        """Wait for the answer to a request, and obey an interruption meanwhile."""
        while True:
            response = self.obeyed(self.inbox.get()).get("response", {})
            if response.get("request_id") == request_id:
                found: dict[str, Any] = response["response"]
                if found.get("behavior") not in {"allow", "deny"}:
                    self.wrong(f"no decision: {response}")
                return found

    def do_message(self, step: dict[str, Any]) -> None:
        """Any message as it is."""
        send(step["message"])

    def do_fail(self, step: dict[str, Any]) -> bool:
        """The provider refuses; ends the turn with a result and exit code 1."""
        status, word = step.get("status", 400), step.get("word", "invalid_request")
        said = f"API Error: {status} {step['text']}"
        self.speak("synthetic", {"type": "text", "text": said}, error=word)
        self.text = said
        self.finish(is_error=True, api_error_status=status)
        sys.stdout.flush()
        os._exit(1)


def main() -> None:
    """Play the voice that the first argument names."""
    voice, scenes, *rest = sys.argv[1:]
    program = Command(Path(scenes)) if voice == "command" else Claude(Path(scenes), rest)
    program.run()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
