"""Every operation of the API, asked odd things by every kind of caller, on a daemon with work in it.

No answer is a defect of ours, none is missing, and the daemon is well afterwards.
`AGENTSUP_FUZZ` is the number of requests (`make test`: 600), `AGENTSUP_FUZZ_SEED` where they begin.
"""

import asyncio
import json
import os
from typing import Any

import aiohttp
import pytest

from agentsup.testing.api_fuzz import ApiFuzz, Request
from agentsup.testing.daemon_process import DaemonProcess
from agentsup.testing.loaded_process import DAEMON

pytestmark = pytest.mark.process

COUNT = int(os.environ.get("AGENTSUP_FUZZ", "600"))
SEED = int(os.environ.get("AGENTSUP_FUZZ_SEED", "1"))
ANSWER_S = 8.0
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
WITHOUT = frozenset(
    {
        "POST /drain",  # these two end the daemon
        "POST /restart",
        "POST /web/logout",  # end the callers of this test
        "POST /web/logout_everywhere",
        "POST /mcp/{token}",
    }
)
RULES: list[dict[str, Any]] = [
    {
        "match": "ask me",
        "steps": [{"ask": {"text": "which?", "options": ["a", "b"]}}, {"say": "$answer"}],
    },
    {"match": "fail", "steps": [{"fail": {"error": "no", "permanent": True}}]},
    {"match": ".*", "steps": [{"say": "heard"}]},
]
CONFIG = """
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
        "command": ["/bin/sh", "-c", 'echo "$AGENTSUP_TOKEN" > token; exec sleep 600'],
    },
}


async def populated(daemon: DaemonProcess) -> dict[str, list[str]]:
    """Work of every kind; the names and ids of it."""
    done = [await daemon.send("writer", text) for text in ("hello", "fail", "ask me")]
    for each in done[:2]:
        await daemon.result(each)
    task = await daemon.post("/tasks/create", {"from": "main", "prompt": "do it", "name": "t"})
    runs = await daemon.send("runner", "go")
    chat = await daemon.chat()
    await chat.send("hello there")
    token = daemon.home / "agents" / "runner" / "workspace" / "token"
    async with asyncio.timeout(10):
        while not token.exists() or not token.read_text().strip():
            await asyncio.sleep(0.02)
    messages = (await daemon.get("/messages"))["messages"]
    questions = (await daemon.get("/questions"))["questions"]
    ids = [*done, runs, *(str(one["id"]) for one in messages)]
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
        "person": ["vera", "otto", "uwe"],
        "token": [token.read_text().strip()],
        "language": ["en", "de", "xx"],
    }


async def signed_in(daemon: DaemonProcess, person: str) -> dict[str, str]:
    """Headers of a browser in which the person has signed in."""
    answer = await daemon.post("/web/links", {"person": person})
    assert answer.status == 200, answer
    origin = daemon.url
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        http.post(
            f"{origin}/web/login", json={"code": answer.body["code"]}, headers={"Origin": origin}
        ) as response,
    ):
        assert response.status == 200, await response.text()
        cookies = response.cookies.values()
        return {
            "Cookie": "; ".join(f"{each.key}={each.value}" for each in cookies),
            "Origin": origin,
        }


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
    pool, origin = await populated(daemon), daemon.url
    callers = {
        "operator": {"Authorization": f"Bearer {daemon.token}"},
        "run": {"Authorization": f"Bearer {pool['token'][0]}"},
        "nobody": {},
        **{person: await signed_in(daemon, person) for person in ("vera", "uwe", "otto")},
    }
    fuzz = ApiFuzz(await daemon.get("/openapi.json"), SEED, pool, without=WITHOUT)
    found: list[str] = []
    places = asyncio.Semaphore(8)
    seen: set[tuple[str, str]] = set()

    async def one(number: int, request: Request, who: str) -> None:
        async with places:
            told = f"{number} {who}: {request.method} {request.url} {request.body!r:.400}"
            try:
                status, text = await asked(http, origin, request, callers[who])
            except TimeoutError:
                if request.operation not in MAY_WAIT:
                    found.append(f"{told}: no answer within {ANSWER_S:g} s")
                return
            except aiohttp.ClientError as error:
                found.append(f"{told}: {error!r}")
                return
            seen.add((request.operation, who))
            if is_ours(status, text):
                found.append(f"{told}: {status} {text[:300]}")

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as http:
        names = sorted(callers)
        await asyncio.gather(
            *(one(number, fuzz.next(), names[number % len(names)]) for number in range(COUNT))
        )
    assert not found, "\n".join(found[:20])
    assert len({operation for operation, _ in seen}) > min(60, COUNT // 10)
    assert await daemon.get("/healthz")
    unexpected = [each for each in daemon.log() if "unexpectedly" in str(each.get("event"))]
    assert not unexpected, unexpected[:3]
