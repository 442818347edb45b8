"""Chat commands: what each says, who may, and that plain words do nothing."""

from __future__ import annotations

import pytest

from agentsup.mailbox.messages import sessions
from agentsup.model.control import CommandContext
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from tests.component.agents.shared import until_state
from tests.component.conftest import Open
from tests.support.virtual_daemon import agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
VIC = Principal(PrincipalKind.PERSON, "vic", "Vic", PersonRole.VIEWER)
OLA = Principal(PrincipalKind.PERSON, "ola", "Ola", PersonRole.OPERATOR)

SLOW = {"match": "slow.*", "steps": [{"sleep": 600}]}
QUESTION = {
    "match": "q",
    "steps": [{"question": {"text": "Which?", "options": ["red", "blue"]}}, {"say": "$result"}],
}
BOTH = {"interactive": 2, "peer": 1, "background": 1}


async def test_commands_without_anything_to_do_answer_in_words(household: Open) -> None:
    """The others' words are in ``tests/golden``."""
    house = await household(agent("ann"))
    await house.ask("ann", "hello")
    for name, command, part in (
        ("ann", "/help stop", "/stop - end the running turn"),
        ("ann", "/session", "This chat is in session ses_"),
        ("ann", "/interrupt", "Nothing is running in this chat."),
        ("main", "/dead", "There are no failed messages."),
        ("main", "/stop_all", "Nothing was running or waiting."),
    ):
        reply = await house.command(name, command)
        assert part in reply.text, (command, reply.text)
        assert reply.ok


async def test_help_offers_main_its_own_commands(household: Open) -> None:
    house = await household(agent("ann"))
    main = (await house.command("main", "/help all")).text
    sub = (await house.command("ann", "/help all")).text
    assert "/agent_start NAME" in main
    assert "/agent_start" not in sub
    assert "/stop_all" in sub


@pytest.mark.parametrize(
    "text", ["stop", "wait", "cancel all", "stop all", "/", "//stop", "/ stop", "exit", "Stop."]
)
async def test_plain_words_stop_nothing(household: Open, text: str) -> None:
    house = await household(agent("ann", SLOW, slots=2))
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    reply = await house.say("ann", text)
    assert reply.message is not None
    await house.clock.sleep(1)
    assert await house.state_of(slow) == "leased"
    await house.command("ann", "/stop")


async def test_commands_in_any_case_and_with_the_other_mark(household: Open) -> None:
    house = await household(agent("Ann"))
    assert "Ann is running" in (await house.command("ann", "/STATUS")).text.replace(" - ", " is ")
    assert "Ann" in (await house.command("ANN", "!status")).text
    reply = await house.command("main", "/Agent_Stop aNN")
    assert "Ann is stopped and stays so" in reply.text


async def test_unknown_commands_suggest(household: Open) -> None:
    house = await household(agent("ann"))
    reply = await house.command("ann", "/stpo")
    assert not reply.ok
    assert "Did you mean /stop?" in reply.text
    reply = await house.command("ann", "/agents")
    assert "main agent only" in reply.text
    assert "agent_start NAME" in (await house.command("main", "/agent_start")).text


@pytest.mark.parametrize(
    "command",
    [
        "/stop_all",
        "/agent_start ann",
        "/agent_stop ann",
        "/agent_restart ann",
        "/agent_diff",
        "/dead drop x",
        "/model other",
    ],
)
async def test_operators_commands_need_the_role(household: Open, command: str) -> None:
    house = await household(agent("ann"))
    before = house.instances()
    reply = await house.command("main", command, who=EVE)
    assert not reply.ok
    assert reply.code == "forbidden"
    assert "operator" in reply.text
    assert house.instances() == before
    assert (await house.command("main", command, who=OLA)).code != "forbidden"


async def test_a_viewer_may_look_but_not_write(household: Open) -> None:
    house = await household(agent("ann"))
    with pytest.raises(Exception, match="may look but not write"):
        await house.say("ann", "hello", who=VIC)


async def test_stop_ends_this_chat_and_interrupt_only_the_turn(household: Open) -> None:
    house = await household(agent("ann", SLOW, slots=2))
    one = [await house.said("ann", "slow", conversation="one") for _ in range(3)]
    two = await house.said("ann", "slow", conversation="two")
    await house.clock.sleep(1)
    reply = await house.command("ann", "/interrupt", conversation="one")
    assert "what waits behind it goes on" in reply.text
    await house.clock.sleep(1)
    assert [await house.state_of(m) for m in one] == ["cancelled", "leased", "queued"]
    reply = await house.command("ann", "/stop", conversation="one")
    assert reply.text.startswith("Stopped: 1 running answer, 1 queued message")
    assert [await house.state_of(m) for m in one] == ["cancelled"] * 3
    assert await house.state_of(two) == "leased"
    await house.command("ann", "/stop", conversation="two")


@pytest.mark.parametrize(
    "channel, is_pressed, marked",
    [
        ("telegram", False, ["matrix"]),
        ("matrix", False, ["telegram"]),
        ("telegram", True, ["matrix", "telegram"]),
        ("web", False, ["matrix", "telegram"]),
    ],
)
async def test_a_stop_marks_what_is_unread_where_nothing_else_drops_it(
    household: Open, channel: str, is_pressed: bool, marked: list[str]
) -> None:
    """What was typed on a platform has dropped what came before it there, and by order."""
    house = await household(agent("ann", SLOW))
    keep = (
        (
            "INSERT INTO received (channel, bot_id, account, external_id, raw, state, at)"
            " VALUES ('telegram', '1', '1', '1', '{}', 'received', 1)"
        ),
        (
            "INSERT INTO received (channel, bot_id, account, chat_id, external_id, raw, state, at)"
            " VALUES ('matrix', 'a', '@b:c', '!r:c', '$1', '{}', 'received', 1)"
        ),
    )
    for sql in keep:
        await house.db.write(lambda tx, sql=sql: tx.execute(sql) and None)  # type: ignore[misc]  # bound at once
    await house.said("ann", "slow", conversation="one")
    agent_id, session_id = (await house.sql("SELECT agent_id, session_id FROM sessions"))[0]
    key = f"chat:{channel}:one"
    await house.daemon.mailbox.database.write(sessions.point_tx, agent_id, key, session_id)
    context = CommandContext(agent_id, "ann", channel, "one", OPERATOR, is_pressed=is_pressed)
    for command, scope in (
        ("/stop", f"session:{session_id}"),
        ("/stop_all", f"agent:{agent_id}"),
    ):
        await house.daemon.inbox._commands.run(command, context)
        rows = await house.sql(
            "SELECT channel FROM stop_marks WHERE scope = ? ORDER BY channel", scope
        )
        assert [row[0] for row in rows] == marked, command


async def test_stop_all_of_a_sub_agent_concerns_its_chats_only(household: Open) -> None:
    house = await household(agent("ann", SLOW, QUESTION, slots=BOTH), agent("ben", SLOW))
    first = await house.said("ann", "slow", conversation="one")
    waits = await house.said("ann", "slow too", conversation="one")
    parked = await house.said("ann", "q", conversation="two")
    other = await house.said("ben", "slow", conversation="three")
    await house.clock.sleep(1)
    reply = await house.command("ann", "/stop_all")
    assert "1 running answer, 1 queued message, 1 message with an open question" in reply.text
    assert "all chats of ann" in reply.text
    assert {await house.state_of(m) for m in (first, waits, parked)} == {"cancelled"}
    assert await house.state_of(other) == "leased"
    assert (await house.ask("ann", "hello")).outcome == "ok"
    reply = await house.command("main", "/stop_all")
    assert "1 running answer" in reply.text
    assert await house.state_of(other) == "cancelled"
    assert await house.daemon.mailbox.questions.list() == []


async def test_answers_by_number_text_or_id(household: Open) -> None:
    house = await household(agent("ann", QUESTION))
    asked = ""
    for said in ("2", "BLUE", "ID 2", "ID blue"):
        message = await house.said("ann", "q")
        await until_state(house, message, "parked")
        (question,) = await house.daemon.mailbox.questions.list()
        asked = question.question_id
        assert question.question_id in (await house.command("ann", "/status")).text
        bad = await house.command("ann", "/answer green")
        assert not bad.ok
        assert "1 red, 2 blue" in bad.text
        await house.command("ann", f"/answer {said.replace('ID', question.question_id)}")
        assert (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text == "blue"
    late = await house.command("ann", f"/answer {asked} red")
    assert not late.ok


async def test_a_command_passes_a_full_queue(household: Open) -> None:
    house = await household(agent("ann", SLOW, queue_limit=1))
    slow = await house.said("ann", "slow")
    await house.clock.sleep(1)
    with pytest.raises(Exception, match="queue of ann is full"):
        await house.say("ann", "more")
    await house.command("ann", "/stop")
    assert await house.state_of(slow) == "cancelled"


async def test_trace_shows_the_way_through_the_agents(household: Open) -> None:
    steps = [
        {"tool": {"name": "ask_agent", "args": {"to": "ben", "message": "ping"}}},
        {"say": "$result"},
    ]
    house = await household(agent("ann", {"match": "go", "steps": steps}), agent("ben"))
    message = await house.ask("ann", "go")
    text = (await house.command("ann", "/trace")).text
    assert f"{message.message_id} ann: done (ok)" in text
    assert "   msg_" in text
    assert "ben: done (ok)" in text
    assert text == (await house.command("ann", f"/trace {message.message_id}")).text
    assert text == (await house.command("ann", f"/trace {message.traceparent[3:35]}")).text
    assert not (await house.command("ann", "/trace msg_nothing")).ok
    assert (
        await house.command("main", f"/trace {message.message_id}", who=EVE)
    ).code == "forbidden"


async def test_memory_shows_the_head_of_the_file(household: Open) -> None:
    house = await household(agent("ann"))
    path = house.home.memory("ann")
    path.write_text("# What I know\n" + "x" * 5000)
    text = (await house.command("ann", "/memory")).text
    assert str(path) in text
    assert str(path) not in (await house.command("ann", "/memory", who=EVE)).text
    assert "# What I know" in text
    assert "more characters" in text


async def test_dead_letters_from_chat(household: Open) -> None:
    house = await household(agent("ann", {"match": "bad", "steps": [{"crash": "boom"}]}))
    dead = await house.ask("ann", "bad")
    assert dead.state == "dead"
    await house.settled()
    text = (await house.command("main", "/dead")).text
    assert dead.message_id in text
    assert "boom" in text
    replay = f"/dead replay {dead.message_id}"
    first = await house.command("main", replay, external_id="update:1")
    assert "Sent again as msg_" in first.text
    # A kill cut it off before its end was written: the next life runs it again.
    assert (await house.command("main", replay, external_id="update:1")).text == first.text
    assert (await house.command("main", replay, external_id="update:2")).text != first.text
    assert "was dropped" in (await house.command("main", f"/dead drop {dead.message_id}")).text
    assert await house.state_of(dead.message_id) == "cancelled"
    assert not (await house.command("main", "/dead sing")).ok


async def test_what_an_agent_said_when_it_failed_is_told_to_operators_only(
    household: Open,
) -> None:
    """A crash's text may quote the message that it died of, whoever wrote that."""
    house = await household(agent("ann", {"match": "bad", "steps": [{"crash": "her secret"}]}))
    await house.ask("ann", "bad")
    for name, command in (("ann", "/status"), ("main", "/agents"), ("main", "/agents ann")):
        told = (await house.command(name, command, who=OLA)).text
        assert "her secret" in told, command
        hidden = await house.command(name, command, who=EVE)
        assert hidden.ok
        assert "ann" in hidden.text
        assert "her secret" not in hidden.text, command


async def test_sessions_have_titles_and_short_ids(household: Open) -> None:
    house = await household(agent("ann"))
    await house.ask("ann", "about my bike, which is blue and rather old")
    await house.command("ann", "/new Plans")
    listed = (await house.command("ann", "/sessions")).text.splitlines()
    (bike,) = [line for line in listed if "about my bike, which is blue and rather" in line]
    assert any(line.startswith("▸ ") and line.endswith("Plans") for line in listed)
    short = bike.split()[0]
    assert len(short) == 8
    reply = await house.command("ann", f"/session {short}")
    assert reply.ok, reply.text
    assert reply.text.split()[-1].rstrip(".").endswith(short)
    listed = (await house.command("ann", "/sessions")).text.splitlines()
    assert [line for line in listed if line.startswith("▸ ") and "about my bike" in line]
    for given in ("ses_", "ses_0"):  # both begin so
        reply = await house.command("ann", f"/session {given}")
        assert not reply.ok
        assert "several sessions" in reply.text
        assert "about my bike" in reply.text
        assert "Plans" in reply.text
    assert not (await house.command("ann", "/session nowhere")).ok
