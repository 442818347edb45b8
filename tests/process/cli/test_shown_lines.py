"""Each command line of docs/ is typed, or is named here with what runs it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from tests.process.cli.process_cli import RULES, Cli, Shell, until
from tests.support.moving_homes import openclaw_home
from tests.support.ports import free_port
from tests.support.shown_commands import HAS_PLACES, codes, shell_lines
from tests.support.source_tree import ROOT

# It starts about a hundred programs.
pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

DOCS = ROOT / "docs"
INSIDE = {"proofs.md", "performance.md"}
"""Pages for those who change agentsup; what they show needs its sources and tools."""
OTHERS = {"docker", "tailscale", "cloudflared", "ssh", "loginctl", "nano", "make", "pipx"}
"""Programs that not every machine has, and what builds in the sources."""
ELSEWHERE = {
    "agentsup setup --provider openai --key-file openai.key --model gpt-5-mini": "cli/test_setup.py",
    "agentsup setup --bot-token-file token --person anna --telegram-id 123456789": "cli/test_setup.py",
    "agentsup agents add poet": "test_managed_bots.py",
    "agentsup agents bot poet": "test_managed_bots.py",
    "agentsup --home ~/research models set gpt-5 --agent critic": "cli/test_setup.py",
    "agentsup service install": "cli/test_service.py",
    "agentsup logs -f": "cli/test_commands.py",
    "agentsup demo": "cli/test_demo.py",
    "agentsup upgrade": "test_upgrade.py",
    "agentsup uninstall": "test_upgrade.py",
    "agentsup run": "test_exit_42.py",
    "agentsup run --accept-store": "test_lost_store.py",
}
"""What asks others or a person, goes on until it is ended, or changes the machine: its test."""
MODEL = "--provider compatible --base-url http://127.0.0.1:9/v1 --model good --no-test"
INSTEAD = {
    "agentsup tasks pause ID": "agentsup tasks pause $(agentsup tasks create later --cron '0 8 * * *' "
    "--json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"task_id\"])')",
    "agentsup restore": "agentsup stop && agentsup restore && agentsup up --no-chat",
    "agentsup import writer.agent.tar.gz": "agentsup --home ~/new init && "
    "agentsup --home ~/new import writer.agent.tar.gz --as second",
}
"""What is typed where the reader has to fill in something."""
AGENTS = [
    {"name": name, "engine": "scripted", "engine_options": {"script": "demo-rules.yaml"}}
    for name in ("main", "writer", "researcher")
]


class Reader(Shell):
    """Types what the pages show."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, HOME=str(folder))
        self.cli = Cli(folder / ".agentsup", free_port())

    def type(self, line: str) -> str:
        if line.endswith((" status", " doctor")):
            # On a busy machine they say rightly that the daemon is held up.
            until(line, lambda: self.run(line).returncode == 0)
            return ""
        return super().type(line)

    def say(self, text: str) -> str:
        """Say a line of a chat."""
        return self.type(f"printf '%s\\n' {shlex.quote(text)} | agentsup chat")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Reader]:
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    shutil.copytree(ROOT / "packaging", tmp_path / "packaging")
    openclaw_home(tmp_path / ".openclaw")
    made = Reader(tmp_path)
    made.type("agentsup init")
    home = made.cli.home
    (home / "agents.json").write_text(json.dumps(AGENTS))
    (home / "demo-rules.yaml").write_text(RULES)
    hosts = 'allowed_hosts = ["agents.home.example", "192.168.1.20"]\n'
    people = '[people.anna]\nrole = "operator"\n'
    (home / "config.toml").write_text(f"[api]\nport = {made.cli.port}\n{hosts}{people}")
    yield made
    for each in tmp_path.iterdir():
        if (each / "daemon.json").exists():
            Cli(each, 0).end_all()


def lines_of(path: Path) -> list[str]:
    """Lines that a page shows, as they stand there: those of its blocks, then its sentences'."""
    text = path.read_text(encoding="utf-8")
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in shell_lines(text)]
    return [
        *filter(None, lines),
        *(
            code
            for code in codes(text)
            if code.startswith("agentsup ") and not HAS_PLACES.search(code)
        ),
    ]


def _filled(line: str, port: int) -> str:
    """The line with what the reader would answer, and with ports that are free here."""
    line = INSTEAD.get(line, line).replace(":8799/", f":{port}/")
    line = line.replace("http://10.0.0.5:8000", "http://127.0.0.1:9")  # where nothing listens
    if line.endswith(" setup"):
        return f"{line} {MODEL}"
    if "--home" in line and re.search(r" up( --no-chat)?$", line):
        return f"{line} --port {free_port()}"
    return line


def _words_in_code(line: str) -> Iterator[str]:
    """Patterns of the command and of each option, as a test has them."""
    words = shlex.split(line)[1:]
    if words[0] == "--home":
        words = words[2:]
    verbs = list(takewhile(lambda word: not word.startswith("-"), words))[:2]
    if verbs == ["run"]:
        yield r"\.launch\("  # of a DaemonProcess
    else:
        yield '(?:"|agentsup )' + '(?:", "| )'.join(verbs) + r'(?:"| |$)'
    for word in words:
        if word.startswith("-"):
            yield rf'["\' ]{word}["\' =]'


def test_what_runs_a_line_elsewhere_is_there() -> None:
    shown = {line for path in DOCS.rglob("*.md") for line in lines_of(path)}
    for line, test in ELSEWHERE.items():
        assert line in shown, line
        text = (ROOT / "tests" / "process" / test).read_text(encoding="utf-8")
        for each in _words_in_code(line):
            assert re.search(each, text), (test, line, each)
    assert INSTEAD.keys() <= shown


def test_each_line_that_is_shown_works(shell: Reader) -> None:
    pages = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "examples").glob("*.md"))]
    typed: set[str] = set()
    for path in pages:
        if path.name in INSIDE:
            continue
        # A page may end the daemon; the next one begins with it.
        shell.type("agentsup up --no-chat")
        for line in lines_of(path):
            if line in typed or line in ELSEWHERE or shlex.split(line)[0] in OTHERS:
                continue
            typed.add(line)
            if line.startswith("/"):
                for said in re.split(r"\s{3,}", line):
                    assert "unknown" not in shell.say(said).casefold(), said
            else:
                shell.type(_filled(line, shell.cli.port))
    assert len(typed) > 60
    until("the daemon is ready", shell.cli.is_ready)
    listed = shell.type("agentsup tasks list --json")
    assert listed.count("count the birds") >= 3
