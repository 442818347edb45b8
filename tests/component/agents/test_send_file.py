"""``send_file``: a file of the workspace reaches the chat once, whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsup.kit import faults
from agentsup.mailbox.delivery import sent_files
from agentsup.mailbox.queue import waits
from agentsup.model.errors import LeaseLost
from tests.component.agents.shared import rule
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual


def send(path: str, **more: Any) -> dict[str, Any]:
    return {"tool": {"name": "send_file", "args": {"path": path, **more}}}


def put(house: VirtualDaemon, name: str, data: bytes = b"1;2\n", of: str = "ann") -> Path:
    path = house.home.workspace(of) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def sent(house: VirtualDaemon) -> list[tuple[str, str]]:
    """Path and caption of the files that people have."""
    return [
        (part.body["path"], part.body["text"]) for part in house.channel.sent if part.kind == "file"
    ]


async def test_the_file_comes_during_the_turn_and_the_answer_after_it(household: Open) -> None:
    house = await household(
        agent(
            "ann", rule("go", send("out/a.csv", caption="the table"), {"sleep": 60}, {"say": "k"})
        )
    )
    put(house, "out/a.csv")
    message = await house.said("ann", "go")
    await house.channel.wait_sent(1)
    assert sent(house) == [("out/a.csv", "the table")]
    assert await house.state_of(message) == "leased"
    await house.daemon.mailbox.queue.wait_done(message, 1000)
    await house.channel.wait_sent(2)
    assert [part.kind for part in house.channel.sent] == ["file", "answer"]


@pytest.mark.parametrize(
    "when", ["journal.after_intent", "journal.after_effect", "journal.after_result"]
)
async def test_a_kill_at_any_step_sends_nothing_twice(
    household: Open, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    house = await household(agent("ann", rule("go", send("a.csv"), {"say": "done"})))
    put(house, "a.csv")
    killed: list[str] = []

    def point(name: str) -> None:
        if name == when and not killed:
            killed.append(name)
            house._runner.kill()

    monkeypatch.setattr(faults, "point", point)
    message = await house.said("ann", "go")
    await house.until(lambda: bool(killed))
    await house.restart(kill=True)
    assert (await house.daemon.mailbox.queue.wait_done(message, 600)).result_text == "done"
    await house.channel.wait_sent(2)
    await house.settled()
    assert sent(house) == [("a.csv", "")]


@pytest.mark.parametrize(
    "path, said",
    [
        ("../other/a.csv", "is not in your workspace"),
        ("/etc/passwd", "is not in your workspace"),
        ("gone.csv", "there is no file"),
        ("link.csv", "is not a plain file"),
        ("linked/a.csv", "can't be sent"),
        ("empty.csv", "is empty"),
        ("out", "is not a plain file"),
    ],
)
async def test_only_plain_files_of_the_workspace_are_sent(
    household: Open, tmp_path: Path, path: str, said: str
) -> None:
    house = await household(agent("ann", rule("go", send(path), {"say": "$result"})))
    (tmp_path / "a.csv").write_text("not yours")
    workspace = put(house, "out/a.csv").parent.parent
    (workspace / "link.csv").symlink_to(tmp_path / "a.csv")
    (workspace / "linked").symlink_to(tmp_path)
    put(house, "empty.csv", b"")
    done = await house.ask("ann", "go")
    assert said in done.result_text
    assert sent(house) == []


async def test_an_absolute_path_of_the_workspace_will_do(household: Open) -> None:
    house = await household(agent("ann", rule("send (.*)", send("$1"), {"say": "done"})))
    path = put(house, "a b.png")
    await house.ask("ann", f"send {path}")
    await house.channel.wait_sent(2)
    assert sent(house) == [("a b.png", "")]


async def test_a_turn_sends_a_bounded_number(household: Open) -> None:
    steps = [send(f"{number}.csv") for number in range(sent_files.MOST_FILES + 1)]
    house = await household(agent("ann", rule("go", *steps, {"say": "$result"})))
    for number in range(len(steps)):
        put(house, f"{number}.csv")
    done = await house.ask("ann", "go")
    assert "at most 20 files" in done.result_text
    await house.channel.wait_sent(sent_files.MOST_FILES + 1)
    assert len(sent(house)) == sent_files.MOST_FILES


async def test_work_for_another_agent_has_no_chat_to_send_to(household: Open) -> None:
    ask = {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "make it"}}}
    house = await household(
        agent("ann", rule("go", ask, {"say": "$result"})),
        agent("ben", rule("make it", send("a.csv"), {"say": "$result"})),
    )
    put(house, "a.csv", of="ben")
    done = await house.ask("ann", "go")
    assert "nobody reads along here" in done.result_text
    assert sent(house) == []


async def test_a_turn_that_lost_its_message_sends_nothing(
    household: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = await household(agent("ann", rule("go", send("a.csv"), {"say": "done"})))
    put(house, "a.csv")

    def lost(*given: Any) -> None:
        raise LeaseLost("stopped")

    monkeypatch.setattr(waits, "need_lease", lost)
    await house.said("ann", "go")
    await house.clock.sleep(5)
    assert sent(house) == []
