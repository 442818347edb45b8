"""What is recorded: command lines, chat commands in two languages and HTTP requests, in this order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentsup import __version__
from tests.golden.daemon import GoldenDaemon, golden_household
from tests.golden.mask import mask, mask_document

FOLDER: Final = Path(__file__).parent
TERMINAL: Final = {
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}
"""The environment of recorded commands."""
IDS: Final[Mapping[str, str]] = {
    "{failed}": "SELECT message_id FROM messages WHERE state = 'dead'",
    "{asked}": "SELECT message_id FROM messages WHERE state = 'parked' ORDER BY seq LIMIT 1",
    "{question}": "SELECT question_id FROM questions WHERE kind = 'question' ORDER BY question_id LIMIT 1",
    "{approval}": "SELECT question_id FROM questions WHERE kind = 'approval'",
    "{task}": "SELECT task_id FROM tasks WHERE state = 'done'",
    "{reminder}": "SELECT task_id FROM schedules",
}
"""Rows of this run that commands name."""
CHAT: Final = {
    "main": (
        *("/help main", "/agents", "/agents ann", "/agents nobody", "/failed", "/failed {failed}"),
        *("/agent_diff", "/agent_start nobody", "/cost all", "/pair", "/trace last", "/status"),
    ),
    "ann": (
        *("/help", "/help all", "/help task", "/nonsense", "/status", "/agents", "/start"),
        *("/sessions", "/model", "/effort", "/memory", "/role", "/route a soup", "/set"),
        *(
            "/tasks",
            "/task {task}",
            "/task",
            "/remind",
            "/remind tomorrow at 9 buy tea",
            "/remind x",
        ),
        *("/question {question}", "/question {approval}", "/answer", "/approvals", "/cost"),
        *("/trace", "/trace {asked}", "/mcp", "/hooks", "/again", "/cancel", "/skip"),
        *("/say hello", "/new", "/stop"),
    ),
}
CLI: Final = (
    *("agents list", "agents show ann", "agents show nobody", "agents diff"),
    *("agents explain ann --changed", "agents set ann", "agents validate", "agents start nobody"),
    *("config get api", "config get nothing", "config set api.port x"),
    *("messages list", "messages show {asked}", "messages thread nothing", "failed list"),
    *("failed show {failed}", "questions list", "questions show {question}"),
    *("questions show {approval}", "questions answer {question} tea", "tasks list"),
    *(
        "tasks show {task}",
        "tasks log {task}",
        "tasks pause {reminder}",
        "tasks unpause {reminder}",
    ),
    *("tasks create ben", "memory list ann", "memory show ann drink", "memory pin ann drink"),
    *("roles list", "mcp", "cost", "cost ann", "models list", "models chats", "approvals list"),
    *(
        "trace list",
        "trace show {asked}",
        "trace show {failed}",
        "trace metrics",
        "quarantine list",
    ),
    *("pair", "route soup", "hooks", "send ben hello", "help tasks", "version"),
)
HTTP: Final = (
    *("GET /healthz", "GET /status", "GET /agents", "GET /agents/ann"),
    *("GET /agents/nobody", "GET /agents/ann/explain", "GET /agents/ann/overrides"),
    *("GET /agents/ann/memory", "GET /agents/ann/mcp", "GET /agents/ann/chat_models", "GET /diff"),
    *("GET /messages", "GET /messages/{asked}", "GET /messages/msg_none", "GET /dead", "GET /mail"),
    *("GET /questions", "GET /questions/{question}", "GET /questions/{approval}", "GET /tasks"),
    *(
        "GET /tasks/{task}",
        "GET /approvals",
        "GET /roles",
        "GET /cost",
        "GET /hooks",
        "GET /poison",
    ),
    *("GET /traces", "GET /traces/{asked}", "GET /traces/{failed}", "GET /traces/metrics"),
    *("GET /pairings", "GET /setup", "GET /interagent/agents", "GET /interagent/health"),
    *(
        "GET /web/figures",
        "GET /web/sessions?agent=ann",
        "GET /web/history?agent=ann",
        "GET /v1/models",
    ),
    *("GET /nothing", "POST /agents", "POST /interagent/send"),
)


class _Recording:
    """The sections of one file."""

    def __init__(self, household: GoldenDaemon, ids: Mapping[str, str]) -> None:
        self._household = household
        self._ids = ids
        self._sections: list[str] = []

    def filled(self, line: str) -> str:
        """A line with the ids of this run."""
        for name, given in self._ids.items():
            line = line.replace(name, given)
        return line

    async def add(self, title: str, text: str) -> None:
        """Add what ``title`` was answered."""
        house = self._household.house
        await self._household.quiet()
        rows = await house.sql("SELECT session_id FROM sessions UNION SELECT task_id FROM tasks")
        varying = {row[0]: f"<{row[0].partition('_')[0]}>" for row in rows}
        for shown in (8, 6):  # ends of ids, as lists and prompts show them
            varying |= {row[0][-shown:]: "<short>" for row in rows}
        varying[str(house.home.root)] = "<home>"
        varying[str(self._household.port)] = "<port>"
        varying[__version__] = "<version>"
        self._sections.append(f"=== {title}\n{mask(text, varying)}\n\n")

    def __str__(self) -> str:
        return "".join(self._sections)


async def record(root: Path) -> dict[str, str]:
    """Each file's text, as this code answers now. The environment must be ``TERMINAL``."""
    async with golden_household(root) as household:
        ids = {mark: str((await household.house.sql(query))[0][0]) for mark, query in IDS.items()}
        files = {
            name: _Recording(household, ids)
            for name in ("http.txt", "chat.en.txt", "chat.de.txt", "cli.txt")
        }
        await _http(household, files["http.txt"])
        await _chat(household, files["chat.en.txt"], "en")
        await _chat(household, files["chat.de.txt"], "de")
        for line in CLI:
            recording = files["cli.txt"]
            words = recording.filled(line).split()
            await recording.add(f"agentsup {line}", await household.cli(*words))
        return {name: str(recording) for name, recording in files.items()}


async def _chat(household: GoldenDaemon, recording: _Recording, language: str) -> None:
    for name, lines in CHAT.items():
        for line in lines:
            said = await household.chat(name, recording.filled(line), language)
            await recording.add(f"{name} {line}", said)


async def _http(household: GoldenDaemon, recording: _Recording) -> None:
    for line in HTTP:
        method, path = recording.filled(line).split()
        status, document = await household.http(method, path, {} if method == "POST" else None)
        told = json.dumps(mask_document(document), indent=1, ensure_ascii=False)
        await recording.add(line, f"{status}\n{told}")
