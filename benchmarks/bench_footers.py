"""Deleting 100,000 footers while others write, and planning from the registry beside reading the objects."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import NAME, copies, folder, lake, one_file, register, sample, seconds, show
from lakeward.registry import footers
from lakeward.storage.parquet_footers import read_footer
from lakeward.store import dialect
from lakeward.store import footers as footer_store

PATHS = 100_000


def main() -> None:
    figures: dict[str, float] = {}
    with folder() as at, lake(at) as opened:
        table, file = one_file(opened)
        with opened.registry.database.transaction() as connection:
            now = dialect.now(connection)
            rows = [
                {
                    "file_path": f"{file.path}-{i}",
                    "table_id": table.table_id,
                    "metadata": file.footer,
                    "metadata_size": len(file.footer or b""),
                    "insert_time": now,
                }
                for i in range(PATHS)
            ]
            footer_store.insert(connection, rows)
        paths = [f"{file.path}-{i}" for i in range(PATHS)]
        waits: list[float] = []
        done = threading.Event()

        def write() -> None:
            i = 0
            while not done.is_set():
                waits.append(sum(register(opened, table, copies(file, 1, i))))
                i += 1

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(0.2)
        figures["deleting 100,000 footers beside a writer, s"] = seconds(
            lambda: footers.delete_partition_metadata_batch(opened.registry, paths)
        )
        done.set()
        writer.join()
        figures["the writer's longest registration meanwhile, ms"] = 1000 * max(waits)
        figures["its usual one, ms"] = 1000 * sorted(waits)[len(waits) // 2]
    with folder() as at, lake(at, durable=False) as opened:
        table, _ = one_file(opened)
        for _ in range(500):
            opened.append(NAME, sample())
        engine = opened.registry.engine(table.location)
        plan = footers.plan(opened.registry, table)
        figures["planning 500 files with footers from the registry, ms"] = 1000 * seconds(
            lambda: footers.plan(opened.registry, table)
        )
        figures["reading the same footers from a local folder, ms"] = 1000 * seconds(
            lambda: [read_footer(engine, f.file_path) for f in plan.files]
        )
    show("Footers (files of 20 columns, SQLite)", figures)


if __name__ == "__main__":
    main()
