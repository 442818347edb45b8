"""Texts about budgets, in the reader's language. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from agentsup.catalogue import LocalizedTexts, words
from agentsup.mailbox.usage.budget import (
    NANO,
    SETTINGS,
    USD,
    BudgetNotice,
    BudgetScope,
    LimitExceededBy,
    ScopeKind,
)

_OF_DAEMON = (ScopeKind.DAEMON_DAY, ScopeKind.DAEMON_MONTH)


def money(usd: float) -> str:
    """US dollars as text, such as $12.50 or $0.0102; small amounts keep their digits."""
    text = f"{usd:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part.ljust(2, '0')}" if abs(usd) < 1 else f"${usd:.2f}"


def amount(number: int, unit: str, say: LocalizedTexts) -> str:
    """An amount of money (``number`` in billionths of a dollar) or of tokens, as text."""
    return money(number / NANO) if unit == USD else say("budget.tokens", n=f"{number:,}")


def scope_name(scope: BudgetScope, name: str, say: LocalizedTexts) -> str:
    """The scope of a limit as text; ``name`` is the name of the agent or of the subject."""
    return say(f"budget.{scope.kind.value}", name=name)


def setting_of(scope: BudgetScope, unit: str) -> str:
    """The setting that limits a scope; empty if there is none."""
    stem = SETTINGS[scope.kind]
    return f"{stem}_{unit}" if stem else ""


def refusal(
    one: LimitExceededBy, *, name: str, zone: tzinfo | None, language: str, has_begun: bool = False
) -> str:
    """Why a turn is refused or ended: what is used up, when it is free again, and what to do."""
    say, scope = words(language), one.limit.scope
    facts = {
        "scope": scope_name(scope, name, say),
        "used": amount(one.used, one.unit, say),
        "most": amount(one.most, one.unit, say),
        "held": amount(one.reserved, one.unit, say),
    }
    if has_begun:
        key = "budget.ended"
    elif one.by_holds:
        return say("budget.all_held", **facts)
    else:
        key = "budget.refused" if one.used >= one.most else "budget.too_little"
    return " ".join((say(key, **facts), *_what_to_do(scope, one.unit, zone, say)))


def notice(one: BudgetNotice, *, name: str, zone: tzinfo | None) -> str:
    """The notice for operators that a budget is used up or nearly used up."""
    say = words()
    text = say(
        f"budget.{one.level}",
        scope=scope_name(one.scope, name, say),
        used=amount(one.used, one.unit, say),
        most=amount(one.most, one.unit, say),
        percent=one.used * 100 // one.most if one.most else 100,
    )
    lines, setting = [text], setting_of(one.scope, one.unit)
    if one.scope.until is not None:
        lines.append(say("budget.renewed", when=when(one.scope.until, zone)))
    if setting:
        lines.append(say("budget.change", setting=setting, file=_file_of(one.scope)))
    return " ".join(lines)


def when(at: int, zone: tzinfo | None) -> str:
    """``at`` (wall-clock ms) as local time in ``zone``: 2027-01-17 00:00 CET."""
    here = datetime.fromtimestamp(at / 1000, tz=UTC).astimezone(zone)
    return f"{here:%Y-%m-%d %H:%M %Z}".strip()


def _what_to_do(
    scope: BudgetScope, unit: str, zone: tzinfo | None, say: LocalizedTexts
) -> list[str]:
    lines = []
    if scope.until is not None:
        lines.append(say("budget.free_at", when=when(scope.until, zone)))
    if setting := setting_of(scope, unit):
        return [*lines, say("budget.raise", setting=setting, file=_file_of(scope))]
    return [*lines, say("budget.raise_row")]


def _file_of(scope: BudgetScope) -> str:
    return "config.toml" if scope.kind in _OF_DAEMON else "agents.json"
