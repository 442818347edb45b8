"""Real coding agents from npm: where they are and how they find the model on the loopback."""

from __future__ import annotations

import json
import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.cli_model_server import CliModel
from tests.support.daemon_process import DaemonProcess
from tests.support.fork_server import Cage

MODULES = Path(__file__).parents[2] / "requirements/clis/node_modules"
KEY = "sk-loopback-0123456789"


@dataclass
class Cli:
    """A program, how it is reached, and what is known of it."""

    engine: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    """For the program, by its options."""
    daemon_env: dict[str, str] = field(default_factory=dict)
    """What the daemon has, of which the preset hands on its share."""
    keeps_session: bool = True

    def options(self) -> dict[str, Any]:
        return {"command": self.command, "env": self.env}


def program(pattern: str) -> str:
    """The installed program for this machine's kind of processor."""
    found = sorted(MODULES.glob(pattern))
    assert found, f"{pattern} is not in {MODULES}: run scripts/live.sh clis"
    return str(found[0])


UNCAGED = Cage(resource.RLIM_INFINITY, 1024, resource.RLIM_INFINITY)


def daemon_of(home: Path) -> DaemonProcess:
    """A daemon for real agents. They inherit its limits, and a JavaScript engine reserves tens of GiB
    of address space, of which it uses little; without them it ends at its start."""
    return DaemonProcess(home, cage=UNCAGED)


def gemini(model: CliModel) -> Cli:
    # It can't open a session again in the minute in which it was begun, so ours is told instead.
    env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": model.url}
    command = [program(".bin/gemini"), "--acp"]
    return Cli("gemini", command, daemon_env=env, keeps_session=False)


def claude_acp(model: CliModel) -> Cli:
    env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": model.url}
    return Cli("claude-acp", [program(".bin/claude-agent-acp")], daemon_env=env)


def claude(model: CliModel) -> Cli:
    command = [program("@anthropic-ai/claude-agent-sdk-linux-*/claude")]
    env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": model.url}
    return Cli("claude", command, daemon_env=env)


def opencode(model: CliModel) -> Cli:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": KEY},
        "models": {"m": {"name": "m", "tool_call": True}},
    }
    config = {
        "provider": {"loopback": provider},
        "model": "loopback/m",
        "small_model": "loopback/m",
        "permission": {"edit": "ask", "bash": "ask"},
        "share": "disabled",
    }
    names = ("MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    env = {f"OPENCODE_DISABLE_{name}": "1" for name in names}
    env["OPENCODE_CONFIG_CONTENT"] = json.dumps(config)
    return Cli("opencode", [program("opencode-linux-*/bin/opencode"), "acp"], env=env)


def codex(model: CliModel) -> Cli:
    provider = {
        "name": "loopback",
        "base_url": f"{model.url}/v1",
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
    }
    config = {
        "model": "m",
        "model_provider": "loopback",
        "model_providers": {"loopback": provider},
        "check_for_update_on_startup": False,
    }
    env = {
        "OPENAI_API_KEY": KEY,
        "MODEL_PROVIDER": "loopback",
        "CODEX_CONFIG": json.dumps(config),
    }
    return Cli("codex", [program(".bin/codex-acp")], env=env)


CLIS = {
    "gemini": gemini,
    "claude-acp": claude_acp,
    "claude": claude,
    "opencode": opencode,
    "codex": codex,
}
