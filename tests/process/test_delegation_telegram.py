"""Work handed on from a topic in Telegram, a question on the way back, a kill before the press.

A person asks the coordinator in a topic; members work on it, and one of them asks back. Its question
stands in that topic, with buttons. The daemon is killed before anybody presses, started again, and the
old button is pressed: one synthesis comes in the same topic, and nothing is said twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentsup.fakes.telegram import TelegramDriver
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.model_server import Asked, Call, ModelServer, Reply, without_time
from tests.support.preloaded_process import WITH_TELEGRAM
from tests.support.telegram_process import FakeTelegramProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

TOKEN = "7301:AAF" + "d" * 27
ASKED = "Sea or hills?"
OPTIONS = ["sea", "hills"]
NAMES = ("main", "bob", "cat")
Tools = tuple[tuple[str, dict[str, Any]], ...]

TEAM: Tools = (("dispatch_team", {"team": "travel", "prompt": "plan a trip"}),)
IN_PLACE: Tools = (
    ("delegate_task", {"prompt": "plan a trip", "agent": "cat"}),
    ("delegate_task", {"prompt": "plan a trip", "agent": "bob"}),
)
TASK: Tools = (("task_create", {"prompt": "plan a trip", "agent": "bob", "title": "trip"}),)
BY_PARENT: Tools = (("task_create", {**TASK[0][1], "title": "trip by its parent"}),)
"""As ``TASK``, but its agent asks whoever gave it the task, who asks the person."""
IN_BACKGROUND = (TASK, BY_PARENT)


# -- the agents, scripted and on a model ----------------------------------------------------------


def scripted(tools: Tools) -> dict[str, dict[str, Any]]:
    """The engine of each agent by name."""
    calls = [{"tool": {"name": name, "args": args}} for name, args in tools]
    ask = {"question": {"text": ASKED, "options": OPTIONS}}
    last = "begun" if tools in IN_BACKGROUND else "Synthesis: $result"
    args = {"question": ASKED, "options": OPTIONS}
    asks = {"tool": {"name": "ask_parent", "args": args}} if tools is BY_PARENT else ask
    rules = {
        "main": [
            {"match": "plan", "steps": [*calls, {"say": last}]},
            {"match": r"Sea or hills\?.*", "steps": [ask, {"say": "$result"}]},
            {"match": "bob goes .*", "steps": [{"say": "Synthesis: $0"}]},
        ],
        "bob": [{"match": ".*plan a trip", "steps": [asks, {"say": "bob goes for the $result"}]}],
        "cat": [{"match": ".*plan a trip", "steps": [{"say": "cat goes by train"}]}],
    }
    return {
        name: {"engine": "scripted", "engine_options": {"rules": each}}
        for name, each in rules.items()
    }


class Model:
    """What the model says to each agent, told apart by its instructions."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.asked = Counter[str]()

    def __call__(self, asked: Asked) -> Reply:
        who = str(asked.messages[0])
        self.asked[next(name for name in NAMES if f"You are {name}" in who)] += 1
        newest = [one for one in asked.messages if one["role"] != "system"]
        given: list[str] = []
        while newest and newest[-1]["role"] != "user":
            one = newest.pop()
            if one["role"] == "tool":
                given.insert(0, str(one["content"]))
        said = without_time(str(newest[-1]["content"])) if newest else ""
        if "You are cat" in who:
            return Reply("cat goes by train")
        if "You are bob" in who:
            if not given and self._tools is BY_PARENT:
                call = Call("ask_parent", {"question": ASKED, "options": OPTIONS})
                return Reply(calls=(call,))
            if not given:
                return Reply(calls=(Call("ask_user", {"text": ASKED, "options": OPTIONS}),))
            return Reply(f"bob goes for the {given[-1]}")
        if "[Question about" in said:
            if not given:
                return Reply(calls=(Call("ask_user", {"text": ASKED, "options": OPTIONS}),))
            return Reply(given[-1])
        if "[Result of" in said:
            return Reply(f"Synthesis: {said}")
        if len(given) < len(self._tools):
            return Reply(calls=(Call(*self._tools[len(given)]),))
        return Reply("begun" if self._tools in IN_BACKGROUND else f"Synthesis: {given[-1]}")


@asynccontextmanager
async def engines(kind: str, tools: Tools, **paid: int) -> AsyncIterator[dict[str, dict[str, Any]]]:
    """The engine of each agent by name, as long as they are needed; ``paid`` is how often a model
    is asked for each: the turn that the kill cuts asks anew, and no other does."""
    if kind == "scripted":
        yield scripted(tools)
        return
    model = Model(tools)
    async with ModelServer(model) as server:
        options = {"base_url": server.base_url, "api_key": "sk-loopback-0123456789"}
        entry = {"engine": "llm", "model": "loopback-1", "engine_options": options}
        yield dict.fromkeys(NAMES, entry)
        assert server.violations == []
        assert model.asked == paid


# -- the scene ------------------------------------------------------------------------------------


@dataclass
class Scene:
    """A forum with two topics; Ann writes in the second."""

    people: TelegramDriver
    daemon: DaemonProcess
    ann: int
    forum: str
    thread: int

    async def say(self, text: str) -> int:
        return await self.people.say(self.forum, text, user=self.ann, thread=self.thread)

    async def said(self) -> list[Mapping[str, Any]]:
        """All that the bot has in the forum, wherever; each must be in the topic."""
        found = [
            record["message"]
            for record in await self.people.messages(self.forum)
            if record["is_bot"] and "forum_topic_created" not in record["message"]
        ]
        assert {one.get("message_thread_id") for one in found} <= {self.thread}, found
        return found

    async def comes(self, part: str, timeout_s: float = BOUND_S) -> Mapping[str, Any]:
        record = await self.people.wait_text(self.forum, part, timeout_s)
        message: Mapping[str, Any] = record["message"]
        assert message.get("message_thread_id") == self.thread
        return message

    async def press(self, question: Mapping[str, Any], option: str) -> Mapping[str, Any]:
        """Press a button as it stood at first, also where it is gone by now."""
        rows = question["reply_markup"]["inline_keyboard"]
        data = next(b["callback_data"] for row in rows for b in row if b["text"] == option)
        query = await self.people.press(
            self.forum, question["message_id"], data=data, user=self.ann, force=True
        )
        return await self.people.pressed(query)


@asynccontextmanager
async def scene(root: Path, given: Mapping[str, Mapping[str, Any]]) -> AsyncIterator[Scene]:
    async with (
        FakeTelegramProcess(root / "fake") as fake,
        TelegramDriver(fake.url) as people,
    ):
        bot = await people.add_bot(TOKEN, username="main_bot", can_read_all_group_messages=True)
        ann = await people.user("Ann")
        forum = await people.group("F", [ann, bot], administrators=[bot], forum=True)
        await people.topic(forum, "cooking", user=ann)
        thread = await people.topic(forum, "travel", user=ann)
        main = {
            "name": "main",
            "telegram_token": TOKEN,
            "telegram_base_url": fake.url,
            "allowed_user_ids": [ann],
            "allowed_group_ids": [int(forum)],
            "group_mention_only": False,
            "tools": ["*", "dispatch_team"],
            **given["main"],
        }
        members = [{"name": name, "team": "travel", **given[name]} for name in ("bob", "cat")]
        async with DaemonProcess(
            write_home(root / "home", [main, *members]), loaded=WITH_TELEGRAM
        ) as daemon:
            await daemon.until("main", "running", warnings=[], timeout_s=BOUND_S)
            yield Scene(people, daemon, ann, forum, thread)
            assert await people.violations() == []


async def asked_then_killed(stage: Scene, before: str = ASKED) -> Mapping[str, Any]:
    """The question as it stands in the topic; the daemon has been killed and started since.

    ``before`` is what else must have been said before the kill.
    """
    await stage.say("plan")
    question = await stage.comes(ASKED)
    await stage.comes(before)
    assert "reply_markup" in question, question["text"]
    labels = [b["text"] for row in question["reply_markup"]["inline_keyboard"] for b in row]
    assert labels == OPTIONS
    await delivered(stage.daemon)
    stage.daemon.kill()
    await stage.daemon.ended()
    await stage.daemon.start()
    return question


async def delivered(daemon: DaemonProcess) -> None:
    """Until the daemon knows that it has shown the question: no person is quicker than that.

    Nothing else is on its way to the platform either: the kill would leave it in doubt, and the
    doubt would be told. Nor does cat work any longer, who would be asked anew after the kill.
    """
    shown = "SELECT 1 FROM outbox WHERE kind = 'question' AND state = 'delivered'"
    leaving = "SELECT 1 FROM outbox WHERE state = 'pending'"
    works = (
        "SELECT 1 FROM messages m JOIN agents a USING (agent_id)"
        " WHERE a.name = 'cat' AND m.state IN ('queued', 'leased')"
    )
    async for _ in daemon.events(after=0):
        if daemon.sql(shown) and not daemon.sql(leaving) and not daemon.sql(works):
            return


async def one_synthesis(stage: Scene, question: Mapping[str, Any]) -> str:
    """Press the old button; the synthesis, once all is at rest."""
    told = await stage.press(question, "hills")
    assert "hills" in told["text"]
    synthesis = await stage.comes("Synthesis: ")
    again = await stage.press(question, "sea")
    assert again["show_alert"], "the second press was told it came late"
    await at_rest(stage.daemon)
    said = [str(one["text"]) for one in await stage.said()]
    assert sum(text.startswith("Synthesis: ") for text in said) == 1, said
    assert sum(ASKED in text for text in said) == 1, said
    assert "bob goes for the hills" in synthesis["text"]
    return str(synthesis["text"])


async def at_rest(daemon: DaemonProcess) -> None:
    """Until no message is open and nothing waits for its delivery."""
    count = (
        "SELECT (SELECT count(*) FROM messages WHERE state IN ('queued', 'leased', 'parked'))"
        " + (SELECT count(*) FROM outbox WHERE state = 'pending') AS n"
    )
    async for _ in daemon.events(after=0):
        if not daemon.sql(count)[0]["n"]:
            return


@pytest.mark.parametrize("kind", ["scripted", "llm"])
async def test_a_team_is_asked_and_the_old_button_brings_one_synthesis(
    kind: str, tmp_path: Path
) -> None:
    async with engines(kind, TEAM, main=3, bob=2, cat=1) as given, scene(tmp_path, given) as stage:
        synthesis = await one_synthesis(stage, await asked_then_killed(stage))
        assert "cat goes by train" in synthesis
        runs = stage.daemon.sql("SELECT kind FROM runs")
        assert [row["kind"] for row in runs] == ["dispatch", "dispatch"]
        # A member that ended before its asker came back has replied; that was read with the rest.
        replies = stage.daemon.sql("SELECT state, error_code FROM messages WHERE kind = 'reply'")
        assert {tuple(row.values()) for row in replies} <= {("done", "collected")}


@pytest.mark.parametrize("kind", ["scripted", "llm"])
async def test_work_in_anothers_place_goes_on_by_the_old_button(kind: str, tmp_path: Path) -> None:
    async with (
        engines(kind, IN_PLACE, main=5, bob=2, cat=1) as given,
        scene(tmp_path, given) as stage,
    ):
        await one_synthesis(stage, await asked_then_killed(stage))
        runs = stage.daemon.sql("SELECT r.kind, a.name FROM runs r JOIN agents a USING (agent_id)")
        assert [tuple(row.values()) for row in runs] == [("delegate", "main")] * 2


@pytest.mark.parametrize("kind", ["scripted", "llm"])
@pytest.mark.parametrize(
    "tools,main,bob,kinds",
    [
        (TASK, 3, 2, ["chat", "task", "reply"]),
        (BY_PARENT, 5, 4, ["chat", "task", "directive", "reply"]),
    ],
    ids=["the person", "its parent"],
)
async def test_a_task_asks_and_goes_on_by_the_old_button(
    kind: str, tools: Tools, main: int, bob: int, kinds: list[str], tmp_path: Path
) -> None:
    async with engines(kind, tools, main=main, bob=bob) as given, scene(tmp_path, given) as stage:
        synthesis = await one_synthesis(stage, await asked_then_killed(stage, before="begun"))
        said = [str(one["text"]) for one in await stage.said()]
        # The task may ask before the turn that began it has said so.
        assert len(said) == 3, said
        assert "begun" in said[:2], said
        assert re.search(r"Synthesis: .*bob goes for the hills", synthesis, re.DOTALL)
        (task,) = stage.daemon.sql("SELECT state, runs, result FROM tasks")
        assert task == {"state": "done", "runs": 1, "result": "bob goes for the hills"}
        found = [row["kind"] for row in stage.daemon.sql("SELECT kind FROM messages ORDER BY seq")]
        assert found == kinds
