"""What the test servers have in common: a folder, ports, and an end that comes with the test run, however that ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_PREFIX = "lakeward-test-"
_PR_SET_PDEATHSIG = 1


def make_folder(purpose: str) -> Path:
    """A folder of this process's. Those that killed test runs left behind are removed on the way."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{purpose}-"))
    folder.chmod(0o755)  # the server may run as another user
    return folder


def _sweep() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = folder.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def free_ports(count: int) -> list[int]:
    """Ports that were free just now; all are held at once, so that none is given twice."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def end_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """For Popen's preexec_fn: the kernel sends the child this signal when the test run dies, by kill -9 too."""
    if sys.platform != "linux":
        return None
    # Looked up here: between fork and exec as little as possible may happen.
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # died in between
            os._exit(1)

    return ask


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60) -> None:
    """Wait until `ready`, at most so long; a process that ends meanwhile fails at once with the end of its log."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{log.stem} did not come up (exit code {process.poll()}); its log ends:\n{tail}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
