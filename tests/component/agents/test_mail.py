"""Mail over whole agents: tools, profiles, teams, subscriptions, removed agents, a host's handler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsup.mailbox import Mailbox
from agentsup.mailbox.mail import new_mail
from agentsup.mailbox.messages import Completion
from agentsup.mailbox.work import Handler, Work
from agentsup.model.agent import AgentSpec
from agentsup.model.errors import Conflict
from agentsup.model.ids import CallId
from agentsup.model.message import Message, MessageKind, MessageOutcome
from agentsup.model.principal import OPERATOR, Principal, PrincipalKind
from agentsup.model.tool import ToolContext
from tests.component.agents.shared import SAY, rule
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

TOOLS = ["mailbox_*", "ask_agent"]


def call(name: str, **args: Any) -> dict[str, Any]:
    return {"tool": {"name": name, "args": args}}


async def mail_of(house: VirtualDaemon, name: str) -> list[Message]:
    """Oldest first."""
    found = await house.daemon.mailbox.messages.list(agent_id=house.roster.entry(name).agent_id)
    return found[::-1]


async def results_of(house: VirtualDaemon, name: str, text: str) -> Any:
    """What the tool of a scripted turn said, as JSON; else its text."""
    said = (await house.ask(name, text)).result_text
    return json.loads(said) if said.startswith("{") else said


# -- tools -----------------------------------------------------------------------------------------


async def test_a_letter_and_its_reply(household: Open) -> None:
    send = call("mailbox_send", to_agent_id="ben", subject="Sums", body="2+2?")
    house = await household(
        agent(
            "ann",
            rule("go", send, SAY),
            rule("four", {"say": "ben knows it: four"}),
            tools=TOOLS,
        ),
        agent("ben", rule("Sums.*", {"sleep": 60}, {"say": "told ann"}), tools=TOOLS),
    )
    sent = await results_of(house, "ann", "go")
    ben, message_id = house.roster.entry("ben").agent_id, sent["message_id"]
    assert (sent["sent"], sent["to"], sent["subject"]) == (True, ben, "Sums")
    letter = await house.daemon.mailbox.messages.get(message_id)
    assert letter.text == "Sums\n\n2+2?"
    assert sent["thread_id"] == letter.root_id
    await house.until(lambda: house.daemon.fleet.asker(message_id) is not None)
    args = {"message_id": message_id, "body": "four"}
    replied = [json.loads(await use(house, "mailbox_reply", message_id, args)) for _ in range(2)]
    assert replied[0] == replied[1], "the call's key names one reply"
    assert replied[0]["sent"]
    await house.daemon.mailbox.queue.wait_done(message_id, 600)
    await house.until(lambda: any("ben knows it: four" in text for text in house.texts()))
    replies = [m for m in await mail_of(house, "ann") if m.kind is MessageKind.REPLY]
    assert [m.text for m in replies] == ["four"], "told once, by the reply alone"


async def use(house: VirtualDaemon, tool: str, message_id: str, args: dict[str, Any]) -> str:
    """Call a tool as the turn on a message."""
    asker = house.daemon.fleet.asker(message_id)
    assert asker is not None
    context = ToolContext(
        lease=asker.lease,
        slot=asker.slot,
        agent_name=house.roster.name_of(asker.lease.message.agent_id),
        call_id=CallId("the-call"),
    )
    found = house.daemon.calls.tools.get(tool)
    assert found is not None
    return await found.run(context, args)


@pytest.mark.parametrize(
    "args, field",
    [
        ({"subject": "s", "body": "b"}, "to_agent_id"),
        ({"to_agent_id": "ben", "to_role": "w", "subject": "s", "body": "b"}, "to_role"),
        ({"to_agent_id": "ben", "subject": " ", "body": "b"}, "subject"),
        ({"to_agent_id": "ben", "subject": "s", "body": "\n"}, "body"),
        ({"to_agent_id": "ben", "to_team": "t", "subject": "s", "body": "b"}, "to_team"),
        ({"to_agent_id": 7, "subject": "s", "body": "b"}, "to_agent_id"),
        ({"to_agent_id": "ben", "subject": "s" * 201, "body": "b"}, "subject"),
        ({"to_agent_id": "ben", "subject": "s\n[t]", "body": "b"}, "subject"),
    ],
)
async def test_a_wrong_argument_is_a_result_that_names_it(
    household: Open, args: dict[str, Any], field: str
) -> None:
    house = await household(
        agent("ann", rule("go", call("mailbox_send", **args), SAY), tools=TOOLS),
        agent("ben"),
    )
    ended = await house.ask("ann", "go")
    assert ended.outcome is MessageOutcome.OK
    assert field in ended.result_text
    assert await mail_of(house, "ben") == []


async def test_what_others_write_to_each_other_is_nothing_to_answer(household: Open) -> None:
    letter = {"subject": "s", "body": "b", "reply_to_id": "$1"}
    house = await household(
        agent(
            "ann",
            rule("him (.*)", call("mailbox_send", to_agent_id="ben", **letter), SAY),
            rule("role (.*)", call("mailbox_send", to_role="writer", **letter), SAY),
            rule("first", call("mailbox_send", to_agent_id="ben", subject="s", body="b"), SAY),
            tools=TOOLS,
        ),
        agent("ben", role="writer"),
        roles=["writer"],
    )
    said = await house.ask("ben", "a word with you")
    before = len(await mail_of(house, "ben"))
    for how in ("him", "role"):
        told = await results_of(house, "ann", f"{how} {said.message_id}")
        assert told == f"'reply_to_id': there is no message {said.message_id} in your mail"
    assert len(await mail_of(house, "ben")) == before
    first = await results_of(house, "ann", "first")
    again = await results_of(house, "ann", f"role {first['message_id']}")
    assert again["thread_id"] == first["thread_id"], "its own letter's thread goes on"


async def test_a_broadcast_and_reading_it(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule(
                "go",
                call("mailbox_broadcast", team_id="desk", subject="News", body="at ten"),
                SAY,
            ),
            tools=TOOLS,
            team="desk",
        ),
        agent(
            "ben",
            rule("mail", call("mailbox_read", unread_only=True), SAY),
            rule("all", call("mailbox_read", limit=1, mark=False), SAY),
            tools=TOOLS,
            team="desk",
        ),
        agent("cat", team="desk"),
        agent("dan"),
    )
    told = await results_of(house, "ann", "go")
    assert (told["sent"], told["team_id"], told["agents"]) == (True, "desk", ["ben", "cat"])
    assert told["broadcast_id"].startswith("bc_")
    assert await mail_of(house, "dan") == []
    for copy in await mail_of(house, "ben"):
        await house.daemon.mailbox.queue.wait_done(copy.message_id, 600)
    read = await results_of(house, "ben", "mail")
    assert (read["messages"], read["unread"]) == ([], 0), "a turn has begun on it"
    everything = await results_of(house, "ben", "all")
    (letter,) = everything["messages"]
    assert (letter["kind"], letter["from"], letter["subject"]) == ("broadcast", "ann", "News")
    assert letter["body"] == "News\n\nat ten"
    assert letter["thread_id"] == told["broadcast_id"]
    assert letter["read_at"]


async def test_only_agents_whose_tools_name_them_have_them(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", call("mailbox_read"), SAY)),
    )
    assert "mailbox_read" in (await house.ask("ann", "go")).result_text


async def test_a_letter_is_sent_once_over_a_kill(household: Open) -> None:
    house = await household(
        agent(
            "ann",
            rule(
                "go",
                call("mailbox_send", to_agent_id="ben", subject="s", body="b"),
                {"sleep": 60},
                SAY,
            ),
            tools=TOOLS,
        ),
        agent("ben"),
    )
    message_id = await house.said("ann", "go")
    await house.until(lambda: _any(house))
    await house.restart(kill=True)
    await house.daemon.mailbox.queue.wait_done(message_id, 3600)
    assert len(await mail_of(house, "ben")) == 1


async def _any(house: VirtualDaemon) -> bool:
    return bool(await mail_of(house, "ben"))


# -- profiles --------------------------------------------------------------------------------------


async def test_a_profile_is_in_prompt_and_directory_and_live(household: Open) -> None:
    ben = agent("ben", team="desk", role="writer", nickname="Kai", capabilities=["prose"])
    house = await household(
        agent("ann", rule("who", call("list_agents"), SAY), team="desk", skills=["citing"]),
        ben,
        roles=["writer"],
    )
    skills = house.home.root / "skills"
    skills.mkdir()
    (skills / "citing.md").write_text("Always name the page.", encoding="utf-8")
    stack = house.unit("ann").stack
    assert stack is not None
    text = stack.system_prompt()
    assert "Always name the page." in text
    assert "- Kai (agent ben), writer; prose" in text
    listed = await house.ask("ann", "who")
    assert "ben (running, Kai, role writer, team desk, prose)" in listed.result_text
    entry = house.daemon.directory.lookup("ben")
    assert (entry.nickname, entry.role, entry.team) == ("Kai", "writer", "desk")
    instances = house.instances()
    assert await house.save(
        [agent("ann", team="desk", nickname="Aria"), {**ben, "nickname": "Kim"}]
    )
    assert "You are Aria (agent ann)" in stack.system_prompt()
    assert "- Kim (agent ben)" in stack.system_prompt()
    assert house.instances() == instances, "no stack was built anew for a name"


# -- subscriptions ---------------------------------------------------------------------------------


async def events_of(house: VirtualDaemon, name: str) -> list[str]:
    return [
        part.data["event"]
        for message in await mail_of(house, name)
        if message.kind is MessageKind.EVENT
        for part in message.parts
        if part.type == "data"
    ]


async def test_events_over_a_kill_a_stop_and_an_edit(household: Open) -> None:
    ben = agent("ben", rule("slow", {"sleep": 60}, {"say": "done"}), rule("bad", {"fail": "no"}))
    house = await household(agent("ann", subscriptions=["ben"]), ben)
    slow = await house.said("ben", "slow")
    await house.until(lambda: _began(house, 1))
    await house.restart(kill=True)
    await house.daemon.mailbox.queue.wait_done(slow, 3600)
    assert await events_of(house, "ann") == ["started", "finished"], "once each, over the kill"
    stopped = await house.said("ben", "slow")
    await house.until(lambda: _began(house, 3))
    await house.daemon.control.stop("all", OPERATOR)
    assert await house.state_of(stopped) == "cancelled"
    assert await events_of(house, "ann") == ["started", "finished", "started"]
    assert await house.save([agent("ann", subscriptions=["*:failed"]), ben])
    await house.ask("ben", "bad")
    assert await events_of(house, "ann") == ["started", "finished", "started", "failed"]
    assert await house.save([agent("ann"), ben])
    await house.ask("ben", "bad")
    assert len(await events_of(house, "ann")) == 4


async def _began(house: VirtualDaemon, count: int) -> bool:
    return len(await events_of(house, "ann")) >= count


# -- removed agents --------------------------------------------------------------------------------


async def test_a_removed_agents_mail_waits_is_shown_and_is_given_away_once(household: Open) -> None:
    ann, ben, cat = agent("ann"), agent("ben"), agent("cat", rule("(.*)", {"say": "cat did $1"}))
    house = await household(ann, ben, cat)
    await house.daemon.control.stop_agent("ben", OPERATOR)
    accepted = await house.say("ben", "the work", external_id="x1")
    assert accepted.message is not None
    message_id = accepted.message.message_id
    assert await house.save([ann, cat])
    await house.settled()
    assert await house.state_of(message_id) == "queued"
    assert "ben (1)" in (await house.command("main", "/dead")).text
    (waiting,) = await house.daemon.mailbox.messages.list(removed=True)
    assert waiting.message_id == message_id
    shown = (await house.command("main", "/dead removed")).text
    assert message_id in shown
    assert "“the work” to ben" in shown
    await house.restart(kill=True)
    given = await house.daemon.dispatcher.reassign(message_id, "cat", OPERATOR)
    await house.restart(kill=True)
    again = await house.daemon.dispatcher.reassign(message_id, "cat", OPERATOR)
    assert (again.message_id, again.duplicate) == (given.message_id, True)
    with pytest.raises(Conflict, match="given to another agent already"):
        await house.daemon.dispatcher.reassign(message_id, "ann", OPERATOR)
    done = await house.daemon.mailbox.queue.wait_done(given.message_id, 600)
    assert (done.result_text, done.replay_of) == ("cat did the work", message_id)
    old = await house.daemon.mailbox.messages.get(message_id)
    assert (old.state.value, old.error_code) == ("cancelled", "reassigned")
    await house.until(lambda: "cat did the work" in house.texts())
    said = (await house.command("main", f"/dead reassign {message_id} CAT")).text
    assert said == f"{message_id} was given to cat, as {given.message_id}."
    assert "Nothing waits" in (await house.command("main", "/dead removed")).text
    assert not any("cancelled" in text or "given to" in text for text in house.texts())
    assert "ben" not in (await house.command("main", "/dead")).text


# -- a host's own handler --------------------------------------------------------------------------


class Clockmaker:
    """Works on messages without any engine."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def handle(self, work: Work) -> None:
        text = work.lease.message.text.upper()
        await self._mailbox.leases.complete(
            work.lease, Completion(MessageOutcome.OK, f"handled {text}")
        )


def handler_of(spec: AgentSpec, mailbox: Mailbox) -> Handler | None:
    return Clockmaker(mailbox) if spec.name == "ben" else None


async def test_a_host_works_on_an_agents_messages_itself(household: Open) -> None:
    house = await household(
        agent("ann", rule("go", call("ask_agent", to="ben", message="tick"), SAY)),
        agent("ben"),
        handler_of=handler_of,
    )
    assert (await house.ask("ben", "hello")).result_text == "handled HELLO"
    assert (await house.ask("ann", "go")).result_text == "handled TICK"
    sent = await house.daemon.dispatcher.send(
        "ben",
        new_mail("tock"),
        caller=Principal(PrincipalKind.AGENT, house.roster.entry("ann").agent_id, "ann"),
    )
    done = await house.daemon.mailbox.queue.wait_done(sent.message_id, 600)
    assert done.result_text == "handled TOCK"


async def test_an_agent_that_comes_back_goes_on_with_its_mail(household: Open) -> None:
    ann, ben = agent("ann"), agent("ben", rule("(.*)", {"say": "ben did $1"}))
    house = await household(ann, ben)
    await house.daemon.control.stop_agent("ben", OPERATOR)
    message_id = await house.said("ben", "the work")
    assert await house.save([ann])
    await house.settled()
    assert await house.save([ann, ben])
    done = await house.daemon.mailbox.queue.wait_done(message_id, 600)
    assert done.result_text == "ben did the work"


async def test_an_agent_added_later_is_served_at_once(household: Open) -> None:
    ann = agent("ann")
    house = await household(ann, agent("ben", role="writer"), roles=["writer", "painter"])
    caller = Principal(PrincipalKind.AGENT, house.roster.entry("ann").agent_id, "ann")
    await house.daemon.dispatcher.assign(new_mail("one"), role="writer", caller=caller)
    cat = agent("cat", rule("(.*)", {"say": "cat did $1"}), role="painter", team="new")
    assert await house.save([ann, agent("ben", role="writer"), cat])
    sent = await house.daemon.dispatcher.assign(new_mail("it"), role="painter", caller=caller)
    done = await house.daemon.mailbox.queue.wait_done(sent.message_id, 600)
    assert (sent.agent, done.result_text) == ("cat", "cat did it")
    told = await house.daemon.dispatcher.broadcast(new_mail("all"), team="new", caller=OPERATOR)
    assert [copy.agent for copy in told.copies] == ["cat"]
