"""Old rows of budgets go by the rules; sums stay, and nobody is told twice."""

from functools import partial
from pathlib import Path

from agentsup.daemon.services import _keep_sums
from agentsup.mailbox import usage
from agentsup.mailbox.budget import ledger
from agentsup.mailbox.budget.decide import Crossed
from agentsup.mailbox.budget.keeping import retention_rules
from agentsup.mailbox.budget.scopes import Limit, Scope, ScopeKind, month_of
from agentsup.model.engine import Usage
from agentsup.store.database import Tx
from agentsup.store.retention import prune
from agentsup.testing.mail import MailRig

DAY_S = 86_400
SUMS = (
    "SELECT agent_id, sum(nano_usd), sum(tokens) FROM budget_spent GROUP BY agent_id ORDER BY 1",
    (
        "SELECT agent_id, sum(CAST(round(coalesce(usd, 0.0) * 1e9) AS INTEGER)),"
        " sum(input_tokens + output_tokens) FROM usage GROUP BY agent_id ORDER BY 1"
    ),
)


async def spend(rig: MailRig, agent_id: str, tokens: int, usd: float) -> None:
    at = rig.clock.now_ms()
    facts = {"message_id": "m", "session_id": "s", "engine": "llm", "model": "big"}
    await rig.db.write(
        lambda tx: usage.record_tx(tx, Usage(tokens, 1, usd), agent_id=agent_id, at=at, **facts)
    )


async def pruned(rig: MailRig) -> dict[str, int]:
    rules = retention_rules(keep_days=1)
    return await prune(rig.db, rules, clock=rig.clock, on_pruned=_keep_sums, pause_s=0)


async def test_what_was_spent_is_folded_up_and_every_sum_stays(tmp_path: Path) -> None:
    rig = await MailRig.open(tmp_path)
    for number in range(300):
        await spend(rig, "ab"[number % 2], number, 0.001 * number)
        rig.later(DAY_S / 2)
    month = month_of(rig.clock.now_ms(), None)
    limit = Limit(Scope(ScopeKind.AGENT_MONTH, "a", *month), tokens=10**9)
    standing = await rig.db.read(lambda r: ledger.standings(r, None, [limit], boot_id="b"))
    for expected in (300, 2 + 124):
        rows = await rig.sql("SELECT agent_id, quarter FROM budget_spent")
        assert len(rows) == expected, "62 days at the least, whatever is said of messages"
        assert await rig.sql(SUMS[0]) == await rig.sql(SUMS[1])
        await pruned(rig)
    assert await rig.db.read(lambda r: ledger.standings(r, None, [limit], boot_id="b")) == standing
    assert (await pruned(rig))["budget_spent"] == 0
    await spend(rig, "a", 7, 0.5)
    rig.later(63 * DAY_S)
    await pruned(rig)
    assert await rig.sql(SUMS[0]) == await rig.sql(SUMS[1])
    assert len(await rig.sql("SELECT * FROM budget_spent")) == 2
    await rig.close()


def _note(tx: Tx, scope: Scope, at: int) -> None:
    limit = Limit(scope, tokens=100)
    ledger.note_tx(tx, [Crossed(limit, "tokens", "warned", 80, 100)], at=at)


async def test_what_was_told_goes_when_it_could_not_be_told_again(tmp_path: Path) -> None:
    rig = await MailRig.open(tmp_path)
    root = (await rig.put("a request that is kept")).message_id
    at = rig.clock.now_ms()
    day_ms = DAY_S * 1000
    scopes = {
        "gone": Scope(ScopeKind.AGENT_DAY, "gone", at, at + day_ms),
        "long": Scope(ScopeKind.AGENT_DAY, "long", at, at + 90 * day_ms),
        "untold": Scope(ScopeKind.AGENT_DAY, "untold", at, at + day_ms),
        "no root": Scope(ScopeKind.TREE, "no root"),
        root: Scope(ScopeKind.TREE, root),
        "team": Scope(ScopeKind.TEAM, "team"),
        "old team": Scope(ScopeKind.TEAM, "old team"),
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
    untold = await rig.db.read(ledger.untold)
    assert [one.scope.subject for one in untold] == ["untold"]
    await rig.close()
