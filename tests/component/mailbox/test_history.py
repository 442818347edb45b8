"""Letters and their marks: what is read, by whom, and how long that is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.mailbox.mail import new_mail
from agentsup.mailbox.queue import retention_rules
from agentsup.model.errors import NotFound
from agentsup.model.principal import OPERATOR
from agentsup.store import prune
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of


async def test_letters_are_read_newest_first_and_chats_are_none(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(tmp_path, ["ann", "ben", "cat"])
    await rig.mail.put("a person's words", "ben")
    ids = [
        (await rig.dispatcher.send("ben", new_mail(str(n)), caller=agent_of("ann"))).message_id
        for n in range(4)
    ]
    await rig.mail.put("in between", "ben")
    page = await rig.history.history("ben", limit=3)
    assert [each.message.message_id for each in page] == ids[:0:-1]
    rest = await rig.history.history("ben", limit=3, before=page[-1].message.seq)
    assert [each.message.message_id for each in rest] == ids[:1]
    assert await rig.history.history("cat") == []
    assert await rig.history.unread_counts() == {"ben": 4}
    await rig.close()


async def test_marked_or_begun_is_read(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(tmp_path, ["ann", "ben"])
    first, second, third = [
        (
            await rig.dispatcher.send(
                "ben", new_mail(f"{n}", thread_id=f"t{n}"), caller=agent_of("ann")
            )
        ).message_id
        for n in range(3)
    ]
    assert await rig.history.mark_read("ben", [second]) == 1
    marked_at = (await rig.history.history("ben"))[1].read_at
    rig.mail.later(60)
    assert await rig.history.mark_read("ben", [second]) == 0
    assert (await rig.history.history("ben"))[1].read_at == marked_at, "the first mark stays"
    leases = {str(lease.message.message_id): lease for lease in await rig.mail.claim("ben")}
    await rig.mail.mailbox.leases.release(leases[third])
    assert await rig.history.unread_counts(["ben"]) == {}, "a turn had their text"
    assert all(each.read_at for each in await rig.history.history("ben"))
    for name in ("ann", "nobody"):
        with pytest.raises(NotFound):
            await rig.history.mark_read(name, [first])
    with pytest.raises(NotFound):
        await rig.history.mark_read("ben", ["msg_0"])
    await rig.close()


async def test_all_at_once_and_counts_of_many(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(tmp_path, ["ann", "ben", "cat"])
    for name, count in (("ben", 3), ("cat", 2)):
        for n in range(count):
            await rig.dispatcher.send(name, new_mail(str(n)), caller=agent_of("ann"))
    assert await rig.history.unread_counts() == {"ben": 3, "cat": 2}
    assert await rig.history.unread_counts(["cat", "nobody"]) == {"cat": 2}
    assert await rig.history.unread_counts([]) == {}
    assert await rig.history.mark_all_read("ben") == 3
    assert await rig.history.mark_all_read("ben") == 0
    assert await rig.history.unread_counts() == {"cat": 2}
    assert await rig.history.history("ben", unread_only=True) == []
    await rig.close()


async def test_marks_go_with_their_letters(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(tmp_path, ["ann", "ben"])
    await rig.dispatcher.send("ben", new_mail("old"), caller=agent_of("ann"))
    await rig.history.mark_all_read("ben")
    await rig.mail.finish(await rig.mail.one("ben"))
    rig.mail.later(91 * 86_400)
    young = await rig.dispatcher.send("ben", new_mail("young"), caller=agent_of("ann"))
    await rig.history.mark_all_read("ben")
    await prune(rig.mail.db, retention_rules(keep_days=90), clock=rig.mail.clock, pause_s=0)
    assert await rig.mail.sql("SELECT message_id FROM read_marks") == [(young.message_id,)]
    await rig.close()


async def test_what_an_operator_tells_all_is_mail_too(tmp_path: Path) -> None:
    rig = await DispatcherFixture.open(
        tmp_path, ["ann", ("ben", {"team": "t"}), ("cat", {"team": "t"})]
    )
    await rig.mail.put("a person's words", "ben")
    told = await rig.dispatcher.broadcast(new_mail("all hands"), team="t", caller=OPERATOR)
    copy = next(each for each in told.copies if each.agent_id == "ben")
    (letter,) = await rig.history.history("ben", unread_only=True)
    assert (letter.message.message_id, letter.read_at) == (copy.message_id, None)
    assert letter.message.principal == OPERATOR
    assert await rig.history.unread_counts() == {"ben": 1, "cat": 1}
    assert await rig.history.mark_read("ben", [copy.message_id]) == 1
    assert await rig.history.mark_all_read("cat") == 1
    assert await rig.history.unread_counts() == {}
    assert len(await rig.history.history("ben")) == 1
    await rig.close()
