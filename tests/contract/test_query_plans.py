"""No query of the registry reads a table from end to end: each has an index, on both databases.

All SQL is in the modules named sql, and in those of lakeward.db. Each is called here on a registry with thousands of rows, and every
statement that it runs is explained.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import lakeward
from lakeward.astha.sql import changes
from lakeward.db import dialect, lock_order, migrate, schema
from lakeward.db.database import Database
from lakeward.log.sql import topics
from lakeward.maintenance import database_upkeep
from lakeward.ops.records.operations import (
    DeadLetterFilter,
    DeadLetterStatus,
    ErrorFilter,
    ErrorStatus,
    ErrorType,
    MarkerType,
    SyncMode,
    SyncStatus,
)
from lakeward.ops.records.schema_versions import SchemaDefinition
from lakeward.tables.records.files import AppendResult, Batch, Intent, RegisteredFile
from lakeward.tables.records.tables import TableMetadata, TableSnapshot, TableStats
from lakeward.tables.sql import tables
from tests.contract import plans
from tests.contract.db import rows
from tests.support.made import MadeRegistries
from tests.support.postgres import PostgresServer

# An index would help nobody: they have a row or a few, or are read whole, in the order of their key.
ONE_ROW = {"registry_info", "warehouses", "subscriber_cursors", "parked_events"}
# They read all of a table, for people who ask how the registry is.
READS_ALL = {"overview.sizes": "tables", "leases.current": "leases"}
# They count all that an index of few among many holds.
READS_INDEX = {"overview.pending": "ix_table_files_pending", "overview.set_aside": "ix_table_files_set_aside"}
# Modules of the store that hold no queries on the registry's tables, or whose queries are on the database's catalog.
NO_QUERIES = {
    "database",
    "drivers",
    "engines",
    "conditions",
    "writer_lock",
    "group_commit",
    "feed_triggers",
    "log_triggers",
    "lookups",
    "migrate",
    "migrations",
    "pipeline",
    "prepared",
    "rows",
    "schema",
    "waits",
}
NO_QUERIES |= {"retry", "sizes", "triggers", "types", "upkeep_postgresql", "upkeep_sqlite"}

NOW = rows.TIME
LATER = NOW + timedelta(days=1)
BIG = 1  # the table that has thousands of files
FILES = 3000
OTHERS = 300  # rows of what is counted in hundreds
RECENT = NOW + timedelta(hours=4 * OTHERS - 20)  # of operations metadata, which has a row an hour

_intent = Intent("new", BIG, "write", "/lake/new/", "host:1", NOW)
_batch = Batch("s", "new", None, 6)
_answer = AppendResult(table_uuid="t-1", rows=1, files=[], bytes=1)
_stats = TableStats(**rows.VALID["table_stats"] | {"partition_key": "new"})
_known_stats = TableStats(**rows.VALID["table_stats"] | {"partition_key": "1"})
_metadata = TableMetadata(**rows.VALID["table_metadata"] | {"metadata_version": 9999})
_snapshot = TableSnapshot(
    **rows.VALID["table_snapshots"] | {"snapshot_id": 9999, "sequence_number": 9999, "parent_snapshot_id": None}
)
_path = "/lake/1/{}.parquet".format
_new_table = rows.VALID["tables"] | {"table_id": 9999, "table_uuid": "t-9999", "name": "new", "location": "/9999"}
_new_file = rows.VALID["table_files"] | {"file_id": 99999, "file_path": "/new"}
_offset = rows.VALID["consumer_offsets"] | {"partition_id": 1}
_new_topic = rows.VALID["topics"] | {"topic_id": 9999, "topic_uuid": "o-9999", "name": "new", "location": "/9999"}
_new_segment = rows.VALID["segments"] | {"segment_id": 99999, "partition_id": 3, "end_offset": 9, "record_count": 10}
_new_run = rows.VALID["sync_runs"] | {"id": 99999, "import_key": "k-new"}
_new_error = rows.VALID["error_log"] | {"id": 99999, "import_key": "k-new"}
_new_letter = rows.VALID["dead_letter_queue"] | {"id": 99999, "import_key": "k-new", "source_record_id": None}
_new_version = rows.VALID["schema_registry"] | {
    "id": 99999,
    "table_name": "new",
    "schema_definition": SchemaDefinition([]),
}
_field = {"id": 1, "name": "id2", "type": "long", "required": True}
_new_field = {"id": 777, "name": "new", "type": "long", "required": False}

_between = {"old": "100000:100000:", "target": "100001:100001:", "after": 0, "count": 10}
_wanted = changes.Wanted(["table_files"], ["INSERT"], [1, 2])
_on_sqlite = dialect.is_sqlite

Call = Callable[[Any, sa.Connection], object]  # given the module and a connection
CALLS: dict[str, list[Call]] = {
    # Queries that run on a thread's own connection: here on the one that is explained.
    "changes.after": [lambda m, c: m._AFTER.all(c, {"after": 5, "count": 10})],
    "changes.last_given": [lambda m, c: _on_sqlite(c) and m._LAST_GIVEN.one(c, {})],
    "changes.current_snapshot": [lambda m, c: _on_sqlite(c) or m._SNAPSHOT.one(c, {})],
    "changes.between": [lambda m, c: _on_sqlite(c) or m._BETWEEN.all(c, _between)],
    "changes.head": [lambda m, c: _on_sqlite(c) or m._HEAD.one(c, {"old": "100000:100000:"})],
    "changes.count_after": [lambda m, c: _on_sqlite(c) and m.count_after(c, 5, _wanted, 10)],
    "changes.count_between": [
        lambda m, c: _on_sqlite(c) or m.count_between(c, "100000:100000:", "", 0, _wanted, 10),
        lambda m, c: _on_sqlite(c) or m.count_between(c, "100000:100000:", "100001:100001:", 5, _wanted, 10),
    ],
    "changes.server_id": [lambda m, c: m.server_id(c)],
    "changes.delete_up_to": [lambda m, c: _on_sqlite(c) and m.delete_up_to(c, 3, 10)],
    "changes.delete_before_xid": [lambda m, c: _on_sqlite(c) or m.delete_before_xid(c, 5, 10)],
    "changes.delete_foreign": [lambda m, c: m.delete_foreign(c)],
    "changes.delete_older": [lambda m, c: m.delete_older(c, NOW, 10)],
    "cursors.load_all": [lambda m, c: m.load_all(c), lambda m, c: m.load_all(c, "lakeward")],
    "cursors.save": [lambda m, c: m.save(c, "lakeward", "s1", None, {}, NOW)],
    "cursors.touch": [lambda m, c: m.touch(c, "lakeward", ["s1"], NOW)],
    "cursors.forget_place": [lambda m, c: m.forget_place(c, "lakeward", "s1", LATER)],
    "cursors.park": [lambda m, c: m.park(c, rows.VALID["parked_events"] | {"parked_id": 99999, "sequence": 99999})],
    "cursors.parked": [lambda m, c: m.parked(c), lambda m, c: m.parked(c, "lakeward")],
    "cursors.discard": [lambda m, c: m.discard(c, 5)],
    "cursors.count_parked": [lambda m, c: m.count_parked(c, "lakeward")],
    "batches.key": [],  # of others' queries
    "batches.send_answer": [lambda m, c: m.send_answer(c, BIG, _batch).row()],
    "batches.set_answer": [lambda m, c: m.set_answer(c, BIG, _batch, _answer, NOW)],
    "batches.send_position": [lambda m, c: m.send_position(c, BIG, "s1").row()],
    "batches.set_position": [
        lambda m, c: m.set_position(c, BIG, Batch("new", "1", None, 6), NOW, is_first=True),
        lambda m, c: m.set_position(c, BIG, Batch("s1", "2", 5, 6), NOW, is_first=False),
    ],
    "dialect.begins": [],  # part of others' queries
    "dialect.clock": [],  # as now
    "dialect.begins_then_digits": [],
    "dialect.in_integers": [],  # part of others' queries
    "dialect.in_texts": [],
    "dialect.insert": [],
    "dialect.insert_of": [],
    "dialect.is_sqlite": [],
    "lock_order.tables": [lambda m, c: m.tables(c, [2, 1])],
    "lock_order.send_tables": [lambda m, c: m.send_tables(c, [2, 1])],
    "lock_order.check": [],
    "lock_order.watched": [lambda m, c: m.watched(c, 2)],
    "lock_order.name": [lambda m, c: m.name(c, "n")],
    "lock_order.note_table": [],  # a note
    "lock_order.rows": [],  # what others' statements are about
    "lock_order.check_statements": [],
    "lock_order.follow_savepoints": [],
    "dialect.now": [lambda m, c: m.now(c)],
    "dialect.see_metadata": [],  # asks for no row
    "dead_letters.claim": [
        lambda m, c: m.claim(c, "w", NOW, LATER, 10, DeadLetterFilter()),
        lambda m, c: m.claim(c, "w", LATER, LATER, 500, DeadLetterFilter(schema_name="s1", table_name="t1")),
    ],
    "dead_letters.counts": [
        lambda m, c: m.counts(c, DeadLetterFilter()),
        lambda m, c: m.counts(c, DeadLetterFilter(schema_name="s1")),
    ],
    "dead_letters.delete_ended": [lambda m, c: m.delete_ended(c, LATER, 10)],
    "dead_letters.ids": [lambda m, c: m.ids(c, DeadLetterFilter(), ["pending"], after=0, limit=10)],
    "dead_letters.insert": [lambda m, c: m.insert(c, _new_letter)],
    "dead_letters.insert_all": [lambda m, c: m.insert_all(c, [_new_letter | {"id": 99998, "import_key": "k-next"}])],
    "dead_letters.insert_or_count": [
        lambda m, c: m.insert_or_count(c, _new_letter | {"source_record_id": "new"}),
    ],
    "dead_letters.load": [lambda m, c: m.load(c, 5), lambda m, c: m.load(c, 5, lock=True)],
    "dead_letters.of_source": [lambda m, c: m.of_source(c, "s1", "t1", "batch:1", ["pending"])],
    "dead_letters.of_error": [lambda m, c: m.of_error(c, 5)],
    "dead_letters.page": [
        lambda m, c: m.page(c, DeadLetterFilter(schema_name="s1", table_name="t1", source_record_id="r-1")),
        lambda m, c: m.page(c, DeadLetterFilter(), limit=10),
        lambda m, c: m.page(c, DeadLetterFilter(status=DeadLetterStatus.PENDING, min_error_count=3), limit=10),
    ],
    "dead_letters.update": [lambda m, c: m.update(c, 5, {"error_count": 2})],
    "error_log.delete_ended": [lambda m, c: m.delete_ended(c, LATER, 10)],
    "error_log.by_retry": [],  # a part of queries
    "error_log.end": [lambda m, c: m.end(c, [20], ErrorStatus.RESOLVED, NOW, None)],
    "error_log.insert": [lambda m, c: m.insert(c, _new_error)],
    "error_log.insert_or_count": [lambda m, c: m.insert_or_count(c, _new_error | {"failure_key": "new"})],
    "error_log.load": [lambda m, c: m.load(c, 5), lambda m, c: m.load(c, 5, lock=True)],
    "error_log.open_ids": [
        lambda m, c: m.open_ids(c, ErrorFilter(), 0, 10),
        lambda m, c: m.open_ids(c, ErrorFilter(schema_name="s1", table_name="t1", before=LATER), 5, 10),
        lambda m, c: m.open_ids(c, ErrorFilter(error_type=ErrorType.TIMEOUT, error_code="x", sync_run_id=5), 5, 10),
    ],
    "error_log.page": [
        lambda m, c: m.page(c, limit=10),
        lambda m, c: m.page(c, schema_name="s1", table_name="t1", since=NOW, limit=10),
        lambda m, c: m.page(c, error_type=ErrorType.TIMEOUT, status=ErrorStatus.OPEN, sync_run_id=5, limit=10),
    ],
    "error_log.since": [lambda m, c: m.since(c, RECENT), lambda m, c: m.since(c, RECENT, "s1")],
    "error_log.take_due": [
        lambda m, c: m.take_due(c, LATER, LATER, 10),
        lambda m, c: m.take_due(c, LATER, LATER, 10, "s1"),
    ],
    "error_log.update": [lambda m, c: m.update(c, 5, {"retry_count": 2})],
    "runs.add": [lambda m, c: m.add(c, 5, {"records_processed": 3}, NOW)],
    "runs.delete_ended": [lambda m, c: m.delete_ended(c, LATER, 10)],
    "runs.insert": [lambda m, c: m.insert(c, _new_run)],
    "runs.send_whole": [lambda m, c: m.send_whole(c, _new_run).row()],
    "runs.load": [lambda m, c: m.load(c, 5), lambda m, c: m.load(c, 5, lock=True)],
    "runs.page": [
        lambda m, c: m.page(c, limit=10),
        lambda m, c: m.page(c, schema_name="s1", since=NOW, limit=10),
        lambda m, c: m.page(c, status=SyncStatus.FAILED, sync_mode=SyncMode.BATCH, limit=10),
    ],
    "runs.silent": [
        lambda m, c: m.silent(c, LATER, with_heartbeats=False, limit=10),
        lambda m, c: m.silent(c, LATER, with_heartbeats=True, limit=10),
    ],
    "runs.update": [lambda m, c: m.update(c, 5, {"node_id": "n"})],
    "operation_statistics.errors": [
        lambda m, c: m.errors(c, RECENT),
        lambda m, c: m.errors(c, RECENT, "s1"),
    ],
    "operation_statistics.runs": [lambda m, c: m.runs(c, RECENT), lambda m, c: m.runs(c, RECENT, "s1")],
    "schema_versions.delete_old": [lambda m, c: m.delete_old(c, LATER, 10, 100, 0)],
    "schema_versions.from_row": [],
    "schema_versions.insert": [lambda m, c: m.insert(c, _new_version)],
    "schema_versions.latest": [lambda m, c: m.latest(c, "shop", "t1")],
    "schema_versions.load": [lambda m, c: m.load(c, "shop", "t1", 2)],
    "schema_versions.page": [lambda m, c: m.page(c, "shop", "t1")],
    "schema_versions.tables": [lambda m, c: m.tables(c), lambda m, c: m.tables(c, "shop")],
    "schema_versions.tie": [lambda m, c: m.tie(c, 5, {"iceberg_schema_id": 1})],
    "overview.dead_letters": [lambda m, c: m.dead_letters(c)],
    "overview.dead_writes": [lambda m, c: m.dead_writes(c, NOW)],
    "overview.open_errors": [lambda m, c: m.open_errors(c)],
    "overview.pending": [lambda m, c: m.pending(c)],
    "overview.runs": [lambda m, c: m.runs(c, "running"), lambda m, c: m.runs(c, "failed", RECENT)],
    "overview.set_aside": [lambda m, c: m.set_aside(c)],
    "overview.sizes": [lambda m, c: m.sizes(c)],
    "positions.as_written": [],
    "positions.delete": [lambda m, c: m.delete(c, "s1", None, MarkerType.STREAM)],
    "positions.from_row": [],
    "positions.insert": [lambda m, c: m.insert(c, "s1", "new", MarkerType.BATCH, {}, NOW, None)],
    "positions.load": [
        lambda m, c: m.load(c, "s1", "t1", MarkerType.STREAM),
        lambda m, c: m.load(c, "s1", None, MarkerType.STREAM, lock=True),
    ],
    "positions.page": [lambda m, c: m.page(c), lambda m, c: m.page(c, "s1", MarkerType.BATCH)],
    "positions.upsert": [lambda m, c: m.upsert(c, "s1", None, MarkerType.STREAM, {}, NOW, 5)],
    "files.by_ids": [lambda m, c: m.by_ids(c, BIG, [5, 6])],
    "files.by_paths": [lambda m, c: m.by_paths(c, [_path(1), _path(2)])],
    "files.count_committed": [lambda m, c: m.count_committed(c, BIG)],
    "files.count_pending": [lambda m, c: m.count_pending(c, BIG)],
    "files.count_settled": [lambda m, c: m.count_settled(c, BIG, [5, 6])],
    "files.pending_ids": [lambda m, c: m.pending_ids(c, BIG)],
    "files.delete": [lambda m, c: m.delete(c, BIG, [7, 8])],
    "files.has_deletes": [lambda m, c: m.has_deletes(c, BIG, 0, "1")],
    "files.in_partition": [lambda m, c: m.in_partition(c, BIG, 0, "1")],
    "files.is_duplicate": [],  # reads an error, not the database
    "files.insert": [lambda m, c: m.insert(c, [_new_file])],
    "files.count_after": [lambda m, c: m.count_after(c, BIG, 50, 10)],
    "files.ids_after": [lambda m, c: m.ids_after(c, BIG, 50, 10)],
    "files.statistics_between": [lambda m, c: m.statistics_between(c, BIG, 50, 60)],
    "files.ids_between": [lambda m, c: m.ids_between(c, BIG, 50, 60)],
    "files.ids_in_partitions": [lambda m, c: m.ids_in_partitions(c, BIG, 0, ["1", "2"])],
    "files.live_in_pages": [lambda m, c: list(m.live_in_pages(c, BIG, 1_000))],
    "files.live_by_ids": [lambda m, c: m.live_by_ids(c, BIG, [5, 6])],
    "files.statistics_after": [lambda m, c: m.statistics_after(c, BIG, 50, 10)],
    "files.live": [lambda m, c: m.live(c, BIG), lambda m, c: m.live(c, BIG, 50, 10)],
    "files.clear_set_aside": [lambda m, c: m.clear_set_aside(c, BIG)],
    "files.mark_committed_with_row_ids": [lambda m, c: m.mark_committed_with_row_ids(c, BIG, {FILES - 10: 0}, 5, 5)],
    "files.mark_committed": [lambda m, c: m.mark_committed(c, BIG, [5, 6], 1, 1)],
    "files.mark_set_aside": [lambda m, c: m.mark_set_aside(c, BIG, 5, "truncated")],
    "files.pending": [lambda m, c: m.pending(c, BIG)],
    "files.small_in_partition": [lambda m, c: m.small_in_partition(c, RegisteredFile, BIG, 0, "1", 1_000)],
    "files.pending_sizes": [lambda m, c: m.pending_sizes(c, BIG)],
    "files.set_aside": [lambda m, c: m.set_aside(c, BIG)],
    "files.fill_checksum": [lambda m, c: m.fill_checksum(c, BIG, 5, "sha256:00")],
    "footers.delete": [lambda m, c: m.delete(c, [_path(1), _path(2)])],
    "footers.delete_of_table": [lambda m, c: m.delete_of_table(c, BIG)],
    "footers.insert": [
        lambda m, c: m.insert(c, 1, [("/new", b"PAR1")], 10, NOW),
    ],
    "footers.load": [lambda m, c: m.load(c, [_path(1), _path(2)])],
    "footers.replace": [lambda m, c: m.replace(c, _path(1), b"x", 1)],
    "foreign_operations.has_source_record": [lambda m, c: m.has_source_record(c, "s1", "t1", "r-1", but="k-1")],
    "foreign_operations.imported": [
        lambda m, c: m.imported(c, "sync_runs", "k-1"),
        lambda m, c: m.imported(c, "error_log", "k-1"),
        lambda m, c: m.imported(c, "dead_letter_queue", "k-1"),
    ],
    "foreign_operations.insert": [lambda m, c: m.insert(c, "sync_runs", _new_run)],
    "foreign_operations.names": [],  # of another database
    "foreign_operations.rows": [],
    "foreign_operations.update": [
        lambda m, c: m.update(c, "sync_runs", 1, {"node_id": "n"}),
        lambda m, c: m.update(c, "error_log", 1, {"error_code": "e"}),
        lambda m, c: m.update(c, "dead_letter_queue", 1, {"error_message": "m"}),
    ],
    "intents.is_known": [lambda m, c: m.is_known(c, "i1")],
    "groups.delete": [lambda m, c: m.delete(c, 7)],
    "groups.insert": [lambda m, c: m.insert(c, 1, "new", NOW), lambda m, c: m.insert(c, 1, "g1", NOW)],
    "groups.key": [lambda m, c: m.key(c, 1, "g1"), lambda m, c: m.key(c, 1, "g1", share=True)],
    "groups.load": [lambda m, c: m.load(c, 1, "g1")],
    "groups.touch": [lambda m, c: m.touch(c, 1, NOW)],
    "groups.offsets": [lambda m, c: m.offsets(c, 1), lambda m, c: m.offsets(c, 1, 1)],
    "groups.offsets_of_partition": [lambda m, c: m.offsets_of_partition(c, 1, 1)],
    "groups.names": [lambda m, c: m.names(c, 1)],
    "groups.plan": [lambda m, c: m.plan(c, 1, 1)],
    "groups.set_offsets": [
        lambda m, c: m.set_offsets(c, [_offset]),
        lambda m, c: m.set_offsets(c, [_offset, _offset | {"topic_id": 2}]),
    ],
    "groups.set_plan": [lambda m, c: m.set_plan(c, 1, 1, {0: 5}, NOW)],
    "intents.recover_of_topic": [lambda m, c: m.recover_of_topic(c, 1, NOW, LATER)],
    "partitions.delete_of_topic": [lambda m, c: m.delete_of_topic(c, 7)],
    "partitions.insert": [lambda m, c: m.insert(c, 1, [900, 901], NOW)],
    "partitions.load": [lambda m, c: m.load(c, 1, 1)],
    "partitions.lock": [lambda m, c: m.lock(c, 1, [1, 2]), lambda m, c: m.lock(c, 1, [1], share=True)],
    "partitions.of_topic": [lambda m, c: m.of_topic(c, 1)],
    "partitions.raise_start": [lambda m, c: m.raise_start(c, 1, 1, 1, NOW)],
    "partitions.raise_watermark": [lambda m, c: m.raise_watermark(c, 1, 1, 1 << 40, NOW)],
    "producers.answer": [lambda m, c: m.answer(c, 1, "p", 5)],
    "producers.delete_of_topic": [lambda m, c: m.delete_of_topic(c, 9)],
    "producers.insert": [lambda m, c: m.insert(c, 1, "p", 99999, [], NOW)],
    "segments.count_of_range": [lambda m, c: m.count_of_range(c, 1, 1, 55, 200)],
    "segments.count": [lambda m, c: m.count(c, 1)],
    "segments.delete": [
        lambda m, c: m.delete(c, 1, partition_id=2, before=50),
        lambda m, c: m.delete(c, 1, ids=[8, 9]),
        lambda m, c: m.delete(c, 9),
    ],
    "segments.end_before": [lambda m, c: m.end_before(c, 1, 1, 100)],
    "segments.insert": [lambda m, c: m.insert(c, [_new_segment])],
    "segments.insert_one": [lambda m, c: m.insert_one(c, _new_segment)],
    "segments.last_end": [lambda m, c: m.last_end(c, 1, 1)],
    "segments.of_intent": [lambda m, c: m.of_intent(c, 1, 1, "i-1")],
    "segments.page": [lambda m, c: m.page(c, 1, 1), lambda m, c: m.page(c, 1, 1, start=55, end=900, limit=10)],
    "segments.retire": [
        lambda m, c: m.retire(c, 1, "/", reason="r", now=NOW, expires_at=NOW, partition_id=1, before=50),
        lambda m, c: m.retire(c, 1, "/", reason="r", now=NOW, expires_at=NOW, ids=[150]),
    ],
    "topics.by_id": [lambda m, c: m.by_id(c, 1)],
    "topics.delete": [lambda m, c: m.delete(c, 1_001)],
    "topics.deleted": [lambda m, c: m.deleted(c, "/d", LATER)],
    "topics.insert": [lambda m, c: m.insert(c, _new_topic)],
    "topics.lock": [lambda m, c: m.lock(c, 1)],
    "topics.lock_deleted": [lambda m, c: m.lock_deleted(c, 1)],
    "topics.every": [lambda m, c: m.every(c, 1)],
    "topics.update": [lambda m, c: m.update(c, 1, {"retention_ms": 5})],
    "intents.any_of": [
        lambda m, c: m.any_of(c, tables.by_id(c, BIG)),
        lambda m, c: m.any_of(c, topics.by_id(c, 1)),
    ],
    "intents.expired": [lambda m, c: m.expired(c, "/p", NOW, 10), lambda m, c: m.expired(c, "/p", NOW, 10, lock=True)],
    "intents.forget": [lambda m, c: m.forget(c, "i-2", NOW)],
    "intents.insert": [lambda m, c: m.insert(c, _intent, NOW)],
    "intents.load": [lambda m, c: m.load(c, "i-1")],
    "intents.mark_recovered": [lambda m, c: m.mark_recovered(c, "i-1", NOW, LATER)],
    "intents.of_table": [lambda m, c: m.of_table(c, BIG)],
    "intents.recover_of_table": [lambda m, c: m.recover_of_table(c, BIG, NOW, LATER)],
    "intents.still_open": [lambda m, c: m.still_open(c, ["i1", "i2"])],
    "intents.renew": [lambda m, c: m.renew(c, ["i1", "i2"], LATER)],
    "intents.current": [lambda m, c: m.current(c, NOW)],
    "intents.shorten_impossible": [lambda m, c: m.shorten_impossible(c, "/p", NOW, 60.0)],
    "intents.sweep_at": [lambda m, c: m.sweep_at(c, "i-2", NOW)],
    "intents.parameters_of": [],  # of others' statements
    "intents.send_take": [lambda m, c: m.send_take(c, "i-1").count()],
    "intents.take": [lambda m, c: m.take(c, "i-1")],
    "intents.to_sweep": [lambda m, c: m.to_sweep(c, "/p", NOW)],
    "leases.delete_expired_places": [lambda m, c: m.delete_expired_places(c, "waits:l1:", NOW, LATER)],
    "leases.delete_place": [lambda m, c: m.delete_place(c, "l1")],
    "leases.first_place": [lambda m, c: m.first_place(c, "waits:l1:", NOW, LATER)],
    "leases.is_impossible": [],
    "leases.place_name": [],
    "leases.wait_queue": [],
    "leases.current": [lambda m, c: m.current(c, NOW)],
    "sqlite_file.check_kind": [],
    "sqlite_file.identity": [],
    "sqlite_file.open_of": [],
    "sqlite_file.refuse_from_now_on": [],
    "leases.latest": [],
    "leases.milliseconds": [],
    "leases.shorten": [lambda m, c: m.shorten(c, "l1", 1, NOW)],
    "leases.delete_of": [],  # looks at all, once for each table that is gone
    "files.written_under": [lambda m, c: m.written_under(c, BIG, [1], [1])],
    "intents.writing": [lambda m, c: m.writing(c, BIG, NOW)],
    "orphan_sweeps.due": [lambda m, c: m.due(c, "/p", NOW, 10)],
    "orphan_sweeps.forget": [lambda m, c: m.forget(c, "/s1/")],
    "orphan_sweeps.insert": [lambda m, c: m.insert(c, m.OrphanSweep("/new/", NOW, LATER))],
    "orphan_sweeps.owned": [lambda m, c: m.owned(c, ["/a", "/b"])],
    "orphan_sweeps.sweep_at": [lambda m, c: m.sweep_at(c, "/s1/", LATER)],
    "warehouses.owner_of": [lambda m, c: m.owner_of(c, ["/lake/1"])],
    "leases.insert": [lambda m, c: m.insert(c, "new", "host:1", LATER)],
    "leases.look": [lambda m, c: m.look(c, "l1")],
    "leases.load": [lambda m, c: m.load(c, "l1", 30.0)],
    "leases.release": [lambda m, c: m.release(c, "l1", 1, NOW)],
    "leases.renew": [lambda m, c: m.renew(c, "l1", 1, NOW, LATER)],
    "leases.set_owner": [lambda m, c: m.set_owner(c, "l1", "host:2", 2, LATER)],
    "namespaces.below": [
        lambda m, c: m.below(c, 1, ()),
        lambda m, c: m.below(c, 1, ("n1",), "n1", 5),
    ],
    "namespaces.by_levels": [lambda m, c: m.by_levels(c, 1, ("n1",))],
    "namespaces.delete": [lambda m, c: m.delete(c, 9999)],
    "namespaces.insert": [lambda m, c: m.insert(c, 1, ("new",), {}, NOW)],
    "namespaces.path": [],
    "namespaces.set_properties": [lambda m, c: m.set_properties(c, 1, {})],
    "retired.any_of": [
        lambda m, c: m.any_of(c, tables.by_id(c, BIG)),
        lambda m, c: m.any_of(c, topics.by_id(c, 1)),
    ],
    "retired.by_paths": [lambda m, c: m.by_paths(c, ["/r1", "/r2"])],
    "retired.count_removed": [lambda m, c: m.count_removed(c, [1, 2])],
    "retired.hasten": [lambda m, c: m.hasten(c, "/r", 1, LATER, NOW, LATER)],
    "retired.mark_listed": [lambda m, c: m.mark_listed(c, 1, {"snapshot_id": 1})],
    "retired.removal_ids_pending": [lambda m, c: m.removal_ids_pending(c, BIG)],
    "retired.delete_ended": [lambda m, c: m.delete_ended(c, [1, 2])],
    "retired.take_back": [lambda m, c: m.take_back(c, [1, 2])],
    "retired.ended": [
        lambda m, c: m.ended(c, "/r", LATER, 10),
        lambda m, c: m.ended(c, "/r", LATER, 10, BIG),
        lambda m, c: m.ended(c, "/r", LATER, 10, BIG, ["metadata"]),
    ],
    "retired.ended_size": [lambda m, c: m.ended_size(c, "/r", LATER)],
    "retired.expire_table": [lambda m, c: m.expire_table(c, BIG, NOW, 1)],
    "retired.has_removals_pending": [lambda m, c: m.has_removals_pending(c, BIG)],
    "retired.insert": [
        lambda m, c: m.insert(c, 1, [{"file_path": "/n"}], kind="stray", reason="none", now=NOW, expires_at=LATER)
    ],
    "retired.insert_selected": [],  # what is selected is the callers': retire_all, and segments.retire
    "retired.keep_until": [lambda m, c: m.keep_until(c, BIG, LATER)],
    "retired.mark_ended": [lambda m, c: m.mark_ended(c, [1, 2], NOW)],
    "retired.mark_removed": [lambda m, c: m.mark_removed(c, [1, 2], 1, 1)],
    "retired.of_table": [lambda m, c: m.of_table(c, BIG)],
    "retired.reachable": [],
    "retired.removals_pending": [lambda m, c: m.removals_pending(c, BIG)],
    "retired.retire_all": [
        lambda m, c: m.retire_all(c, 2, reason="dropped", now=NOW, expires_at=LATER, removed_by=0),
    ],
    "snapshots.insert": [lambda m, c: m.insert(c, _snapshot)],
    "snapshots.load": [lambda m, c: m.load(c, BIG, 1)],
    "snapshots.mark_expired": [lambda m, c: m.mark_expired(c, BIG, NOW), lambda m, c: m.mark_expired(c, BIG, NOW, [1])],
    "snapshots.of_table": [lambda m, c: m.of_table(c, BIG)],
    "snapshots.retained": [lambda m, c: m.retained(c, BIG)],
    "pages.delete_from": [lambda m, c: m.delete_from(c, BIG, 2_990)],
    "pages.ends": [lambda m, c: m.ends(c, BIG)],
    "pages.file_count": [lambda m, c: m.file_count(c, BIG)],
    "pages.insert": [lambda m, c: m.insert(c, BIG, 9_999_999, 1, {0: b"new"})],
    "pages.last": [lambda m, c: m.last(c, BIG)],
    "pages.load": [lambda m, c: m.load(c, BIG, [50, 51], [1])],
    "stats.delete": [lambda m, c: m.delete(c, _known_stats)],
    "stats.insert": [lambda m, c: m.insert(c, _stats)],
    "stats.load": [lambda m, c: m.load(c, BIG, 0, "1", "parquet")],
    "stats.of_answer": [lambda m, c: m.of_answer(m.send_load(c, BIG, 0, "1", "parquet"))],
    "stats.of_table": [lambda m, c: m.of_table(c, BIG)],
    "stats.partitions": [lambda m, c: m.partitions(c, BIG)],
    "stats.send_load": [lambda m, c: m.send_load(c, BIG, 0, "1", "parquet").row()],
    "stats.update": [lambda m, c: m.update(c, _known_stats)],
    "tables.add_counts": [lambda m, c: m.add_counts(c, BIG, NOW, {"row_count": 1})],
    "tables.any_in_namespace": [lambda m, c: m.any_in_namespace(c, 1)],
    "tables.by_id": [lambda m, c: m.by_id(c, BIG)],
    "tables.by_name": [lambda m, c: m.by_name(c, 1, "n1", "t1")],
    "tables.locked_by_id": [lambda m, c: m.locked_by_id(c, BIG)],
    "tables.locked_by_name": [lambda m, c: m.locked_by_name(c, 1, "n1", "t1", keys=True)],
    "tables.current_properties": [lambda m, c: m.current_properties(c, 1, 10)],
    "tables.delete": [lambda m, c: m.delete(c, 9999)],
    "tables.delete_stats": [lambda m, c: m.delete_stats(c, BIG)],
    "tables.dropped_before": [lambda m, c: m.dropped_before(c, "/d", NOW)],
    "tables.in_namespace": [lambda m, c: m.in_namespace(c, 1), lambda m, c: m.in_namespace(c, 1, "t1", 5)],
    "tables.insert": [lambda m, c: m.insert(c, _new_table)],
    "tables.insert_metadata": [lambda m, c: m.insert_metadata(c, _metadata)],
    "tables.metadata_version": [lambda m, c: m.metadata_version(c, BIG, 1)],
    "tables.metadata_versions": [lambda m, c: m.metadata_versions(c, BIG, 1)],
    "tables.name_key": [],  # a query's parameters
    "tables.version_from_row": [],
    "tables.live": [lambda m, c: m.live(c, 1, 5, 10)],
    "tables.live_version": [lambda m, c: m.live_version(c, BIG)],
    "tables.send_live_version": [lambda m, c: m.send_live_version(c, BIG).row()],
    "tables.table_of_row": [],  # of what others' queries give
    "tables.version_of_answer": [lambda m, c: m.version_of_answer(m.send_live_version(c, BIG))],
    "tables.replace_columns": [lambda m, c: m.replace_columns(c, BIG, [_field, _new_field])],
    "tables.swap_metadata": [
        lambda m, c: m.swap_metadata(c, BIG, None, {"metadata_location": "/m"}),
        lambda m, c: m.swap_metadata(c, BIG, "/m", {"metadata_location": "/n"}),
    ],
    "tables.update": [lambda m, c: m.update(c, BIG, {"version": 2})],
    "upkeep.load": [lambda m, c: m.load(c, "clean_up")],
    "upkeep.set_due": [lambda m, c: m.set_due(c, "clean_up", NOW)],
    "upkeep.set_keep": [lambda m, c: m.set_keep(c, "clean_up", 5)],
    "warehouses.by_name": [lambda m, c: m.by_name(c, "main")],
    "warehouses.others": [lambda m, c: m.others(c, "main")],
    "warehouses.insert": [lambda m, c: m.insert(c, "w-9", "nine", "/9", NOW)],
}


# Look-ups outside of transactions: prepared queries that are no functions.
_PARTITION = {"warehouse_id": 1, "name": "o1", "partition_id": 1}
_MARKER = {"schema_name": "s1", "table_key": "t1", "marker_type": "stream"}
LOOKUPS: dict[str, list[Call]] = {
    "error_log.OPEN_OF_KEY": [lambda m, c: m.OPEN_OF_KEY.one(c, {"failure_key": "k-1"})],
    "topics.BY_ID": [lambda m, c: m.BY_ID.one(c, {"topic_id": 1})],
    "partitions.BY_ID": [lambda m, c: m.BY_ID.one(c, {"topic_id": 1, "partition_id": 1})],
    "segments.AT_OFFSET_BY_ID": [
        lambda m, c: m.AT_OFFSET_BY_ID.one(c, {"topic_id": 1, "partition_id": 1, "name": "o1", "offset": 55}),
    ],
    "groups.COMMITTED_BY_ID": [
        lambda m, c: m.COMMITTED_BY_ID.one(c, {"warehouse_id": 1, "group_id": "g1", "topic_id": 1, "partition_id": 1}),
    ],
    "topics.BY_NAME": [lambda m, c: m.BY_NAME.one(c, {"warehouse_id": 1, "name": "o1"})],
    "partitions.BY_NAME": [lambda m, c: m.BY_NAME.one(c, _PARTITION)],
    "segments.AT_OFFSET": [lambda m, c: m.AT_OFFSET.one(c, {**_PARTITION, "offset": 55})],
    "schema_versions.BRIEF": [lambda m, c: m.BRIEF.one(c, {"schema_name": "shop", "table_name": "t1"})],
    "schema_versions.LATEST": [lambda m, c: m.LATEST.one(c, {"schema_name": "shop", "table_name": "t1"})],
    "positions.POSITION": [lambda m, c: m.POSITION.one(c, _MARKER)],
    "tables.LIVE_VERSION": [lambda m, c: m.LIVE_VERSION.one(c, {"table_id": BIG})],
    "tables.BY_ID": [lambda m, c: m.BY_ID.one(c, {"table_id": BIG})],
    "tables.BY_NAME": [lambda m, c: m.BY_NAME.one(c, m.name_key(1, "n1", "t1"))],
    "batches.ANSWER": [lambda m, c: m.ANSWER.one(c, m.key(BIG, _batch))],
    "tables.HEAD_BY_NAME": [lambda m, c: m.HEAD_BY_NAME.one(c, m.name_key(1, "n1", "t1"))],
    "tables.LIVE_METADATA": [lambda m, c: m.LIVE_METADATA.one(c, {"table_id": BIG, "version": 1})],
    "tables.LIVE_METADATA_RANGE": [
        lambda m, c: m.LIVE_METADATA_RANGE.all(c, {"table_id": BIG, "after": 1, "last": 5}),
    ],
    "tables.CURRENT_METADATA": [lambda m, c: m.CURRENT_METADATA.all(c, {"before": 50, "most": 10})],
    "groups.COMMITTED": [lambda m, c: m.COMMITTED.one(c, {**_PARTITION, "group_id": "g1"})],
}


def _modules() -> dict[str, Any]:
    root = Path(lakeward.__path__[0])
    paths = [*root.glob("*/sql/*.py"), *(path for path in root.glob("db/*.py") if path.stem not in NO_QUERIES)]
    names = {
        path.stem: ".".join(path.relative_to(root).with_suffix("").parts) for path in paths if path.stem != "__init__"
    }
    return {name: importlib.import_module(f"lakeward.{names[name]}") for name in sorted(names)}


def test_every_function_with_sql_is_called_here() -> None:
    offered = {
        f"{name}.{function}"
        for name, module in _modules().items()
        for function, value in vars(module).items()
        if inspect.ismethod(value) or (inspect.isfunction(value) and value.__module__ == module.__name__)
        if not function.startswith("_")
    }
    assert offered - set(CALLS) == set(), "give each new function with SQL a line in CALLS"
    assert set(CALLS) - offered == set(), "no longer there: take its line out of CALLS"


def test_sql_is_in_modules_named_sql_alone() -> None:
    source = Path(lakeward.__path__[0])
    found = [
        f"{path.relative_to(source)}:{number}"
        for path in source.rglob("*.py")
        if path.parent.name != "sql" and path.relative_to(source).parts[0] != "db"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"connection\.execute\(|exec_driver_sql\(|sa\.text\(|sa\.select\(", line)
    ]
    assert found == []


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, made_registries: MadeRegistries
) -> Iterator[Database]:
    """One for all tests of a kind of database: they take back what they write."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.delenv(lock_order.CHECKED)  # functions are called here whatever is locked
        if request.param == "sqlite":
            url = made_registries.sqlite(tmp_path_factory.mktemp("plans"))
        else:
            server: PostgresServer = request.getfixturevalue("postgres_server")
            url = stack.enter_context(made_registries.postgresql(server))
        database = stack.enter_context(_filled(url))
        with database.transaction() as connection:
            connection.exec_driver_sql("ANALYZE")
        yield database


@contextmanager
def _filled(url: str) -> Iterator[Database]:
    database = Database(url)
    migrate.create_or_upgrade(database)
    with database.transaction() as connection:
        _fill(connection)
    yield database
    database.close()


def test_no_function_of_the_store_scans_a_table(filled: Database) -> None:
    modules = _modules()
    scans: set[str] = set()
    statements = 0
    for name, calls in [*CALLS.items(), *LOOKUPS.items()]:
        for call in calls:
            statements += 1
            if name in READS_INDEX:
                with filled.engine.connect() as connection, plans.recording_indexes(filled) as used:
                    call(modules[name.split(".")[0]], connection)
                assert used == {READS_INDEX[name]}, name
                continue
            with filled.engine.connect() as connection, connection.begin() as transaction:
                with plans.explaining(filled) as found:
                    call(modules[name.split(".")[0]], connection)
                transaction.rollback()
            scans |= {f"{name}: {each}" for each in found if each.split(":")[0] not in ONE_ROW | {READS_ALL.get(name)}}
    assert statements > 80
    assert scans == set(), "\n".join(["a query without an index:", *sorted(scans)])


def test_neither_does_one_with_the_statistics_that_upkeep_makes(tmp_path: Path) -> None:
    """They are of some hundred rows, and of large tables alone."""
    with _filled(f"sqlite:///{tmp_path / 'registry.db'}") as database:
        assert database_upkeep.analyze_sqlite(database) > 0
    with closing(Database(f"sqlite:///{tmp_path / 'registry.db'}")) as database:  # statistics are read at the opening
        test_no_function_of_the_store_scans_a_table(database)
        _expect_partial_indexes(database)


def test_a_scan_would_be_seen(filled: Database) -> None:
    for statement in (
        "SELECT * FROM table_files WHERE file_size = 3",
        "SELECT file_path FROM table_files ORDER BY file_path",
        "UPDATE tables SET version = 5 WHERE row_count = 7",
        "DELETE FROM pending_writes WHERE kind = 'flush'",
        "SELECT * FROM tables JOIN table_files ON table_files.file_name = tables.name WHERE tables.table_id = 1",
    ):
        with filled.engine.connect() as connection, plans.explaining(filled) as found:
            connection.exec_driver_sql(statement)
        assert len(found) == 1, statement


def test_segments_are_found_in_order_and_never_sorted(filled: Database) -> None:
    """A sort reads all of what it sorts: half a partition for one offset."""
    segments = _modules()["segments"]
    with filled.engine.connect() as connection, plans.recording_sorts(filled) as sorting:
        LOOKUPS["segments.AT_OFFSET"][0](segments, connection)
        segments.page(connection, 1, 1, start=55, limit=10)
        segments.last_end(connection, 1, 1)
        segments.end_before(connection, 1, 1, 50)
    assert sorting == set()


def test_a_sort_would_be_seen(filled: Database) -> None:
    statement = "SELECT * FROM segments WHERE topic_id = 1 AND partition_id = 1 ORDER BY size_bytes"
    with filled.engine.connect() as connection, plans.recording_sorts(filled) as sorting:
        connection.exec_driver_sql(statement)
    assert sorting == {statement}


def test_a_row_is_deleted_without_a_scan_for_what_refers_to_it() -> None:
    """Checks of foreign keys show in no plan: each needs an index that begins with its columns."""
    for table in schema.metadata.sorted_tables:
        # A partial index lacks rows, and serves only if these are the ones that refer to nothing.
        serving = [index for index in table.indexes if _is_whole(index) or _lacks_nulls_alone(index)]
        indexes = [[getattr(e, "name", "") for e in index.expressions] for index in serving]
        indexes += [[c.name for c in table.primary_key.columns]]
        indexes += [[c.name for c in u.columns] for u in table.constraints if isinstance(u, sa.UniqueConstraint)]
        for key in table.foreign_key_constraints:
            names = [column.name for column in key.columns]
            assert any(index[: len(names)] == names for index in indexes), (table.name, names)


def _is_whole(index: sa.Index) -> bool:
    return index.dialect_options["sqlite"]["where"] is None


def _lacks_nulls_alone(index: sa.Index) -> bool:
    (first, *_) = index.expressions
    return isinstance(first, sa.Column) and str(index.dialect_options["sqlite"]["where"]) == str(first.is_not(None))


def _fill(connection: sa.Connection) -> None:
    def insert(table: str, changes: list[dict[str, Any]]) -> None:
        connection.execute(schema.metadata.tables[table].insert(), [rows.VALID[table] | each for each in changes])

    ids = range(1, OTHERS + 1)
    rows.insert(connection, "warehouses")
    insert("namespaces", [{"namespace_id": i, "levels": [f"n{i}"], "path": f"n{i}"} for i in ids])
    insert(
        "tables",
        [
            {"table_id": i, "table_uuid": f"t-{i}", "name": f"t{i}", "location": f"/{i}", "namespace_id": i % 20 + 1}
            for i in ids
        ],
    )
    insert(
        "tables",
        [
            {
                "table_id": 1000 + i,
                "table_uuid": f"d-{i}",
                "location": f"/d{i}",
                "namespace_id": None,
                "dropped_at": LATER,
            }
            for i in ids
        ],
    )
    insert("table_columns", [{"table_id": t, "field_id": f, "name": f"c{f}"} for t in ids for f in (1, 2, 3)])
    insert("table_metadata", [{"table_id": t, "metadata_version": v} for t in (1, 2, 3) for v in ids])
    insert(
        "table_files",
        [
            {
                "file_id": i,
                "table_id": BIG if i > OTHERS else i % 10 + 2,
                "file_path": _path(i),
                "partition_key": str(i % 100),
                "file_type": "parquet" if i % 3 else "json",
                "snapshot_id": None if i > FILES - 150 else 1,
                "set_aside_reason": "truncated" if i > FILES - 50 else None,
                "intent_id": f"i-{i}",
            }
            for i in range(1, FILES + 1)
        ],
    )
    insert("file_pages", [{"last_file_id": i, "field_id": field} for i in range(1, FILES) for field in (0, 1)])
    insert("partition_metadata", [{"file_path": _path(i), "table_id": BIG} for i in range(1, FILES + 1)])
    insert("table_stats", [{"table_id": t, "partition_key": str(i)} for t in (1, 2) for i in ids])
    insert(
        "table_snapshots",
        [
            {"table_id": t, "snapshot_id": i, "sequence_number": i, "expired_at": NOW if i < 250 else None}
            for t in (1, 2)
            for i in ids
        ],
    )
    insert(
        "pending_writes",
        [
            {
                "intent_id": f"i-{i}",
                "table_id": i % 10 + 1,
                "prefix": f"/p{i}/",
                "owner": f"host:{i % 30}",
                "lease_until": LATER,
                "recovered_at": None if i % 2 else NOW,
                "sweep_after": None if i % 2 else LATER,
            }
            for i in ids
        ],
    )
    insert("orphan_sweeps", [{"prefix": f"/s{i}/", "sweep_after": LATER} for i in ids])
    insert(
        "retired_files",
        [
            {
                "retired_id": i,
                "table_id": i % 10 + 1,
                "file_path": f"/r{i}",
                "expires_at": NOW + timedelta(hours=i),
                "snapshot_id": 1,
                "removed_by": 2 if i % 7 else None,
                "removed_sequence": 2 if i % 7 else None,
            }
            for i in range(1, 4 * OTHERS)
        ],
    )
    insert("subscriber_cursors", [{"subscriber": f"s{i}"} for i in ids])
    insert("parked_events", [{"parked_id": i, "sequence": i} for i in ids])
    insert("leases", [{"name": f"l{i}"} for i in ids])
    insert("topics", [{"topic_id": i, "topic_uuid": f"o-{i}", "name": f"o{i}", "location": f"/o{i}"} for i in ids])
    insert(
        "topics",
        [
            {"topic_id": 1000 + i, "topic_uuid": f"d-{i}", "name": "d", "location": f"/d{i}", "deleted_at": LATER}
            for i in ids
        ],
    )
    insert("partitions", [{"topic_id": i % 5 + 1, "partition_id": i} for i in ids])
    insert("partitions", [{"topic_id": 1, "partition_id": i} for i in (1, 2, 3)])
    insert(
        "segments",
        [
            {
                "segment_id": p * FILES + i,
                "partition_id": p,
                "base_offset": 10 * i,
                "end_offset": 10 * i + 9,
                "record_count": 10,
                "s3_key": f"k{p}-{i}",
                "location": f"/o/{p}-{i}",
            }
            for p in (1, 2)
            for i in range(OTHERS)
        ],
    )
    insert("partitions", [{"topic_id": i, "partition_id": 1} for i in range(6, 206)])
    insert("segments", [{"segment_id": 90_000 + i, "topic_id": i, "partition_id": 1} for i in range(6, 206)])
    insert(
        "pending_writes",
        [
            {"intent_id": f"o-{i}", "table_id": None, "topic_id": i, "prefix": f"/o{i}/", "owner": f"o:{i}"}
            for i in range(2, 202)
        ],
    )
    insert("consumer_groups", [{"group_key": i, "group_id": f"g{i}"} for i in ids])
    insert("consumer_offsets", [{"group_key": i, "partition_id": p} for i in ids for p in (1, 2)])
    insert("producer_batches", [{"sequence": i} for i in ids])
    insert("stream_plans", [{"group_key": i} for i in ids])
    insert("applied_batches", [{"table_id": t, "stream": f"s{i}"} for t in (1, 2) for i in ids])
    insert("stream_positions", [{"table_id": t, "stream": f"s{i}"} for t in (1, 2) for i in ids])
    _fill_operations(insert)
    if connection.dialect.name == "postgresql":  # the rows brought ids of their own, which the sequences have not seen
        for table in schema.metadata.sorted_tables:
            if table.autoincrement_column is not None and table.name != "registry_changes":
                sequence = f"pg_get_serial_sequence('{table.name}', '{table.autoincrement_column.name}')"
                connection.exec_driver_sql(f"SELECT setval({sequence}, 100000)")
    assert dialect.now(connection) > migrate.info(connection).created_at


def _fill_operations(insert: Callable[[str, list[dict[str, Any]]], None]) -> None:
    ids = range(1, 4 * OTHERS + 1)
    insert(
        "sync_runs",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}",
                "status": "completed" if i % 20 else "running",
                "completed_at": NOW + timedelta(hours=i) if i % 20 else None,
                "started_at": NOW + timedelta(hours=i),
                "last_seen_at": NOW + timedelta(hours=i),
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )
    insert(
        "sync_markers",
        [
            {"id": i, "schema_name": f"s{i}", "table_name": table, "sync_run_id": i % 300 + 1}
            for i, table in enumerate([None, "t1"] * OTHERS, 1)
        ],
    )
    insert("schema_registry", [{"id": i, "table_name": f"t{i % 60}", "version": i // 60 + 1} for i in ids])
    insert(
        "error_log",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}",
                "sync_run_id": i,
                "error_type": ("validation", "timeout", "schema", "data")[i % 4],
                "status": "resolved" if i % 20 else "open",
                "resolved_at": NOW + timedelta(hours=i) if i % 20 else None,
                "next_retry_at": NOW + timedelta(hours=i) if i % 40 else None,
                "occurred_at": NOW + timedelta(hours=i),
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )
    states = ("pending", "processing", "discarded", *["resolved"] * 37)
    insert(
        "dead_letter_queue",
        [
            {
                "id": i,
                "schema_name": f"s{i % 30}",
                "table_name": f"t{i % 5}",
                "sync_run_id": i,
                "error_log_id": i,
                "source_record_id": f"r-{i}" if i % 3 else None,
                "status": (status := states[i % 40]),
                "claimed_by": "w" if status == "processing" else None,
                "claimed_until": NOW + timedelta(hours=i) if status == "processing" else None,
                "resolved_at": NOW + timedelta(hours=i) if status in ("resolved", "discarded") else None,
                "error_count": i % 9 + 1,
                "import_key": f"k-{i}",
            }
            for i in ids
        ],
    )


PARTIAL = {
    "ix_table_files_pending": "files.count_pending",
    "ix_table_files_set_aside": "files.set_aside",
    "ix_table_snapshots_retained": "snapshots.retained",
    "ix_retired_files_removal_pending": "retired.has_removals_pending",
    "ix_pending_writes_sweep_after": "intents.to_sweep",
    "ix_pending_writes_table_id": "intents.recover_of_table",
    "ix_pending_writes_topic_id": "intents.recover_of_topic",
    "ix_tables_dropped_at": "tables.dropped_before",
    "ix_topics_deleted_at": "topics.deleted",
    "uq_topics_warehouse_id_name": "topics.BY_NAME",
    "ix_sync_runs_running": "runs.silent",
    "ix_error_log_due": "error_log.take_due",
    "ix_dead_letter_queue_claimed": "dead_letters.claim",
    "ix_dead_letter_queue_pending": "dead_letters.claim",
    "uq_dead_letter_queue_source_record": "dead_letters.page",
}


CONFLICTS = {"uq_error_log_failure_key_open"}  # what ON CONFLICT looks into, which no plan shows


def _expect_partial_indexes(database: Database) -> None:
    for index, call in PARTIAL.items():
        with database.engine.connect() as connection, plans.recording_indexes(database) as used:
            (CALLS | LOOKUPS)[call][0](_modules()[call.split(".")[0]], connection)
        assert index in used, call


def test_few_among_many_are_found_by_an_index_of_these_alone(filled: Database) -> None:
    _expect_partial_indexes(filled)


def test_sqlite_takes_these_indexes_without_statistics_too(tmp_path: Path) -> None:
    """Nobody runs ANALYZE on an embedded registry."""
    with _filled(f"sqlite:///{tmp_path / 'registry.db'}") as database:
        _expect_partial_indexes(database)


def test_every_partial_index_is_listed() -> None:
    partial = {index.name for table in schema.metadata.sorted_tables for index in table.indexes if not _is_whole(index)}
    assert partial == set(PARTIAL) | CONFLICTS
