from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from agentsup.kit.loading import OLD_ROUNDS, YOUNG_OBJECTS, hidden, late, loading, settled


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


def test_a_long_life_collects_seldom_and_never_looks_at_what_is_there() -> None:
    before = gc.get_threshold()
    kept = [[number] for number in range(1_000)]
    try:
        settled()
        young, middle, old = before
        assert gc.get_threshold() == (max(YOUNG_OBJECTS, young), middle, max(OLD_ROUNDS, old))
        assert not {id(one) for one in kept} & {id(one) for one in gc.get_objects()}
        higher = (YOUNG_OBJECTS + 1, middle, OLD_ROUNDS + 1)
        gc.set_threshold(*higher)
        settled()
        assert gc.get_threshold() == higher, "what is higher stays"
    finally:
        gc.set_threshold(*before)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_hidden_module_is_missing_inside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with hidden("colorsys"), pytest.raises(ImportError):
        importlib.import_module("colorsys")
    assert importlib.import_module("colorsys").__name__ == "colorsys"
    with hidden("colorsys"):
        assert importlib.import_module("colorsys").__name__ == "colorsys", "it is loaded already"


def test_the_daemon_loads_nothing_that_most_homes_do_not_use() -> None:
    unused = {
        "rich",
        "greenlet",
        "aiohttp.client",
        "aiohttp.connector",
        "prometheus_client",
        "pydantic_settings",
        "watchfiles.main",
        "idna.core",
        # What the modules pickle, lzma, bz2 and csv import.
        *("_pickle", "_lzma", "_bz2", "_csv"),
    }
    code = f"import sys, agentsup.daemon.main; sys.exit(str({unused!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stderr.strip() == "set()"


def test_the_daemon_runs_no_module_for_a_name_that_it_does_not_use() -> None:
    """aiohttp and pydantic import them. pydantic would look for plugins, and reads of archives with
    that."""
    names = {
        "argparse": "SUPPRESS",
        "email.policy": "SMTP",
        "html": "unescape",
        "importlib.metadata": "version",
        "urllib.request": "urlopen",
        "aiohttp.web_fileresponse": "NOSENDFILE",
        "zipfile": "ZipFile",
    }
    code = (
        "import sys, agentsup.daemon.main, agentsup.daemon.assembly.build;"
        f"sys.exit(str([n for n, has in {names!r}.items() if has in vars(sys.modules[n])]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stderr.strip() == "[]"


PACKAGE = {
    "__init__.py": "from late_sample.own import *\nfrom late_sample.heavy import weight\n",
    "heavy.py": "weight = 7\n",
    "own.py": "from . import light\nname = light.name\n",
    "light.py": "name = 'light'\n",
}


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "late_sample"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "late_sample"
    for name in [name for name in sys.modules if name.startswith("late_sample")]:
        del sys.modules[name]


def test_a_late_package_gives_its_modules_and_runs_at_the_first_other_name(sample: str) -> None:
    late(sample)
    assert importlib.import_module("late_sample.own").name == "light"
    assert "late_sample.heavy" not in sys.modules
    package = importlib.import_module(sample)
    assert not hasattr(package, "__wrapped__"), "asking for such a name starts nothing"
    assert "late_sample.heavy" not in sys.modules
    assert package.weight == 7
    assert type(package) is ModuleType
    assert not hasattr(package, "nothing")


def test_a_late_module_of_no_package_runs_at_its_first_name(sample: str, tmp_path: Path) -> None:
    (tmp_path / "late_sample_alone.py").write_text("weight = 8\n", encoding="utf-8")
    late("late_sample_alone")
    module = importlib.import_module("late_sample_alone")
    assert "weight" not in vars(module)
    assert module.weight == 8
    assert type(module) is ModuleType
    assert not hasattr(module, "nothing")


def test_the_version_of_a_late_package_is_read_without_running_it(
    sample: str, tmp_path: Path
) -> None:
    init = tmp_path / sample / "__init__.py"
    init.write_text('__version__ = "1.2.3"\nraise RuntimeError\n', encoding="utf-8")
    late(sample)
    assert importlib.import_module(sample).__version__ == "1.2.3"
    init.write_text("from late_sample.light import name as __version__\n", encoding="utf-8")
    assert importlib.import_module(sample).__version__ == "light", "then it runs"


def test_the_first_name_may_be_one_that_the_package_itself_loads_late(
    sample: str, tmp_path: Path
) -> None:
    text = "def __getattr__(name):\n    if name != 'seven':\n        raise AttributeError(name)\n    return 7\n"
    (tmp_path / sample / "__init__.py").write_text(text, encoding="utf-8")
    late(sample)
    assert importlib.import_module(sample).seven == 7
    assert not hasattr(importlib.import_module(sample), "nothing")


def test_threads_that_ask_a_late_package_at_once_run_it_once(sample: str, tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    heavy = tmp_path / "late_sample" / "heavy.py"
    heavy.write_text("import sys\nsys.late_sample_hook()\nweight = 7\n", encoding="utf-8")
    runs: list[int] = []

    def hook() -> None:
        runs.append(1)
        begun.set()
        assert go_on.wait(20)

    late(sample)
    package = importlib.import_module(sample)
    vars(sys)["late_sample_hook"] = hook
    try:
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(lambda: package.weight)
            assert begun.wait(20)
            second = threads.submit(lambda: package.weight)
            go_on.set()
            assert (first.result(20), second.result(20)) == (7, 7)
    finally:
        del vars(sys)["late_sample_hook"]
    assert len(runs) == 1


def test_a_package_that_is_loaded_or_missing_is_no_late_one(sample: str) -> None:
    package = importlib.import_module(sample)
    late(sample)
    assert sys.modules[sample] is package
    with pytest.raises(ImportError):
        late("late_sample_that_is_missing")


WATCHING = """
import asyncio, sys
from pathlib import Path
from agentsup.config.watch import WatchedDirectory
from agentsup.kit.clock import SystemClock
async def main():
    stop, told = asyncio.Event(), 0
    directory = WatchedDirectory(Path(sys.argv[1]), SystemClock(), reread_s=0.05)
    async for _ in directory.looks(stop):
        told += 1
        if told == 3:
            stop.set()
asyncio.run(main())
print(sorted({"anyio._backends._asyncio", "anyio.to_thread"} & set(sys.modules)))
"""


def test_a_watch_loads_no_other_event_loop(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WATCHING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_stand_in_runs_its_module_at_its_first_use_and_does_what_the_name_does(
    sample: str, tmp_path: Path
) -> None:
    text = "class Weight:\n    unit = 'kg'\n\ndef doubled(number):\n    return 2 * number\n"
    (tmp_path / "late_sample_stands.py").write_text(text, encoding="utf-8")
    late("late_sample_stands", "Weight", "doubled")
    module = importlib.import_module("late_sample_stands")
    weight, doubled = module.Weight, module.doubled
    assert "doubled" not in vars(module), "to ask for one is no use"
    assert doubled(4) == 8
    assert module.doubled is not doubled, "from now on it is the function itself"
    assert (weight.unit, module.Weight) == ("kg", type(weight()))
    assert isinstance(module.Weight(), weight)
    assert issubclass(type("Light", weight.__mro_entries__(()), {}), module.Weight)
    del sys.modules["late_sample_stands"]
    late("late_sample_stands", "Weight")
    assert importlib.import_module("late_sample_stands").doubled(4) == 8, "the others run it"
