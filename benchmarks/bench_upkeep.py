"""Upkeep of a SQLite registry: how long it takes, and how long another process's writes (intent and registration) take meanwhile.

The registry holds 100,000 footers, every second of which is deleted, so that the free pages lie all over the file. Then what
the pages that can be given back cost: registrations into a file with and without SQLite's incremental vacuum, in turn.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from common import Options, Report, Writer, forkserver, in_turn, lake_in, main, median, register_until, waits

from lakeward import Lake
from lakeward.db import dialect
from lakeward.maintenance import database_upkeep
from lakeward.tables import footers
from lakeward.tables.sql import footers as footer_store

PATHS = 100_000


def run(options: Options, report: Report) -> None:
    with lake_in(options.folder / "upkeep") as lake:
        _fill(lake)
        _measure(options.folder / "upkeep", lake, report)
    _incremental(options, report)


def _fill(lake: Lake) -> None:
    writer = Writer(lake)
    paths = [f"{writer.file.path}-old-{i}" for i in range(PATHS)]
    row = {
        "table_id": writer.table.table_id,
        "metadata": writer.file.footer,
        "metadata_size": len(writer.file.footer or b""),
    }
    with lake.registry.database.transaction() as connection:
        now = dialect.now(connection)
        footer_store.insert(connection, [{"file_path": path, "insert_time": now, **row} for path in paths])
    footers.delete_partition_metadata_batch(lake.registry, paths[::2])
    database_upkeep.checkpoint(lake.registry)


def _measure(folder: Path, lake: Lake, report: Report) -> None:
    registry = lake.registry
    started = time.perf_counter()
    found = database_upkeep.sizes(registry)
    report.add("db sizes", time.perf_counter() - started, "s")
    report.add("the file", found.bytes / 1e6, "MB", f"{(found.free_bytes or 0) / 1e6:.0f} MB of it free")
    works: list[tuple[str, Callable[[], object]]] = [
        ("nothing", lambda: time.sleep(3)),
        ("a checkpoint", lambda: database_upkeep.checkpoint(registry)),
        ("the hourly upkeep", lambda: database_upkeep.look_after(registry)),
        ("db vacuum", lambda: database_upkeep.vacuum(registry)),
        ("db vacuum --full", lambda: database_upkeep.vacuum(registry, full=True)),
    ]
    context = forkserver()
    for name, work in works:
        ready, stop, answers = context.Event(), context.Event(), context.Queue()
        other = context.Process(target=register_until, args=(folder, ready, stop, answers))
        other.start()
        ready.wait()
        begun = time.monotonic()
        work()
        ended = time.monotonic()
        stop.set()
        times = [sum(took) for at, *took in answers.get() if at <= ended and at + sum(took) >= begun]
        other.join()
        report.add(name, ended - begun, "s")
        if times:
            waits(report, f"a write beside {name}", times)
    report.add("the file afterwards", database_upkeep.sizes(registry).bytes / 1e6, "MB")


def _incremental(options: Options, report: Report) -> None:
    folders = {mode: options.folder / mode for mode in ("NONE", "INCREMENTAL")}
    for mode, folder in folders.items():
        folder.mkdir()
        made = sqlite3.connect(folder / "registry.db", isolation_level=None)
        made.executescript(f"PRAGMA auto_vacuum = {mode}; PRAGMA journal_mode = WAL")
        made.close()
    with lake_in(folders["NONE"]) as plain, lake_in(folders["INCREMENTAL"]) as incremental:
        writers = [Writer(plain), Writer(incremental)]
        rounds = options.pick(30, 200)
        one = in_turn(rounds * 5, *(writer.register for writer in writers))
        many = in_turn(rounds, *(lambda writer=writer: writer.register(100) for writer in writers))  # type: ignore[misc]
    for name, (without, with_) in (("1 file", one), ("100 files", many)):
        ratio = median(with_) / median(without)
        report.add(f"registering {name}, pages can be given back against not", ratio, "x")


if __name__ == "__main__":
    main(run, __doc__)
