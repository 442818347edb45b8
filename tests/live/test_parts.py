"""The real parts themselves: what live tests build on works, and its judges can say no."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page

from tests.live.browser import Browsing, axe, overflow_px
from tests.live.conftest import PASSWORD, Person, Register
from tests.support.faulty_proxy import FaultyProxy
from tests.support.matrix_driver import MatrixPerson, MatrixRefused
from tests.support.synapse import Synapse


async def test_two_people_talk(person: Person) -> None:
    ann, bob = await asyncio.gather(person("ann"), person("bob"))
    room = await ann.room(invite=[bob.user_id], name="Garden")
    assert await bob.invitations() == [room]
    await bob.join(room)
    await ann.wait_member(room, bob.user_id)
    first = await ann.say(room, "watr the roses")
    await bob.wait_text(room, "watr the roses")
    await ann.edit(room, first, "water the roses")
    seen = await bob.wait_text(room, "water the roses")
    assert seen.history == ["watr the roses", "water the roses"]
    await bob.react(room, first, "👍")
    await ann.wait_seen(room, first, lambda one: one.reactions.get("👍") == {bob.user_id})
    reply = await bob.say(room, "done", reply_to=first)
    assert (await ann.wait_text(room, "done")).reply_to == first
    aside = await bob.say(room, "which ones?", thread=first)
    assert (await ann.wait_text(room, "which", thread=first)).event_id == aside
    assert ann.texts(room) == ["done"]
    await bob.redact(room, reply)
    await ann.wait_seen(room, reply, lambda one: one.is_redacted)
    assert ann.texts(room) == []
    data = bytes(range(256)) * 100
    await ann.send_file(room, data, name="seeds.bin", text="plant these")
    seen = await bob.wait_text(room, "plant these")
    assert seen.kind == "m.file"
    assert seen.content["filename"] == "seeds.bin"
    assert await bob.download(seen.content["url"]) == data


async def test_a_stranger_is_refused(person: Person) -> None:
    ann, eve = await asyncio.gather(person("ann"), person("eve"))
    room = await ann.room()
    with pytest.raises(MatrixRefused, match="M_FORBIDDEN"):
        await eve.say(room, "let me in")


async def test_a_killed_server_keeps_what_it_confirmed(own_synapse: Synapse) -> None:
    names = {name: await own_synapse.register(name, PASSWORD) for name in ("ann", "bob")}
    async with (
        MatrixPerson(own_synapse.url, names["ann"], PASSWORD) as ann,
        MatrixPerson(own_synapse.url, names["bob"], PASSWORD) as bob,
    ):
        room = await ann.room(invite=[names["bob"]])
        await bob.join(room)
        await ann.say(room, "before")
        await own_synapse.kill()
        said = asyncio.ensure_future(ann.say(room, "while it is down"))
        await own_synapse.start()
        await bob.wait_text(room, "while it is down")
        await said
        assert bob.texts(room) == ["before", "while it is down"]


@pytest.mark.parametrize("kind", ["cut", "lost", "half", "status", "limited"])
async def test_a_repeated_send_shows_once_whatever_happened_to_the_first(
    kind: str, proxy: FaultyProxy, account: Register, person: Person
) -> None:
    bob = await person("bob")
    async with MatrixPerson(proxy.url, await account("ann"), PASSWORD) as ann:
        room = await ann.room(invite=[bob.user_id])
        await bob.join(room)
        proxy.fault(kind, path=r"/send/m\.room\.message", count=1)
        await ann.say(room, "hello")
        await ann.say(room, "that is all")
        await bob.wait_text(room, "that is all")
        assert bob.texts(room) == ["hello", "that is all"]
        assert proxy.hits(kind) == 1


async def test_trouble_takes_its_time_and_is_taken_back(
    proxy: FaultyProxy, account: Register
) -> None:
    loop = asyncio.get_running_loop()
    async with MatrixPerson(proxy.url, await account("ann"), PASSWORD) as ann:
        for kind in ("slow", "late"):
            proxy.fault(kind, path="/createRoom", count=1, seconds=0.3)
            began = loop.time()
            await ann.room()
            assert loop.time() - began >= 0.3
        hanging = proxy.fault("hang", path="/createRoom")
        making = asyncio.ensure_future(ann.room())
        done, _ = await asyncio.wait({making}, timeout=0.5)
        assert not done
        proxy.clear(hanging)
        assert (await making).startswith("!")
        await proxy.down()
        with pytest.raises(TimeoutError):
            await ann.call("GET", "/_matrix/client/versions", patience_s=0.5)
        await proxy.up()
        assert "versions" in await ann.call("GET", "/_matrix/client/versions")


async def test_axe_finds_what_is_wrong_and_only_that(page: Page) -> None:
    head = '<!doctype html><html lang="en"><title>Garden</title>'
    await page.set_content(f"{head}<main><h1>Garden</h1><button>Water</button></main>")
    assert await axe(page) == []
    await page.set_content(f"{head}<main><h1>Garden</h1><button></button></main>")
    (found,) = await axe(page)
    assert found.startswith("button-name (critical)")


async def test_a_phone_is_narrow_and_may_be_dark(browsing: Browsing) -> None:
    page = await browsing.page("phone", "dark")
    wide = '<meta name="viewport" content="width=device-width"><div style="width:{}px">x</div>'
    await page.set_content(wide.format(300))
    assert await page.evaluate("[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]")
    assert await overflow_px(page) <= 0
    await page.set_content(wide.format(600))
    assert await overflow_px(page) > 100


async def test_an_error_in_a_page_is_not_overlooked(browsing: Browsing, page: Page) -> None:
    await page.set_content("<script>console.error('oh no')</script>")
    await page.evaluate("() => setTimeout(() => { throw new Error('out of the blue') })")
    await page.wait_for_function("true")
    async with page.expect_event("close"):
        await page.close()
    with pytest.raises(AssertionError, match="oh no"):
        browsing.check()
    assert any("out of the blue" in problem for problem in browsing.problems)
    browsing.forgive("oh no", "out of the blue")
