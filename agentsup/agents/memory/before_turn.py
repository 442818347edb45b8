"""What happens before a turn: a session that is too long is shortened, and what fits is remembered.

The turn holds its session meanwhile, so nobody else writes to it. The summary and the end of the
engine's own state, which holds the same history, are one transaction: after a stop or a kill there
is the history of before or the shortened one, each of whole turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentsup.agents import transcript
from agentsup.agents.memory import rows, telling
from agentsup.agents.memory.compaction import Shortening, is_too_long, shortening
from agentsup.agents.memory.entry import Entry, Owner
from agentsup.agents.memory.notes_file import NotesFiles
from agentsup.agents.memory.ranking import words
from agentsup.agents.memory.summariser import EngineSummariser, Excerpts, Summariser
from agentsup.agents.memory.tokens import BYTES_PER_TOKEN, tokens_of_bytes
from agentsup.agents.transcript import SessionSize
from agentsup.kit.clock import Clock
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec, Usage
from agentsup.model.errors import EngineFailed, Overloaded, StoreCorrupt, StoreUnavailable
from agentsup.observe.logging import get_logger
from agentsup.store.database import Database, Reader, Tx

_log = get_logger(__name__)

RETRY_S = 600.0
"""How long a session whose summary failed is left alone."""
_KNOWN_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The turn that is about to begin."""

    agent_id: str
    session_id: str
    person: str
    """Whose work it is."""
    text: str
    spec: AgentSpec
    engine: Engine
    engine_spec: Callable[[], EngineSpec]
    usage: list[Usage]
    """Collects what a summary costs."""
    may_shorten: bool = True
    """Not where a turn goes on: what it was given stays."""


@dataclass(frozen=True, slots=True)
class _Seen:
    entries: list[Entry]
    size: SessionSize


class BeforeTurn:
    """Serves every turn of the daemon."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        notes_of: Callable[[str], Path],
        name_of: Callable[[str], str],
        notes: NotesFiles | None = None,
    ) -> None:
        """``notes_of`` tells an agent's MEMORY.md by its name, ``name_of`` its name by its id;
        ``notes`` reads."""
        self._notes = notes or NotesFiles()
        self._database = database
        self._clock = clock
        self._notes_of = notes_of
        self._name_of = name_of
        self._failed: dict[str, float] = {}

    async def prepare(self, turn: Upcoming) -> str:
        """Shorten the session if it is too long; what the agent remembers, for its prompt.

        Memory that can't be read costs the turn nothing but the memory.
        """
        given = turn.spec.memory
        try:
            seen = await self._database.read(partial(self._look, turn), name="memory.before_turn")
        except (StoreUnavailable, StoreCorrupt, Overloaded) as error:
            _log.warning("a turn goes without its memory", reason=error.message)
            return ""
        from_state = _keeps_history(turn.engine)
        if turn.may_shorten and is_too_long(seen.size, given.history_tokens, from_state=from_state):
            await self._shorten(turn)
        blocks = []
        if given.notes_tokens:
            path, most = self._notes_of(turn.spec.name), given.notes_tokens * BYTES_PER_TOKEN
            text = await self._notes.read(path, most) or ""
            blocks.append(telling.notes(text, given.notes_tokens))
        named = (
            (e, "" if e.agent_id == turn.agent_id else self._name_of(e.agent_id))
            for e in seen.entries
        )
        blocks.append(telling.remembered(named, given.recall_tokens, person=turn.person))
        return "\n\n".join(block for block in blocks if block)

    async def shorten(self, turn: Upcoming) -> bool:
        """Make the session shorter than it is, because it was too long for the model; whether it
        is shorter now. No model is asked for the summary."""
        try:
            size = await self._database.read(
                lambda r: transcript.size_of(r, turn.session_id, turn.engine.name),
                name="memory.size",
            )
            previous, entries = await self._database.read(
                partial(transcript.uncovered, session_id=turn.session_id), name="memory.uncovered"
            )
        except (StoreCorrupt, Overloaded) as error:
            _log.warning("a session can't be shortened", reason=error.message)
            return False
        length = tokens_of_bytes(max(size.text_bytes + size.summary_bytes, size.state_bytes))
        wanted = shortening(previous, entries, max(1, length // 2))
        if wanted is None and not size.state_bytes:
            return False
        by = Excerpts()
        text = await by.summarise(wanted) if wanted is not None else ""

        def commit(tx: Tx) -> None:
            self._commit(turn, wanted, text, by.name, tx)
            transcript.drop_state_tx(tx, turn.session_id)

        await self._database.write(commit, name="memory.shorten")
        _log.info("session shortened", turns=len(wanted.turns) if wanted else 0, by=by.name)
        return True

    def _look(self, turn: Upcoming, reader: Reader) -> _Seen:
        given, entries = turn.spec.memory, list[Entry]()
        if given.recall_tokens and given.recall_entries:
            entries = rows.search(
                reader,
                Owner(turn.agent_id, turn.spec.role or "", person=turn.person),
                words(turn.text, telling=True),
                now=self._clock.now_ms(),
                limit=given.recall_entries,
            )
        return _Seen(entries, transcript.size_of(reader, turn.session_id, turn.engine.name))

    # -- a session that is too long ------------------------------------------------------------------

    async def _shorten(self, turn: Upcoming) -> None:
        """One attempt, within its time. What fails leaves the session as it was, for a while."""
        now_s = self._clock.monotonic()
        if self._failed.get(turn.session_id, 0.0) > now_s:
            return
        budget = turn.spec.memory.history_tokens
        previous, entries = await self._database.read(
            partial(transcript.uncovered, session_id=turn.session_id), name="memory.uncovered"
        )
        wanted, by = shortening(previous, entries, budget), self._summariser(turn)
        if wanted is None and not _keeps_history(turn.engine):
            return
        text = ""
        if wanted is not None:
            try:
                text = await by.summarise(wanted)
            except (EngineFailed, TimeoutError) as error:
                if len(self._failed) >= _KNOWN_FAILURES:
                    self._failed.clear()
                self._failed[turn.session_id] = now_s + RETRY_S
                _log.warning("a session could not be summarised", reason=str(error) or "too slow")
                return
        await self._database.write(
            partial(self._commit, turn, wanted, text, by.name), name="memory.shorten"
        )
        self._failed.pop(turn.session_id, None)
        _log.info("session shortened", turns=len(wanted.turns) if wanted else 0, by=by.name)

    def _summariser(self, turn: Upcoming) -> Summariser:
        """The agent's engine, if it is wanted and does nothing but think."""
        given = turn.spec.memory
        if given.summariser == "engine" and turn.engine.caps.only_thinks:
            return EngineSummariser(
                turn.engine,
                turn.engine_spec(),
                timeout_s=given.summary_timeout_s,
                input_tokens=given.history_tokens,
                usage=turn.usage,
            )
        return Excerpts()

    def _commit(
        self, turn: Upcoming, wanted: Shortening | None, text: str, by: str, tx: Tx
    ) -> None:
        if wanted is not None:
            transcript.summarise_tx(
                tx,
                turn.session_id,
                text=text,
                upto_id=wanted.upto_id,
                turns=len(wanted.turns),
                made_by=by,
                at=self._clock.now_ms(),
            )
        if _keeps_history(turn.engine):
            transcript.drop_state_tx(tx, turn.session_id)


def _keeps_history(engine: Engine) -> bool:
    return engine.caps.state_is_history
