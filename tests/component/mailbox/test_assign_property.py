"""Any directory, any load: never the sender unless alone, never who is absent, never more loaded
than need be."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsup.mailbox.mail.values import new_mail
from agentsup.model.errors import NoAgentForRole
from tests.support.dispatcher_fixture import DispatcherFixture, agent_of

NAMES = tuple("abcde")
AGENTS = st.fixed_dictionaries(
    {
        name: st.fixed_dictionaries(
            {
                "role": st.sampled_from(("writer", "reader")),
                "team": st.sampled_from(("one", "two")),
                "status": st.sampled_from(("running", "running", "failed")),
            }
        )
        for name in NAMES
    }
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("assign", "assign", "assign", "remove", "work", "end")),
        st.sampled_from(NAMES),
        st.sampled_from(("", "one", "two")),
    ),
    max_size=14,
)


async def play(
    home: Path, agents: dict[str, dict[str, str]], steps: list[tuple[str, str, str]]
) -> None:
    rig = await DispatcherFixture.open(home, agents.items())
    held = []
    for verb, name, team in steps:
        if verb == "remove" and name in rig.agents.entries:
            rig.agents.remove(name)
        elif verb == "work":
            held += await rig.mail.claim(name)
        elif verb == "end" and held:
            await rig.mail.finish(held.pop())
        elif verb == "assign" and name in rig.agents.entries:
            await assign(rig, name, team)
    await rig.close()


async def assign(rig: DispatcherFixture, sender: str, team: str) -> None:
    entries = rig.agents.entries
    fitting = {n for n, e in entries.items() if e.role == "writer" and team in ("", e.team)}
    loads = await rig.mail.loads()
    if team and not any(e.team == team for e in entries.values()):
        return
    try:
        sent = await rig.dispatcher.assign(
            new_mail("x"), role="writer", team=team, caller=agent_of(sender)
        )
    except NoAgentForRole:
        assert not fitting
        return
    assert sent.agent in fitting, "absent, or of another role or team"
    others = fitting - {sender}
    assert (sent.agent == sender) == (not others)
    rivals = {n for n in others or fitting if entries[n].is_up} or others or fitting
    assert sent.agent in rivals
    assert loads.get(sent.agent, 0) == min(loads.get(each, 0) for each in rivals)


@settings(max_examples=25)
@given(AGENTS, STEPS)
def test_the_choice_is_always_fair(
    agents: dict[str, dict[str, str]], steps: list[tuple[str, str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        asyncio.run(play(Path(home), agents, steps))
