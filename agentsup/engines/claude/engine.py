"""The engine object: how Claude Code is started for one turn."""

from __future__ import annotations

from collections.abc import Mapping

from agentsup.engines.claude import arguments
from agentsup.engines.claude.arguments import ClaudeOptions
from agentsup.engines.claude.session import ClaudeSession
from agentsup.engines.process import EngineHome, ProcessLauncher, ProgramLaunch, read_options
from agentsup.engines.programs.presets import CLAUDE
from agentsup.kit.clock import Clock
from agentsup.model.engine import EngineCaps, EngineHost, EngineSpec


class ClaudeEngine:
    """Engine ``claude``. Options: see ``arguments.ClaudeOptions``; ``env`` is the daemon's."""

    name = "claude"
    caps = EngineCaps(streaming=True, usage=True, may_not_report=True, pictures=True)

    def __init__(self, children: ProcessLauncher, clock: Clock, env: Mapping[str, str]) -> None:
        self._children = children
        self._clock = clock
        self._env = env
        self._opening: set[str] = set()

    async def open(self, spec: EngineSpec, host: EngineHost) -> ClaudeSession:
        """Open a session for one turn. Raises ``NotConfigured`` naming the field."""
        options = read_options(ClaudeOptions, spec.options, self.name)
        env, is_private = arguments.environment(options, self._env), options.home == "private"
        launch = ProgramLaunch(
            title=CLAUDE.title,
            argv=options.command or CLAUDE.command,
            home=EngineHome.of(spec, CLAUDE.name, CLAUDE.settings, is_private=is_private),
            env=env,
            secrets=[value for name, value in env.items() if not name.endswith("_URL")],
            memory_mb=options.memory_mb,
            remedy=CLAUDE.remedy,
        )
        return ClaudeSession(
            self._children, launch, spec, host, self._opening, options, self._clock
        )

    async def close(self) -> None:
        """Nothing to close; the process manager ends the programs."""
