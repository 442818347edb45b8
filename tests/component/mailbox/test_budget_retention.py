"""Old rows of budgets go by the rules; sums stay, and nobody is told twice."""

from __future__ import annotations

from functools import partial

from agentsup.daemon.assembly.children import _keep_sums
from agentsup.mailbox.usage import reports
from agentsup.mailbox.usage.budget import (
    BudgetNotice,
    BudgetScope,
    Limit,
    ScopeKind,
    ledger,
    month_of,
)
from agentsup.mailbox.usage.budget.ledger import retention_rules
from agentsup.model.engine import Usage
from agentsup.store import Tx, prune
from tests.support.mailbox_fixture import MailboxFixture

DAY_S = 86_400
SUMS = (
    "SELECT agent_id, sum(nano_usd), sum(tokens) FROM budget_spent GROUP BY agent_id ORDER BY 1",
    (
        "SELECT agent_id, sum(CAST(round(coalesce(usd, 0.0) * 1e9) AS INTEGER)),"
        " sum(input_tokens + output_tokens) FROM usage GROUP BY agent_id ORDER BY 1"
    ),
)


async def spend(rig: MailboxFixture, agent_id: str, tokens: int, usd: float) -> None:
    at = rig.clock.now_ms()
    source = reports.UsageSource("m", agent_id, "s", "llm", "big")
    await rig.db.write(lambda tx: reports.record_tx(tx, Usage(tokens, 1, usd), source, at=at))


async def pruned(rig: MailboxFixture) -> dict[str, int]:
    rules = retention_rules(keep_days=1)
    return await prune(rig.db, rules, clock=rig.clock, on_pruned=_keep_sums, pause_s=0)


async def test_what_was_spent_is_folded_up_and_every_sum_stays(rig: MailboxFixture) -> None:
    for number in range(300):
        await spend(rig, "ab"[number % 2], number, 0.001 * number)
        rig.later(DAY_S / 2)
    month = month_of(rig.clock.now_ms(), None)
    limit = Limit(BudgetScope(ScopeKind.AGENT_MONTH, "a", *month), tokens=10**9)
    standing = await rig.db.read(lambda r: ledger.usages(r, None, [limit], boot_id="b"))
    for expected in (300, 2 + 124):
        rows = await rig.sql("SELECT agent_id, quarter FROM budget_spent")
        assert len(rows) == expected, "62 days at the least, whatever is said of messages"
        assert await rig.sql(SUMS[0]) == await rig.sql(SUMS[1])
        await pruned(rig)
    assert await rig.db.read(lambda r: ledger.usages(r, None, [limit], boot_id="b")) == standing
    assert (await pruned(rig))["budget_spent"] == 0
    await spend(rig, "a", 7, 0.5)
    rig.later(63 * DAY_S)
    await pruned(rig)
    assert await rig.sql(SUMS[0]) == await rig.sql(SUMS[1])
    assert len(await rig.sql("SELECT * FROM budget_spent")) == 2


def _note(tx: Tx, scope: BudgetScope, at: int) -> None:
    ledger.note_tx(tx, [BudgetNotice(scope, "warned", "tokens", 80, 100)], at=at)


async def test_what_was_told_goes_when_it_could_not_be_told_again(rig: MailboxFixture) -> None:
    root = (await rig.put("a request that is kept")).message_id
    at = rig.clock.now_ms()
    day_ms = DAY_S * 1000
    scopes = {
        "gone": BudgetScope(ScopeKind.AGENT_DAY, "gone", at, at + day_ms),
        "long": BudgetScope(ScopeKind.AGENT_DAY, "long", at, at + 90 * day_ms),
        "untold": BudgetScope(ScopeKind.AGENT_DAY, "untold", at, at + day_ms),
        "no root": BudgetScope(ScopeKind.TREE, "no root"),
        root: BudgetScope(ScopeKind.TREE, root),
        "team": BudgetScope(ScopeKind.TEAM, "team"),
        "old team": BudgetScope(ScopeKind.TEAM, "old team"),
    }

    def fill(tx: Tx) -> None:
        ledger.set_limit_tx(tx, ScopeKind.TEAM, "team", tokens=100, nano_usd=None, at=at)
        for scope in scopes.values():
            _note(tx, scope, at)
        tx.execute("UPDATE budget_notices SET told = 1 WHERE subject <> 'untold'")

    await rig.db.write(fill)
    assert (await pruned(rig))["budget_notices"] == 0
    rig.later(64 * DAY_S)
    assert (await pruned(rig))["budget_notices"] == 3
    left = {subject for (subject,) in await rig.sql("SELECT subject FROM budget_notices")}
    assert left == {"long", "untold", root, "team"}, "though all were noted at one moment"
    for name in ("long", root, "team"):
        await rig.db.write(partial(_note, scope=scopes[name], at=at))
    untold = await rig.db.read(ledger.pending_notices)
    assert [one.scope.subject for one in untold] == ["untold"]
