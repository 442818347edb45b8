"""Why a time of a schedule was passed over, as people read it."""

from __future__ import annotations

from agentsup.catalogue import LocalizedTexts, words
from agentsup.model.task import SkippedSlot, SlotSkipReason


def skip_text(skipped: SkippedSlot, say: LocalizedTexts | None = None) -> str:
    """The reason in the language of ``say``; default: in English."""
    say = say or words()
    match skipped.reason:
        case SlotSkipReason.REFUSED:
            why = str(skipped.facts["text"])
        case SlotSkipReason.RIGHTS:
            why = say(f"rights.{skipped.facts['rights']}", who=skipped.facts["who"])
        case reason:
            why = say(f"skip.{reason.value}", **skipped.facts)
    return say("skip.before", why=why, time=skipped.until) if skipped.until else why
