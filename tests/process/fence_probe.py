# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH115, PTH116, PTH208, PTH211
# Each line is one system call, by its own name.
"""What one program reaches by each system call that takes a path or touches another process.

Run as a program of its own, behind a fence or not: ``fence_probe.py TARGETS``, where TARGETS is a
JSON document with the places and the numbers to try. It prints how each probe went: ``reached``,
``closed``, or ``absent`` where the system has no such thing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ABSENT = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOPROTOOPT}
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "pidfd_getfd": 438,
    "keyctl": 250,
    "ioprio_set": 251,
    "ioprio_get": 252,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "tgkill": 234,
}
"""Of system calls without a function, on x86_64."""
AT_FDCWD = -100


def called(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def by_number(name: str, *args: Any) -> int:
    if os.uname().machine != "x86_64":
        raise OSError(errno.ENOSYS, "known for x86_64 only")
    return called(LIBC.syscall(ctypes.c_long(NUMBERS[name]), *args))


def opened(path: str, flags: int) -> None:
    os.close(os.open(path, flags | os.O_CLOEXEC, 0o600))


def probes(aim: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from on_files(aim["closed"])
    yield from on_metadata(aim["closed"])
    yield from on_others_places(aim["elsewhere"])
    yield from on_sockets(aim)
    yield from on_processes(aim["pid"])
    yield from on_resources(aim["pid"])
    yield from on_shared_objects(aim)


def on_files(home: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    file, own = f"{home}/file", "mine"
    Path(own).write_text("mine")

    def descriptor_of_a_directory() -> None:
        folder = os.open("..", os.O_PATH)
        try:
            os.close(os.open("closed/file", os.O_RDONLY, dir_fd=folder))
        finally:
            os.close(folder)

    def handle() -> None:
        mount = ctypes.c_int()
        buffer = ctypes.create_string_buffer((128).to_bytes(4, "little"), 8 + 128)
        by_number("name_to_handle_at", AT_FDCWD, file.encode(), buffer, ctypes.byref(mount), 0)
        root = os.open("/", os.O_RDONLY)
        try:
            os.close(by_number("open_by_handle_at", root, buffer, os.O_RDONLY))
        finally:
            os.close(root)

    def bind() -> None:
        with socket.socket(socket.AF_UNIX) as own_socket:
            own_socket.bind(f"{home}/own-socket")

    def run() -> None:
        child = os.fork()
        if not child:
            with contextlib.suppress(OSError):
                os.execv(f"{home}/program", ["program"])
            os._exit(126)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 126:
            raise PermissionError("not run")

    def exchange() -> None:
        Path("exchanged").write_text("mine")
        names = (AT_FDCWD, b"exchanged", AT_FDCWD, f"{home}/exchanged".encode())
        called(LIBC.renameat2(*names, 2))  # RENAME_EXCHANGE

    def notified() -> None:
        folder = os.open(home, os.O_RDONLY)
        try:
            fcntl.fcntl(folder, fcntl.F_NOTIFY, 0)
        finally:
            os.close(folder)

    def mount() -> None:
        called(LIBC.mount(home.encode(), home.encode(), None, 4096, None))  # MS_BIND
        called(LIBC.umount2(home.encode(), 2))

    yield "open for reading", lambda: opened(file, os.O_RDONLY)
    yield "open for writing", lambda: opened(file, os.O_WRONLY)
    yield "openat of a directory", descriptor_of_a_directory
    yield "open_by_handle_at", handle
    yield "openat of io_uring", lambda: opened_by_ring(file)
    yield "flock", lambda: locked(file)
    yield "fcntl: a lease", lambda: leased(file)
    yield "fcntl: dnotify", notified
    yield "list a directory", lambda: os.listdir(home)
    yield "execve", run
    yield "truncate", lambda: os.truncate(f"{home}/long", 1)
    yield "create a file", lambda: opened(f"{home}/new", os.O_WRONLY | os.O_CREAT)
    yield "mkdir", lambda: os.mkdir(f"{home}/folder")
    yield "symlink", lambda: os.symlink("/etc/passwd", f"{home}/symlink")
    yield "mknod", lambda: os.mkfifo(f"{home}/pipe")
    yield "bind a socket", bind
    yield "link out", lambda: os.link(file, "linked")
    yield "link in", lambda: os.link(own, f"{home}/linked")
    yield "rename out", lambda: os.rename(f"{home}/moved", "moved")
    yield "renameat2: exchange", exchange
    yield "rename in", lambda: os.rename(own, f"{home}/moved-in")
    yield "unlink", lambda: os.unlink(f"{home}/removed")
    yield "mount", mount


def on_metadata(home: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    file = f"{home}/file"

    def watch() -> None:
        watcher = called(LIBC.inotify_init1(os.O_CLOEXEC))
        try:
            called(LIBC.inotify_add_watch(watcher, home.encode(), 0xFFF))
        finally:
            os.close(watcher)

    def mark() -> None:
        # Without a privilege events name files and bring no descriptors of them.
        watcher = called(LIBC.fanotify_init(0x200, os.O_RDONLY))
        try:
            everything = ctypes.c_uint64(0x3B)
            called(LIBC.fanotify_mark(watcher, 1, everything, AT_FDCWD, home.encode()))
        finally:
            os.close(watcher)

    def enter() -> None:
        here = Path.cwd()
        os.chdir(home)
        os.chdir(here)

    yield "stat", lambda: os.stat(file)
    yield "access", lambda: os.access(file, os.F_OK) or os.stat(file)
    yield "readlink", lambda: os.readlink(f"{home}/link")
    yield "statfs", lambda: os.statvfs(file)
    yield "getxattr", lambda: os.getxattr(file, "user.known")
    yield "chdir", enter
    yield "chmod", lambda: os.chmod(file, 0o600)
    yield "chown", lambda: os.chown(file, os.getuid(), -1)
    yield "utime", lambda: os.utime(file)
    yield "setxattr", lambda: os.setxattr(file, "user.mine", b"x")
    yield "inotify_add_watch", watch
    yield "fanotify_mark", mark


def on_others_places(place: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    def link_in() -> None:
        Path("linkable").write_text("mine")
        os.link("linkable", f"{place}/linked")

    yield "elsewhere: open for reading", lambda: opened(f"{place}/file", os.O_RDONLY)
    yield "elsewhere: list", lambda: os.listdir(place)
    yield "elsewhere: flock", lambda: locked(f"{place}/file")
    yield "elsewhere: a lease", lambda: leased(f"{place}/file")
    yield "elsewhere: open for writing", lambda: opened(f"{place}/file", os.O_WRONLY)
    yield "elsewhere: create", lambda: opened(f"{place}/new", os.O_WRONLY | os.O_CREAT)
    yield (
        "elsewhere: create where nothing is",
        lambda: opened(f"{place}-missing", os.O_WRONLY | os.O_CREAT),
    )
    yield "elsewhere: replace by rename", lambda: os.rename(f"{place}/file", f"{place}/other")
    yield "elsewhere: truncate", lambda: os.truncate(f"{place}/long", 1)
    yield "elsewhere: mkdir", lambda: os.mkdir(f"{place}/folder")
    yield "elsewhere: link in", link_in
    yield "elsewhere: unlink", lambda: os.unlink(f"{place}/removed")
    yield "elsewhere: chmod", lambda: os.chmod(f"{place}/file2", 0o600)
    yield "elsewhere: rename the folder", lambda: os.rename(place, f"{place}-away")


def on_sockets(aim: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    def connect(address: Any, kind: int = socket.SOCK_STREAM, family: int = socket.AF_UNIX) -> None:
        with socket.socket(family, kind) as one:
            one.connect(address)

    def send(address: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.sendto(b"x", address)

    yield "connect to a path", lambda: connect(aim["stream"])
    yield "sendto a path", lambda: send(aim["datagram"])
    yield "connect to an abstract socket", lambda: connect("\0" + aim["abstract"])
    yield "sendto an abstract socket", lambda: send("\0" + aim["abstract"] + "-datagram")
    yield (
        "connect over TCP",
        lambda: connect(("127.0.0.1", aim["port"]), family=socket.AF_INET),
    )


def on_processes(pid: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    def by_pidfd(step: Callable[[int], Any]) -> None:
        found = os.pidfd_open(pid)
        try:
            step(found)
        finally:
            os.close(found)

    def signal_by_pidfd(found: int) -> None:
        import signal

        signal.pidfd_send_signal(found, 0)

    def trace() -> None:
        called(LIBC.ptrace(0x4206, pid, None, None))  # PTRACE_SEIZE
        LIBC.ptrace(17, pid, None, None)

    def memory() -> None:
        class Vector(ctypes.Structure):
            _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

        first = Path(f"/proc/{pid}/maps").read_text().split("-", 1)[0]
        buffer = ctypes.create_string_buffer(8)
        here = Vector(ctypes.addressof(buffer), 8)
        there = Vector(int(first, 16), 8)
        called(LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))

    yield "kill", lambda: os.kill(pid, 0)
    yield "tgkill", lambda: by_number("tgkill", pid, pid, 0)
    yield "sigqueue", lambda: called(LIBC.sigqueue(pid, 0, None))
    yield "pidfd_send_signal", lambda: by_pidfd(signal_by_pidfd)
    yield "ptrace", trace
    yield "process_vm_readv", memory
    yield (
        "pidfd_getfd",
        lambda: by_pidfd(lambda found: os.close(by_number("pidfd_getfd", found, 1, 0))),
    )
    yield "/proc/PID/environ", lambda: opened(f"/proc/{pid}/environ", os.O_RDONLY)
    yield "/proc/PID/mem", lambda: opened(f"/proc/{pid}/mem", os.O_RDONLY)
    yield "/proc/PID/cwd", lambda: os.listdir(f"/proc/{pid}/cwd/.")
    yield "/proc/PID/root", lambda: os.listdir(f"/proc/{pid}/root/.")
    yield "/proc/PID/fd", lambda: os.listdir(f"/proc/{pid}/fd") and os.readlink(f"/proc/{pid}/fd/1")


def on_resources(pid: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What the kernel lets a process set for every other one of its user."""
    core, process = resource.RLIMIT_CORE, 1

    def io_priority() -> Any:
        return by_number("ioprio_set", process, pid, by_number("ioprio_get", process, pid))

    yield "prlimit", lambda: resource.prlimit(pid, core, resource.prlimit(pid, core))
    yield "setpriority", lambda: os.setpriority(os.PRIO_PROCESS, pid, nicer(pid))
    yield "ioprio_set", io_priority
    yield (
        "sched_setscheduler",
        lambda: os.sched_setscheduler(pid, os.sched_getscheduler(pid), os.sched_param(0)),
    )
    yield "sched_setaffinity", lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid))


def locked(path: str) -> None:
    with Path(path).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def leased(path: str) -> None:
    """While it is held, whoever opens the file for writing waits."""
    with Path(path).open() as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def opened_by_ring(path: str) -> None:
    """Open by a request in a ring that the kernel reads, without a call that names the file."""
    facts = ctypes.create_string_buffer(120)
    try:
        ring = by_number("io_uring_setup", 1, facts)
    except OSError as error:
        raise OSError(errno.ENOSYS, "switched off here") from error
    try:
        entries, done, *_ = struct.unpack_from("<II", facts)
        sent = struct.unpack_from("<8I", facts, 40)
        ended = struct.unpack_from("<6I", facts, 80)
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        asking = mmap.mmap(ring, sent[6] + entries * 4, shared, offset=0)
        answers = mmap.mmap(ring, ended[5] + done * 16, shared, offset=0x8000000)
        requests = mmap.mmap(ring, entries * 64, shared, offset=0x10000000)
        name = ctypes.create_string_buffer(path.encode())
        flags = os.O_RDONLY | os.O_CLOEXEC
        openat = struct.pack(
            "<BBHiQQIIQ", 18, 0, 0, AT_FDCWD, 0, ctypes.addressof(name), 0, flags, 0
        )
        requests[: len(openat)] = openat
        asking[sent[6] : sent[6] + 4] = bytes(4)
        asking[sent[1] : sent[1] + 4] = (1).to_bytes(4, "little")
        by_number("io_uring_enter", ring, 1, 1, 1, None, 0)
        (result,) = struct.unpack_from("<i", answers, ended[5] + 8)
    finally:
        os.close(ring)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    os.close(result)


def nicer(pid: int) -> int:
    """One more than it has."""
    return min(19, os.getpriority(os.PRIO_PROCESS, pid) + 1)


def on_shared_objects(aim: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    def attach() -> None:
        LIBC.shmat.restype = ctypes.c_void_p
        found = LIBC.shmat(called(LIBC.shmget(aim["key"], 0, 0)), None, 0)
        if found == ctypes.c_void_p(-1).value:
            called(-1)
        LIBC.shmdt(ctypes.c_void_p(found))

    def queue() -> None:
        called(LIBC.msgsnd(called(LIBC.msgget(aim["key"], 0)), struct.pack("<lq", 1, 0), 8, 0o4000))

    def semaphore() -> None:
        set_value, to = 16, 1
        called(LIBC.semctl(called(LIBC.semget(aim["key"], 1, 0)), 0, set_value, to))

    def key() -> None:
        at = by_number("keyctl", 10, -4, b"user", aim["abstract"].encode(), 0)
        by_number("keyctl", 11, at, ctypes.create_string_buffer(16), 16)

    yield "shmat (System V)", attach
    yield "msgsnd (System V)", queue
    yield "semctl (System V)", semaphore
    yield "shm_open (POSIX)", lambda: opened(aim["shared"], os.O_RDWR)
    yield "mq_open (POSIX)", lambda: os.close(called(LIBC.mq_open(aim["queue"].encode(), 0)))
    yield "keyctl (the user's keyring)", key


def outcome(step: Callable[[], Any]) -> str:
    try:
        step()
    except OSError as error:
        return "absent" if error.errno in ABSENT else "closed"
    return "reached"


def main() -> None:
    found = {name: outcome(step) for name, step in probes(json.loads(sys.argv[1]))}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
