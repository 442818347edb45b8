"""What chat commands offer as buttons, and the commands that buttons stand for."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from agentsup.catalogue import ENGLISH, load
from agentsup.commands import ChatCommands
from agentsup.commands.dispatch import COMMON, GROUPS, Command
from agentsup.mailbox.delivery import outbox
from agentsup.model.control import CommandContext, CommandReply, Commands
from agentsup.model.principal import OPERATOR, PersonRole, Principal, PrincipalKind
from agentsup.store import Tx
from tests.component.agents.shared import flat, run_command
from tests.component.conftest import Open
from tests.support.virtual_daemon import VirtualDaemon, agent

pytestmark = pytest.mark.virtual

EVE = Principal(PrincipalKind.PERSON, "eve", "Eve", PersonRole.USER)
SLOW = {"match": "slow.*", "steps": [{"sleep": 600}]}
QUESTION = {"match": "q", "steps": [{"question": {"text": "Who?"}}, {"say": "$result"}]}


def commands_of(house: VirtualDaemon) -> Commands:
    commands: Commands = house.daemon.inbox._commands
    return commands


run = partial(run_command, principal=OPERATOR)


async def test_a_long_list_comes_in_pages_only_where_there_are_buttons(household: Open) -> None:
    house = await household(*(agent(f"a{n}") for n in range(8)))
    whole = await run(house, "main", "/agents", has_buttons=False)
    assert all(f"a{n} - running" in whole.text for n in range(8))
    page = await run(house, "main", "/agents")
    assert page.text.startswith("1 to 6 of 9")
    last = flat(page)[-1]
    rest = await run(house, "main", last.command)
    assert rest.text.startswith("7 to 9 of 9")
    shown = [b.label for b in (*flat(page), *flat(rest)) if b.command.startswith("/agents a")]
    assert sorted(shown) == sorted(f"● a{n}" for n in range(8))


async def test_every_button_is_a_command_that_works(household: Open) -> None:
    house = await household(agent("ann"), agent("ben"))
    await house.ask("main", "hello")
    seen: set[str] = set()
    todo = ["/agents", "/sessions", "/model", "/dead"]
    while todo:
        command = todo.pop()
        reply = await run(house, "main", command)
        assert reply.ok, (command, reply)
        seen.add(command)
        for button in flat(reply):
            assert button.label.strip()
            if not button.once and button.command not in seen:
                todo.append(button.command)
    assert {"/agents ann", "/agents main", "/model -"} <= seen


async def test_acts_are_offered_to_operators_as_the_state_allows(household: Open) -> None:
    house = await household(agent("ann"))

    async def acts(**more: Any) -> list[str]:
        reply = await run(house, "main", "/agents ann", **more)
        return [b.command for b in flat(reply) if b.operator]

    assert await acts() == ["/agent_stop ann", "/agent_restart ann"]
    assert await acts(principal=EVE) == []
    stopped = await run(house, "main", "/agent_stop ann")
    assert [b.command for b in flat(stopped)] == ["/agents ann", "/agents"]
    assert await acts() == ["/agent_start ann"]
    main = await run(house, "main", "/agents main")
    assert [b.command for b in flat(main) if b.operator] == ["/agent_restart main"]


async def test_what_changes_something_is_pressed_once_and_the_grave_is_asked(
    household: Open,
) -> None:
    house = await household(agent("ann", {"match": "bad", "steps": [{"crash": "boom"}]}))
    dead = await house.ask("ann", "bad")
    await house.settled()
    reply = await run(house, "main", f"/dead {dead.message_id}")
    acts = {b.label: b for b in flat(reply) if b.operator}
    assert acts.keys() == {"Requeue", "Replay", "Drop"}
    assert all(button.once for button in acts.values())
    assert acts["Drop"].confirm
    assert (await run(house, "main", acts["Drop"].command)).ok
    again = await run(house, "main", f"/dead {dead.message_id}")
    assert (again.ok, again.code) == (False, "conflict")


async def test_help_is_in_the_person_s_language(household: Open) -> None:
    house = await household(agent("ann"))
    english = (await run(house, "ann", "/help", language="tlh")).text
    assert "/help [NAME | all] - what commands there are" in english
    german = (await run(house, "ann", "/help", language="de")).text
    assert "/help [NAME | all] - welche Befehle es gibt" in german
    assert "Alles andere, was du schreibst" in german
    offered = {
        info.name for info in commands_of(house).offered(house.roster.entry("main").agent_id)
    }
    for code in load().languages:
        if code == ENGLISH:
            continue
        keys = {k.removeprefix("command.") for k in load().texts(code) if k.startswith("command.")}
        assert keys - {"anything_else"} <= offered, code
        assert keys >= offered, f"{code} lacks a line for a command"


async def test_help_without_words_of_a_language_is_english() -> None:
    async def nothing(context: CommandContext, rest: str) -> CommandReply:
        return CommandReply(context.agent_name + rest)

    table = (Command("stop", "", "end the turn", nothing), Command("odd", "X", "odd", nothing))
    commands = ChatCommands(table, lambda: "main")
    context = CommandContext("a", "ann", "console", "local", OPERATOR, language="de-AT")
    stop = f"/stop - {load().command('stop', 'de')}"
    text = (await commands.run("/help", context)).text
    assert text.splitlines() == [
        "Am häufigsten",
        stop,
        "/help [NAME | all] - welche Befehle es gibt",
        "Arbeit: /stop",
        "Fehlersuche: /help",
        "Weitere: /odd",
        "/help NAME sagt, was einer davon tut, /help all sagt es von allen.",
        "Alles andere, was du schreibst, geht an den Agenten.",
    ]
    text = (await commands.run("/help all", context)).text
    assert text.splitlines()[:2] == ["Arbeit", stop]
    assert "Weitere\n/odd X - odd\n" in text


async def test_every_command_belongs_to_one_group_of_the_help(household: Open) -> None:
    house = await household(agent("ann"))
    main = house.roster.entry("main").agent_id
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(info.name for info in commands_of(house).offered(main))
    short = (await run(house, "main", "/help")).text.splitlines()
    assert len(short) < 15
    assert set(COMMON) <= set(named)
    whole = (await run(house, "main", "/help all")).text
    assert all(f"\n/{name}" in whole for name in named)


async def test_again_shows_what_may_not_have_arrived(household: Open) -> None:
    house = await household(agent("ann"))

    def lose(tx: Tx) -> int:
        number = outbox.add_tx(
            tx,
            agent_id=house.roster.entry("ann").agent_id,
            channel="console",
            conversation="local",
            kind="answer",
            body={"text": "the lost one"},
            at=1,
        )
        tx.execute("UPDATE outbox SET state = 'unknown' WHERE outbox_id = ?", (number,))
        return number

    number = await house.db.write(lose)
    assert (await run(house, "ann", f"/again {number}")).ok
    await house.until(lambda: "the lost one" in house.texts())
    for wrong in ("/again", "/again x", f"/again {number + 99}"):
        assert not (await run(house, "ann", wrong)).ok
    assert not (await run(house, "main", f"/again {number}")).ok, "another agent's chat"


async def test_cancel_takes_back_what_waits_and_nothing_else(household: Open) -> None:
    house = await household(agent("ann", SLOW, slots=2), agent("ben"))
    running = await house.said("ann", "slow")
    waiting = await house.said("ann", "and then this")
    await house.clock.sleep(1)
    begun = await run(house, "ann", f"/cancel {running}")
    assert "being worked on" in begun.text
    assert (await run(house, "ben", f"/cancel {waiting}", principal=EVE)).code == "forbidden"
    assert await house.state_of(waiting) == "queued"
    taken = await run(house, "ann", f"/cancel {waiting}", principal=EVE)
    assert taken.text == "Taken back: “and then this”"
    assert await house.state_of(waiting) == "cancelled"
    assert "has ended already" in (await run(house, "ann", f"/cancel {waiting}")).text
    assert await house.state_of(running) == "leased"
    await run(house, "ann", "/stop")


async def test_a_late_answer_by_id_never_answers_another_question(household: Open) -> None:
    house = await household(agent("ann", QUESTION, slots=2))
    first = await house.said("ann", "q", conversation="one")
    await house.until(lambda: _parked(house, 1))
    (old,) = await house.daemon.mailbox.questions.list()
    await run(house, "ann", f"/answer {old.question_id} Bob")
    await house.daemon.mailbox.queue.wait_done(first, 60)
    await house.said("ann", "q", conversation="two")
    await house.until(lambda: _parked(house, 1))
    late = await run(house, "ann", f"/answer {old.question_id} Eve")
    assert not late.ok
    assert "Bob" in late.text
    (left,) = await house.daemon.mailbox.questions.list()
    assert left.question_id != old.question_id
    other = await run(house, "main", f"/answer {left.question_id} Eve")
    assert not other.ok
    await run(house, "ann", "/answer Eve")


async def _parked(house: VirtualDaemon, count: int) -> bool:
    return len(await house.daemon.mailbox.questions.list()) == count


async def test_a_question_is_answered_where_it_was_asked(household: Open) -> None:
    house = await household(agent("ann", QUESTION, slots=3))
    agent_id = house.roster.entry("ann").agent_id

    async def eve(text: str, conversation: str) -> CommandReply:
        context = CommandContext(agent_id, "ann", "console", conversation, principal=EVE)
        return await commands_of(house).run(text, context)

    message = await house.said("ann", "q", conversation="one")
    await house.until(lambda: _parked(house, 1))
    (asked,) = await house.daemon.mailbox.questions.list()

    async def is_shown() -> bool:
        return asked.question_id in (await eve("/status", "one")).text

    await house.until(is_shown)
    assert asked.question_id not in (await eve("/status", "two")).text
    assert (await eve("/answer Bob", "two")).code == "not_found"
    assert (await eve(f"/answer {asked.question_id} Bob", "two")).code == "forbidden"
    assert await house.daemon.mailbox.questions.list() == [asked]
    assert (await eve("/answer Bob", "one")).ok
    assert (await house.daemon.mailbox.queue.wait_done(message, 60)).result_text == "Bob"


async def test_of_several_questions_the_one_that_is_meant_must_be_named(household: Open) -> None:
    house = await household(agent("ann", QUESTION, slots=3))
    for conversation in ("one", "two"):
        await house.said("ann", "q", conversation=conversation)
    await house.until(lambda: _parked(house, 2))
    first, second = await house.daemon.mailbox.questions.list()
    vague = await run(house, "ann", "/answer Bob")
    assert vague.code == "conflict"
    assert first.question_id in vague.text
    assert second.question_id in vague.text
    assert await _parked(house, 2)
    assert (await run(house, "ann", f"/answer {second.question_id} Bob")).ok
    assert await house.daemon.mailbox.questions.list() == [first]


async def test_sessions_of_others_are_an_operators(household: Open) -> None:
    house = await household(agent("ann", {"match": ".*", "steps": [{"say": "hi"}]}))
    for conversation in ("one", "two"):
        message = await house.said("ann", "hello", conversation=conversation)
        await house.daemon.mailbox.queue.wait_done(message, 60)
    agent_id = house.roster.entry("ann").agent_id

    async def typed(text: str, by: Principal) -> CommandReply:
        context = CommandContext(agent_id, "ann", "console", "two", principal=by)
        return await commands_of(house).run(text, context)

    whole = (await typed("/sessions", OPERATOR)).text
    mine = (await typed("/sessions", EVE)).text
    assert ("console:one" in whole, len(whole.splitlines())) == (True, 3)
    assert ("console:one" in mine, len(mine.splitlines())) == (False, 2)
    (other,) = [line.split()[0] for line in whole.splitlines() if "console:one" in line]
    for named, code in ((other, "not_found"), ("chat:console:one", "forbidden")):
        refused = await typed(f"/session {named}", EVE)
        assert (refused.ok, refused.code) == (False, code)
    assert (await typed(f"/session {other}", OPERATOR)).ok


async def test_a_trace_shows_nobody_what_others_said(household: Open) -> None:
    house = await household(agent("ann", {"match": ".*", "steps": [{"say": "fine"}]}))
    message = await house.said("ann", "my private words", conversation="one")
    await house.daemon.mailbox.queue.wait_done(message, 60)
    agent_id = house.roster.entry("ann").agent_id

    async def traced(by: Principal, conversation: str) -> CommandReply:
        context = CommandContext(agent_id, "ann", "console", conversation, principal=by)
        return await commands_of(house).run(f"/trace {message}", context)

    foreign = await traced(EVE, "two")
    assert (foreign.ok, foreign.code) == (False, "forbidden")
    assert "private" not in foreign.text
    assert "private" in (await traced(OPERATOR, "two")).text
    assert "private" in (await traced(EVE, "one")).text
