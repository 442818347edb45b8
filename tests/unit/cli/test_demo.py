"""The demo's home: right, its own, and nobody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsup.cli.commands import demo
from agentsup.cli.commands.home_files import TEMPLATES
from agentsup.cli.connect.failure import CommandFailed
from agentsup.config import load, validate
from agentsup.engines.scripted.script import Script, parse_script
from agentsup.fakes.telegram import FakeTelegram


async def test_the_home_is_right_and_its_agents_know_the_fake(tmp_path: Path) -> None:
    with demo._demo_home(str(tmp_path / "home")) as place:
        async with FakeTelegram(place.home.root / demo.FAKE) as fake:
            one = demo._Demo(place, keeps=True, port=None)
            one._write_home(fake)
            before = place.home.agents_json.read_bytes()
            assert validate(place.home, {}) == []
            specs = load(place.home, environ={}).specs
            assert list(specs) == ["main", "writer"]
            for spec in specs.values():
                assert spec.channels == ("telegram",)
                assert spec.telegram_base_url == fake.url
                assert spec.telegram_token is not None
                assert fake.world.bot_by_token(spec.telegram_token.reveal()) is not None
                assert [fake.world.user(person)["first_name"] for person in spec.allowed_user_ids]
            one._write_home(fake)
            assert place.home.agents_json.read_bytes() == before, "an edit would be lost"
            assert len(list(fake.world.journal.all("user"))) == 1, "the person was made twice"


def test_a_home_of_somebody_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "agents.json").write_text("[]")
    with (
        pytest.raises(CommandFailed, match="not the home of a demo"),
        demo._demo_home(str(tmp_path)),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["agents.json"]


@pytest.fixture(scope="module")
def rules() -> Script:
    return parse_script((TEMPLATES / demo.RULES).read_bytes(), path=demo.RULES)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("hello", "say"),
        ("report", "stream"),
        ("choose", "question"),
        ("name", "question"),
        ("count", "stream"),
        ("file", "effect"),
        ("(edited) hello", "say"),
        ("[file: inbox/2026-01-01-a.txt (a.txt)]", "say"),
        ("look at this\n[file: inbox/2026-01-01-a.txt (a.txt)]", "say"),
        ("ask writer for a haiku", "tool"),
        ("a haiku", "stream"),
    ],
)
def test_the_rules_fit_what_the_demo_says_to_try(rules: Script, text: str, kind: str) -> None:
    found = rules.find(text)
    assert found is not None
    assert found[0][0].kind == kind
