"""The engine object: imports the protocol's library once and knows how each agent is started."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from agentsup.engines.acp.choices import AcpOptions
from agentsup.engines.acp.session import AcpLaunch, AcpSession
from agentsup.engines.failures import ExtraMissing, NotConfigured
from agentsup.engines.process import EngineHome, ProcessLauncher, read_options
from agentsup.engines.process.homes import ACP
from agentsup.engines.programs.presets import Preset, command_of, sign_in_of, variables
from agentsup.model.engine import EngineCaps, EngineHost, EngineSession, EngineSpec

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_PLACEHOLDER = "{model}"


class AcpEngine:
    """Runs an agent that speaks the Agent Client Protocol: a preset, or any by its command line."""

    caps = EngineCaps(streaming=True, tools=True, usage=True, may_not_report=True, pictures=True)

    def __init__(
        self, children: ProcessLauncher, env: Mapping[str, str], preset: Preset | None = None
    ) -> None:
        """``env`` is the daemon's environment: keys and sign-ins are looked for there."""
        self.name = preset.name if preset else "acp"
        self._children = children
        self._env = env
        self._preset = preset
        self._importing = asyncio.Lock()
        self._wire: ModuleType | None = None
        self._opening: set[str] = set()

    async def open(self, spec: EngineSpec, host: EngineHost) -> EngineSession:
        """Open a session for one turn. Raises ``NotConfigured``, ``ExtraMissing``."""
        options = read_options(AcpOptions, spec.options, self.name)
        launch = await asyncio.to_thread(self._launch, spec, options)
        wire = await self._load()
        return AcpSession(self._children, launch, spec, host, self._opening, wire)

    async def close(self) -> None:
        """Nothing is held; the process manager ends the programs."""

    async def _load(self) -> ModuleType:
        """Import the library in a thread: it costs a third of a second, once."""
        async with self._importing:
            if self._wire is None:
                try:
                    self._wire = await asyncio.to_thread(
                        importlib.import_module, "agentsup.engines.acp.wire"
                    )
                except ImportError as error:
                    raise ExtraMissing.of(self.name, "acp", error) from error
            return self._wire

    def _launch(self, spec: EngineSpec, options: AcpOptions) -> AcpLaunch:
        """Return how the agent is started; looks for its sign-in on disk."""
        if self._preset is not None:
            preset, command = self._preset, options.command or command_of(self._preset, spec.model)
            has_model = _gets_model(preset, options.command)
        else:
            preset = _by_command(options.command, spec.model)
            command, has_model = preset.command, _PLACEHOLDER in " ".join(options.command)
        given = variables(preset, self._env) | dict(options.env)
        if preset.model_env and spec.model:
            given[preset.model_env] = spec.model
        by = sign_in_of(preset, {**self._env, **given}, os.path.isfile)
        # A sign-in of the daemon's user is in that user's home; a private home does not have it.
        wants_user = bool(by.login) and "home" not in options.model_fields_set
        is_private = options.home == "private" and not wants_user
        home = EngineHome.of(spec, preset.name, preset.settings, is_private=is_private)
        return AcpLaunch(
            title=preset.title,
            argv=(*command, *home.arguments()),
            home=home,
            env=given,
            secrets=_secrets(given),
            memory_mb=options.memory_mb,
            remedy=preset.remedy,
            preset=preset,
            options=options,
            auth_method=options.auth_method or (preset.auth_method if by.key else ""),
            has_model=has_model,
        )


def _by_command(command: Sequence[str], model: str) -> Preset:
    """The preset of an agent that is known by its command line alone."""
    if not command:
        raise NotConfigured(
            'the engine acp needs engine_options.command, such as ["gemini", "--acp"]; '
            "or name the agent itself as the engine"
        )
    argv = tuple(part.replace(_PLACEHOLDER, model) for part in command)
    title, sign_in = Path(argv[0]).name, "sign in with its own command"
    return Preset(ACP, title, argv, install="", sign_in=sign_in)


def _gets_model(preset: Preset, command: Sequence[str]) -> bool:
    """Whether the agent gets the model before a session exists: by our command line, or by a
    variable if ``command`` starts the preset's program."""
    if not command:
        return bool(preset.model_env or preset.model_args)
    return bool(preset.model_env) and preset.program in {Path(part).name for part in command}


def _secrets(env: Mapping[str, str]) -> tuple[str, ...]:
    """Values that must not be quoted, by the names of their variables."""
    return tuple(value for name, value in env.items() if _SECRET.search(name))
