import gc

import pytest

from agentsup.kit.loading import loading


def test_nobody_collects_while_modules_load() -> None:
    assert gc.isenabled()
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_module_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError
    assert gc.isenabled()


def test_what_was_loaded_is_never_looked_at_again() -> None:
    before = gc.get_freeze_count()
    with loading():
        kept = [[number] for number in range(1_000)]
    assert gc.get_freeze_count() - before >= len(kept)
    assert not {id(one) for one in kept} & {id(one) for one in gc.get_objects()}


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
