"""Registration on PostgreSQL beside bare transactions of the same rows, in turn: eight processes into one table and into a table
each, eight threads with and without groups, 64 processes with 32 connections, an append by way of a server whose answers take 2 ms
longer, and the exchanges of each call.

A bare write is what a registration writes, by psycopg, one prepared statement at a time: the intent's row, then in a transaction the
table's counters (which lock its row), the intent's end, the file, its footer, and the statistics of its partition, read and
written. Triggers write the feed for both. The server runs without fsync, on the same cores: the figures show locks, exchanges and
work, not the disk.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from common import Options, Report, Writer, copies, forkserver, lake_in, main, median, percentile, rows, seconds, waits

from lakeward.db.drivers import prepare_session
from lakeward.db.group_commit import GroupCommitLimits
from lakeward.errors import LakewardError
from lakeward.log import topics
from lakeward.log.records import TopicConfig
from lakeward.registry import intents
from lakeward.tables import registration, tables
from lakeward.tables.records.files import DataFile
from lakeward.tables.records.tables import Table

PROCESSES = 8
ROUNDS = 3
MANY, CONNECTIONS = 64, 32
DELAY = 0.002
Times = list[float]


def run(options: Options, report: Report) -> None:
    from tests.support import postgres  # not above: the other processes need none of it

    each = options.pick(40, 300)
    with postgres.running_server() as server:
        for name, count in (("one table", 1), ("a table each", PROCESSES)):
            url = server.create_database()
            _beside_bare(report, name, url, options.folder / f"tables_{count}", each, count)
        _groups(report, server.create_database(), options.folder / "groups", each)
        _exchanges(report, server.create_database(), options.folder / "exchanges", options.pick(20, 100))
    with postgres.running_server(max_connections=str(CONNECTIONS + 3)) as server:  # three are kept for the superuser
        _many(report, server.create_database(), options.folder / "many", options.pick(10, 50))


# Beside bare transactions ---------------------------------------------------------------------------------------------
def _beside_bare(report: Report, name: str, url: str, folder: Path, each: int, count: int) -> None:
    targets = _made(url, folder, count)
    took: dict[str, list[float]] = {"bare": [], "registered": []}
    times: dict[str, Times] = {"bare": [], "registered": []}
    for number in range(ROUNDS):
        for kind, work in (("bare", _bare), ("registered", _registered)):
            given = [(url, folder, targets[i % count], f"{number}-{i}", each, {}) for i in range(PROCESSES)]
            span, found, failed = _at_once(work, given)
            took[kind].append(span)
            times[kind] += found
            if failed:
                report.add(f"{name}: failed", failed, "writes", "target 0")
    writes = PROCESSES * each
    bare, ours = median(took["bare"]), median(took["registered"])
    report.add(f"{name}, 8 processes: bare writes a second", writes / bare, "/s")
    report.add(f"{name}, 8 processes: registered writes a second, with the intent", writes / ours, "/s")
    report.add(f"{name}: registered against bare", bare / ours, "x", "target 0.6")
    waits(report, f"{name}: a bare write", times["bare"])
    waits(report, f"{name}: a registered write", times["registered"], "target 50 ms")


def _made(url: str, folder: Path, count: int) -> list[tuple[str, DataFile]]:
    with lake_in(folder, registry=url) as lake:
        writers = [Writer(lake, f"bench.files{i}") for i in range(count)]
        for writer in writers:
            writer.register()
        return [(str(writer.table.identifier), writer.file) for writer in writers]


Given = tuple[str, Path, tuple[str, DataFile], str, int, dict[str, int]]
Work = Callable[[Given, Barrier | None, Any], None]


def _at_once(work: Work, given: list[Given], *, together: bool = True) -> tuple[float, Times, int]:
    """(seconds from the first's begin to the last's end, seconds of each write, how many failed)"""
    context = forkserver()
    ready, answers = context.Barrier(len(given)) if together else None, context.Queue()
    processes = [context.Process(target=work, args=(one, ready, answers)) for one in given]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    span = max(end for _, end, _, _ in found) - min(begin for begin, _, _, _ in found)
    return span, [time for _, _, times, _ in found for time in times], sum(failed for *_, failed in found)


def _measured(write: Callable[[int], object], count: int, ready: Barrier | None, answers: Any, warm: int = 5) -> None:
    for number in range(warm):
        write(-1 - number)
    if ready is not None:
        ready.wait(timeout=120)
    times, failed, begin = [], 0, time.monotonic()
    for number in range(count):
        try:
            times.append(seconds(lambda: write(number)))  # noqa: B023
        except LakewardError:
            failed += 1
    answers.put((begin, time.monotonic(), times, failed))


def _registered(given: Given, ready: Barrier | None, answers: Any) -> None:
    url, folder, (name, file), who, count, pool = given
    with lake_in(folder, registry=url, **pool) as lake:
        registry = lake.registry
        table = tables.load(registry, name)
        tables.metadata(registry, table)  # remembered: or the first transaction needs a second connection for it

        def write(number: int) -> None:
            intent = intents.open_intent(registry, table)
            new = msgspec.structs.replace(file, path=f"{file.path}-{who}-{number}")
            registration.register(registry, table, intent, [new])

        _measured(write, count, ready, answers)


def _bare(given: Given, ready: Barrier | None, answers: Any) -> None:
    url, folder, (name, file), who, count, _pool = given
    with lake_in(folder, registry=url) as lake:
        table = tables.load(lake.registry, name)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        prepare_session(connection)
        bare = _Bare(connection, table, file)
        _measured(lambda number: bare.write(f"{file.path}-bare-{who}-{number}"), count, ready, answers)


class _Bare:
    """Writes the rows of a registration. What they hold is made ready before, as far as it is the same for each."""

    def __init__(self, connection: psycopg.Connection, table: Table, file: DataFile) -> None:
        self._connection, self._table, self._file = connection, table, file
        self._statistics = msgspec.json.encode(file.statistics).decode()

    def write(self, path: str) -> None:
        run, table, file, now = self._run, self._table, self._file, datetime.now(UTC)
        intent, table_id = str(uuid.uuid4()), table.table_id
        until = now + timedelta(seconds=60)
        prefix = f"{table.location}/data/{intent}/"
        run(
            "INSERT INTO pending_writes (intent_id, table_id, kind, prefix, owner, started_at, lease_until, metadata_version, "
            "lease_ms) VALUES (%s, %s, 'write', %s, 'bare', %s, %s, 1, 60000)",
            (intent, table_id, prefix, now, until),
        )
        self._connection.execute("BEGIN")
        run(
            "UPDATE tables SET row_count = row_count + %s, total_size = total_size + %s, file_count = file_count + 1, "
            "last_modified = %s WHERE table_id = %s",
            (file.row_count, file.size, now, table_id),
        )
        run("DELETE FROM pending_writes WHERE intent_id = %s AND recovered_at IS NULL", (intent,))
        run(
            "INSERT INTO table_files (table_id, file_name, file_path, file_size, file_type, partition_key, partition_path, "
            "row_count, is_compressed, split_offsets, statistics, schema_id, spec_id, sort_order_id, created_at, modified_at, registered_at, intent_id) "
            "VALUES (%s, %s, %s, %s, %s, '[]', '', %s, true, '[]', %s, %s, %s, 0, %s, %s, %s, %s)",
            (
                table_id,
                path.rpartition("/")[2],
                path,
                file.size,
                file.file_type,
                file.row_count,
                self._statistics,
                file.schema_id,
                file.spec_id,
                now,
                now,
                now,
                intent,
            ),
        )
        run(
            "INSERT INTO partition_metadata (file_path, table_id, metadata, metadata_size, insert_time) "
            "VALUES (%s, %s, %s, %s, %s)",
            (path, table_id, file.footer, len(file.footer or b""), now),
        )
        key = (table_id, file.spec_id, file.file_type)
        (columns,) = run(
            "SELECT columns FROM table_stats WHERE table_id = %s AND spec_id = %s AND file_type = %s", key
        ).fetchone() or ("{}",)
        run(
            "UPDATE table_stats SET row_count = row_count + %s, file_count = file_count + 1, total_size = total_size + %s, "
            "last_modified = %s, columns = %s WHERE table_id = %s AND spec_id = %s AND file_type = %s",
            (file.row_count, file.size, now, columns, *key),
        )
        self._connection.execute("COMMIT")

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(statement, values, prepare=True)


# Threads of one process, with groups and without ------------------------------------------------------------------------
def _groups(report: Report, url: str, folder: Path, each: int) -> None:
    with lake_in(folder, registry=url) as lake:
        writer, names = Writer(lake, "bench.groups"), itertools.count()
        groups = lake.registry.group_commit

        def write(_thread: int) -> None:
            for _ in range(each):
                intent = intents.open_intent(lake.registry, writer.table)
                (file,) = copies(writer.file, 1, 10**6 + next(names))
                registration.register(lake.registry, writer.table, intent, [file])

        took: dict[int, list[float]] = {64: [], 1: []}
        shared: dict[int, list[float]] = {64: [], 1: []}
        with ThreadPoolExecutor(PROCESSES) as pool:
            for _ in range(ROUNDS):
                for most in took:
                    groups.limits = GroupCommitLimits(commits=most)
                    before = groups.status()
                    took[most].append(seconds(lambda: list(pool.map(write, range(PROCESSES)))))
                    shared[most].append(groups.status().grouped - before.grouped)
    writes = PROCESSES * each
    report.add("eight threads, one table, in groups: writes a second", writes / median(took[64]), "/s")
    report.add("eight threads, one table, no groups: writes a second", writes / median(took[1]), "/s")
    report.add("in groups against no groups, time", median(took[64]) / median(took[1]), "x")
    report.add("share of the commits that went with a group", sum(shared[64]) / (ROUNDS * writes) * 100, "%")


# Exchanges, and a server that is far away -----------------------------------------------------------------------------
def _exchanges(report: Report, url: str, folder: Path, count: int) -> None:
    from tests.support.exchanges import Exchanges

    with Exchanges(url, DELAY) as proxy, lake_in(folder, registry=proxy.url) as lake:
        writer, data, batches = Writer(lake), rows(1), iter(range(10**6))
        topics.create(lake.registry, TopicConfig("events", 1))
        declared = [intents.open_intent(lake.registry, writer.table) for _ in range(count + 20)]

        def register() -> None:
            (file,) = copies(writer.file, 1, 10**6 + len(declared))
            registration.register(lake.registry, writer.table, declared.pop(), [file])

        calls: dict[str, Callable[[], object]] = {
            "an intent": lambda: intents.open_intent(lake.registry, writer.table),
            "a registration": register,
            "an append of one file": lambda: lake.append("bench.files", data),
            "the same with a batch key": lambda: lake.append("bench.files", data, batch=("s", str(next(batches)))),
            "an append to the log": lambda: lake.log.append("events", [b"value"]),
        }
        for name, call in calls.items():
            for _ in range(10):
                call()
            before, times = proxy.count, [seconds(call) for _ in range(count)]
            report.add(f"{name}: exchanges with the server", (proxy.count - before) / count, "")
            target = "target 15 ms" if name == "an append of one file" else ""
            report.add(f"{name}, each answer 2 ms late, p50", median(times) * 1e3, "ms", target)


# Many processes -------------------------------------------------------------------------------------------------------
def _many(report: Report, url: str, folder: Path, each: int) -> None:
    targets = _made(url, folder, 1)
    one = {"pool_size": 1, "pool_overflow": 0}
    given: list[Given] = [(url, folder, targets[0], str(i), each, one) for i in range(MANY)]
    span, times, failed = _at_once(_registered, given, together=False)  # the last begin when the first have ended
    report.add(f"{MANY} processes, {CONNECTIONS} connections: writes a second", MANY * each / span, "/s")
    report.add(f"{MANY} processes, {CONNECTIONS} connections: failed", failed, "writes", "target 0")
    report.add(f"{MANY} processes, {CONNECTIONS} connections: a write, p99", percentile(times, 99) * 1e3, "ms")


if __name__ == "__main__":
    main(run, __doc__)
