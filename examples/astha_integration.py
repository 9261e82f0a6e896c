"""A subscriber of one's own: it keeps a count of files and rows by table, as the registry changes.

Run it with `python examples/astha_integration.py`. It makes a lakehouse in a temporary folder, appends to two tables from
this process, and shows that what it counted from events is what the registry says.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import lakeward
from lakeward.astha import TABLE_FILES, Astha, AsthaConfig, Event, TableFile, WatchedTable


class FileCounter:
    """Follows `table_files`. Events may come twice, so it remembers which files it has counted."""

    name = "file_counter"
    version = "1"

    def __init__(self, lake: lakeward.Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._files: dict[int, tuple[int, int]] = {}  # (table_id, rows) by file_id

    def get_subscribed_tables(self) -> Sequence[WatchedTable[TableFile]]:
        return (TABLE_FILES,)

    def on_event(self, event: Event[TableFile]) -> None:
        with self._lock:
            if event.operation == "DELETE":
                self._files.pop(event.data.file_id, None)
            else:
                self._files[event.data.file_id] = (event.data.table_id, event.data.row_count)

    def on_health(self) -> bool:
        return True

    def on_refresh(self) -> None:
        """The whole state, from the registry: at the start, and whenever events were lost."""
        files = [file for table in self._lake.tables() for file in self._lake.files(table.identifier)]
        with self._lock:
            self._files = {file.file_id: (file.table_id, file.row_count) for file in files}

    def rows(self) -> Counter[int]:
        """Rows by table_id."""
        with self._lock:
            counted: Counter[int] = Counter()
            for table_id, rows in self._files.values():
                counted[table_id] += rows
            return counted


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with lakeward.connect(folder / "registry.db", folder / "warehouse") as lake:
            for name in ("shop.orders", "shop.items"):
                lake.create_table(name, {"id": "long", "what": "string"})
            counter = FileCounter(lake)
            # A name of one's own for the set, and a row of one's own in the table of subscriptions.
            astha = Astha(lake, AsthaConfig(name="examples", subscriptions={"file_counter": [TABLE_FILES]}))
            astha.register(counter)
            with astha:
                for number in range(20):
                    lake.append("shop.orders", [{"id": number, "what": "an order"}])
                    lake.append("shop.items", [{"id": number, "what": "an item"}] * 3)
                expected = {table.table_id: lake.table(table.identifier).row_count for table in lake.tables()}
                deadline = time.monotonic() + 30
                while counter.rows() != expected and time.monotonic() < deadline:
                    time.sleep(0.01)
                [component] = astha.status().components
            print(f"counted from {component.delivered} events: {dict(counter.rows())}")
            if counter.rows() != expected:
                raise SystemExit(f"the registry says {expected}")


if __name__ == "__main__":
    main()
