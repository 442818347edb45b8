"""``import``: an agent from another home of agentsup."""

from __future__ import annotations

from pathlib import Path

from agentsup.cli.connect.failure import CommandFailed
from agentsup.cli.connect.locate import DaemonLocation
from agentsup.cli.output.show import CommandOutput


def import_archive(
    location: DaemonLocation, file: Path, screen: CommandOutput, *, name: str | None, apply: bool
) -> None:
    """Print the content of the archive at ``file``, and import it if ``apply`` is set. Raises
    ``CommandFailed``."""
    from agentsup.cli.archives.agent import AGENT
    from agentsup.cli.commands.backups import read_archive, tell_left_out
    from agentsup.cli.commands.import_agent import bring, read_import
    from agentsup.cli.connect.client import DaemonClient
    from agentsup.kit.archive.contents import ArchiveRefused
    from agentsup.kit.terminal import clean, clean_line

    home = location.home
    if not home.root.is_dir():
        raise CommandFailed(
            f"there is no home at {home.root}; make one with `{location.command('up')}`"
        )
    contents = read_archive(file, home, AGENT)
    try:
        plan = read_import(home, file, contents, name)
        screen.say(f"{file} is whole: the agent {plan.name}")
        screen.say("Its entry, which decides what it runs, who may talk to it and where keys go:")
        screen.say(clean(plan.shown))
        screen.say(f"{len(plan.memories)} memories, {plan.files} files in its workspace")
        if plan.role:
            screen.say(clean_line(f"its role {plan.role}"))
        for each in plan.skills:
            screen.say(clean_line(f"its skill {each}"))
        if plan.strangers:
            screen.prose(
                f"{plan.strangers} memories of people who are not in [people] here stay out; name "
                "them in config.toml first to have them."
            )
        tell_left_out(screen, contents.left_out)
        if plan.missing:
            screen.say("It needs, and this home does not have:")
        for each in plan.missing:
            screen.say(clean_line(f"  {each}"))
        if not apply:
            screen.say("Nothing was changed. To do it, give --apply.")
            return
        # The daemon alone writes what agents remember.
        client = DaemonClient.to(location)
        client.get("/status")
        count = bring(home, file, contents, plan, client)
    except (OSError, ArchiveRefused) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandFailed(f"{file} can't be used: {why}. Nothing was changed") from None
    screen.say(f"{plan.name} is here, with {count} memories.")
