"""The report of an import: what comes, what has no place and why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from agentsup.cli.moving.applying import Brought
from agentsup.cli.moving.foreign_home import ForeignAgent
from agentsup.cli.moving.plan import MovePlan

_MOST_SHOWN = 100


def plan_lines(plan: MovePlan) -> Iterable[str]:
    """The plan, line by line: each agent with what comes, then what does not."""
    for agent in plan.found.agents:
        yield f"{agent.name}"
        for line in _agent_lines(plan, agent):
            yield f"  {line}"
    new_skills = [s.name for s in plan.found.skills if f"skills/{s.name}.md" in plan.files]
    if new_skills:
        names = ", ".join(new_skills[:20])
        more = len(new_skills) - 20
        yield f"skills: {names}" + (f" and {more} more" if more > 0 else "")
    if secrets := [name for name in plan.files if name.startswith("secrets/")]:
        yield f"keys and tokens, for their owner alone: {', '.join(sorted(secrets))}"
    if plan.remarks:
        yield ""
        yield "No place here, or another one:"
        for remark in plan.remarks[:_MOST_SHOWN]:
            yield f"  {remark.what}: {remark.why}"
        if len(plan.remarks) > _MOST_SHOWN:
            yield f"  and {len(plan.remarks) - _MOST_SHOWN} more"


def _agent_lines(plan: MovePlan, agent: ForeignAgent) -> Iterable[str]:
    fields = plan.fields.get(agent.name, {})
    if agent.name in plan.new_agents:
        yield "a new agent"
    if fields.get("engine") == "llm":
        host = urlsplit(str(fields.get("engine_options", {}).get("base_url"))).netloc
        yield f"model {fields.get('model')} at {host}"
    elif engine := fields.get("engine"):
        yield f"engine {engine}" + (f" with {model}" if (model := fields.get("model")) else "")
    for platform, account in (("Telegram", "telegram_token"), ("Matrix", "matrix")):
        if fields.get(account):
            yield f"its bot on {platform}, with {_people(fields, platform)}"
    base = f"agents/{agent.name}/"
    files = [path for path in plan.files if path.startswith(f"{base}workspace/")]
    counts = {
        ("memory", "memories"): len(agent.memories),
        ("schedule", "schedules"): sum(each.agent == agent.name for each, _ in plan.tasks),
        ("chat that goes on", "chats that go on"): sum(
            chat.agent == agent.name for chat in plan.chats
        ),
        ("chat to read in its workspace", "chats to read in its workspace"): sum(
            f"{base}workspace/moved/chats/" in p for p in files
        ),
        ("file of its workspace", "files of its workspace"): sum(
            f"{base}workspace/moved/chats/" not in p for p in files
        ),
    }
    if agent.fields.get("prompt"):
        yield (
            "who it is, as its prompt" if fields.get("prompt") else "its prompt stays as it is here"
        )
    if f"{base}MEMORY.md" in plan.files:
        yield "what it always remembers, as MEMORY.md"
    for (one, many), count in counts.items():
        if count:
            yield f"{count} {one if count == 1 else many}"


def _people(fields: Mapping[str, Any], platform: str) -> str:
    matrix = fields.get("matrix") or {}
    people = (
        fields.get("allowed_user_ids") if platform == "Telegram" else matrix.get("allowed_users")
    )
    count = len(people or ())
    return "nobody yet" if not count else "1 person" if count == 1 else f"{count} people"


def as_json(plan: MovePlan, brought: Brought | None) -> dict[str, Any]:
    """The plan for a program; no secret is in it."""
    return {
        "product": plan.found.product,
        "applied": brought is not None,
        "agents": [
            {
                "name": agent.name,
                "is_new": agent.name in plan.new_agents,
                "fields": sorted(plan.fields.get(agent.name, {})),
                "memories": len(agent.memories),
                "schedules": [s.name for s, _ in plan.tasks if s.agent == agent.name],
                "chats": sum(chat.agent == agent.name for chat in plan.found.chats),
            }
            for agent in plan.found.agents
        ],
        "skills": [skill.name for skill in plan.found.skills],
        "files": sorted(plan.files),
        "no_place": [{"what": each.what, "why": each.why} for each in plan.remarks],
    }
