"""Models and their keys, from the names that other products give them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agentsup.engines.providers import PROVIDERS

_SAME: Final[Mapping[str, str]] = {
    **{name: name for name in PROVIDERS if name != "compatible"},
    "google": "gemini",
    "lm_studio": "lmstudio",
    "lm-studio": "lmstudio",
    "mistralai": "mistral",
    "openai-api": "openai",
}
"""Their names of providers, and ours."""
_URL: Final = re.compile(r"https?://[^\s/]+\S*")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEY: Final = re.compile(r"[\x21-\x7e]{8,4096}")
_PLACEHOLDER: Final = re.compile(r"your[_-]|replace|_here$|changeme|^null$|\.\.\.$", re.IGNORECASE)


def is_secret(text: str) -> bool:
    """Whether a text can be a key or token, and is no placeholder of an example."""
    return bool(_KEY.fullmatch(text)) and not _PLACEHOLDER.search(text)


@dataclass(slots=True)
class Keyring:
    """The secrets that are found, each for a file of its own, and the variables they come from."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def value(self, written: object) -> str:
        """A text with ``${NAME}`` replaced by the variable, or the variable that an object names."""
        if isinstance(written, dict):
            name = written.get("id") if written.get("source") == "env" else None
            return self.variables.get(name, "") if isinstance(name, str) else ""
        if not isinstance(written, str):
            return ""
        return _REFERENCE.sub(lambda found: self.variables.get(found[1], found[0]), written).strip()

    def reference(self, written: object, file: str) -> str:
        """The reference to a secret for an entry: ``file:…``, ``env:NAME``; empty if there is
        none."""
        text = self.value(written)
        if unknown := _REFERENCE.fullmatch(text):
            return f"env:{unknown[1]}"
        if not is_secret(text):
            return ""
        self.secrets[file] = text
        return f"file:secrets/{file}"


def model_fields(
    model: str, provider: str, keys: Keyring, *, key: object = None, base_url: object = None
) -> dict[str, Any]:
    """The fields of an entry for a model; empty if it can't be reached from here.

    ``provider`` may be empty or ``auto``: then the name of the model begins with it.
    """
    named, _, rest = model.partition("/")
    wanted = provider if provider not in ("", "auto", "custom") else ""
    if not wanted and rest and (_SAME.get(named) or provider in ("", "auto")):
        wanted, model = named, rest
    elif wanted and rest and _SAME.get(named) == _SAME.get(wanted, wanted):
        model = rest
    ours = PROVIDERS.get(_SAME.get(wanted, ""), PROVIDERS["compatible"])
    address = keys.value(base_url)
    address = address if _URL.fullmatch(address) else ours.base_url
    if not model or not address:
        return {}
    file = f"{ours.name if ours.name != 'compatible' else _file_name(wanted)}.key"
    reference = keys.reference(key, file)
    if not reference and ours.key_name:
        reference = keys.reference(keys.variables.get(ours.key_name), file)
        reference = reference or f"env:{ours.key_name}"
    return {
        "engine": "llm",
        "model": model[:200],
        "provider": ours.dialect,
        "engine_options": {"base_url": address, "api_key": reference},
    }


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", text.casefold()).strip("-")[:40] or "compatible"
