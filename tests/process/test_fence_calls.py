"""P7: what the fence closes, system call by system call, as docs/fence.md says it.

Each probe is made by a real program, once free and once behind the fence. What a version of the
kernel's fence does not close is in the table as well: nobody is to take it for closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentsup.kit import fence
from agentsup.kit.fence import Fence, rules_of
from agentsup.kit.pipes import Stdio
from agentsup.kit.procgroup import ProcessGroup
from tests.process import fence_probe

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(fence.version() < fence.OLDEST, reason="this kernel has no Landlock"),
]

CONTROL_GROUPS = "/sys/fs/cgroup"
DOCS = Path(__file__).parents[2] / "docs" / "fence.md"
NEVER = 0
CLOSED_SINCE = {
    **dict.fromkeys(
        (
            "open for reading",
            "open for writing",
            "openat of a directory",
            "open_by_handle_at",
            "openat of io_uring",
            "flock",
            "fcntl: a lease",
            "fcntl: dnotify",
            "list a directory",
            "execve",
            "create a file",
            "mkdir",
            "symlink",
            "mknod",
            "bind a socket",
            "link out",
            "link in",
            "rename out",
            "rename in",
            "renameat2: exchange",
            "unlink",
            "mount",
        ),
        2,
    ),
    "truncate": 3,
    **dict.fromkeys(
        (
            "stat",
            "access",
            "readlink",
            "statfs",
            "getxattr",
            "chdir",
            "chmod",
            "chown",
            "utime",
            "setxattr",
            "inotify_add_watch",
            "fanotify_mark",
        ),
        NEVER,
    ),
    "elsewhere: open for reading": NEVER,
    "elsewhere: list": NEVER,
    "elsewhere: flock": NEVER,
    "elsewhere: a lease": NEVER,
    **dict.fromkeys(
        (
            "elsewhere: open for writing",
            "elsewhere: create",
            "elsewhere: create where nothing is",
            "elsewhere: replace by rename",
            "elsewhere: rename the folder",
            "elsewhere: mkdir",
            "elsewhere: link in",
            "elsewhere: unlink",
        ),
        2,
    ),
    "elsewhere: truncate": 3,
    "elsewhere: chmod": NEVER,
    "connect to a path": 9,
    "sendto a path": 9,
    "connect to an abstract socket": 6,
    "sendto an abstract socket": 6,
    "connect over TCP": NEVER,
    "kill": 6,
    "tgkill": 6,
    "sigqueue": 6,
    "pidfd_send_signal": 6,
    **dict.fromkeys(
        (
            "ptrace",
            "process_vm_readv",
            "pidfd_getfd",
            "/proc/PID/environ",
            "/proc/PID/mem",
            "/proc/PID/cwd",
            "/proc/PID/root",
            "/proc/PID/fd",
        ),
        2,
    ),
    "prlimit": NEVER,
    "setpriority": NEVER,
    "ioprio_set": NEVER,
    "sched_setscheduler": NEVER,
    "sched_setaffinity": NEVER,
    "shmat (System V)": NEVER,
    "msgsnd (System V)": NEVER,
    "semctl (System V)": NEVER,
    "shm_open (POSIX)": NEVER,
    "mq_open (POSIX)": 2,
    "keyctl (the user's keyring)": NEVER,
}
"""From which version of Landlock on each is closed."""
OPEN_TO_ROOT = {"/proc/PID/environ"}
"""Linux 6.15 and newer let it pass for whoever may watch performance (``CAP_PERFMON``)."""


def table() -> str:
    """As it stands in the docs."""
    rows = ["| call | closed since Landlock |", "|---|---|"]
    rows += [f"| {name} | {since or 'not closed'} |" for name, since in CLOSED_SINCE.items()]
    return "\n".join(rows)


def is_closed(name: str) -> bool:
    """Whether it has to be on this machine."""
    return CLOSED_SINCE[name] != NEVER and fence.version() >= CLOSED_SINCE[name]


def test_the_docs_say_what_is_probed() -> None:
    assert table() in DOCS.read_text(), f"put this into {DOCS.name}:\n{table()}"


@contextmanager
def world(root: Path) -> Iterator[dict[str, Any]]:
    """A closed place, one that nobody named, and what a process outside the fence has open."""
    libc, name = ctypes.CDLL(None, use_errno=True), f"agentsup-{os.getpid()}-{root.name}"[:60]
    closed, place = root / "closed", root / "elsewhere"
    for folder in (closed, place, root / "space"):
        folder.mkdir(parents=True)
    for each in ("file", "moved", "removed", "long", "file2", "exchanged"):
        (closed / each).write_text("a long secret")
        (place / each).write_text("an order")
    (closed / "program").symlink_to("/bin/true")
    (closed / "program").unlink()
    (closed / "program").write_bytes(Path("/bin/true").read_bytes())
    (closed / "program").chmod(0o700)
    (closed / "link").symlink_to("file")
    with contextlib.suppress(OSError):
        os.setxattr(closed / "file", "user.known", b"x")
    shared = Path("/dev/shm", name)
    shared.write_bytes(b"shared")
    queue = f"/{name}"
    posix = libc.mq_open(queue.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    key = os.getpid()
    segment = libc.shmget(key, 4096, 0o1600)
    letters, semaphores = libc.msgget(key, 0o1600), libc.semget(key, 1, 0o1600)
    if os.uname().machine == "x86_64":
        libc.syscall(248, b"user", name.encode(), b"secret", 6, -4)
    with contextlib.ExitStack() as stack:
        names = {"stream": str(root / "s"), "datagram": str(root / "d")}
        for path, kind in (
            (names["stream"], socket.SOCK_STREAM),
            (names["datagram"], socket.SOCK_DGRAM),
            (f"\0{name}", socket.SOCK_STREAM),
            (f"\0{name}-datagram", socket.SOCK_DGRAM),
        ):
            one = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            one.bind(path)
            if kind == socket.SOCK_STREAM:
                one.listen()
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        # A group of its own, since the group is aimed at, too.
        target = subprocess.Popen(
            ["sleep", "60"], stdin=subprocess.DEVNULL, cwd="/usr", start_new_session=True
        )
        try:
            yield {
                **names,
                "closed": str(closed),
                "elsewhere": str(place),
                "abstract": name,
                "port": tcp.getsockname()[1],
                "pid": target.pid,
                "key": key,
                "shared": str(shared),
                "queue": queue,
            }
        finally:
            target.kill()
            target.wait()
            shared.unlink()
            libc.shmctl(segment, 0, None)
            libc.msgctl(letters, 0, None)
            libc.semctl(semaphores, 0, 0)
            if posix >= 0:
                libc.mq_unlink(queue.encode())
                os.close(posix)


async def probed(root: Path, *, is_fenced: bool) -> dict[str, str]:
    with world(root) as aim, contextlib.ExitStack() as stack:
        rules = None
        if is_fenced:
            wanted = Fence((aim["closed"],), (str(root / "space"),))
            rules = await asyncio.to_thread(rules_of, wanted)
            stack.callback(os.close, rules)
        group = await ProcessGroup.spawn(
            [sys.executable, "-S", "-E", fence_probe.__file__, json.dumps(aim)],
            env={"PATH": os.environ["PATH"]},
            cwd=str(root / "space"),
            stderr=Stdio.MERGE,
            fence=rules,
        )
        async with group:
            output = await group.communicate(limit_bytes=100_000)
    found: dict[str, str] = json.loads(output.stdout)
    return found


async def test_each_call_is_closed_from_its_version_on(tmp_path: Path) -> None:
    found = await probed(tmp_path, is_fenced=True)
    assert set(found) == set(CLOSED_SINCE)
    wrong = {
        name: how
        for name, how in found.items()
        if how != "absent"
        and not (os.geteuid() == 0 and name in OPEN_TO_ROOT)
        and (how == "closed") != is_closed(name)
    }
    assert not wrong, f"Landlock {fence.version()}"


async def test_without_a_fence_each_call_reaches_what_it_is_for(tmp_path: Path) -> None:
    """A probe that never works proves nothing."""
    found = await probed(tmp_path, is_fenced=False)
    closed = {name for name, how in found.items() if how == "closed"}
    privileged = {"open_by_handle_at", "mount"} if os.geteuid() else set()
    assert closed <= privileged


@contextmanager
def control_group(owner: int) -> Iterator[Path]:
    """One that belongs to a user, as those of a user's services do."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    top = next((Path(row[1]) for row in rows if row[2] == "cgroup2"), None)
    if top is None or not top.is_relative_to(CONTROL_GROUPS):
        pytest.skip("no control groups here")
    group = top / f"agentsup-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no control group can be made here")
    try:
        os.chown(group / "cgroup.freeze", owner, -1)
        yield group
    finally:
        group.rmdir()


@pytest.mark.parametrize("writable", [(), (CONTROL_GROUPS,)])
async def test_a_process_can_not_be_frozen_by_its_control_group(
    tmp_path: Path, writable: tuple[str, ...]
) -> None:
    with control_group(os.getuid()) as its:
        rules = await asyncio.to_thread(rules_of, Fence((str(tmp_path),), (), writable))
        try:
            group = await ProcessGroup.spawn(
                ["sh", "-c", f"cat {its}/cgroup.procs && echo 1 > {its}/cgroup.freeze"],
                env={"PATH": os.environ["PATH"]},
                cwd="/",
                stderr=Stdio.MERGE,
                fence=rules,
            )
        finally:
            os.close(rules)
        async with group:
            output = await group.communicate(limit_bytes=10_000)
        is_frozen = (its / "cgroup.freeze").read_text().strip() == "1"
        assert is_frozen is bool(writable), output
        assert ("denied" in output.stdout.decode()) is not bool(writable)
