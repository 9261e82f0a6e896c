"""Registration on SQLite, durable: one small file, beside a bare transaction of the same rows, batches of 100 files, and
how it grows with the table's commits.

A file has 19 columns with statistics and a footer. 'Registration' is the commit alone, under an intent that exists;
'with the intent' adds the transaction that declares the write. The disk's own time to make 80 KiB durable (about what a
registration writes to the log) stands beside it: no registration can be quicker.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from common import Options, Report, Writer, in_turn, lake_in, main, median, percentile, seconds

from lakeward.db.types import time_text
from lakeward.registry import intents
from lakeward.tables.records.files import Intent

EARLY, LATE, LATEST = 100, 10_000, 100_000  # commits into a table


def run(options: Options, report: Report) -> None:
    _disk(options.folder, report)
    with lake_in(options.folder / "not_durable", durable=False) as lake:
        _work(Writer(lake), options.pick(1_000, 5_000), report)
    with lake_in(options.folder / "durable") as lake:
        _single(Writer(lake), options.pick(1_000, 5_000), report)
        _beside_bare(
            Writer(lake, "bench.bare"), options.folder / "durable" / "registry.db", options.pick(300, 1_500), report
        )
        _batches(Writer(lake, "bench.batches"), options.pick(50, 300), report)
    _growth(options, report)


def _disk(folder: Path, report: Report) -> None:
    file = os.open(folder / "sync", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(80 * 1024 * 100), 0)
    os.fsync(file)
    times = []
    for i in range(300):
        os.pwrite(file, os.urandom(80 * 1024), 80 * 1024 * (i % 100))
        times.append(seconds(lambda: os.fdatasync(file)))
    os.close(file)
    report.add("disk: sync of 80 KiB written over, p10", percentile(times, 10) * 1e3, "ms")
    report.add("disk: sync of 80 KiB written over, p50", median(times) * 1e3, "ms")


def _work(writer: Writer, count: int, report: Report) -> None:
    """Without the disk: what the code and the database cost."""
    for _ in range(50):
        writer.register()
    commits = [writer.register()[1] for _ in range(count)]
    report.add("one file: registration, not durable, p50", median(commits) * 1e3, "ms")
    report.add("one file: registrations a second, not durable", count / sum(commits), "/s")


def _single(writer: Writer, count: int, report: Report) -> None:
    for _ in range(50):
        writer.register()
    cpu = time.process_time()
    times = [writer.register() for _ in range(count)]
    cpu = (time.process_time() - cpu) / count
    commits, whole = [commit for _, commit in times], [declared + commit for declared, commit in times]
    report.add("one file: registration, p50", median(commits) * 1e3, "ms")
    report.add("one file: registration, p99", percentile(commits, 99) * 1e3, "ms")
    report.add("one file: registrations a second", count / sum(commits), "/s", "target 1,000")
    report.add("one file: with the intent, p50", median(whole) * 1e3, "ms")
    report.add("one file: writes a second, with the intent", count / sum(whole), "/s")
    report.add("one file: CPU time, with the intent", cpu * 1e3, "ms")


def _beside_bare(writer: Writer, path: Path, rounds: int, report: Report) -> None:
    """Durable, in turn with what a registration writes, in a transaction of the bare driver with its triggers. Both take an
    intent that was declared before."""
    bare: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON", "PRAGMA recursive_triggers = ON"):
            connection.execute(statement)
        ours: list[float] = []
        for number in range(rounds):
            intent = intents.open_intent(writer.registry, writer.table)
            bare.append(seconds(lambda: _write_bare(connection, writer, intent, number)))  # noqa: B023
            ours.append(writer.register()[1])
    report.add("one file: bare transaction of the same rows, p50", median(bare) * 1e3, "ms")
    report.add("one file: registration beside it, p50", median(ours) * 1e3, "ms")
    report.add("one file: registration against bare", median(ours) / median(bare), "x", "target 1.5")


def _write_bare(connection: sqlite3.Connection, writer: Writer, intent: Intent, number: int) -> None:
    file, table_id, now = writer.file, writer.table.table_id, time_text(datetime.now(UTC))
    path = f"{file.path}-bare-{number}"
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        "UPDATE tables SET row_count = row_count + ?, total_size = total_size + ?, file_count = file_count + 1, last_modified = ? "
        "WHERE table_id = ?",
        (file.row_count, file.size, now, table_id),
    )
    connection.execute("DELETE FROM pending_writes WHERE intent_id = ? AND recovered_at IS NULL", (intent.intent_id,))
    connection.execute(
        "INSERT INTO table_files (table_id, file_name, file_path, file_size, file_type, partition_key, partition_path, row_count, "
        "is_compressed, statistics, split_offsets, schema_id, spec_id, sort_order_id, created_at, modified_at, registered_at, "
        "intent_id) VALUES (?, ?, ?, ?, ?, '[]', '', ?, 1, ?, '[]', ?, ?, 0, ?, ?, ?, ?)",
        (
            table_id,
            path.rpartition("/")[2],
            path,
            file.size,
            file.file_type,
            file.row_count,
            msgspec.json.encode(file.statistics).decode(),
            file.schema_id,
            file.spec_id,
            now,
            now,
            now,
            intent.intent_id,
        ),
    )
    connection.execute(
        "INSERT INTO partition_metadata (file_path, table_id, metadata, metadata_size, insert_time) VALUES (?, ?, ?, ?, ?)",
        (path, table_id, file.footer, len(file.footer or b""), now),
    )
    key = (table_id, file.spec_id, file.file_type)
    where = "WHERE table_id = ? AND spec_id = ? AND file_type = ?"
    found = connection.execute(f"SELECT columns FROM table_stats {where}", key).fetchone()
    connection.execute(
        "UPDATE table_stats SET row_count = row_count + ?, file_count = file_count + 1, total_size = total_size + ?, "
        f"last_modified = ?, columns = ? {where}",
        (file.row_count, file.size, now, found[0] if found else "{}", *key),
    )
    connection.execute("COMMIT")


def _batches(writer: Writer, count: int, report: Report) -> None:
    for _ in range(5):
        writer.register(100)
    cpu = time.process_time()
    times = [writer.register(100)[1] for _ in range(count)]
    cpu = (time.process_time() - cpu) / count
    report.add("100 files: registration, p50", median(times) * 1e3, "ms")
    report.add("100 files: files a second", 100 * count / sum(times), "/s", "target 10,000")
    report.add("100 files: CPU time, with the intent", cpu * 1e3, "ms")


def _growth(options: Options, report: Report) -> None:
    """Without durable commits: what grows is the work, not the disk's time. Both tables in turn, each in its registry."""
    rounds, last = options.pick(300, 1_000), options.pick(LATE, LATEST)
    with (
        lake_in(options.folder / "early", durable=False) as one,
        lake_in(options.folder / "late", durable=False) as other,
    ):
        early, late = Writer(one), Writer(other)
        for writer, commits in ((early, EARLY - rounds // 2), (late, last - rounds // 2)):
            for _ in range(max(commits, 50)):
                writer.register()
        at_early, at_late = in_turn(rounds, early.register, late.register)
    report.add(f"commit {EARLY:,} into a table (not durable), p50", median(at_early) * 1e3, "ms")
    report.add(f"commit {last:,} into a table (not durable), p50", median(at_late) * 1e3, "ms")
    report.add("the later commit against the earlier one", median(at_late) / median(at_early), "x", "target 1.1")


if __name__ == "__main__":
    main(run, __doc__)
