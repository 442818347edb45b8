"""Prepares a turn: shortens a session that is too long, and finds the memory entries that fit.

The turn holds its session meanwhile, so nobody else writes to the session. The summary is written
and the engine's own state, which holds the same history, is dropped in one transaction: after a
stop or a kill the session has either its old history or the shortened one, each of whole turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentsup.agents.memory import rows, texts, transcript
from agentsup.agents.memory.compaction import (
    Shortening,
    engine_summary,
    excerpts,
    history_budget,
    is_too_long,
    shortening,
)
from agentsup.agents.memory.entry import MemoryEntry, MemoryOwner
from agentsup.agents.memory.ranking import words
from agentsup.agents.memory.texts import BYTES_PER_TOKEN, KnownNotes, tokens_of_bytes
from agentsup.agents.memory.transcript import StoredSession
from agentsup.kit.clock import Clock
from agentsup.kit.log import get_logger
from agentsup.mailbox.messages import sessions
from agentsup.model.agent import AgentSpec
from agentsup.model.engine import Engine, EngineSpec, Usage
from agentsup.model.errors import EngineFailed, Overloaded, StoreCorrupt, StoreUnavailable
from agentsup.model.message import Message
from agentsup.store import Database, Reader, Tx

_log = get_logger(__name__)

RETRY_S = 600.0
"""Seconds until the next attempt to summarise a session whose summary failed."""
_KNOWN_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class TurnPreparation:
    """The turn that is about to begin."""

    agent_id: str
    """The agent that does the turn."""
    message: Message
    spec: AgentSpec
    engine: Engine
    engine_spec: Callable[[], EngineSpec]
    usage: list[Usage]
    """Collects what a summary costs."""
    may_shorten: bool = True
    """False if a turn is resumed: it keeps the history with which it began."""

    @property
    def history_tokens(self) -> int:
        """The longest history of the session: the setting's, or less if less is served."""
        served = self.engine.caps.served(self.engine_spec())
        return history_budget(self.spec.memory.history_tokens, served.tokens if served else None)


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The stored facts for a turn: memory entries that fit the message, and the session."""

    entries: Sequence[MemoryEntry]
    session: StoredSession


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """``notes`` is the text of MEMORY.md, which seldom changes; ``recalled`` are the entries that
    fit the message."""

    notes: str
    recalled: str
    session: StoredSession


class TurnPreparer:
    """Prepares every turn of the daemon."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        notes: KnownNotes,
        name_of: Callable[[str], str],
    ) -> None:
        """``notes`` are the MEMORY.md files. ``name_of`` gives an agent's name by its id."""
        self._notes = notes
        self._database = database
        self._clock = clock
        self._name_of = name_of
        self._failed: dict[str, float] = {}

    async def prepare(self, turn: TurnPreparation, start: TurnStart | None = None) -> PreparedTurn:
        """Shorten the session if it is too long, and find the memory texts for the prompt.

        ``start`` is what ``read_stored`` has read. If the memory can't be read, the turn runs
        without it.
        """
        given, session_id = turn.spec.memory, turn.message.session_id
        if start is None:
            start = await self._read(turn)
        entries, session = start.entries, start.session
        from_state = turn.engine.caps.state_is_history
        size = session.size_for(turn.engine.name)
        if (
            turn.may_shorten
            and is_too_long(size, turn.history_tokens, from_state=from_state)
            and await self._shorten(turn)
        ):
            session = await self._database.read(
                transcript.read_session, session_id, name="memory.session"
            )
        notes = ""
        if given.notes_tokens:
            most = given.notes_tokens * BYTES_PER_TOKEN
            text = await self._notes.text(turn.spec.name, most)
            notes = texts.notes(text, given.notes_tokens)
        named = (
            (e, "" if e.agent_id == turn.agent_id else self._name_of(e.agent_id)) for e in entries
        )
        recalled = texts.remembered(named, given.recall_tokens, person=turn.message.person)
        return PreparedTurn(notes, recalled, session)

    async def _read(self, turn: TurnPreparation) -> TurnStart:
        message = turn.message
        try:
            return await self._database.read(
                self.read_stored, turn.agent_id, turn.spec, message, name="memory.before_turn"
            )
        except (StoreUnavailable, StoreCorrupt, Overloaded) as error:
            _log.warning("a turn goes without its memory", reason=error.message)
        session = await self._database.read(
            transcript.read_session, message.session_id, name="memory.session"
        )
        return TurnStart((), session)

    async def shorten(self, turn: TurnPreparation) -> bool:
        """Shorten a session that was too long for the model; whether it is shorter now.

        The summary is made without a model.
        """
        try:
            session = await self._database.read(
                transcript.read_session, turn.message.session_id, name="memory.session"
            )
            previous, entries = await self._database.read(
                transcript.uncovered, turn.message.session_id, name="memory.uncovered"
            )
        except (StoreCorrupt, Overloaded) as error:
            _log.warning("a session can't be shortened", reason=error.message)
            return False
        size = session.size_for(turn.engine.name)
        length = tokens_of_bytes(max(size.text_bytes + size.summary_bytes, size.state_bytes))
        wanted = shortening(previous, entries, max(1, length // 2))
        if wanted is None and not size.state_bytes:
            return False
        text = excerpts(wanted) if wanted is not None else ""
        await self._store(turn, wanted, text, "excerpts", drops_state=True)
        return True

    def read_stored(
        self, reader: Reader, agent_id: str, spec: AgentSpec, message: Message
    ) -> TurnStart:
        """Read what ``prepare`` needs, for a turn that the agent of ``spec`` does."""
        given, entries = spec.memory, list[MemoryEntry]()
        if given.recall_tokens and given.recall_entries:
            entries = rows.search(
                reader,
                MemoryOwner(agent_id, spec.role or "", person=message.person),
                words(message.text, telling=True),
                now=self._clock.now_ms(),
                limit=given.recall_entries,
            )
        return TurnStart(entries, transcript.read_session(reader, message.session_id))

    # -- a session that is too long ------------------------------------------------------------------

    async def _shorten(self, turn: TurnPreparation) -> bool:
        """Try once to shorten the session; whether it changed. After a failure nothing changes for
        ``RETRY_S``."""
        now_s = self._clock.monotonic()
        if self._failed.get(turn.message.session_id, 0.0) > now_s:
            return False
        given = turn.spec.memory
        previous, entries = await self._database.read(
            transcript.uncovered, turn.message.session_id, name="memory.uncovered"
        )
        wanted = shortening(previous, entries, turn.history_tokens)
        keeps_history = turn.engine.caps.state_is_history
        if wanted is None and not keeps_history:
            return False
        uses_engine = given.summariser == "engine" and turn.engine.caps.only_thinks
        text = ""
        if wanted is not None:
            try:
                text = await _by_engine(turn, wanted) if uses_engine else excerpts(wanted)
            except (EngineFailed, TimeoutError) as error:
                if len(self._failed) >= _KNOWN_FAILURES:
                    self._failed.clear()
                self._failed[turn.message.session_id] = now_s + RETRY_S
                _log.warning("a session could not be summarised", reason=str(error) or "too slow")
                return False
        by = "engine" if uses_engine else "excerpts"
        await self._store(turn, wanted, text, by, drops_state=keeps_history)
        self._failed.pop(turn.message.session_id, None)
        return True

    async def _store(
        self,
        turn: TurnPreparation,
        wanted: Shortening | None,
        text: str,
        by: str,
        *,
        drops_state: bool,
    ) -> None:
        def commit(tx: Tx) -> None:
            if wanted is not None:
                transcript.summarise_tx(
                    tx,
                    turn.message.session_id,
                    text=text,
                    upto_id=wanted.upto_id,
                    turns=len(wanted.turns),
                    made_by=by,
                    at=self._clock.now_ms(),
                )
            if drops_state:
                sessions.drop_engine_state_tx(tx, turn.message.session_id)

        await self._database.write(commit, name="memory.shorten")
        _log.info("session shortened", turns=len(wanted.turns) if wanted else 0, by=by)


async def _by_engine(turn: TurnPreparation, wanted: Shortening) -> str:
    given = turn.spec.memory
    return await engine_summary(
        wanted,
        turn.engine,
        turn.engine_spec(),
        timeout_s=given.summary_timeout_s,
        input_tokens=turn.history_tokens,
        usage=turn.usage,
    )
