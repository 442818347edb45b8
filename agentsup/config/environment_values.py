"""Merges ``AGENTSUP_*`` variables over config.toml. The only module that loads pydantic-settings."""

from __future__ import annotations

from typing import Any

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from agentsup.config.findings import ConfigFinding, Severity
from agentsup.config.settings import ENV_PREFIX
from agentsup.config.settings_file import SettingsFile
from agentsup.model.errors import ConfigErrors


class _Merged(BaseSettings, SettingsFile):
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, which is given as keyword arguments."""
        return (env_settings, init_settings)


def merged(document: dict[str, Any]) -> dict[str, Any]:
    """The values that the file or the environment gives.

    Raises ``ConfigErrors`` for a variable that can't be read, and ``ValidationError``.
    """
    try:
        found = _Merged(**document)
    except SettingsError as error:
        problem = ConfigFinding(Severity.ERROR, str(error), "environment", field=ENV_PREFIX + "*")
        raise ConfigErrors((problem.as_error(),)) from None
    return {name: getattr(found, name) for name in found.model_fields_set}
