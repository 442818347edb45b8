"""The declared agent: names, references, secrets, and the field table that everything reads."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import get_args, get_type_hints

import pytest

from agentsup.model.agent import BLOCKS, FIELDS, AgentSpec, MatrixIdentity, field_info
from agentsup.model.agent_fields import FieldClass
from agentsup.model.errors import ConfigError
from agentsup.model.name import name_problem
from agentsup.model.secret import Secret


def _leaf_paths() -> set[str]:
    paths = set()
    for each in dataclasses.fields(AgentSpec):
        block = BLOCKS.get(each.name)
        if block is None:
            paths.add(each.name)
        else:
            paths.update(f"{each.name}.{inner.name}" for inner in dataclasses.fields(block))
    return paths


def test_the_field_table_has_a_row_for_each_field_and_no_other() -> None:
    assert set(FIELDS) == _leaf_paths()
    assert all(row.doc.endswith(".") for row in FIELDS.values())


def test_only_what_ties_an_agent_to_a_process_needs_a_rebuild() -> None:
    rebuild = {path for path, row in FIELDS.items() if row.cls is FieldClass.REBUILD}
    assert {"engine", "engine_options"} <= rebuild
    assert not rebuild & {"allowed_user_ids", "matrix.user_id", "model", "slots.peer"}


def test_a_secret_can_be_neither_overridden_nor_shared() -> None:
    for path, row in FIELDS.items():
        if row.secret:
            assert row.identity, path
            assert not row.overridable, path


def test_a_field_that_holds_a_secret_is_marked_as_one() -> None:
    kinds = {"": AgentSpec, **{f"{key}.": block for key, block in BLOCKS.items()}}
    found = {
        f"{prefix}{key}"
        for prefix, kind in kinds.items()
        for key, hint in get_type_hints(kind).items()
        if Secret in get_args(hint)
    }
    assert found == {path for path, row in FIELDS.items() if row.secret}


def test_field_info_finds_keys_of_options_and_refuses_unknown_paths() -> None:
    assert field_info("engine_options.headers.x") is FIELDS["engine_options"]
    with pytest.raises(KeyError):
        field_info("slots.night")
    with pytest.raises(KeyError):
        field_info("")


@pytest.mark.parametrize("name", ["a", "main", "Ada", "x.y-z_1", "9lives", "a" * 64])
def test_safe_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../x", "../../etc/passwd", "a/b", "a\\b", "/abs", "-rf", ".hidden", "a..b",
        "a.", "a b", "a\n", "a\0", "ä", "а", "con:", "a" * 65, "all", "Operator", "system", "~", "a%2f",
    ],
)  # fmt: skip
def test_unsafe_names(name: str) -> None:
    assert name_problem(name)


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret("123456:very-private")
    spec = AgentSpec("ada", telegram_token=secret, matrix=MatrixIdentity(password=secret))
    shown = [
        repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{secret!r}", repr(spec),
        str(dataclasses.asdict(spec)), str(copy.deepcopy(spec)), str([secret]),
    ]  # fmt: skip
    assert not [text for text in shown if "very-private" in text]
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "123456:very-private"


def test_a_reference_to_a_secret_is_shown_but_not_revealed() -> None:
    secret = Secret("env:BOT_TOKEN")
    assert str(secret) == "env:BOT_TOKEN"
    with pytest.raises(ConfigError, match="env:BOT_TOKEN"):
        secret.reveal()


def test_secrets_are_equal_by_what_was_written() -> None:
    assert Secret("a") == Secret("a")
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    assert Secret("a") != "a"


def test_channels_follow_transports_else_the_identities() -> None:
    token = Secret("1:a")
    assert AgentSpec("a").channels == ()
    assert AgentSpec("a", telegram_token=token).channels == ("telegram",)
    both = AgentSpec("a", telegram_token=token, matrix=MatrixIdentity(user_id="@a:b"))
    assert both.channels == ("telegram", "matrix")
    assert dataclasses.replace(both, transports=("console",)).channels == ("console",)


def test_delegation_is_open_unless_listed_and_ignores_case() -> None:
    assert AgentSpec("a").may_delegate_to("b")
    assert not AgentSpec("a", can_delegate_to=()).may_delegate_to("b")
    assert AgentSpec("a", can_delegate_to=("Bea",)).may_delegate_to("bea")
