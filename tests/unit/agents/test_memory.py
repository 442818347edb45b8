"""What agents remember: saving, finding, forgetting; who may see what; and that nothing written is
read as a query."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsup.agents.memory import AgentMemory, rows
from agentsup.agents.memory.entry import (
    MAX_CONTENT_CHARS,
    MAX_KEY_CHARS,
    MemoryEntry,
    MemoryKind,
    MemoryOwner,
    MemoryScope,
    PersonKey,
    ShownEntry,
    draft,
)
from agentsup.agents.memory.ranking import (
    HALF_LIFE_MS,
    PersonShare,
    audience,
    entries_to_drop,
    queries,
    ranked,
    weight,
    words,
)
from agentsup.kit.clock import SystemClock
from agentsup.kit.entropy import SystemEntropy
from agentsup.model.errors import BadRequest, Forbidden, NotFound, NotSeen, Overloaded
from agentsup.model.principal import (
    OPERATOR,
    PersonRole,
    Principal,
    PrincipalKind,
    name_of_person,
)
from agentsup.store import Database, Tx, prune
from agentsup.store.migrate import packaged

ANN, BEN, OLD = MemoryOwner("agt_ann"), MemoryOwner("agt_ben"), MemoryOwner("agt_old")
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def memory(database: Database) -> AgentMemory:
    clock = SystemClock()
    return AgentMemory(database, clock, SystemEntropy(clock))


def keys(found: list[MemoryEntry]) -> list[str]:
    return [entry.key for entry in found]


# -- saving ----------------------------------------------------------------------------------------


async def test_defaults_are_a_fact_of_the_agents_own_half_believed(memory: AgentMemory) -> None:
    entry = (await memory.save(ANN, "tea", "Eva drinks green tea.")).entry
    assert (entry.kind, entry.scope, entry.confidence) == (
        MemoryKind.FACT,
        MemoryScope.INSTANCE,
        0.5,
    )
    assert (entry.use_count, entry.pinned, entry.tags) == (0, False, ())
    assert entry.memory_id.startswith("mem_")


@pytest.mark.parametrize("odd", [-0.1, 1.1, float("nan"), float("inf")])
async def test_a_confidence_out_of_range_counts_as_the_default(
    memory: AgentMemory, odd: float
) -> None:
    assert (await memory.save(ANN, "k", "c", confidence=odd)).entry.confidence == 0.5


@pytest.mark.parametrize("edge", [0.0, 1.0])
async def test_the_ends_of_the_range_are_in_it(memory: AgentMemory, edge: float) -> None:
    assert (await memory.save(ANN, "k", "c", confidence=edge)).entry.confidence == edge


async def test_saving_again_replaces_the_content_of_the_same_entry(
    memory: AgentMemory, database: Database
) -> None:
    first = (await memory.save(ANN, "tea", "green", tags=["Drink"])).entry
    await memory.recall(ANN, "green")
    await memory.pin("agt_ann", PersonKey("", "tea"))
    saved = await memory.save(ANN, " tea ", "black", kind="preference", confidence=0.9)
    again = saved.entry
    assert not saved.is_new
    assert (again.memory_id, again.created_at) == (first.memory_id, first.created_at)
    assert (again.content, again.kind, again.confidence) == ("black", MemoryKind.PREFERENCE, 0.9)
    assert (again.use_count, again.pinned) == (1, True)
    assert await memory.search(ANN, "green") == []
    assert keys(await memory.search(ANN, "black")) == ["tea"]
    await _index_is_sound(database)


async def test_a_key_is_one_entry_per_scope_and_agent(memory: AgentMemory) -> None:
    for owner, scope in ((ANN, "instance"), (ANN, "global"), (BEN, "instance")):
        await memory.save(owner, "tea", f"{owner.agent_id} {scope}", scope=scope)
    assert (await memory.all_of("agt_ann"))[1] == 2
    assert (await memory.all_of("agt_ben"))[1] == 1


@pytest.mark.parametrize(
    "field, wrong",
    [
        ("key", {"key": " \n"}),
        ("key", {"key": "k" * (MAX_KEY_CHARS + 1)}),
        ("content", {"content": "\0 "}),
        ("content", {"content": "c" * (MAX_CONTENT_CHARS + 1)}),
        ("kind", {"kind": "opinion"}),
        ("scope", {"scope": "everyone"}),
        ("scope", {"scope": "type"}),
        ("tags", {"tags": [str(n) for n in range(17)]}),
        ("tags", {"tags": ["x" * 65]}),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_kept(
    memory: AgentMemory, field: str, wrong: dict[str, object]
) -> None:
    given: dict[str, object] = {"key": "k", "content": "c", **wrong}
    with pytest.raises(BadRequest) as caught:
        await memory.save(ANN, **given)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.facts["field"] == field
    assert (await memory.all_of("agt_ann"))[1] == 0


async def test_two_turns_that_save_one_key_at_once_leave_one_entry(
    memory: AgentMemory, database: Database
) -> None:
    saved = await asyncio.gather(*(memory.save(ANN, "k", f"word{n}") for n in range(40)))
    assert len({each.entry.memory_id for each in saved}) == 1
    assert sum(each.is_new for each in saved) == 1
    (entry,), count = await memory.all_of("agt_ann")
    assert count == 1
    assert keys(await memory.search(ANN, entry.content)) == ["k"]
    await _index_is_sound(database)


async def test_known_secrets_are_taken_out(database: Database) -> None:
    clock = SystemClock()
    memory = AgentMemory(
        database, clock, SystemEntropy(clock), redact=lambda text: text.replace("hunter2", "***")
    )
    entry = (await memory.save(ANN, "hunter2", "is hunter2", tags=["hunter2"])).entry
    assert "hunter2" not in f"{entry.key} {entry.content} {entry.tags}"


# -- room ------------------------------------------------------------------------------------------


async def test_a_full_memory_drops_the_least_valuable_entry_and_no_pinned_one(
    database: Database,
) -> None:
    owner = MemoryOwner("agt_ann", max_entries=3)

    def fill(tx: Tx) -> rows.SavedMemory:
        for key, confidence in (("low", 0.1), ("pinned", 0.0), ("high", 0.9)):
            rows.save_tx(tx, owner, draft(key, "c", confidence=confidence), memory_id=key, now=0)
        rows.pin_tx(tx, "agt_ann", PersonKey("", "pinned"), pinned=True, now=0)
        return rows.save_tx(tx, owner, draft("new", "c", confidence=0.0), memory_id="new", now=0)

    saved = await database.write(fill)
    assert saved.dropped == 1
    left = await database.read(lambda r: keys(rows.listing(r, "agt_ann")))
    assert sorted(left) == ["high", "new", "pinned"]
    await _index_is_sound(database)


async def test_where_all_is_pinned_a_new_entry_is_refused_and_a_known_one_is_not(
    memory: AgentMemory,
) -> None:
    owner = MemoryOwner("agt_ann", max_entries=1)
    await memory.save(owner, "first", "c")
    await memory.pin("agt_ann", PersonKey("", "first"))
    with pytest.raises(Overloaded, match="pinned"):
        await memory.save(owner, "second", "c")
    await memory.save(owner, "first", "changed")
    found, count = await memory.all_of("agt_ann")
    assert (count, found[0].content) == (1, "changed")


async def test_who_saves_much_takes_nobody_elses_memories(memory: AgentMemory) -> None:
    anna, ben = (
        MemoryOwner("agt_ann", max_entries=20, person=f"person:{who}") for who in ("a", "b")
    )
    for n in range(4):
        await memory.save(ben, f"b{n}", "c", confidence=0.0)
    for n in range(100):
        await memory.save(anna, f"a{n}", "c", confidence=1.0)
    assert (await memory.all_of("agt_ann", "person:b"))[1] == 4
    assert (await memory.all_of("agt_ann"))[1] == 20
    for n in range(30):
        await memory.save(ben, f"more{n}", "c", confidence=0.0)
    assert (await memory.all_of("agt_ann", "person:a"))[1] == 10, "an equal part is left"


@given(
    st.dictionaries(st.sampled_from("abcde"), st.tuples(st.integers(1, 60), st.integers(0, 60))),
    st.integers(1, 120),
)
def test_room_is_made_by_those_who_have_the_most(
    people: dict[str, tuple[int, int]], limit: int
) -> None:
    people["saver"] = people.get("a", (1, 0))
    held = [
        PersonShare(who, entries, min(entries, loose)) for who, (entries, loose) in people.items()
    ]
    over = sum(each.entries for each in held) - limit
    drops = entries_to_drop(held, "saver", over=over, limit=limit)
    part = limit // len(held)
    for each in held:
        left = each.entries - drops[each.person]
        assert 0 <= drops[each.person] <= each.loose
        assert each.person == "saver" or not drops[each.person] or left >= part
    if over > 0 and all(each.loose == each.entries for each in held):
        assert drops.total() >= over, "where nothing is pinned there is room for everybody"


def test_the_saver_gives_way_among_equals() -> None:
    held = [PersonShare("anna", 10, 10), PersonShare("ben", 10, 10)]
    assert entries_to_drop(held, "ben", over=1, limit=19) == {"ben": 1}
    assert entries_to_drop(held, "anna", over=1, limit=19) == {"anna": 1}
    pinned = [PersonShare("anna", 15, 0), PersonShare("ben", 5, 4)]
    assert entries_to_drop(pinned, "cid", over=1, limit=19) == {}, "and what is within a part stays"


async def test_prune_drops_what_is_below_and_not_pinned(memory: AgentMemory) -> None:
    for key, confidence in (("a", 0.1), ("b", 0.3), ("c", 0.3), ("d", 0.1)):
        await memory.save(ANN, key, "word", confidence=confidence)
    await memory.pin("agt_ann", PersonKey("", "d"))
    await memory.save(BEN, "a", "word", confidence=0.1)
    assert await memory.prune("agt_ann", 0.25) == 1
    assert sorted(keys((await memory.all_of("agt_ann"))[0])) == ["b", "c", "d"]
    assert (await memory.all_of("agt_ben"))[1] == 1
    await memory.recall(ANN, "word", limit=1)
    assert await memory.prune("agt_ann", 0.5) == 1, "what was recalled is worth more"


async def test_retention_takes_what_nobody_touched_for_two_years(database: Database) -> None:
    clock = SystemClock()
    long_ago = clock.now_ms() - 3 * 365 * DAY_MS

    def fill(tx: Tx) -> None:
        for key, at in (("old", long_ago), ("held", long_ago), ("used", long_ago), ("new", 10**15)):
            rows.save_tx(tx, ANN, draft(key, "word"), memory_id=key, now=at)
        rows.pin_tx(tx, "agt_ann", PersonKey("", "held"), pinned=True, now=long_ago)
        rows.used_tx(tx, rows.under_key(tx, "agt_ann", "used"), now=clock.now_ms())

    await database.write(fill)
    await prune(database, rows.retention_rules(), clock=clock, pause_s=0)
    left = await database.read(lambda r: keys(rows.listing(r, "agt_ann")))
    assert sorted(left) == ["held", "new", "used"]
    await _index_is_sound(database)


# -- finding ---------------------------------------------------------------------------------------


async def test_any_word_of_key_content_or_tags_finds_an_entry(memory: AgentMemory) -> None:
    await memory.save(ANN, "favourite drink", "green tea", tags=["kitchen"])
    for text in ("drink", "TEA?", "coffee or tea", "kitchens and kitchen", "favour"):
        assert keys(await memory.search(ANN, text)) == ["favourite drink"], text
    for text in ("coffee", "ea", "", "?!", "agt ann instance fact"):
        assert await memory.search(ANN, text) == [], text


async def test_accents_and_case_make_no_difference(memory: AgentMemory) -> None:
    await memory.save(ANN, "Zürich", "Tram nach Oerlikon, Größe 38, Ελλάδα, 東京")
    for text in ("zurich", "ZÜRICH", "Zu\u0308rich", "große", "ΕΛΛΆΔΑ", "東京"):
        assert keys(await memory.search(ANN, text)) == ["Zürich"], text


async def test_filters_hold_before_the_limit(memory: AgentMemory) -> None:
    for n in range(60):
        await memory.save(ANN, f"noise {n}", "word word word", confidence=0.9, tags=["a"])
    await memory.save(ANN, "want", "word among others " * 5, kind="skill", tags=["B"])
    assert keys(await memory.search(ANN, "word", kind=MemoryKind.SKILL, limit=1)) == ["want"]
    assert keys(await memory.search(ANN, "word", tags=["b", "c"], limit=1)) == ["want"]


async def test_recall_gives_ten_and_counts_one_use_of_each(memory: AgentMemory) -> None:
    for n in range(12):
        await memory.save(ANN, f"k{n}", "word")
    found = await memory.recall(ANN, "word")
    assert len(found) == 10
    entries, _ = await memory.all_of("agt_ann")
    used = {entry.key: entry.use_count for entry in entries}
    assert {key for key, uses in used.items() if uses == 1} == set(keys(found))
    assert sum(used.values()) == 10
    with pytest.raises(BadRequest, match="what to recall"):
        await memory.recall(ANN, "  ")


async def test_own_entries_come_first_then_those_of_the_role_then_everybodys(
    memory: AgentMemory,
) -> None:
    scribe, other = MemoryOwner("agt_ann", "scribe"), MemoryOwner("agt_ben", "Scribe")
    wide = (await memory.save(other, "shared", "word", scope="global", confidence=1.0)).entry
    role = (await memory.save(other, "of the role", "word", scope="type", confidence=1.0)).entry
    assert await memory.search(scribe, "word") == [], "nothing is shared by being saved"
    await memory.share("agt_ben", wide.seen, MemoryScope.GLOBAL, OPERATOR)
    await memory.share("agt_ben", role.seen, MemoryScope.TYPE, OPERATOR)
    await memory.save(other, "secret", "word", scope="instance", confidence=1.0)
    await memory.save(scribe, "own", "a word in a long text about other things", confidence=0.1)
    await memory.save(scribe, "own shared", "a word in a text", scope="global", confidence=0.1)
    found = keys(await memory.search(scribe, "word"))
    assert found == ["own shared", "own", "of the role", "shared"]
    assert keys(await memory.search(ANN, "word")) == ["own shared", "own", "shared"]
    assert keys(await memory.search(scribe, "word", limit=3))[-1] == "of the role"
    assert keys(await memory.search(scribe, "word", own_only=True)) == ["own shared", "own"]


ANNA = MemoryOwner("agt_ann", "scribe", person="person:anna")
BENS = MemoryOwner("agt_ann", "scribe", person="person:ben")
OTHER = MemoryOwner("agt_ben", "scribe", person="person:ben")
OPERATORS_OWN = MemoryOwner("agt_ann", "scribe", person="operator")


@pytest.mark.parametrize("scope", MemoryScope)
async def test_an_entry_is_recalled_in_its_persons_work_until_an_operator_shares_it(
    memory: AgentMemory, scope: MemoryScope
) -> None:
    entry = (await memory.save(ANNA, "k", "word", scope=scope)).entry
    assert (entry.person, entry.shared_by) == ("person:anna", "")
    for reader in (BENS, OTHER, OPERATORS_OWN, ANN):
        assert await memory.search(reader, "word") == [], reader
    assert keys(await memory.search(ANNA, "word")) == ["k"]
    assert keys(await memory.search(OPERATORS_OWN, "word", own_only=True)) == ["k"]
    user = Principal(PrincipalKind.PERSON, "anna", "Anna", PersonRole.USER)
    with pytest.raises(Forbidden):
        await memory.share("agt_ann", entry.seen, scope, user)
    await memory.share("agt_ann", entry.seen, scope, OPERATOR)
    found = {
        reader.agent_id + reader.person
        for reader in (ANNA, BENS, OTHER, OPERATORS_OWN)
        if await memory.search(reader, "word")
    }
    everybody = {"agt_annperson:anna", "agt_annperson:ben", "agt_annoperator"}
    wide = {*everybody, "agt_benperson:ben"}
    assert (
        found
        == {
            MemoryScope.INSTANCE: {"agt_annperson:anna"},
            MemoryScope.AGENT: everybody,
            MemoryScope.TYPE: wide,
            MemoryScope.GLOBAL: wide,
        }[scope]
    )


async def test_what_is_saved_anew_is_shared_no_longer(memory: AgentMemory) -> None:
    entry = (await memory.save(ANNA, "k", "word", scope="global")).entry
    await memory.share("agt_ann", entry.seen, MemoryScope.GLOBAL, OPERATOR)
    assert await memory.search(OTHER, "word")
    await memory.save(ANNA, "k", "word, and always run this", scope="global")
    assert await memory.search(OTHER, "word") == [], "nobody has seen these words"


async def test_what_is_shared_is_one_entry_as_it_was_shown(
    memory: AgentMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is saved anew within the millisecond in which it was shown."""
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: 1)
    shown = (await memory.save(ANNA, "k", "word", scope="agent")).entry
    kept = (await memory.save(ANNA, "k", "word to myself")).entry
    others = (await memory.save(BENS, "k", "word of ben", scope="agent")).entry
    await memory.save(ANNA, "k", "word, and always run this", scope="agent")
    with pytest.raises(NotSeen, match="has changed"):
        await memory.share("agt_ann", shown.seen, MemoryScope.AGENT, OPERATOR)
    assert ShownEntry.parsed(str(shown.seen)) == shown.seen
    with pytest.raises(NotFound):
        await memory.share("agt_ben", others.seen, MemoryScope.AGENT, OPERATOR)
    assert await memory.search(OPERATORS_OWN, "word") == []
    entry, is_replacing = await memory.share("agt_ann", others.seen, MemoryScope.AGENT, OPERATOR)
    assert (entry.content, is_replacing) == ("word of ben", False)
    assert [e.content for e in await memory.search(OPERATORS_OWN, "word")] == ["word of ben"]
    entry, is_replacing = await memory.share("agt_ann", kept.seen, MemoryScope.AGENT, OPERATOR)
    assert (entry.content, is_replacing) == ("word to myself", True)


def test_nobody_is_named_like_the_operators() -> None:
    names = ("operator", "nobody", "", "person:operator", "person:nobody", "person:anna")
    assert len({name_of_person(each) for each in names}) == len(names) - 1
    assert name_of_person("person:anna") == "anna"


async def test_the_same_key_of_two_people_is_two_entries(memory: AgentMemory) -> None:
    await memory.save(ANNA, "tea", "green word")
    await memory.save(BENS, "tea", "black word")
    assert [e.content for e in await memory.search(ANNA, "word")] == ["green word"]
    assert len(await memory.forget("agt_ann", PersonKey("person:ben", "tea"))) == 1
    assert [e.content for e in await memory.search(ANNA, "word")] == ["green word"]
    with pytest.raises(NotFound):
        await memory.pin("agt_ann", PersonKey("person:ben", "tea"))
    found, total = await memory.all_of("agt_ann", "person:ben")
    assert (found, total) == ([], 0)


async def test_what_is_pinned_or_forgotten_is_one_entry_as_it_was_shown(
    memory: AgentMemory,
) -> None:
    annas = (await memory.save(ANNA, "tea", "green word")).entry
    await memory.save(BENS, "tea", "black word")
    with pytest.raises(NotFound):
        await memory.forget("agt_ann", annas.seen, only="person:ben")
    (pinned,) = await memory.pin("agt_ann", annas.seen, only="person:anna")
    assert (pinned.memory_id, pinned.pinned) == (annas.memory_id, True)
    assert pinned.seen == annas.seen, "its content is the same"
    await memory.save(ANNA, "tea", "another word")
    for change in (memory.forget, memory.pin):
        with pytest.raises(NotSeen):
            await change("agt_ann", annas.seen)
    (again,) = await memory.under_key("agt_ann", "tea", "person:anna")
    assert [each.content for each in await memory.forget("agt_ann", again.seen)] == ["another word"]
    assert keys((await memory.all_of("agt_ann"))[0]) == ["tea"]


async def test_pruning_for_one_person_takes_what_they_may_see(memory: AgentMemory) -> None:
    await memory.save(ANNA, "mine", "word", confidence=0.1)
    await memory.save(BENS, "his", "word", confidence=0.1)
    shared = (await memory.save(BENS, "shared", "word", confidence=0.1)).entry
    await memory.share("agt_ann", shared.seen, MemoryScope.AGENT, OPERATOR)
    assert await memory.prune("agt_ann", 1, person="person:anna") == 2
    assert keys((await memory.all_of("agt_ann"))[0]) == ["his"]


async def test_nobody_finds_what_others_keep_to_themselves(memory: AgentMemory) -> None:
    """Not by any word of the columns that say who may read, either."""
    saved = await memory.save(BEN, "secret", "word")
    hidden = audience(BEN, MemoryScope.INSTANCE, saved.entry.kind)
    tricks = (hidden, f'word" OR audience : "{hidden}', f"audience:{hidden}", "audience", "agt_ben")
    for text in ("word", *tricks):
        assert await memory.search(ANN, text) == [], text
    assert await memory.search(BEN, hidden) == [], "those words are no part of the text"


async def test_what_a_removed_agent_shared_rests_until_it_is_back(
    memory: AgentMemory, database: Database
) -> None:
    entry = (await memory.save(OLD, "shared", "word", scope="global")).entry
    await memory.share("agt_old", entry.seen, MemoryScope.GLOBAL, OPERATOR)
    assert await memory.search(ANN, "word") == []
    await database.write(lambda tx: tx.execute("UPDATE agents SET present = 1"))
    assert keys(await memory.search(ANN, "word")) == ["shared"]


# -- texts that look like queries ------------------------------------------------------------------

HOSTILE = (
    '"',
    '""" OR """',
    "word AND NOT word",
    "NEAR(word word, 1)",
    "key : word",
    "{key content} : word",
    "word*",
    "^word",
    "(word",
    "word)",
    "- word",
    "word + word",
    "'; DROP TABLE memories; --",
    "\0word",
    "%_",
    "\ud800 word",
    "word " * 5000,
)


@pytest.mark.parametrize("text", HOSTILE)
async def test_no_text_is_read_as_syntax(memory: AgentMemory, text: str) -> None:
    await memory.save(ANN, "k", "word")
    await memory.save(ANN, "other", "nothing")
    found = keys(await memory.search(ANN, text))
    assert found == (["k"] if "word" in text else [])


@given(st.lists(st.text(max_size=30), max_size=8))
def test_every_query_is_one_that_the_index_takes(texts: list[str]) -> None:
    """Over the real tokenizer: whatever the text, it is searched for or finds nothing."""
    connection = sqlite3.connect(":memory:")
    schema = next(m.sql for m in packaged() if "memories_index" in m.sql)
    connection.executescript(schema)
    for text in texts:
        for query in queries(MemoryOwner("agt_ann", 'Rôle "x"'), words(text), kind=MemoryKind.FACT):
            connection.execute(
                "SELECT rowid FROM memories_index WHERE memories_index MATCH ?",
                (query,),
            ).fetchall()
    connection.close()


def test_a_text_that_is_no_search_is_searched_by_its_telling_words() -> None:
    text = "Kannst du mir bitte sagen, what the weather in Bern will be? 12 月"
    assert words(text, telling=True) == ("sagen", "weather", "Bern", "月")
    assert len(words(" ".join(f"w{n}" for n in range(100)))) == 32
    assert words("word WORD Word") == ("word",)


# -- order -----------------------------------------------------------------------------------------


def test_confidence_halves_every_ninety_days_and_use_adds_slowly() -> None:
    assert weight(0.8, 0, 0, 0) == pytest.approx(0.8)
    assert weight(0.8, 0, 0, HALF_LIFE_MS) == pytest.approx(0.4)
    assert weight(0.8, 0, 0, 2 * HALF_LIFE_MS) == pytest.approx(0.2)
    assert weight(0.0, 1, 0, 0) == pytest.approx(0.6931, abs=1e-4)
    assert weight(0.8, 0, 5, 0) == pytest.approx(0.8), "a clock that went back ages nothing"


def _entry(key: str, **more: object) -> MemoryEntry:
    facts: dict[str, object] = {
        "seq": 1,
        "memory_id": key,
        "agent_id": "a",
        "scope": MemoryScope.INSTANCE,
        "kind": MemoryKind.FACT,
        "key": key,
        "content": "c",
        "tags": (),
        "confidence": 0.5,
        "use_count": 0,
        "pinned": False,
        "role": "",
        "created_at": 0,
        "updated_at": 0,
        "touched_at": 0,
        **more,
    }
    return MemoryEntry(**facts)  # type: ignore[arg-type]  # spelled out above


def test_the_better_standing_wins_among_equal_fits_and_a_much_better_fit_wins_anyway() -> None:
    sure, used = _entry("sure", confidence=0.9), _entry("used", use_count=20)
    plain = _entry("plain")
    assert keys(ranked([(plain, -1.0), (sure, -1.0), (used, -1.0)], 0)) == ["used", "sure", "plain"]
    assert keys(ranked([(used, -1.0), (plain, -9.0)], 0)) == ["plain", "used"]
    assert keys(ranked([(plain, -1e-6), (sure, -1e-6)], 0)) == ["sure", "plain"]
    assert ranked([], 0) == []


# -- changing --------------------------------------------------------------------------------------


async def test_forgetting_takes_one_key_of_one_agent(
    memory: AgentMemory, database: Database
) -> None:
    for scope in ("instance", "global"):
        await memory.save(ANN, "tea", "word", scope=scope)
    await memory.save(BEN, "tea", "word")
    assert len(await memory.forget("agt_ann", PersonKey("", "tea", MemoryScope.GLOBAL))) == 1
    assert len(await memory.forget("agt_ann", PersonKey("", "TEA"))) == 1
    assert len(await memory.forget("agt_ann", PersonKey("", "tea"))) == 0
    assert await memory.search(ANN, "word") == []
    assert keys(await memory.search(BEN, "word")) == ["tea"]
    await _index_is_sound(database)


async def test_what_is_not_there_can_be_neither_shown_nor_pinned(memory: AgentMemory) -> None:
    with pytest.raises(NotFound, match="nothing is remembered under 'tea'"):
        await memory.under_key("agt_ann", "tea")
    with pytest.raises(NotFound):
        await memory.pin("agt_ann", PersonKey("", "tea"))
    with pytest.raises(BadRequest):
        await memory.forget("agt_ann", PersonKey("", " "))


async def test_a_backup_searches_as_the_store_did(memory: AgentMemory, tmp_path: Path) -> None:
    await memory.save(ANN, "gone", "word")
    await memory.save(ANN, "kept", "word")
    await memory.forget("agt_ann", PersonKey("", "gone"))
    database: Database = memory.database
    path = await database.back_up()
    clock = SystemClock()
    copy = await Database.open(Path(str(path)), clock=clock)
    try:
        twin = AgentMemory(copy, clock, SystemEntropy(clock))
        assert keys(await twin.search(ANN, "word")) == ["kept"]
        await _index_is_sound(copy)
    finally:
        await copy.close()


async def _index_is_sound(database: Database) -> None:
    """The index holds what the table holds; raises otherwise."""
    await database.write(
        lambda tx: tx.execute(
            "INSERT INTO memories_index (memories_index, rank) VALUES ('integrity-check', 1)"
        )
    )
