"""Which entries fit a text, and in what order. Pure: words, index queries, scores.

The index is asked with quoted words only, so nothing that anybody writes is read as its syntax.
Who may see an entry is part of the same query: each entry carries words for its readers in a column
of its own, so that a search walks the entries of one agent and not those of all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from agentsup.agents.memory.entry import Entry, Kind, Owner, Scope
from agentsup.kit.normal_form import normal_form

HALF_LIFE_MS = 90 * 24 * 3600 * 1000
MAX_WORDS = 32
MAX_WORD_CHARS = 64
_PREFIX_FROM = 4
"""Words this long also find longer ones that begin with them."""
_STANDING_WEIGHT = 0.25
"""How much standing counts beside the fit of the words, so that what is used often does not hide
what fits better."""
_SEARCHED_CHARS = 20_000
"""Of a text that is long; its first words tell what it is about."""
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


def words(text: str, *, telling: bool = False) -> tuple[str, ...]:
    """The words of a text to search by, each once, in order.

    ``telling`` leaves out short and common ones: for a text that is no search by itself.
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


# -- who may read, as words of the index ------------------------------------------------------------


def _word_of(mark: str, text: str) -> str:
    return mark + text.casefold().encode("utf-8", "replace").hex()


def audience(owner: Owner, scope: Scope, kind: Kind, *, is_shared: bool = False) -> str:
    """The words under which the index finds an entry for its readers: whose it is, of what kind,
    for whose work it was saved; and, once an operator has shared it, whom its scope names."""
    found = [_word_of("a", owner.agent_id), _word_of("k", kind.value), _word_of_person(owner)]
    if is_shared and scope is Scope.AGENT:
        found.append(_word_of("i", owner.agent_id))
    elif is_shared and scope is Scope.TYPE:
        found.append(_word_of("r", owner.role))
    elif is_shared and scope is Scope.GLOBAL:
        found.append("g")
    return " ".join(found)


def _word_of_person(owner: Owner) -> str:
    """The agent and the person together: one word, as they are one reader."""
    return f"{_word_of('p', owner.agent_id)}{_word_of('x', owner.person)}"


def queries(
    owner: Owner, wanted: tuple[str, ...], *, kind: Kind | None = None, own_only: bool = False
) -> tuple[str, ...]:
    """One query per tier, the nearest first: what was saved in this person's work, what is shared
    with all of the agent's, with those of the same role, with everybody. ``own_only``: all that the
    agent has, for operators who look."""
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


def standing(confidence: float, use_count: int, updated_at: int, now_ms: int) -> float:
    """What an entry is worth by itself: its confidence, halved every 90 days, and its use."""
    age = max(0, now_ms - updated_at) / HALF_LIFE_MS
    return float(confidence * 0.5**age + math.log1p(use_count))


def standing_of(entry: Entry, now_ms: int) -> float:
    """The same of an entry as it is kept."""
    return standing(entry.confidence, entry.use_count, entry.updated_at, now_ms)


def ranked(found: Iterable[tuple[Entry, float]], now_ms: int) -> list[Entry]:
    """Entries of one tier, the best first. ``found`` has each with its ``bm25``, where less is
    better; only the ratio to the best counts, because its size depends on how many there are."""
    pairs = list(found)
    best = min((rank for _, rank in pairs), default=0.0)

    def score(pair: tuple[Entry, float]) -> tuple[float, int]:
        entry, rank = pair
        fit = rank / best if best < 0 else 1.0
        return fit * (1 + _STANDING_WEIGHT * standing_of(entry, now_ms)), entry.updated_at

    return [entry for entry, _ in sorted(pairs, key=score, reverse=True)]
