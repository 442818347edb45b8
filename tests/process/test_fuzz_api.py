"""Every operation of the API, asked odd things by every kind of caller, on a daemon with work in it.

No answer is a defect of ours, none is missing, and the daemon is the same one afterwards, at work all
the time. Why the requests are made up by ``tests.support.api_fuzz`` and by no library is in
docs/decisions/0058-odd-requests-are-made-up-by-our-own-generator.md.
``TEST_FUZZ`` is the number of requests (``make test``: 600), ``TEST_FUZZ_SEED`` where they
begin.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from tests.support.api_fuzz import ApiFuzz, Request
from tests.support.daemon_process import DaemonProcess
from tests.support.preloaded_process import DAEMON

pytestmark = pytest.mark.process

COUNT = int(os.environ.get("TEST_FUZZ", "600"))
SEED = int(os.environ.get("TEST_FUZZ_SEED", "1"))
ANSWER_S = 8.0
RENEWED_S = 60.0
"""Until a run has begun, for a new token."""
LOOKS = 100
"""How often the run's token is looked for before the agent gets its work again."""
STREAMS = {"GET /events", "GET /ws", "POST /v1/chat/completions"}
MAY_WAIT = {
    "POST /interagent/send",
    "GET /interagent/results/{id}",
    "GET /tasks/{id}",
    "POST /tasks/ask_parent",
    "POST /mcp",
    "POST /mcp/{token}",
}
"""What waits for work of agents, for as long as its caller says."""
MOST_AWAY = 0.02
"""The share of answers that may say that something can't be had now."""
MOST_UNKNOWN = 0.2
"""The share of a run's requests that may say that its token is unknown: somebody has just stopped
the run."""
WITHOUT = frozenset(
    {
        "POST /drain",  # these two end the daemon
        "POST /restart",
        "POST /web/logout",  # end the callers of this test
        "POST /web/logout_everywhere",
        "POST /mcp/{token}",
    }
)
PERSONS = ("vera", "uwe", "otto")
RULES: list[dict[str, Any]] = [
    {
        "match": "ask me",
        "steps": [{"ask": {"text": "which?", "options": ["a", "b"]}}, {"say": "$answer"}],
    },
    {"match": "fail", "steps": [{"fail": {"error": "no", "permanent": True}}]},
    {"match": ".*", "steps": [{"say": "heard"}]},
]
CONFIG = """
[limits]
drain_s = 2
[people.vera]
role = "viewer"
[people.uwe]
role = "user"
[people.otto]
role = "operator"
"""
RUNNER = {
    "name": "runner",
    "engine": "command",
    "engine_options": {
        "command": ["/bin/sh", "-c", 'echo "$AGENTSUP_TOKEN" >> tokens; exec sleep 600'],
    },
}


async def populated(daemon: DaemonProcess) -> dict[str, list[str]]:
    """Work of every kind; the names and ids of it."""
    done = [await daemon.send("writer", text) for text in ("hello", "fail", "ask me")]
    for each in done[:2]:
        await daemon.result(each)
    task = await daemon.post("/tasks/create", {"from": "main", "prompt": "do it", "name": "t"})
    token = await token_of_a_run(daemon)
    chat = await daemon.chat()
    await chat.send("hello there")
    messages = (await daemon.get("/messages"))["messages"]
    questions = (await daemon.get("/questions"))["questions"]
    ids = [*done, *(str(one["id"]) for one in messages)]
    tasks = [str(task.body.get("task_id", ""))] if task.status < 300 else []
    names = ["main", "writer", "runner", "MAIN", "nobody"]
    return {
        "id": [*ids, *tasks, *(str(one["id"]) for one in questions)],
        "task_id": tasks,
        "name": names,
        "agent": names,
        "to": names,
        "from": names,
        "thread_id": ["chat:console:local", *(str(one.get("session", "")) for one in messages)],
        "conversation": ["local"],
        "session": [str(one.get("session", "")) for one in messages],
        "person": list(PERSONS),
        "token": [token],
        "language": ["en", "de", "xx"],
    }


async def token_of_a_run(daemon: DaemonProcess) -> str:
    """Give runner work, and the token of a turn of it that goes on.

    Others may stop the agent or the turn at any moment, so both are asked for again.
    """
    tokens = daemon.home / "agents" / "runner" / "workspace" / "tokens"
    async with asyncio.timeout(RENEWED_S):
        while True:
            await daemon.post("/agents/runner/start")
            await daemon.post("/interagent/send_async", {"to": "runner", "message": "go"})
            for _ in range(LOOKS):
                written = tokens.read_text().split() if tokens.exists() else []
                for token in reversed(written):
                    bearer = {"Authorization": f"Bearer {token}"}
                    answer = await daemon.request("GET", "/interagent/agents", headers=bearer)
                    if answer.status == 200:
                        return token
                await asyncio.sleep(0.02)  # a program writes the file, and sends no event


class Callers:
    """Whoever asks, with the headers that say so."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self._daemon = daemon
        self._headers: dict[str, dict[str, str]] = {}
        self._renewing = asyncio.Lock()

    async def come(self, run: str) -> list[str]:
        """Sign everybody in; ``run`` is the token of one. Their names."""
        self._headers = {
            "operator": {"Authorization": f"Bearer {self._daemon.token}"},
            "run": {"Authorization": f"Bearer {run}"},
            "nobody": {},
        }
        for person in PERSONS:
            self._headers[person] = await signed_in(self._daemon, person)
        return sorted(self._headers)

    def headers(self, who: str) -> dict[str, str]:
        return self._headers[who]

    async def refused(self, headers: Mapping[str, str]) -> None:
        """Somebody got 401. The run that asks is over once somebody stops it: it gets a new one."""
        async with self._renewing:
            if headers is self._headers["run"]:
                token = await token_of_a_run(self._daemon)
                self._headers["run"] = {"Authorization": f"Bearer {token}"}

    async def are_all_known(self) -> bool:
        """Whether every person is still signed in."""
        answers = [
            await self._daemon.request("GET", "/web/session", headers=self._headers[person])
            for person in PERSONS
        ]
        return all(answer.status == 200 for answer in answers)


async def signed_in(daemon: DaemonProcess, person: str) -> dict[str, str]:
    """Headers of a browser in which the person has signed in."""
    answer = await daemon.post("/web/links", {"person": person})
    assert answer.status == 200, answer
    origin = daemon.url
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"{origin}/web/login", json={"code": answer.body["code"]}, headers={"Origin": origin}
        ) as response,
    ):
        assert response.status == 200, await response.text()
        secret = (await response.json())["secret"]
        return {"Authorization": f"Bearer {secret}", "Origin": origin}


async def asked(
    http: aiohttp.ClientSession, origin: str, request: Request, headers: dict[str, str]
) -> tuple[int, str]:
    limit = aiohttp.ClientTimeout(total=ANSWER_S)
    async with http.request(
        request.method,
        origin + request.url,
        data=request.body,
        headers={**request.headers, **headers},
        timeout=limit,
    ) as response:
        if request.operation in STREAMS and response.status in (101, 200):
            return response.status, ""
        return response.status, (await response.read()).decode()


def is_ours(status: int, text: str) -> bool:
    """Whether an answer is a defect: an unexpected failure, or one without a reason."""
    if status < 500:
        return False
    try:
        document = json.loads(text)
    except ValueError:
        return True
    # What can't be had now, and an engine that failed, are told as what they are.
    return status == 500 and document.get("code") not in {"engine_failed", "scripted_failure"}


@pytest.mark.timeout(60 + COUNT)
async def test_no_caller_finds_a_request_that_breaks_something(make_daemon: Any) -> None:
    daemon = make_daemon(["main", "writer", RUNNER], RULES, CONFIG, loaded=DAEMON)
    await daemon.start()
    pool, origin, callers = await populated(daemon), daemon.url, Callers(daemon)
    names, began = await callers.come(run=pool["token"][0]), await daemon.get("/status")
    fuzz = ApiFuzz(await daemon.get("/openapi.json"), SEED, pool, without=WITHOUT)
    found: list[str] = []
    places = asyncio.Semaphore(8)
    operations: set[str] = set()
    statuses: dict[str, Counter[int]] = {who: Counter() for who in names}

    async def one(number: int, request: Request, who: str) -> None:
        async with places:
            headers = callers.headers(who)
            told = f"{number} {who}: {request.method} {request.url} {request.body!r:.400}"
            try:
                status, text = await asked(http, origin, request, headers)
            except TimeoutError:
                if request.operation not in MAY_WAIT:
                    found.append(f"{told}: no answer within {ANSWER_S:g} s")
                return
            except aiohttp.ClientError as error:
                found.append(f"{told}: {error!r}")
                return
            operations.add(request.operation)
            statuses[who][status] += 1
            if status == 401:
                await callers.refused(headers)
            if is_ours(status, text):
                found.append(f"{told}: {status} {text[:300]}")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(
            *(one(number, fuzz.next(), names[number % len(names)]) for number in range(COUNT))
        )
    assert not found, "\n".join(found[:20])
    assert len(operations) > min(60, COUNT // 10)
    # The same daemon, at work and not on its way out, asked by whom it knew, all the time.
    now, ready = await daemon.get("/status"), await daemon.request("GET", "/readyz")
    assert (now["pid"], now["boot_id"]) == (began["pid"], began["boot_id"])
    assert not ready.body["draining"], ready
    assert await callers.are_all_known()
    away = sum(each[503] for each in statuses.values())
    assert away <= COUNT * MOST_AWAY, statuses
    assert statuses["run"][401] <= statuses["run"].total() * MOST_UNKNOWN, statuses
    unexpected = [each for each in daemon.log() if "unexpectedly" in str(each.get("event"))]
    assert not unexpected, unexpected[:3]
