"""Menus at a real homeserver: walked through by reactions and numbers, done once."""

from __future__ import annotations

from pathlib import Path

from tests.live.matrix_cluster import BOT_PASSWORD, MatrixCluster, accounts
from tests.support.bound import BOUND_S
from tests.support.daemon_process import DaemonProcess, write_home
from tests.support.matrix_driver import MatrixPerson
from tests.support.matrix_view import Seen
from tests.support.synapse import Synapse


def number_of(seen: Seen, label: str) -> str:
    """The number of a choice below a text."""
    (line,) = (
        line
        for line in seen.text.splitlines()
        if line.split(".")[0].isdecimal() and line.rstrip(" ›").endswith(label)
    )
    return line.split(".")[0]


async def wait_choices(town: MatrixCluster, part: str, after: str) -> Seen:
    """A message with choices, once the bot has put their reactions below it."""

    def fits(seen: Seen) -> bool:
        offered = [key for key, who in seen.reactions.items() if town.bot in who]
        lines = [line for line in seen.text.splitlines() if line.split(". ")[0].isdecimal()]
        return part in seen.text and 0 < min(len(lines), 10) == len(offered)

    return await town.person.wait_message(town.room, fits, 20.0, by=town.bot, after=after)


async def test_an_agent_is_rebuilt_by_a_reaction_and_a_number(
    synapse: Synapse, tmp_path: Path
) -> None:
    bot, ann = await accounts(synapse)
    async with MatrixPerson(synapse.url, ann, BOT_PASSWORD) as person:
        town = MatrixCluster(person, bot, synapse.url)
        await town.furnish()
        home = write_home(tmp_path / "home", [town.entry(), {"name": "bob"}], [])
        async with DaemonProcess(home) as daemon:
            await town.joined()
            said = await person.say(town.room, "!agents")
            menu = await wait_choices(town, "bob", said)
            await person.react(town.room, menu.event_id, f"{number_of(menu, 'bob')}\ufe0f\u20e3")
            page = await wait_choices(town, "Restart", menu.event_id)
            await person.wait_seen(town.room, menu.event_id, lambda seen: "1. " not in seen.text)
            await person.say(town.room, number_of(page, "Restart"))
            confirm = await wait_choices(town, "Rebuild bob now?", page.event_id)
            yes = f"{number_of(confirm, 'Yes: Restart')}\ufe0f\u20e3"
            await person.react(town.room, confirm.event_id, yes)
            done = await person.wait_text(
                town.room, "bob is being rebuilt", 20.0, by=bot, after=confirm.event_id
            )
            await daemon.stop()
            await daemon.start()
            await person.say(town.room, "1", reply_to=confirm.event_id)
            late = await person.wait_text(town.room, "pressed this at", BOUND_S, by=bot)
            assert done.text.startswith("bob")
            assert "ann" in late.text
