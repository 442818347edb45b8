"""Ranking of memory entries against a text, and of those that go from a full memory. Pure.

Queries contain quoted words only, so no text is read as query syntax. Who may see an entry is part
of the same query: each entry has words for its readers in a column of its own (``audience``), so
that a search reads the entries of one agent and not those of all.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from agentsup.agents.memory.entry import MemoryEntry, MemoryKind, MemoryOwner, MemoryScope
from agentsup.kit.text import normal_form

HALF_LIFE_MS = 90 * 24 * 3600 * 1000
MAX_WORDS = 32
MAX_WORD_CHARS = 64
_PREFIX_FROM = 4
"""Words of at least this many characters also match longer words that begin with them."""
_WEIGHT_SHARE = 0.25
"""Weight of an entry relative to the match of its words.

It is low, so that an entry that is often used does not hide one that matches better.
"""
_SEARCHED_CHARS = 20_000
"""Characters of a text that are searched for words; the first ones say what it is about."""
_WORD = re.compile(r"[^\W_]+")
_COMMON_TEXT = """
about after all also and any are but can could did does for from get had has have her him his
how into its just let like may more much not now one our out please she should some than that
the their them then there these they this was were what when where which who why will with
would you your
aber alle als auch auf aus bei bin bist bitte das dass dem den der des die dir doch ein eine
einen einer eines er für hat habe haben ich ihr ihre im in ist ja kann kannst man mein meine
mich mir mit nach nicht noch nun nur oder sein seine sich sie sind so über um und uns von vor
war was wenn wer wie wir wird wo zu zum zur
"""
_COMMON = frozenset(_COMMON_TEXT.split())
_AT_ONCE = 50
"""One in this many of a person's entries is dropped in addition, as room for the next saves."""


def words(text: str, *, telling: bool = False) -> tuple[str, ...]:
    """The words of a text to search by, each once, in order.

    ``telling`` leaves out short and common words: for a text that was not written as a search.
    """
    found: dict[str, str] = {}
    for word in _WORD.findall(normal_form(text[:_SEARCHED_CHARS])):
        plain = word.lower()
        if telling and ((len(word) < 3 and word.isascii()) or plain in _COMMON):
            continue
        found.setdefault(plain, word[:MAX_WORD_CHARS])
        if len(found) == MAX_WORDS:
            break
    return tuple(found.values())


# -- readers as words of the index -----------------------------------------------------------------


def _word_of(mark: str, text: str) -> str:
    return mark + text.casefold().encode("utf-8", "replace").hex()


def audience(
    owner: MemoryOwner, scope: MemoryScope, kind: MemoryKind, *, is_shared: bool = False
) -> str:
    """The words by which the index finds an entry for its readers.

    They stand for its agent, its kind, the person for whose work it was saved and, once an operator
    has shared it, the readers of its scope.
    """
    found = [_word_of("a", owner.agent_id), _word_of("k", kind.value), _word_of_person(owner)]
    if is_shared and scope is MemoryScope.AGENT:
        found.append(_word_of("i", owner.agent_id))
    elif is_shared and scope is MemoryScope.TYPE:
        found.append(_word_of("r", owner.role))
    elif is_shared and scope is MemoryScope.GLOBAL:
        found.append("g")
    return " ".join(found)


def _word_of_person(owner: MemoryOwner) -> str:
    """One word for the agent and the person together, since together they are one reader."""
    return f"{_word_of('p', owner.agent_id)}{_word_of('x', owner.person)}"


def queries(
    owner: MemoryOwner,
    wanted: tuple[str, ...],
    *,
    kind: MemoryKind | None = None,
    own_only: bool = False,
) -> tuple[str, ...]:
    """One query per tier, the nearest first; none without words.

    The tiers are: saved in this person's work, shared with all work of the agent, with agents of
    the same role, with every agent. ``own_only``: one query for all of the agent's entries, for
    operators who look at them.
    """
    if not wanted:
        return ()
    any_word = " OR ".join(_quoted(word) for word in wanted)
    text = f"{{key content tags}} : ({any_word})"
    if kind is not None:
        text = f"({_readable(_word_of('k', kind.value))} AND {text})"
    if own_only:
        return (f"{_readable(_word_of('a', owner.agent_id))} AND {text}",)
    readers = [_word_of_person(owner), _word_of("i", owner.agent_id)]
    if owner.role:
        readers.append(_word_of("r", owner.role))
    readers.append("g")
    own, tiers = _readable(readers[0]), list[str]()
    for reader in readers:
        tier = f"{_readable(reader)} AND {text}"
        tiers.append(f"({tier}) NOT {own}" if tiers else tier)
    return tuple(tiers)


def _readable(word: str) -> str:
    return f'({{audience}} : "{word}")'


def _quoted(word: str) -> str:
    """One word, never syntax; ``words`` yields letters and digits only."""
    return f'"{word}"*' if len(word) >= _PREFIX_FROM else f'"{word}"'


# -- order -----------------------------------------------------------------------------------------


def weight(confidence: float, use_count: int, updated_at: int, now_ms: int) -> float:
    """The value of an entry by itself: its confidence, halved every 90 days, plus its use."""
    age = max(0, now_ms - updated_at) / HALF_LIFE_MS
    return float(confidence * 0.5**age + math.log1p(use_count))


def ranked(found: Iterable[tuple[MemoryEntry, float]], now_ms: int) -> list[MemoryEntry]:
    """Sort the entries of one tier, the best first.

    ``found`` has each entry with its ``bm25``, where less is better. Only the ratio to the best one
    counts, because the size of ``bm25`` depends on the number of entries.
    """
    pairs = list(found)
    best = min((rank for _, rank in pairs), default=0.0)

    def score(pair: tuple[MemoryEntry, float]) -> tuple[float, int]:
        entry, rank = pair
        fit = rank / best if best < 0 else 1.0
        own = weight(entry.confidence, entry.use_count, entry.updated_at, now_ms)
        return fit * (1 + _WEIGHT_SHARE * own), entry.updated_at

    return [entry for entry, _ in sorted(pairs, key=score, reverse=True)]


class PersonShare(NamedTuple):
    """Number of a person's entries, and of those that may be dropped (``loose``)."""

    person: str
    entries: int
    loose: int


def entries_to_drop(
    stored: Iterable[PersonShare], saver: str, *, over: int, limit: int
) -> Counter[str]:
    """Entries to evict per person: from whoever holds most, the ``saver`` first on ties,
    and of any other person never below an equal share of ``limit``.

    It is ``over`` in all, and some more so that the next saves find room; or fewer than ``over`` if
    no more may be dropped.
    """
    of = {each.person: each for each in stored}
    part = limit // max(1, len(of))
    drops: Counter[str] = Counter()
    heap = [(-each.entries, each.person != saver, each.person) for each in of.values()]
    heapq.heapify(heap)
    while heap and drops.total() < over:
        fewer, is_other, person = heapq.heappop(heap)
        if drops[person] < of[person].loose and not (is_other and -fewer <= part):
            drops[person] += 1
            heapq.heappush(heap, (fewer + 1, is_other, person))
    for person, number in drops.items():
        _, entries, loose = of[person]
        spare = loose - number if person == saver else min(loose, entries - part) - number
        drops[person] += max(0, min(spare, entries // _AT_ONCE))
    return drops
