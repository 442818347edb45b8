"""Coding agents known by name: how each is started, found, signed in and installed. Data, pure.

The makers of the agents may change names and commands; ``engine_options.command`` replaces the
command of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from agentsup.engines.programs import cli_agent_policies
from agentsup.engines.programs.cli_agent_policies import AgentSettings
from agentsup.model.tool import OUR_MCP_SERVER


@dataclass(frozen=True, slots=True)
class EndedSignIn:
    """A sign-in that its maker has ended: its files are still there, but nothing accepts them.

    ``why`` says so; ``unless`` is a variable with which the sign-in goes on."""

    why: str
    unless: str = ""

    def is_said_in(self, text: str) -> bool:
        """Whether the agent's error ``text`` says that the sign-in has ended."""
        return _ENDED.search(text) is not None


_ENDED = re.compile(
    r"IneligibleTier|UNSUPPORTED_CLIENT|client is no longer supported"
    r"|(?:free tier|oauth)\b[^.\n]{0,60} (?:discontinued|ended|no longer (?:available|supported))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Preset:
    """One agent. ``keys``: variables, any one of which signs it in; ``env_names``: further
    variables of the daemon's environment that it gets, none of which names or holds settings;
    ``logins``: files below a home that a sign-in leaves there."""

    name: str
    title: str
    command: tuple[str, ...]
    install: str
    sign_in: str
    keys: tuple[str, ...] = ()
    env_names: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    ended: EndedSignIn | None = None
    """Why ``logins`` do not count any more."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are always set, such as to keep it from updating itself."""
    version: tuple[str, ...] = ("--version",)
    model_args: tuple[str, ...] = ()
    """Arguments that choose the model; ``{model}`` stands for it."""
    model_env: str = ""
    """The variable that chooses the model."""
    auth_method: str = ""
    """The sign-in to request over the protocol, if a key is set and the agent needs the request."""
    our_title: str = ""
    """Its title of a call to our MCP server; ``{tool}`` stands for the tool."""
    settings: AgentSettings = cli_agent_policies.UNKNOWN
    """The measures that keep foreign settings from it."""

    @property
    def program(self) -> str:
        """The program that is searched on the PATH."""
        return self.command[0]

    @property
    def remedy(self) -> str:
        """The remedy if it is not installed; empty without ``install``."""
        if not self.install:
            return ""
        return f"install {self.title} ({self.install}), or name its path in engine_options.command"


def _npm(package: str) -> str:
    return f"npm install -g {package}"


def _once(program: str, variables: str) -> str:
    return f"run {program} once and sign in, or set {variables}"


_MODEL_FLAG = ("--model", "{model}")
_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

CLAUDE = Preset(
    "claude",
    "Claude Code",
    ("claude",),
    _npm("@anthropic-ai/claude-code"),
    _once("claude", "ANTHROPIC_API_KEY"),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    env_names=("ANTHROPIC_BASE_URL",),
    logins=(".claude/.credentials.json",),
    env=dict.fromkeys(
        (
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
            "DISABLE_AUTOUPDATER",
            "DISABLE_TELEMETRY",
            "DISABLE_ERROR_REPORTING",
        ),
        "1",
    ),
    settings=cli_agent_policies.CLAUDE,
)
"""Has an engine of its own, which does not speak the Agent Client Protocol."""

_ALL = (
    Preset(
        "gemini",
        "Gemini CLI",
        ("gemini", "--acp"),
        _npm("@google/gemini-cli"),
        "set GEMINI_API_KEY (a key is at https://aistudio.google.com/apikey); with a company's account "
        "set GOOGLE_CLOUD_PROJECT, run gemini once and sign in",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        env_names=(
            "GOOGLE_GEMINI_BASE_URL",
            "GOOGLE_CLOUD_PROJECT",
            "GOOGLE_CLOUD_LOCATION",
            "GOOGLE_GENAI_USE_VERTEXAI",
        ),
        logins=(".gemini/oauth_creds.json",),
        ended=EndedSignIn(
            "Google ended its sign-in for private accounts on 18 June 2026",
            unless="GOOGLE_CLOUD_PROJECT",
        ),
        model_args=_MODEL_FLAG,
        auth_method="gemini-api-key",
        our_title=f"{{tool}} ({OUR_MCP_SERVER} MCP Server)",
        settings=cli_agent_policies.GEMINI,
    ),
    replace(
        CLAUDE,
        name="claude-acp",
        title="the ACP adapter of Claude Code",
        command=("claude-agent-acp",),
        install=_npm("@agentclientprotocol/claude-agent-acp"),
        version=(),
        model_env="ANTHROPIC_MODEL",
        our_title=f"mcp__{OUR_MCP_SERVER}__{{tool}}",
        settings=cli_agent_policies.CLAUDE_ACP,
    ),
    Preset(
        "codex",
        "the ACP adapter of Codex",
        ("codex-acp",),
        _npm("@agentclientprotocol/codex-acp"),
        "run codex login, or set OPENAI_API_KEY",
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        env_names=("OPENAI_BASE_URL",),
        logins=(".codex/auth.json",),
        version=(),
        settings=cli_agent_policies.CODEX,
    ),
    Preset(
        "opencode",
        "OpenCode",
        ("opencode", "acp"),
        _npm("opencode-ai"),
        "run opencode auth login, or set the API key of a provider",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        logins=(".local/share/opencode/auth.json",),
        env={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        settings=cli_agent_policies.OPENCODE,
    ),
    Preset(
        "goose",
        "Goose",
        ("goose", "acp"),
        "see the installation page of Goose",
        "run goose configure",
        env_names=("GOOSE_PROVIDER", "GOOSE_MODEL", *_OPENAI, *_ANTHROPIC),
        logins=(".config/goose/config.yaml",),
        model_env="GOOSE_MODEL",
        settings=cli_agent_policies.GOOSE,
    ),
    Preset(
        "kimi",
        "Kimi CLI",
        ("kimi", "acp"),
        "uv tool install kimi-cli",
        _once("kimi", "KIMI_API_KEY"),
        keys=("KIMI_API_KEY", "MOONSHOT_API_KEY"),
        env_names=("KIMI_BASE_URL", "KIMI_MODEL_NAME"),
        logins=(".kimi/config.toml", ".kimi/config.json"),
        settings=cli_agent_policies.KIMI,
    ),
    Preset(
        "copilot",
        "GitHub Copilot CLI",
        ("copilot", "--acp"),
        _npm("@github/copilot"),
        _once("copilot", "COPILOT_GITHUB_TOKEN"),
        keys=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
        logins=(".copilot/config.json",),
        settings=cli_agent_policies.COPILOT,
    ),
    Preset(
        "qwen",
        "Qwen Code",
        ("qwen", "--acp"),
        _npm("@qwen-code/qwen-code"),
        "set DASHSCOPE_API_KEY, or OPENAI_API_KEY and OPENAI_BASE_URL",
        keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
        env_names=("OPENAI_BASE_URL", "OPENAI_MODEL"),
        logins=(".qwen/oauth_creds.json",),
        ended=EndedSignIn("its free sign-in ended on 15 April 2026"),
        model_args=_MODEL_FLAG,
        settings=cli_agent_policies.QWEN,
    ),
)

PRESETS: Mapping[str, Preset] = MappingProxyType({each.name: each for each in _ALL})
"""Every preset by the name that an entry's ``engine`` may use."""

PROGRAMS: Mapping[str, Preset] = MappingProxyType({CLAUDE.name: CLAUDE, **PRESETS})
"""Every program that is looked for, by the name of its engine."""

AUTO_ORDER = ("claude", "gemini", "codex", "opencode")
"""Those from which ``auto`` selects the first that is installed and signed in."""


@dataclass(frozen=True, slots=True)
class SignInState:
    """An agent's sign-in. ``key`` and ``login`` empty: there is none, as far as can be seen."""

    key: str = ""
    """The name of a variable that is set."""
    login: str = ""
    """A file below the home of the daemon's user."""
    ended: str = ""
    """Why a sign-in that is there does not count."""

    def __bool__(self) -> bool:
        return bool(self.key or self.login)

    def __str__(self) -> str:
        if self.key:
            return f"signed in by {self.key}"
        if self.login:
            return f"signed in (~/{self.login})"
        return f"not signed in: {self.ended}" if self.ended else "no sign-in seen"


def sign_in_of(
    preset: Preset, env: Mapping[str, str], is_file: Callable[[str], bool]
) -> SignInState:
    """Return how ``preset`` is signed in. ``env``: variables; ``is_file`` gets full paths."""
    key = next((name for name in preset.keys if env.get(name)), "")
    if key:
        return SignInState(key=key)
    home = env.get("HOME", "")
    for login in preset.logins if home else ():
        if is_file(str(PurePosixPath(home) / login)):
            ended = preset.ended
            if ended is not None and not (ended.unless and env.get(ended.unless)):
                return SignInState(ended=f"{ended.why} (~/{login})")
            return SignInState(login=login)
    return SignInState()


def found_signed_in(
    env: Mapping[str, str],
    which: Callable[[str], str | None],
    is_file: Callable[[str], bool],
) -> tuple[str, str] | None:
    """Return the first installed and signed-in one of ``AUTO_ORDER`` with the reason.

    Without one the name is empty, and the reason tells of sign-ins that have ended; None: there are
    none.
    """
    ended = []
    for name in AUTO_ORDER:
        preset = PROGRAMS[name]
        if not which(preset.program):
            continue
        by = sign_in_of(preset, env, is_file)
        if by:
            return name, f"{preset.title} is installed and {by}"
        if by.ended:
            ended.append(f"{preset.title} is {by}; {preset.sign_in}")
    return ("", "; ".join(ended)) if ended else None


def variables(preset: Preset, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the daemon's ``env`` that the agent gets, and those always set."""
    names = (*preset.keys, *preset.env_names)
    return {**preset.env, **{name: env[name] for name in names if env.get(name)}}


def command_of(preset: Preset, model: str) -> tuple[str, ...]:
    """Return the command line, with the model if it is chosen there."""
    extra = preset.model_args if model else ()
    return (*preset.command, *(part.replace("{model}", model) for part in extra))
