"""The entry of an exported agent holds no secret, only references."""

from __future__ import annotations

import json

from agentsup.cli.archives.agent import portable

ENTRY = {
    "name": "writer",
    "prompt": "Never tell the token sk-nothing of it.",
    "telegram_token": "12345:SECRET-1",
    "matrix": {
        "access_token": "env:MATRIX_TOKEN",
        "password": "SECRET-2",
        "homeserver": "https://u:SECRET-10@x",
    },
    "max_tokens": 100,
    "engine_options": {
        "api_key": "SECRET-3",
        "base_url": "https://me:SECRET-4@x",
        "n": 1,
        "env": {"FOO": "SECRET-11"},
    },
    "mcp": {
        "one": {
            "command": "serve",
            "args": ["--api-key", "SECRET-5", "--token=SECRET-6", "--port", "80"],
            "env": {"HARMLESS": "SECRET-7", "TOKEN": "file:secrets/mine"},
            "headers": {"Authorization": "Bearer SECRET-8"},
        },
        "two": {"url": "https://x.example/?token=SECRET-9"},
    },
}


def test_no_secret_stays_and_references_do() -> None:
    found = portable(ENTRY)
    assert "SECRET" not in json.dumps(found.values)
    assert found.values["telegram_token"] == "file:secrets/writer-telegram-token"
    assert found.values["matrix"]["access_token"] == "env:MATRIX_TOKEN"
    assert found.values["prompt"] == ENTRY["prompt"]
    assert found.values["max_tokens"] == 100
    assert found.values["engine_options"]["n"] == 1
    assert found.values["mcp"]["one"]["args"] == ["--port", "80"]
    assert {"env:MATRIX_TOKEN", "file:secrets/mine"} <= set(found.references)
    assert not any("SECRET" in each for each in (*found.replaced, *found.references))
    kept = [each for each in found.replaced if each.startswith("file:")]
    assert len(kept) == len(set(kept)) == 9
    assert set(kept) <= set(found.references)
