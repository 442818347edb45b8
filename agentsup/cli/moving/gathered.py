"""The home of another product while it is read: where it is, and what was found in it so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.cli.moving.foreign_home import (
    MOST_PROMPT_CHARS,
    ChatLine,
    ForeignAgent,
    ForeignChat,
    ForeignFile,
    ForeignHome,
    ForeignSchedule,
    ForeignSkill,
    Remark,
    joined_text,
)
from agentsup.cli.moving.source import SourceFolder
from agentsup.cli.moving.values import look, objects
from agentsup.model.task import NewSchedule

MOST_CHATS: Final = 500
_MOST_JOBS: Final = 500
_MOST_LISTED: Final = 60
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEY: Final = re.compile(r"[\x21-\x7e]{8,4096}")
_PLACEHOLDER: Final = re.compile(r"your[_-]|replace|_here$|changeme|^null$|\.\.\.$", re.IGNORECASE)


def is_secret(text: str) -> bool:
    """Whether a text can be a key or token, and is no placeholder of an example."""
    return bool(_KEY.fullmatch(text)) and not _PLACEHOLDER.search(text)


@dataclass(slots=True)
class Gathered:
    """What a home of ``product`` has for us."""

    product: str
    source: SourceFolder
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The variables that its files name."""
    agents: list[ForeignAgent] = field(default_factory=list)
    schedules: list[ForeignSchedule] = field(default_factory=list)
    chats: list[ForeignChat] = field(default_factory=list)
    skills: dict[str, ForeignSkill] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """Keys and tokens, each for a file of its own."""
    remarks: list[Remark] = field(default_factory=list)

    def home(self, shared: str = "") -> ForeignHome:
        """All of it. ``shared``: the memory that all agents had there."""
        return ForeignHome(
            product=self.product,
            agents=tuple(self.agents),
            schedules=tuple(self.schedules),
            chats=tuple(self.chats),
            skills=tuple(self.skills.values()),
            secrets=self.secrets,
            shared=shared,
            remarks=tuple(self.remarks),
        )

    # -- what comes --------------------------------------------------------------------------------

    def agent(
        self,
        name: str,
        fields: Mapping[str, Any],
        prompt: str = "",
        *,
        skills: tuple[ForeignFile, ...] = (),
        files: tuple[ForeignFile, ...] = (),
        **more: Any,
    ) -> None:
        """Add an agent. ``prompt`` says who it is; the skills in its workspace are named at its end."""
        prompt = self._with_skills(prompt, skills)
        by_target = {each.target: each for each in (*files, *skills)}
        own = {**fields, "prompt": prompt} if prompt else fields
        self.agents.append(ForeignAgent(name, own, files=tuple(by_target.values()), **more))

    def _with_skills(self, prompt: str, files: Iterable[ForeignFile]) -> str:
        names = sorted(
            {each.target.split("/")[1] for each in files if each.target.startswith("skills/")}
        )
        if not names:
            return prompt
        lines = []
        for name in names[:_MOST_LISTED]:
            about = self.skills[name].about if name in self.skills else ""
            lines.append(f"- {name}: {about}" if about else f"- {name}")
        head = (
            "Skills lie in your workspace. Before a task that one fits, read skills/NAME/SKILL.md:"
        )
        return joined_text(prompt, "\n".join([head, *lines]), most=MOST_PROMPT_CHARS * 2)

    def jobs(self, path: str) -> list[Mapping[str, Any]]:
        """The scheduled work that a JSON file lists."""
        return objects(look(self.source.json(path), "jobs"))[:_MOST_JOBS]

    def schedule(
        self,
        agent: str,
        key: str,
        name: str,
        prompt: str,
        times: NewSchedule,
        *,
        to: tuple[str, str],
        is_paused: bool,
    ) -> None:
        """Add scheduled work. ``to``: the channel and conversation here that get its result."""
        own_key = f"{self.product}:{key}"
        self.schedules.append(ForeignSchedule(agent, own_key, name, prompt, times, is_paused, *to))

    def chat(
        self, agent: str, key: str, lines: tuple[ChatLine, ...], title: str, to: tuple[str, str]
    ) -> None:
        """Add a chat, if anything was said in it."""
        if lines:
            self.chats.append(ForeignChat(agent, key, lines, title, *to))

    # -- secrets -----------------------------------------------------------------------------------

    def value(self, written: object) -> str:
        """A text with ``${NAME}`` replaced by the variable, or the variable that an object names."""
        if isinstance(written, dict):
            name = written.get("id") if written.get("source") == "env" else None
            return self.variables.get(name, "") if isinstance(name, str) else ""
        if not isinstance(written, str):
            return ""
        return _REFERENCE.sub(lambda found: self.variables.get(found[1], found[0]), written).strip()

    def secret(self, written: object, file: str) -> str:
        """The reference to a secret for an entry: ``file:…``, ``env:NAME``; empty if there is
        none."""
        text = self.value(written)
        if unknown := _REFERENCE.fullmatch(text):
            return f"env:{unknown[1]}"
        if not is_secret(text):
            return ""
        self.secrets[file] = text
        return f"file:secrets/{file}"

    # -- what does not -----------------------------------------------------------------------------

    def remark(self, what: str, why: str) -> None:
        """Note something that does not come, once."""
        if all(each.what != what for each in self.remarks):
            self.remarks.append(Remark(what, why))

    def remark_channel(self, name: str) -> None:
        """Note a platform that has no place here."""
        self.remark(name, "people talk over Telegram, Matrix, page and terminal")

    def remark_heartbeat(self, what: str) -> None:
        """Note what wakes an agent there by itself."""
        self.remark(what, "agents have no heartbeat; make a task with a schedule")

    def remark_keys(
        self, given: Mapping[str, Any], reasons: Mapping[str, str], prefix: str
    ) -> None:
        """Note those keys of an object that have no place, if they say anything."""
        for key, why in reasons.items():
            value = given.get(key)
            is_on = value.get("enabled", True) if isinstance(value, dict) else value
            if is_on and value:
                self.remark(f"{prefix}{key}", why)
