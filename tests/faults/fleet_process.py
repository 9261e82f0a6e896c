"""A process with a snapshotter of Lakeward's own under an Astha, for tests that kill and pause it.

It says each change of Astha's state, and of how many threads
the snapshotter has. It ends with its standard input.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from lakeward.astha import Astha
from lakeward.components import supervisor
from tests.faults.astha_process import LEASE_SECONDS
from tests.support.asthas import quick
from tests.support.lakes import open_lake

PREFIX = "lakeward-snapshotter-"
OF_ASTHA = 3  # its workers and its health check, which are named so too


def run(url: str, folder: Path) -> None:
    with (
        open_lake(url, folder) as lake,
        supervisor.running(lake.registry, ["snapshotter"], quick(lease_seconds=LEASE_SECONDS)) as running,
    ):
        threading.Thread(target=_say_changes, args=(running.astha,), daemon=True).start()
        sys.stdin.read()


def _say_changes(astha: Astha) -> None:
    said = ""
    while True:
        own = sum(thread.name.startswith(PREFIX) for thread in threading.enumerate()) - OF_ASTHA
        state = f"{astha.state} {own}"
        if state != said:
            said = state
            sys.stdout.write(state + "\n")
            sys.stdout.flush()
        time.sleep(0.01)
