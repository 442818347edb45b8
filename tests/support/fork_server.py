"""One process of a test run loads the daemon's program, once for all workers, and forks when asked.

Each fork is what ``loaded_life`` makes of it: a process that waits and whose lives are forks again.
Modules are loaded with the first request for them; those who need more than another set are a server
of their own, forked from one that has loaded what both need.

    server = ForkServer.start()  # before the workers, which inherit its address
    ...
    server.close()
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tests.support import loaded_life
from tests.support.socket_folder import socket_folder

ADDRESS: Final = "FORK_SERVER_OF_TESTS"
"""The variable that names its socket to all processes of a test run."""
_REQUEST_BYTES: Final = 65_536
_MOST_DESCRIPTORS: Final = 6
_FREE: Final = 50
"""No descriptor of the server is as high."""
INHERITED: Final = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "PYTHONHASHSEED", "PYTHONPATH")
"""What a daemon of a test inherits of the environment."""


@dataclass(frozen=True, slots=True)
class Cage:
    """The limits of a life and of all that it starts: address space in bytes, descriptors, and how
    large a file may grow, in bytes."""

    memory: int = 2 * 1024**3
    descriptors: int = 256
    file: int = 256 * 1024**2

    def close(self) -> None:
        """Shut this process in. With 1024 descriptors it may raise its limit, as on any machine."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = hard if self.descriptors >= 1024 else min(hard, self.descriptors)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(self.descriptors, most), most))
        for kind, wanted in ((resource.RLIMIT_AS, self.memory), (resource.RLIMIT_FSIZE, self.file)):
            _, hard = resource.getrlimit(kind)
            least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (least, least))


class ForkServer:
    """The server as whoever starts it sees it."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    @classmethod
    def start(cls, modules: Sequence[str]) -> Self:
        """Start it and tell its address to all who are started from here on. It ends with us, and
        loads ``modules``, which all its forks have, when it is first asked."""
        folder = Path(socket_folder("agentsup-forks-"))
        address = str(folder / "socket")
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(address)
            listening.listen(64)
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno()), *modules],
                stdin=subprocess.PIPE,
                env={**env, "MALLOC_ARENA_MAX": "2"},
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        os.environ[ADDRESS] = address
        return cls(process, folder)

    def close(self) -> None:
        """End it; what it has forked goes on until its own end."""
        assert self._process.stdin is not None
        os.environ.pop(ADDRESS, None)
        self._process.stdin.close()
        self._process.wait()
        (self._folder / "socket").unlink()
        self._folder.rmdir()


def fork(modules: Sequence[str], cage: Cage, descriptors: Sequence[int]) -> None:
    """Have a process forked that has loaded ``modules``, with these as its descriptors from 0 on. It
    stands where the caller does, in a session of its own."""
    request = {"modules": list(modules), "cage": asdict(cage), "folder": str(Path.cwd())}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(os.environ[ADDRESS])
        socket.send_fds(server, [json.dumps(request).encode()], list(descriptors))


# -- the server itself -----------------------------------------------------------------------------


@dataclass
class _Server:
    """What it has loaded, where requests come from, and the servers that have loaded more."""

    modules: tuple[str, ...]
    listening: socket.socket | None
    asking: socket.socket | None = None
    """Of a server that was forked from another: that one hands requests on."""
    is_loaded: bool = False
    others: dict[tuple[str, ...], socket.socket] = field(default_factory=dict)

    def run(self) -> Mapping[str, Any] | None:
        """Serve until whoever started it has ended: None, and in each fork its request."""
        while True:
            received = self._received()
            if received is None:
                return None
            text, descriptors = received
            request = self._serve(text, descriptors) if text else None
            for descriptor in descriptors:
                os.close(descriptor)
            if request is not None:
                return request

    def _received(self) -> tuple[bytes, list[int]] | None:
        if self.asking is not None:
            text, descriptors, _, _ = socket.recv_fds(
                self.asking, _REQUEST_BYTES, _MOST_DESCRIPTORS
            )
            return (text, descriptors) if text else None
        assert self.listening is not None
        either: list[Any] = [self.listening, 0]
        if 0 in select.select(either, [], [])[0]:
            return None
        with self.listening.accept()[0] as asking:
            text, descriptors, _, _ = socket.recv_fds(asking, _REQUEST_BYTES, _MOST_DESCRIPTORS)
            return text, descriptors

    def _serve(self, text: bytes, descriptors: list[int]) -> Mapping[str, Any] | None:
        _reap()
        if not self.is_loaded:
            loaded_life.load(self.modules)
            self.is_loaded = True
        request: dict[str, Any] = json.loads(text)
        wanted = tuple(request["modules"])
        if wanted == self.modules:
            return self._forked(request, descriptors)
        if wanted not in self.others:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                ours.close()
                self._leave()
                self.modules, self.is_loaded = wanted, False
                self.asking, self.others = theirs, {}
                return None
            theirs.close()
            self.others[wanted] = ours
        socket.send_fds(self.others[wanted], [text], descriptors)
        return None

    def _forked(
        self, request: Mapping[str, Any], descriptors: list[int]
    ) -> Mapping[str, Any] | None:
        if os.fork():
            return None
        self._leave()
        os.setsid()
        aside = [
            fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE) for descriptor in descriptors
        ]
        while descriptors:
            os.close(descriptors.pop())
        for place, descriptor in enumerate(aside):
            os.dup2(descriptor, place)
            os.close(descriptor)
        os.chdir(request["folder"])
        return request

    def _leave(self) -> None:
        """Let a fork have nothing of this server's."""
        for each in (self.listening, self.asking, *self.others.values()):
            if each is not None:
                each.close()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _main() -> None:
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    listening = socket.socket(fileno=int(sys.argv[1]))
    request = _Server(tuple(sys.argv[2:]), listening).run()
    if request is not None:
        signal.signal(signal.SIGINT, inherited)
        Cage(**request["cage"]).close()
        loaded_life.serve()


if __name__ == "__main__":
    _main()
