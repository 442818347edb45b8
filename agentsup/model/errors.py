"""The error tree. The *type* decides what happens next; nothing matches on message text.

Every error carries ``code`` (stable, for programs), a message for the person who reads it, and
``facts``, which become log fields and members of an RFC 9457 problem document. ``status`` is the
HTTP status of the internal API's answer.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

TURN_TIMED_OUT: Final = "turn_timed_out"
PROVIDER_TIMED_OUT: Final = "timeout"
SERVER_TIMED_OUT: Final = "mcp_timeout"
TIMEOUT_CODES: Final = frozenset(
    {"timed_out", TURN_TIMED_OUT, PROVIDER_TIMED_OUT, SERVER_TIMED_OUT}
)
"""The codes of all errors that say that something took too long. Classes of higher packages are among
them, so that statistics over stored codes need no words of those codes."""


class AgentsupError(Exception):
    """Root of all errors that agentsup raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts


# -- configuration -------------------------------------------------------------------------------


class ConfigError(AgentsupError):
    """A file or setting is wrong. ``path, line, column, field, hint`` say where and what to do."""

    code = "config_invalid"
    status = 400

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, line=line, column=column, field=field, hint=hint)
        self.path, self.line, self.column = path, line, column
        self.field, self.hint = field, hint

    def __str__(self) -> str:
        where = self.path or ""
        if self.line is not None:
            where += f":{self.line}" + (f":{self.column}" if self.column is not None else "")
        field = "" if self.field == WHOLE_FILE else self.field
        parts = [f"{where}: " if where else "", f"{field}: " if field else ""]
        parts += [self.message, f" ({self.hint})" if self.hint else ""]
        return "".join(parts)


WHOLE_FILE = "(file)"
"""The field of a finding that concerns the whole file."""


class ConfigErrors(AgentsupError):
    """Several findings of one load; nothing was applied."""

    code = "config_invalid"
    status = 400

    def __init__(self, findings: tuple[ConfigError, ...]) -> None:
        super().__init__("; ".join(str(f) for f in findings) or "no findings")
        self.findings = findings


# -- refusals: the caller can act on them ----------------------------------------------------------


class Refused(AgentsupError):
    """The request was understood but not accepted. Nothing was stored."""

    code = "refused"
    status = 400


class BadRequest(Refused):
    """A field is missing or wrong; ``field`` names it."""

    code = "bad_request"
    status = 400


class Unauthorised(Refused):
    """No valid token."""

    code = "unauthorised"
    status = 401


class Forbidden(Refused):
    """The principal may not do this."""

    code = "forbidden"
    status = 403


class RightsLost(Forbidden):
    """The person who asked for the work no longer has the rights for it.

    ``reason`` is removed | viewer | shared | unknown; ``who`` is the person.
    """

    code = "rights_lost"


class NotFound(Refused):
    """The named thing does not exist; ``did_you_mean`` may hold a similar name."""

    code = "not_found"
    status = 404


class NoAgentForRole(NotFound):
    """No agent has the ``role`` (in that ``team``, if one was given)."""

    code = "no_agent_for_role"


class NobodyThere(NotFound):
    """The team (``team``) has no members but the sender."""

    code = "nobody_there"


class Gone(Refused):
    """The thing existed and was removed."""

    code = "gone"
    status = 410


class Conflict(Refused):
    """The state does not allow it (also: an idempotency key was used with another body)."""

    code = "conflict"
    status = 409


class MayNotManageBots(Conflict):
    """main's bot may not create bots of others, until a switch at BotFather is on."""

    code = "may_not_manage_bots"


class NotSeen(Conflict):
    """The call was shown only in part, or has changed since it was shown."""

    code = "not_seen"


class NotConfirmed(Conflict):
    """An approval of every command was not confirmed a second time."""

    code = "not_confirmed"


class TooLarge(Refused):
    """The body or a part of it is over its limit."""

    code = "too_large"
    status = 413


class QuotaExceeded(Refused):
    """The person's storage quota is used up; they must remove something first."""

    code = "quota_exceeded"
    status = 413


class Overloaded(Refused):
    """A bounded queue is full: ``queue``, ``size``, ``limit``. Try later."""

    code = "overloaded"
    status = 429


class BudgetExceeded(Refused):
    """A budget would be exceeded."""

    code = "budget_exceeded"
    status = 429


class LoopDetected(Refused):
    """The request would go to an agent on its own path, or to its sender."""

    code = "loop_detected"
    status = 409


class DepthExceeded(Refused):
    """The request is too deep, or its root has too many messages."""

    code = "depth_exceeded"
    status = 409


class WouldDeadlock(Refused):
    """The wait would close a cycle of waits."""

    code = "would_deadlock"
    status = 409


class AgentDown(Refused):
    """The agent is stopped or failed, and the caller wants an answer now."""

    code = "agent_down"
    status = 409


# -- time and availability ---------------------------------------------------------------------------


class NotReady(AgentsupError):
    """The daemon is starting or draining. Retry after ``retry_after_s``."""

    code = "not_ready"
    status = 503


class TimedOut(AgentsupError):
    """The caller's wait ended; the work itself continues (``message_id``)."""

    code = "timed_out"
    status = 504


class StoreUnavailable(AgentsupError):
    """The database can't be written or read now; nothing was acknowledged."""

    code = "store_unavailable"
    status = 503


class StoreCorrupt(AgentsupError):
    """The database failed its check; the daemon refuses to start on it."""

    code = "store_corrupt"


class StoreLost(AgentsupError):
    """The store is not the one recorded for this home: missing, older, or without its log. The
    daemon refuses to start on it until it is restored or accepted."""

    code = "store_lost"


class SchemaTooNew(AgentsupError):
    """The database was written by a newer version."""

    code = "schema_too_new"


# -- work ------------------------------------------------------------------------------------------


class EngineFailed(AgentsupError):
    """An engine could not answer. A permanent failure leads to a notice, any other to a retry."""

    code = "engine_failed"
    status = 502

    def __init__(self, message: str, *, permanent: bool = True, **facts: Any) -> None:
        super().__init__(message, permanent=permanent, **facts)
        self.permanent = permanent


class LeaseLost(AgentsupError):
    """The fence moved: another owner has the message, or it was stopped. Drop the work."""

    code = "lease_lost"
    status = 409


class IllegalTransition(AgentsupError):
    """A state change that the transition table does not allow."""

    code = "illegal_transition"
    status = 409


# -- control flow ----------------------------------------------------------------------------------


class ExitRequested(AgentsupError):
    """A stack asks to end with ``exit_code``; 42 asks for a rebuild."""

    code = "exit_requested"

    def __init__(self, exit_code: int, reason: str = "") -> None:
        super().__init__(reason or f"asked to end with {exit_code}", exit_code=exit_code)
        self.exit_code = exit_code
