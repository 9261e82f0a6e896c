"""Writers at once: eight processes that register single files, on SQLite (durable) and on PostgreSQL.

On PostgreSQL once into one table, whose row is the bottleneck, and once into a table each. The test server runs without
fsync, so its figures show the locks and the work, not the disk.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from common import Options, Report, Writer, forkserver, lake_in, main, waits

PROCESSES = 8


def run(options: Options, report: Report) -> None:
    from tests.support import postgres  # not above: the other processes need none of it

    each = options.pick(50, 1_000)
    _measure(report, "SQLite, one table", str(options.folder / "sqlite.db"), options.folder / "sqlite", each, 1)
    with postgres.running_server() as server:
        for name, tables in (("PostgreSQL, one table", 1), ("PostgreSQL, a table each", PROCESSES)):
            url = server.create_database()
            _measure(report, name, url, options.folder / f"postgresql_{tables}", each, tables)


def _measure(report: Report, name: str, registry: str, warehouse: Path, each: int, tables: int) -> None:
    with lake_in(warehouse, registry=registry) as lake:
        for number in range(tables):
            Writer(lake, f"bench.t{number}")
    context = forkserver()
    start, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=_write, args=(registry, warehouse, f"bench.t{i % tables}", i, each, start, answers))
        for i in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    elapsed = max(ended for _, ended, _ in found) - min(begun for begun, _, _ in found)
    report.add(f"{name}: registrations a second, {PROCESSES} processes", PROCESSES * each / elapsed, "/s")
    waits(report, f"{name}: a registration", [took for _, _, times in found for took in times])


def _write(
    registry: str,
    warehouse: Path,
    table: str,
    number: int,
    each: int,
    start: Barrier,
    answers: multiprocessing.Queue,  # type: ignore[type-arg]
) -> None:
    with lake_in(warehouse, registry=registry) as lake:
        writer = Writer(lake, table)
        writer.count = number * 10_000_000  # paths of its own
        writer.register()
        start.wait()
        begun = time.monotonic()
        times = [writer.register()[1] for _ in range(each)]
        answers.put((begun, time.monotonic(), times))


if __name__ == "__main__":
    main(run, __doc__)
