"""The topic log's metadata: adding segments, finding an offset among a million, and what the raw driver takes for the same.

The raw driver works on a table of the same columns and indexes, without triggers, and runs the statement alone: no record
is made of what it finds. SQLite is durable. *Anywhere*: offsets from the whole log, so that hardly any segment is remembered
from the look-up before. *Near each other*: offsets of the last 500 segments.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from common import Options, Report, in_turn, main, median, percentile, seconds, waits

from lakeward import MetadataStore, SegmentInfo, TopicConfig
from lakeward.log.sql import segments as segment_rows

TOPIC, RECORDS = "orders", 100  # a segment's records
FEW, MANY, BATCH = 10_000, 1_000_000, 10_000
NEAR = 500  # segments
COLUMNS = (
    "topic_id, partition_id, base_offset, end_offset, record_count, size_bytes, s3_bucket, s3_key, location, "
    "first_timestamp, last_timestamp, intent_id, created_at"
)
INSERT = f"INSERT INTO segments ({COLUMNS}) VALUES ({', '.join('?' * 13)})"
FIND = (
    f"SELECT segment_id, {COLUMNS} FROM segments WHERE topic_id = "
    "(SELECT topic_id FROM topics WHERE warehouse_id = {0} AND name = {0} AND deleted_at IS NULL) "
    "AND partition_id = {0} AND base_offset <= {0} ORDER BY base_offset DESC LIMIT 1"
)
MEMORY = """
import sys
from pathlib import Path
from lakeward import MetadataStore

def peak():
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

with MetadataStore.open(sys.argv[1]) as store:
    store.get_topic("orders")
    before = peak()
    print(sum(1 for _ in store.get_segments("orders", 0)), before, peak())
"""


def run(options: Options, report: Report) -> None:
    few, many = options.folder / "few.db", options.folder / "many.db"
    with MetadataStore.open(few) as small, MetadataStore.open(many) as large:
        for store in (small, large):
            store.create_topic(TopicConfig(TOPIC, 3))
        _batches(large, many, options, report)
        for batch in _segments(FEW):
            small.add_segments(batch)
        _single(small, few, options, report)
        _look_ups(small, large, many, options, report)
        _rate(large, options, report)
    _memory(many, report)
    _postgresql(options, report)


def _segments(count: int, partition: int = 0) -> Iterator[list[SegmentInfo]]:
    for start in range(0, count, BATCH):
        yield [_segment(i, partition) for i in range(start, min(start + BATCH, count))]


def _segment(number: int, partition: int = 0) -> SegmentInfo:
    base = number * RECORDS
    return SegmentInfo(
        topic=TOPIC,
        partition_id=partition,
        base_offset=base,
        end_offset=base + RECORDS - 1,
        record_count=RECORDS,
        size_bytes=1 << 20,
        s3_bucket="lake",
        s3_key=f"orders-{partition}-{base}",
    )


# Adding -------------------------------------------------------------------------------------------------------------------
def _bare(registry: Path) -> sqlite3.Connection:
    """A database with the registry's table of segments and its indexes, and nothing else."""
    with closing(sqlite3.connect(registry)) as source:
        made = source.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'segments' AND type <> 'trigger'")
        statements = [sql for (sql,) in made if sql is not None]
    bare = sqlite3.connect(registry.with_suffix(".bare.db"), isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -16384"):
        bare.execute(f"PRAGMA {pragma}")
    for statement in statements:
        bare.execute(statement)
    return bare


def _row(info: SegmentInfo) -> tuple[Any, ...]:
    location = f"s3://{info.s3_bucket}/{info.s3_key}"
    return (
        *(1, info.partition_id, info.base_offset, info.end_offset, info.record_count, info.size_bytes),
        *(info.s3_bucket, info.s3_key, location, None, None, None, "2026-01-02T03:04:05.000006Z"),
    )


def _in_transaction(connection: sqlite3.Connection, work: Callable[[], object]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    work()
    connection.execute("COMMIT")


def _batches(store: MetadataStore, registry: Path, options: Options, report: Report) -> None:
    ours, theirs = [], []
    with closing(_bare(registry)) as bare:
        for batch in _segments(MANY):
            rows = [_row(info) for info in batch]
            ours.append(seconds(lambda batch=batch: store.add_segments(batch)))
            theirs.append(seconds(lambda rows=rows: _in_transaction(bare, lambda: bare.executemany(INSERT, rows))))
    report.add(f"add_segments, batches of {BATCH:,}: segments a second", MANY / sum(ours), "/s", "target 50,000")
    report.add("the same, median batch", BATCH / median(ours), "/s")
    report.add("raw driver, no triggers: rows a second", MANY / sum(theirs), "/s")


def _single(store: MetadataStore, registry: Path, options: Options, report: Report) -> None:
    count = options.pick(1_000, 5_000)
    numbers, raw_numbers = iter(range(count)), iter(range(count))
    with closing(_bare(registry)) as bare:

        def raw() -> None:
            row = _row(_segment(next(raw_numbers)))
            _in_transaction(bare, lambda: bare.execute(INSERT, row))

        ours, theirs = in_turn(count, lambda: store.add_segment(_segment(next(numbers), 1)), raw)
    waits(report, "one segment, durable: add_segment", ours)
    waits(report, "one segment, durable: raw driver", theirs)
    report.add("add_segment against the raw driver, p50", median(ours) / median(theirs), "x", "target 2")


# Finding ------------------------------------------------------------------------------------------------------------------
def _anywhere(count: int) -> int:
    return random.randrange(count * RECORDS)


def _micro(report: Report, name: str, times: list[float], target: str = "") -> None:
    report.add(f"{name}, p50", median(times) * 1e6, "µs", target)
    report.add(f"{name}, p99", percentile(times, 99) * 1e6, "µs")


def _look_ups(small: MetadataStore, large: MetadataStore, registry: Path, options: Options, report: Report) -> None:
    count = options.pick(20_000, 100_000)
    text = FIND.format("?")
    with closing(sqlite3.connect(registry)) as bare:
        among_few, among_many, raw = in_turn(
            count,
            lambda: small.find_segment_for_offset(TOPIC, 0, _anywhere(FEW)),
            lambda: large.find_segment_for_offset(TOPIC, 0, _anywhere(MANY)),
            lambda: bare.execute(text, (1, TOPIC, 0, _anywhere(MANY))).fetchone(),
        )
    _micro(report, f"find_segment_for_offset, anywhere, {FEW:,} segments", among_few)
    _micro(report, f"find_segment_for_offset, anywhere, {MANY:,} segments", among_many, "targets 50, 1,000")
    _micro(report, f"raw driver, anywhere, {MANY:,} segments", raw)
    report.add("among 1,000,000 against among 10,000, p50", median(among_many) / median(among_few), "x", "target 1.3")
    large.commit_offset("readers", TOPIC, 0, 5)
    topic, partition, committed = in_turn(
        count,
        lambda: large.get_topic(TOPIC),
        lambda: large.get_partition(TOPIC, 0),
        lambda: large.get_committed_offset("readers", TOPIC, 0),
    )
    for name, times in (("topic", topic), ("partition", partition), ("committed_offset", committed)):
        _micro(report, f"get_{name}", times, "p99: target 1,000")


def _rate(store: MetadataStore, options: Options, report: Report) -> None:
    count = options.pick(100_000, 1_000_000)
    first = (MANY - NEAR) * RECORDS
    offsets = [first + random.randrange(NEAR * RECORDS) for _ in range(count)]
    lookups, find = store._registry.database.lookups, store.find_segment_for_offset
    warehouse = store._registry.warehouse.warehouse_id

    def remembering() -> None:
        for offset in offsets:
            find(TOPIC, 0, offset)

    def asking() -> None:
        for offset in offsets:
            parameters = {"warehouse_id": warehouse, "name": TOPIC, "partition_id": 0, "offset": offset}
            segment_rows.from_row(lookups.one(segment_rows.AT_OFFSET, parameters))

    near, without = in_turn(3, remembering, asking)
    report.add("find_segment_for_offset, near each other: look-ups a second", count / median(near), "/s", "100,000")
    report.add("the same, nothing remembered", count / median(without), "/s")


def _memory(registry: Path, report: Report) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(registry)], check=True, capture_output=True, text=True)
    count, before, after = done.stdout.split()
    report.add(f"get_segments, all {int(count):,}: memory at most", float(after), "MB", f"target 200; before {before}")


# PostgreSQL ---------------------------------------------------------------------------------------------------------------
def _postgresql(options: Options, report: Report) -> None:
    from tests.support import postgres

    count, rounds = options.pick(100_000, MANY), options.pick(5_000, 20_000)
    with postgres.running_server() as server:
        url = server.create_database()
        with MetadataStore.open(url) as store, psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as bare:
            store.create_topic(TopicConfig(TOPIC))
            report.add(
                f"PostgreSQL: add_segments, batches of {BATCH:,}: segments a second",
                count / sum(seconds(lambda batch=batch: store.add_segments(batch)) for batch in _segments(count)),
                "/s",
            )
            bare.execute("ANALYZE")
            text = FIND.format("%s")
            ours, raw = in_turn(
                rounds,
                lambda: store.find_segment_for_offset(TOPIC, 0, _anywhere(count)),
                lambda: bare.execute(text, (1, TOPIC, 0, _anywhere(count)), prepare=True).fetchone(),
            )
    _micro(report, f"PostgreSQL: find_segment_for_offset, anywhere, {count:,} segments", ours)
    _micro(report, "PostgreSQL: bare psycopg, the same query, prepared", raw)
    report.add("PostgreSQL: against bare psycopg, p50", median(ours) / median(raw), "x", "target 1.5")


if __name__ == "__main__":
    main(run, __doc__)
