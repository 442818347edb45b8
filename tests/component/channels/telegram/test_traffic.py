"""Much traffic, random answers and random trouble: whole, in order, once or in doubt."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentsup.channels.telegram import SharedHttp, deliver
from agentsup.channels.telegram.flood import Rates
from agentsup.channels.telegram.render import render
from agentsup.fakes.telegram import rules
from tests.component.channels.telegram.bench import FAST, StreamFixture, benched
from tests.component.channels.telegram.crowd import (
    CHATS,
    SEND_TIMEOUT_S,
    Crowd,
    answer_to,
    judge,
)
from tests.component.channels.telegram.fixture import rigged
from tests.support.bound import BOUND_S

EACH = int(os.environ.get("TEST_TELEGRAM_EACH", "70"))
"""Messages in each of the five chats; ``make kill`` sends 2,000."""
SEED = int(os.environ.get("TEST_TELEGRAM_SEED") or random.SystemRandom().randrange(1 << 30))
PACE = 50
"""Both sides' spans are divided by it, so that what takes minutes fits into seconds."""

WORDS = (
    "ärger",
    "plain",
    "**bold**",
    "`code`",
    "[a](https://example.org)",
    "😀",
    "x_y",
    "<b>",
    "*",
)


def an_answer(rng: random.Random) -> str:
    """Markdown of up to about four messages."""
    blocks = []
    for _ in range(rng.randint(1, 9)):
        words = " ".join(rng.choices(WORDS, k=rng.randint(1, 160)))
        blocks.append(
            rng.choice(
                (
                    words,
                    f"## {words[:60]}",
                    "\n".join(f"- {one}" for one in words.split()[:20]),
                    "```python\n"
                    + "\n".join(f"    {one} = {n}" for n, one in enumerate(words.split()))
                    + "\n```",
                    f"> {words}",
                    "| a | b |\n|---|---|\n"
                    + "\n".join(f"| {one} | {n} |" for n, one in enumerate(words.split()[:9])),
                )
            )
        )
    return "\n\n".join(blocks)


def shown(texts: list[str]) -> str:
    return "".join("".join(texts).split())


async def bot_texts(context: StreamFixture, chat: str) -> list[str]:
    return await context.people.texts(chat)


async def test_what_people_see_is_the_answer_whatever_it_holds(tmp_path: Path) -> None:
    async with benched(tmp_path, limits="count", rates=FAST) as bench, bench.relaying():
        for seed in range(25):
            ann, chat = await bench.person()
            answer = an_answer(random.Random(seed))
            row = await bench.settled(await bench.add(ann, answer))
            assert row["state"] == "delivered", (seed, row["detail"])
            whole = render(answer, limit=10_000_000)
            assert shown(await bot_texts(bench, chat)) == shown([one.text for one in whole]), seed


async def test_under_random_trouble_each_is_delivered_once_in_order_or_in_doubt(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", 0.4)
    async with benched(tmp_path, limits="count", rates=FAST) as bench:
        people = [await bench.person(f"P{n}") for n in range(5)]
        for kind, share in (("cut_after", 0.05), ("server_error", 0.05), ("cut_before", 0.03)):
            await bench.people.fault(kind, method="sendMessage", probability=share, seed=7)
        await bench.people.fault(
            "late", method="sendMessage", probability=0.02, seed=9, seconds=0.6
        )
        parts: dict[str, list[tuple[int, str]]] = {chat: [] for _, chat in people}
        async with bench.relaying():
            for n in range(40):
                for user, chat in people:
                    text = f"{chat}#{n}"
                    parts[chat].append((await bench.add(user, text), text))
            states = {
                part: (await bench.settled(part))["state"]
                for found in parts.values()
                for part, _ in found
            }
            await bench.people.clear_faults()
        assert set(states.values()) == {"delivered", "unknown"}
        for chat, found in parts.items():
            seen = [
                one for one in await bot_texts(bench, chat) if "#" in one and "/again" not in one
            ]
            assert seen == [text for _, text in found if text in seen], "in order, none doubled"
            assert [
                text for part, text in found if states[part] == "delivered" and text not in seen
            ] == []


def hurried(monkeypatch: pytest.MonkeyPatch) -> Rates:
    """The limits at the faster pace; the fake's own, without any slack, are hurried as well."""
    strict = [replace(one, span_s=one.span_s / PACE, slack_s=0.0) for one in rules.RATES]
    monkeypatch.setattr("agentsup.fakes.telegram.limits.RATES", tuple(strict))
    real = Rates()
    return Rates(
        bot=(real.bot[0], real.bot[1] / PACE),
        group=(real.group[0], real.group[1] / PACE),
        private=(real.private[0], real.private[1] / PACE),
        private_edits=(real.private_edits[0], real.private_edits[1] / PACE),
    )


@pytest.mark.timeout(max(90, EACH // 2))
async def test_at_full_speed_under_trouble_the_limits_hold_and_nothing_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = hurried(monkeypatch)
    async with benched(tmp_path, limits="count", rates=rates) as bench:
        places = [await bench.person(f"P{n}") for n in range(4)]
        group = await bench.people.group("g", [places[0][0], bench.bot_id])
        places.append((int(group), group))
        for kind, share in (("cut_after", 0.03), ("server_error", 0.03), ("flood", 0.02)):
            await bench.people.fault(
                kind, method="sendMessage", probability=share, seed=3, retry_after=1
            )
        # The parts are all there before the relay starts, so that it goes as fast as it may.
        parts: dict[str, list[tuple[int, str]]] = {
            chat: [(await bench.add(where, f"{chat}#{n}"), f"{chat}#{n}") for n in range(EACH)]
            for where, chat in places
        }
        async with bench.relaying(retry_cap_s=0.2):
            states = {
                part: (await bench.settled(part, within_s=max(BOUND_S, EACH / 2)))["state"]
                for found in parts.values()
                for part, _ in found
            }
            await bench.people.clear_faults()
        assert set(states.values()) == {"delivered", "unknown"}
        for chat, found in parts.items():
            seen = [one for one in await bot_texts(bench, chat) if "/again" not in one]
            assert seen == [text for _, text in found if text in set(seen)]
            missing = [text for part, text in found if text not in set(seen)]
            assert all(states[part] == "unknown" for part, text in found if text in missing)
        report = await bench.people.report()
        assert report["exceeded"] == []
        assert report["hammered"] == 0
        assert report["calls"]["sendMessage"] > 5 * EACH


@pytest.mark.timeout(max(90, EACH // 2))
async def test_what_people_write_is_answered_once_and_in_order_whatever_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole bot: from a person's text through poll, mailbox, turn and outbox to the chat."""
    monkeypatch.setattr(deliver, "_TEXT_TIMEOUT_S", SEND_TIMEOUT_S)
    rates = hurried(monkeypatch)
    print(f"replay: TEST_TELEGRAM_SEED={SEED} TEST_TELEGRAM_EACH={EACH}")
    async with rigged(tmp_path, limits="count") as rig:
        rig.http = SharedHttp(rates=rates)
        object.__setattr__(rig.mailbox.context.limits, "queue_limit", CHATS * EACH)
        rig.agent.answer = answer_to
        crowd = Crowd(rig, SEED, EACH)
        await crowd.gather()
        await rig.start()
        began_at = rig.clock.monotonic()
        await crowd.trouble()
        await crowd.write()
        await crowd.answered(max(BOUND_S, EACH / 3))
        took_s = rig.clock.monotonic() - began_at
        hits = await crowd.peace()
        found = await crowd.found()
        report = await rig.people.report()
        assert await rig.people.violations() == []
        assert await rig.states() == {"done": CHATS * EACH}
    counted = judge(found)
    print(f"{took_s:.1f} s, {dict(counted)}, {hits.total()} faults: {dict(hits)}")
    print({name: count for name, count in report["calls"].items() if count > 1})
    assert Counter(rig.agent.texts).most_common(1)[0][1] == 1, "a turn for each text, no second"
    assert (report["exceeded"], report["hammered"]) == ([], 0)
    assert hits.total() > EACH / 3
    assert any(hits[name] for name in hits if name.startswith("getUpdates"))
    assert counted["answered"] > 0.8 * CHATS * EACH
    # A judge that is content with everything proves nothing.
    whole = found.seen[0]
    sure = [text for text in whole if found.state_of(text) == "delivered"]
    for bad, why in (
        ([text for text in whole if text != sure[7]], "is lost"),
        ([*whole, sure[7]], "2 times"),
        ([sure[-1], *(text for text in whole if text != sure[-1])], "out of order"),
    ):
        with pytest.raises(AssertionError, match=why):
            judge(replace(found, seen=[bad, *found.seen[1:]]))


async def test_the_limits_hold_as_the_platform_counts_them(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        people = [await bench.person(f"P{n}") for n in range(20)]
        group = await bench.people.group("g", [people[0][0], bench.bot_id])
        async with bench.relaying():
            parts = [await bench.add(user, f"m{n}") for n in range(4) for user, _ in people]
            parts += [await bench.add(group, f"g{n}") for n in range(12)]
            for part in parts:
                row = await bench.settled(part)
                assert (row["state"], row["attempts"]) == ("delivered", 1)
        report = await bench.people.report()
        assert (report["exceeded"], report["refused"], report["hammered"]) == ([], 0, 0)
        assert await bot_texts(bench, group) == [f"g{n}" for n in range(12)]
