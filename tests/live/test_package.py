"""What is handed out: the same bytes from the same commit, complete, running where it is installed."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.live.package import INSTALL_S, Archives, Clone, build, ran, unpacked
from tests.support.bound import BOUND_S
from tests.support.ports import free_port
from tests.support.source_tree import PACKAGE, ROOT

pytestmark = pytest.mark.timeout(2 * INSTALL_S + 60)
PIPX = "pipx==1.18.4"


def digests(archives: Archives) -> list[str]:
    files = (archives.wheel, archives.sdist)
    return [f"{each.name} {hashlib.sha256(each.read_bytes()).hexdigest()}" for each in files]


def test_the_same_commit_gives_the_same_bytes(archives: Archives, tmp_path: Path) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        assert len({each.date_time for each in wheel.infolist()}) == 1
        assert {each.external_attr >> 16 & 0o777 for each in wheel.infolist()} <= {0o644, 0o755}
    with tarfile.open(archives.sdist) as sdist:
        members = sdist.getmembers()
        assert {(each.uid, each.gid, each.uname, each.gname) for each in members} == {
            (0, 0, "", "")
        }
        (epoch,) = {each.mtime for each in members}
    git = ["git", "-c", f"safe.directory={ROOT}", "log", "-1", "--format=%ct"]
    asked = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode == 0 and (ROOT / ".git").exists():
        assert int(asked.stdout) == epoch
    # Another folder, another person with other habits, and no git.
    there = unpacked(archives.sdist, tmp_path / "there")
    (there / ".home").mkdir()
    (there / ".home" / "api.token").write_text("a secret")
    (there / "agentsup" / "__pycache__").mkdir()
    (there / "agentsup" / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"x")
    env = {"HOME": str(tmp_path), "TZ": "Pacific/Chatham", "LANG": "tr_TR.UTF-8", "USER": "eve"}
    again = build(there, tmp_path / "again", umask=0o077, SOURCE_DATE_EPOCH=str(int(epoch)), **env)
    assert digests(again) == digests(archives)


def test_the_wheel_has_all_that_the_package_has_and_no_more(archives: Archives) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        texts = {name: wheel.read(name).decode() for name in names if name.endswith(".py")}
    ours = {
        str(path.relative_to(PACKAGE.parent))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    docs = PACKAGE.parent / "docs"
    pages = {
        f"agentsup/docs/{path.relative_to(docs)}" for path in docs.rglob("*") if path.is_file()
    }
    assert names == ours | {"agentsup/CHANGELOG.md"} | pages
    others = re.compile(r"^\s*(?:from|import) (?:tests|benchmarks)\b", re.MULTILINE)
    assert not [name for name, text in texts.items() if others.search(text)]
    with tarfile.open(archives.sdist) as sdist:
        files = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"Makefile", "requirements/runtime.txt", "scripts/venv.sh", "docs/index.md"} <= files
    assert not {
        name for name in files if re.search(r"node_modules|\.venv|\.home|__pycache__", name)
    }


def test_make_run_in_a_fresh_clone_installs_no_tools_of_development(clone: Clone) -> None:
    assert "The daemon is up at http://127.0.0.1:" in clone.said
    pip = [str(clone.python), "-m", "pip", "list", "--format", "json"]
    packages = {each["name"].casefold() for each in json.loads(ran(pip, cwd=clone.folder))}
    assert "aiohttp" in packages
    assert not packages & {"pytest", "mypy", "ruff", "playwright", "hypothesis", "import-linter"}
    # The second time nothing is installed.
    assert "installing" not in ran(["make", "--dry-run", "run"], cwd=clone.folder)


def test_the_installed_wheel_has_page_documentation_and_roles(
    installed_bin: Path, tmp_path: Path
) -> None:
    python = [str(installed_bin / "python"), "-c", "import agentsup; print(agentsup.__file__)"]
    assert Path(ran(python, cwd=tmp_path)).is_relative_to(installed_bin.parent)
    serves_all(installed_bin / "agentsup", tmp_path)


def test_pipx_installs_the_wheel_with_all_of_it(archives: Archives, tmp_path: Path) -> None:
    """As docs/install.md says, by the pipx of the index, which downloads what the wheel needs."""
    tools = tmp_path / "tools" / "bin"
    ran([sys.executable, "-m", "venv", str(tools.parent)], cwd=tmp_path)
    install = [str(tools / "python"), "-m", "pip", "install", "--quiet", PIPX]
    ran(install, cwd=tmp_path, timeout_s=INSTALL_S)
    line = [str(tools / "pipx"), "install", f"{archives.wheel}[all]"]
    own = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    said = ran(line, cwd=tmp_path, timeout_s=INSTALL_S, **own)
    assert "installed package agentsup" in said
    serves_all(tmp_path / "bin" / "agentsup", tmp_path)


def serves_all(program: Path, folder: Path) -> None:
    """An installed program makes a home in ``folder`` and has page, documentation and roles."""
    home, port = folder / "home", str(free_port())

    def agentsup(*words: str) -> str:
        line = [str(program), "--home", str(home), *words]
        return ran(line, cwd=folder, AGENTSUP_API__PORT=port)

    try:
        assert "made the home" in agentsup("up", "--no-chat")
        url = f"http://127.0.0.1:{port}"
        token = (home / "api.token").read_text().strip()
        with urllib.request.urlopen(f"{url}/", timeout=BOUND_S) as answer:
            page = answer.read().decode()
        scripts = re.findall(r'(?:src|href)="(/page/[^"]+)"', page)
        assert scripts
        for each in scripts:
            with urllib.request.urlopen(f"{url}{each}", timeout=BOUND_S) as answer:
                assert answer.status == 200
        asked = urllib.request.Request(
            f"{url}/openapi.json", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked, timeout=BOUND_S) as answer:
            assert "/interagent/send" in json.load(answer)["paths"]
        assert re.search(r"^librarian +builtin +active", agentsup("roles", "list"), re.MULTILINE)
        assert "agentsup tasks create" in agentsup("help", "tasks", "create")
        assert agentsup("docs", "models").startswith("# Models")
        assert agentsup("send", "writer", "a haiku").startswith("One line from the phone")
        assert (home / "config.schema.json").is_file()
    finally:
        agentsup("stop")
    assert sys.prefix not in (home / "logs" / "agentsup.log").read_text()
