"""Operations metadata: positions, unchanged schemas, claims of dead letters, clean-up beside writers.

Compared with the bare driver in the same run, in turn: PRAGMA data_version (SQLite) or the same query, and a transaction
with the same upsert on a table of the same columns and indexes. Both are durable: SQLite by synchronous=FULL, PostgreSQL
by a server with fsync on.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
from common import Options, Report, in_turn, main, median, percentile, seconds

from lakeward import lossless_json
from lakeward.db import dialect, schema
from lakeward.metadata import MetadataManager, SchemaDefinition
from lakeward.ops import retention

POSITION = {"lsn": "0/16B3748", "tx": 4711}
COLUMNS = [{"name": f"c{i}", "type": "text"} for i in range(20)]
UPSERT = (
    "INSERT INTO bare (schema_name, table_name, marker_type, position_data, last_updated, sync_run_id) "
    "VALUES ({0}, {0}, {0}, {0}, {0}, {0}) ON CONFLICT (schema_name, coalesce(table_name, ''), marker_type) DO UPDATE SET "
    "position_data = excluded.position_data, last_updated = excluded.last_updated, sync_run_id = excluded.sync_run_id "
    "RETURNING id"
)
BARE = (
    "CREATE TABLE bare (id {id}, schema_name TEXT NOT NULL, table_name TEXT, marker_type TEXT NOT NULL, position_data TEXT "
    "NOT NULL, last_updated TEXT NOT NULL, sync_run_id BIGINT)"
)
INDEXES = (
    "CREATE UNIQUE INDEX bare_key ON bare (schema_name, coalesce(table_name, ''), marker_type)",
    "CREATE INDEX bare_run ON bare (sync_run_id)",
)
SELECT = "SELECT position_data FROM sync_markers WHERE schema_name = %s AND coalesce(table_name, '') = %s AND marker_type = %s"


def run(options: Options, report: Report) -> None:
    with MetadataManager(options.folder / "registry.db") as manager:
        manager.update_stream_position("shop", POSITION)
        _sqlite(manager, options, report)
        _schemas(manager, "SQLite", options, report)
        _claims(manager, "SQLite", report)
        _cleanup(manager, "SQLite", options, report)
    from tests.support import postgres

    with (
        postgres.running_server(fsync="on", synchronous_commit="on", full_page_writes="on") as server,
        MetadataManager(server.create_database()) as manager,
    ):
        manager.update_stream_position("shop", POSITION)
        _postgresql(manager, options, report)
        _schemas(manager, "PostgreSQL", options, report)
        _claims(manager, "PostgreSQL", report)
        _cleanup(manager, "PostgreSQL", options, report)


def _sqlite(manager: MetadataManager, options: Options, report: Report) -> None:
    count, writes = options.pick(50_000, 200_000), options.pick(200, 1_000)
    database = manager.registry.database
    with closing(sqlite3.connect(str(database.url.database), isolation_level=None)) as bare:
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute(BARE.format(id="INTEGER PRIMARY KEY AUTOINCREMENT"))
        for index in INDEXES:
            bare.execute(index)

        def pragma() -> None:
            for _ in range(count):
                bare.execute("PRAGMA data_version").fetchone()

        def upsert() -> None:
            for number in range(writes):
                bare.execute("BEGIN IMMEDIATE")
                row = ["shop", None, "stream", lossless_json.dumps({**POSITION, "n": number}), "2026-01-02", None]
                bare.execute(UPSERT.format("?"), row).fetchone()
                bare.execute("COMMIT")

        ours, theirs = in_turn(5, lambda: _get(manager, count), pragma)
        _compare(report, "SQLite: get_stream_position", "PRAGMA data_version", ours, theirs, count)
        ours, theirs = in_turn(5, lambda: _set(manager, writes), upsert)
        _compare(report, "SQLite: update_stream_position", "a bare upsert", ours, theirs, writes)


def _postgresql(manager: MetadataManager, options: Options, report: Report) -> None:
    count, writes = options.pick(2_000, 10_000), options.pick(200, 1_000)
    database = manager.registry.database
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as bare:
        bare.execute(f"SET search_path = public, {database.metadata_schema}")
        bare.execute(BARE.format(id="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"))
        for index in INDEXES:
            bare.execute(index)

        def query() -> None:
            for _ in range(count):
                bare.execute(SELECT, ["shop", "", "stream"], prepare=True).fetchone()

        def upsert() -> None:
            for number in range(writes):
                row = ["shop", None, "stream", lossless_json.dumps({**POSITION, "n": number}), "2026-01-02", None]
                with bare.transaction():
                    bare.execute(UPSERT.format("%s"), row).fetchone()

        ours, theirs = in_turn(5, lambda: _get(manager, count), query)
        _compare(report, "PostgreSQL: get_stream_position", "a bare query", ours, theirs, count)
        ours, theirs = in_turn(5, lambda: _set(manager, writes), upsert)
        _compare(report, "PostgreSQL: update_stream_position", "a bare upsert", ours, theirs, writes)


def _get(manager: MetadataManager, count: int) -> None:
    for _ in range(count):
        manager.get_stream_position("shop")


def _set(manager: MetadataManager, count: int) -> None:
    for number in range(count):
        manager.update_stream_position("shop", {**POSITION, "n": number})


def _compare(report: Report, name: str, other: str, ours: list[float], theirs: list[float], count: int) -> None:
    report.add(name, count / median(ours), "/s")
    report.add(f"{name}: {other}", count / median(theirs), "/s")
    report.add(f"{name}: time, as a multiple of {other}", median(ours) / median(theirs), "times")


def _schemas(manager: MetadataManager, name: str, options: Options, report: Report) -> None:
    definition = SchemaDefinition(COLUMNS, ["c0"], [{"name": "by_c1", "columns": ["c1"]}])
    manager.register_schema("shop", "orders", definition)
    count = options.pick(2_000, 10_000)
    times = [
        seconds(lambda: [manager.register_schema("shop", "orders", definition) for _ in range(count)]) for _ in range(5)
    ]
    report.add(f"{name}: register_schema, unchanged, 20 columns", median(times) / count * 1e6, "µs")


LETTERS = 1_000


def _claims(manager: MetadataManager, name: str, report: Report) -> None:
    taken: list[int] = []

    def work(worker: str) -> None:
        while found := manager.claim_dead_letters(worker, 20):
            taken.extend(each.id for each in found)

    def all_by(workers: int) -> float:
        taken.clear()
        threads = [threading.Thread(target=work, args=[f"w{number}"]) for number in range(workers)]
        took = seconds(lambda: ([each.start() for each in threads], [each.join() for each in threads]))
        assert len(taken) == len(set(taken)) == LETTERS, "each once"
        with manager.transaction() as connection:
            values = {"status": "pending", "claimed_by": None, "claimed_until": None}
            connection.execute(schema.dead_letter_queue.update().values(values))
        return took

    with manager.transaction() as connection:
        now = dialect.now(connection)
        row = {"schema_name": "shop", "table_name": "orders", "operation_type": "insert", "record_data": {"id": 1},
               "status": "pending", "created_at": now, "last_failed_at": now}  # fmt: skip
        connection.execute(schema.dead_letter_queue.insert(), [row] * LETTERS)
    one, eight = zip(*[(all_by(1), all_by(8)) for _ in range(5)], strict=True)
    report.add(f"{name}: 1,000 dead letters claimed by 1 worker", median(one), "s")
    report.add(f"{name}: 1,000 dead letters claimed by 8 workers", median(eight), "s", "none twice")


def _cleanup(manager: MetadataManager, name: str, options: Options, report: Report) -> None:
    count = options.pick(100_000, 1_000_000)
    with manager.transaction() as connection:
        old = dialect.now(connection) - timedelta(days=90)
        row: dict[str, Any] = {"schema_name": "shop", "sync_mode": "batch", "status": "completed", "started_at": old,
                               "completed_at": old, "duration_ms": 1, "last_seen_at": old}  # fmt: skip
        for _ in range(count // 10_000):
            connection.execute(schema.sync_runs.insert(), [row] * 10_000)
    done = threading.Event()
    waits: list[float] = []

    def write(number: int) -> None:
        while not done.is_set():
            position = {"n": len(waits)}
            started = time.perf_counter()
            manager.update_stream_position("shop", position, f"t{number}")
            waits.append(time.perf_counter() - started)

    def measured(work: Any) -> float:
        waits.clear()
        done.clear()
        threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        took = seconds(work)
        done.set()
        for thread in threads:
            thread.join()
        return took

    measured(lambda: time.sleep(3))
    report.add(f"{name}: 4 writers alone, p99", percentile(waits, 99) * 1e3, "ms")
    counts: dict[str, int] = {}
    took = measured(lambda: counts.update(retention.cleanup(manager.registry)))
    assert counts["sync_runs"] == count
    report.add(f"{name}: clean-up of {count:,} old runs beside 4 writers", took, "s")
    report.add(f"{name}: 4 writers meanwhile, p99", percentile(waits, 99) * 1e3, "ms", f"{len(waits):,} writes")


if __name__ == "__main__":
    main(run, __doc__)
