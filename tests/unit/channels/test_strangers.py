"""Requests of strangers as rows: bounds, expiry, clocks that are set, and decisions that count once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentsup.channels.core.receiving import strangers
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.model.pairing import ALPHABET, OPEN_MS, PairingRequest, Stranger, code_in, shown_code
from agentsup.store import Database, Tx
from tests.support.empty_store import lay_store

NOW = 1_800_000_000_000
ENTROPY = SystemEntropy(SystemClock())


def eve(number: int = 1, name: str = "Eve") -> Stranger:
    return Stranger("telegram", str(number), name, str(number))


class Requests:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def ask(
        self, stranger: Stranger, agent: str = "agt_a", at: int = NOW
    ) -> PairingRequest | None:
        code = strangers.new_code(ENTROPY)
        return await self.database.write(
            lambda tx: strangers.ask_tx(tx, agent, stranger, code, at=at)
        )

    async def open(self, at: int = NOW) -> tuple[PairingRequest, ...]:
        return await self.database.read(lambda reader: strangers.open_requests(reader, at=at))

    async def decide(self, code: str, state: str, at: int = NOW) -> bool:
        def step(tx: Tx) -> bool:
            return strangers.decide_tx(tx, code, state, by="boss", at=at)

        return await self.database.write(step)


@pytest.fixture
async def rows(tmp_path: Path) -> AsyncIterator[Requests]:
    database = await Database.open(lay_store(tmp_path / "state.db"), clock=SystemClock())
    yield Requests(database)
    await database.close()


async def test_a_code_lives_for_ten_minutes_of_a_clock_that_goes_forward(rows: Requests) -> None:
    made = await rows.ask(eve())
    assert made is not None
    assert await rows.open(NOW) == (made,)
    assert await rows.open(NOW + OPEN_MS - 1) == (made,)
    assert await rows.open(NOW + OPEN_MS) == ()
    # Of an age that nobody knows: the clock was set back.
    assert await rows.open(NOW - 1) == ()
    again = await rows.ask(eve(), at=NOW - 1)
    assert again is not None
    assert await rows.open(NOW - 1) == (again,)
    # A wrong year once does not keep people out until then.
    assert await rows.ask(eve(), at=NOW - 2 * strangers.DAY_MS) is not None


async def test_a_person_has_few_codes_and_a_refused_one_none(rows: Requests) -> None:
    made = await rows.ask(eve())
    assert made is not None
    # Another name is no other person.
    assert await rows.ask(eve(name="Ann")) is None
    for number in range(1, strangers.OPEN_PER_PERSON + 2):
        found = await rows.ask(eve(), f"agt_{number}")
        assert (found is None) == (number >= strangers.OPEN_PER_PERSON)
    assert await rows.decide(made.code, "refused")
    later = NOW + strangers.REFUSED_MS
    assert await rows.ask(eve(), at=later - 1) is None
    assert await rows.ask(eve(2)) is not None
    assert await rows.ask(eve(), at=later) is not None


async def test_a_clock_that_is_set_back_forgets_no_refusal(rows: Requests) -> None:
    made = await rows.ask(eve())
    assert made is not None
    assert await rows.decide(made.code, "refused")
    before = NOW - 10 * strangers.DAY_MS
    assert await rows.ask(eve(), at=before) is None
    assert await rows.ask(eve(2), at=before) is not None
    assert await rows.ask(eve(), at=before + strangers.REFUSED_MS) is not None


async def test_an_agent_hands_out_few_codes_a_day(rows: Requests) -> None:
    made = 0
    for number in range(strangers.PER_AGENT + 10):
        at = NOW + number * OPEN_MS
        made += await rows.ask(eve(number), at=at) is not None
    assert made == strangers.PER_AGENT
    assert await rows.ask(eve(1), at=NOW + strangers.DAY_MS) is not None
    assert await rows.ask(eve(1), "agt_other") is not None


async def test_a_request_is_decided_once(rows: Requests) -> None:
    made = await rows.ask(eve())
    assert made is not None
    assert await rows.decide(made.code, "admitted")
    assert not await rows.decide(made.code, "admitted")
    assert not await rows.decide(made.code, "refused")
    assert await rows.open() == ()


def test_codes_are_read_in_any_form() -> None:
    code = strangers.new_code(ENTROPY)
    assert set(code) <= set(ALPHABET)
    for typed in (code, shown_code(code), shown_code(code).lower(), f" {code[:3]} {code[3:]} "):
        assert code_in(typed) == code
    assert code_in(code + "X") != code
    assert not set("01IO") & set(ALPHABET)


def test_an_id_of_a_hostile_server_shows_what_it_is() -> None:
    stranger = Stranger("matrix", "@eve\u202e\n:x", "Eve", "!room")
    assert stranger.shown == "“Eve” (matrix @eve··:x)"


@pytest.mark.parametrize(
    "name, shown",
    [
        ("Eve", "Eve"),
        ("x” (telegram 1)", "x' (telegram 1)"),
        ("a\nb\tc", "a b c"),
        ("\u202enna", "\\u202enna"),
        ("y" * 300, "y" * 40),
    ],
)
def test_a_name_shows_what_it_is(name: str, shown: str) -> None:
    assert strangers.shown_name(name) == shown
