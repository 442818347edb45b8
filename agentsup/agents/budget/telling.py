"""What people read of budgets, in their language. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from agentsup.catalogue import Words, words
from agentsup.mailbox.budget.decide import USD, Over
from agentsup.mailbox.budget.ledger import Notice
from agentsup.mailbox.budget.scopes import NANO, SETTINGS, Scope, ScopeKind

_OF_DAEMON = (ScopeKind.DAEMON_DAY, ScopeKind.DAEMON_MONTH)


def money(usd: float) -> str:
    """US dollars with as many digits as matter: $12.50, $0.0102."""
    text = f"{usd:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part.ljust(2, '0')}" if abs(usd) < 1 else f"${usd:.2f}"


def amount(number: int, unit: str, say: Words) -> str:
    """So much money or so many tokens; money in billionths of a dollar."""
    return money(number / NANO) if unit == USD else say("budget.tokens", n=f"{number:,}")


def scope_name(scope: Scope, name: str, say: Words) -> str:
    """What a limit bounds; ``name`` is the agent's or the subject's."""
    return say(f"budget.{scope.kind.value}", name=name)


def setting_of(scope: Scope, unit: str) -> str:
    """The setting that bounds a scope; empty where none does."""
    stem = SETTINGS[scope.kind]
    return f"{stem}_{unit}" if stem else ""


def refusal(
    one: Over, *, name: str, zone: tzinfo | None, language: str, has_begun: bool = False
) -> str:
    """Why a turn is not begun, or is ended: what is used up, when it is free again, what to do."""
    say, scope = words(language), one.limit.scope
    facts = {
        "scope": scope_name(scope, name, say),
        "used": amount(one.used, one.unit, say),
        "most": amount(one.most, one.unit, say),
        "held": amount(one.held, one.unit, say),
    }
    if has_begun:
        key = "budget.ended"
    elif one.by_holds:
        return say("budget.all_held", **facts)
    else:
        key = "budget.refused" if one.used >= one.most else "budget.too_little"
    return " ".join((say(key, **facts), *_what_to_do(scope, one.unit, zone, say)))


def notice(one: Notice, *, name: str, zone: tzinfo | None) -> str:
    """What operators are told of a scope that runs low."""
    say = words()
    told = say(
        f"budget.{one.level}",
        scope=scope_name(one.scope, name, say),
        used=amount(one.used, one.unit, say),
        most=amount(one.most, one.unit, say),
        percent=one.used * 100 // one.most if one.most else 100,
    )
    lines, setting = [told], setting_of(one.scope, one.unit)
    if one.scope.until is not None:
        lines.append(say("budget.renewed", when=when(one.scope.until, zone)))
    if setting:
        lines.append(say("budget.change", setting=setting, file=_file_of(one.scope)))
    return " ".join(lines)


def when(at: int, zone: tzinfo | None) -> str:
    """A moment on the clock of the people: 2027-01-17 00:00 CET."""
    here = datetime.fromtimestamp(at / 1000, tz=UTC).astimezone(zone)
    return f"{here:%Y-%m-%d %H:%M %Z}".strip()


def _what_to_do(scope: Scope, unit: str, zone: tzinfo | None, say: Words) -> list[str]:
    lines = []
    if scope.until is not None:
        lines.append(say("budget.free_at", when=when(scope.until, zone)))
    setting = setting_of(scope, unit)
    if not setting:
        lines.append(say("budget.raise_row"))
    else:
        lines.append(say("budget.raise", setting=setting, file=_file_of(scope)))
    return lines


def _file_of(scope: Scope) -> str:
    return "config.toml" if scope.kind in _OF_DAEMON else "agents.json"
