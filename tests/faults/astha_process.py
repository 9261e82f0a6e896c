"""A process with an Astha and one component, for tests that kill and pause it.

Every step of the component is a line of its output, and
each event a row of the table `acted`, written under Astha's lease. It ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lakeward.astha import Astha, Event
from lakeward.astha import astha as astha_module
from lakeward.errors import LeaseLost
from lakeward.registry import Registry
from tests.support.asthas import Mirror, quick
from tests.support.registries import open_at
from tests.support.waiting import until

LEASE_SECONDS = 2.0
KILLED_AT = 25  # so many events are handled before one that is to be killed dies; several tables' at once


class Acting(Mirror):
    """Writes a row for each event, in a transaction that checks the lease; first waits, where it is told to."""

    def __init__(self, registry: Registry, folder: Path, mode: str) -> None:
        super().__init__(registry, "compactor", act=self._act)
        self.astha: Astha
        self._go = folder / "go"
        self._mode = mode

    def say(self, *words: object) -> None:
        sys.stdout.write(" ".join(map(str, words)) + "\n")  # in one piece: threads speak at once
        sys.stdout.flush()

    def _act(self, event: Event[Any]) -> None:
        if self._mode == "wait" and not self._go.exists():
            self.say("in hand", event.sequence)
            until(self._go.exists, seconds=100)
        try:
            with self.registry.database.transaction() as connection:
                self.astha.check(connection)
                row = {"sequence": event.sequence, "table_id": event.table_id, "pid": os.getpid()}
                connection.execute(
                    sa.text("INSERT INTO acted (sequence, table_id, pid) VALUES (:sequence, :table_id, :pid)"), row
                )
        except LeaseLost:
            self.say("refused", event.sequence)
            raise
        if self._mode == "killed" and len(self.events) >= KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        self.say("done", event.sequence)

    def on_refresh(self) -> None:
        super().on_refresh()
        self.say("refreshed")


def run(url: str, folder: Path, mode: str) -> None:
    astha_module.TRIM_SECONDS = 0.1
    registry = open_at(url, folder)
    component = Acting(registry, folder, mode)
    astha = component.astha = Astha(registry, quick(lease_seconds=LEASE_SECONDS))
    astha.register(component)
    threading.Thread(target=_say_states, args=(component,), daemon=True).start()
    astha.start()
    for line in sys.stdin:
        if line.strip() == "state":
            component.expect_true()
            component.say("right")
    astha.stop()
    registry.close()


def _say_states(component: Acting) -> None:
    said = ""
    while True:
        state = component.astha.state
        if state != said:
            said = state
            component.say(state)
        time.sleep(0.01)
