"""Operations metadata of a cartridge-warp database comes over whole, and once however often that is done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from lakeward.errors import InvalidInput
from lakeward.ops import dead_letters, error_log, positions, runs, schema_versions
from lakeward.ops.operations_import import import_operations
from lakeward.ops.records.operations import DeadLetterStatus, ErrorStatus, ErrorType, MarkerType, SyncStatus
from lakeward.registry import Registry
from tests.support.postgres import PostgresServer
from tests.support.registries import rows_of
from tests.support.shell import Shell

SOURCE = """
CREATE SCHEMA cartridge_warp;
SET search_path = cartridge_warp;
CREATE TABLE sync_runs (id UUID PRIMARY KEY, schema_name TEXT, sync_mode TEXT, status TEXT, started_at TIMESTAMPTZ,
  completed_at TIMESTAMPTZ, duration_ms BIGINT, records_processed BIGINT, records_inserted BIGINT, records_updated BIGINT,
  records_deleted BIGINT, bytes_processed BIGINT, config_hash TEXT, source_info JSONB, destination_info JSONB,
  error_message TEXT, error_details JSONB);
CREATE TABLE sync_markers (id SERIAL PRIMARY KEY, schema_name TEXT, table_name TEXT, marker_type TEXT, position_data JSONB,
  last_updated TIMESTAMPTZ, sync_run_id UUID);
CREATE TABLE schema_registry (id SERIAL PRIMARY KEY, schema_name TEXT, table_name TEXT, version INT,
  schema_definition JSONB, schema_hash TEXT, evolution_type TEXT, previous_version INT, created_at TIMESTAMP);
CREATE TABLE error_log (id BIGSERIAL PRIMARY KEY, schema_name TEXT, table_name TEXT, sync_run_id UUID, error_type TEXT,
  error_code TEXT, error_message TEXT, error_details JSONB, stack_trace TEXT, record_data JSONB, operation_type TEXT,
  retry_count INT, max_retries INT, status TEXT, occurred_at TIMESTAMPTZ);
CREATE TABLE dead_letter_queue (id BIGSERIAL PRIMARY KEY, schema_name TEXT, table_name TEXT, sync_run_id UUID,
  error_log_id BIGINT, operation_type TEXT, record_data JSONB, source_record_id TEXT, error_message TEXT, error_count INT,
  status TEXT, created_at TIMESTAMPTZ);
INSERT INTO sync_runs VALUES
  ('00000000-0000-0000-0000-000000000002', 'shop', 'stream', 'RUNNING', '2026-01-02T00:00:00Z', NULL, NULL, 5, 0, 0, 0, 0,
   'c', '{"uri": "mongodb://app:hunter2@db/shop"}', NULL, NULL, NULL),
  ('00000000-0000-0000-0000-000000000001', 'shop', 'initial', 'completed', '2026-01-01T00:00:00Z', '2026-01-01T01:00:00Z',
   3600000, 10000, 9000, 1000, 0, 9007199254740993, 'c', NULL, NULL, NULL, NULL),
  ('00000000-0000-0000-0000-000000000003', 'shop', 'sideways', 'completed', '2026-01-03T00:00:00Z', NULL, NULL, 0, 0, 0,
   0, 0, NULL, NULL, NULL, NULL, NULL);
INSERT INTO sync_markers VALUES
  (1, 'shop', NULL, 'stream', '{"resume_token": {"_data": "82"}, "n": 123456789012345678901234567890.125}',
   '2026-01-02T00:00:00Z', '00000000-0000-0000-0000-000000000002'),
  (2, 'shop', 'orders', 'batch', '{"timestamp": "2026-01-01T00:00:00Z"}', '2026-01-02T00:00:00Z', NULL);
INSERT INTO schema_registry VALUES
  (1, 'shop', 'orders', 1, '{"columns": [{"name": "id", "type": "bigint", "nullable": false, "primary_key": true}],
   "primary_keys": ["id"], "indexes": []}', 'theirs', 'CREATE', NULL, '2026-01-01 00:00:00'),
  (2, 'shop', 'orders', 2, '{"columns": [{"name": "id", "type": "bigint", "nullable": false, "primary_key": true},
   {"name": "email", "type": "text"}]}', 'theirs', 'ADD_COLUMN', 1, '2026-01-02 00:00:00');
INSERT INTO error_log VALUES
  (7, 'shop', 'orders', '00000000-0000-0000-0000-000000000002', 'validation', 'VAL_001', 'no amount', '{"a": 1}',
   'Traceback', '{"id": 1, "ratio": 0.1}', 'INSERT', 3, 3, 'open', '2026-01-02T00:00:00Z'),
  (8, 'shop', NULL, NULL, 'cosmic', NULL, 'rays', NULL, NULL, NULL, NULL, 0, 3, 'resolved', '2026-01-02T00:00:00Z');
INSERT INTO dead_letter_queue VALUES
  (3, 'shop', 'orders', '00000000-0000-0000-0000-000000000002', 7, 'INSERT', '{"id": 1}', '1', 'no amount', 4, 'pending',
   '2026-01-02T00:00:00Z'),
  (4, 'shop', 'orders', NULL, NULL, 'INSERT', '{"id": 1, "n": 2}', '1', 'again', 1, 'processing', '2026-01-03T00:00:00Z');
"""


@pytest.fixture
def source(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(SOURCE)
    yield url
    postgres_server.drop_database(url)


def _counts(found: object) -> dict[str, tuple[int, int, int, int]]:
    return {each.table: (each.found, each.imported, each.present, len(each.refused)) for each in found}  # type: ignore[attr-defined]


def test_everything_comes_over_with_its_references(registry: Registry, source: str) -> None:
    found = import_operations(registry, source)
    assert _counts(found) == {
        "sync_runs": (3, 2, 0, 1),
        "sync_markers": (2, 2, 0, 0),
        "schema_registry": (2, 2, 0, 0),
        "error_log": (2, 2, 0, 0),
        "dead_letter_queue": (2, 2, 0, 0),
    }
    assert "00000003: 'sideways'" in found[0].refused[0]

    running, completed = runs.list_runs(registry)
    assert (completed.status, completed.duration_ms, completed.bytes_processed) == (
        SyncStatus.COMPLETED,
        3_600_000,
        9007199254740993,
    )
    assert (running.status, running.source_info) == (SyncStatus.RUNNING, {"uri": "mongodb://***@db/shop"})
    (stream, batch) = positions.list_markers(registry)
    assert stream.position_data == {"resume_token": {"_data": "82"}, "n": Decimal("123456789012345678901234567890.125")}
    assert (stream.sync_run_id, stream.last_updated) == (running.id, datetime(2026, 1, 2, tzinfo=UTC))
    assert (batch.table_name, batch.marker_type) == ("orders", MarkerType.BATCH)
    assert positions.get_timestamp(registry, "shop", "orders") == datetime(2026, 1, 1, tzinfo=UTC), (
        "batches go on there"
    )
    first, second = schema_versions.list_versions(registry, "shop", "orders")
    assert (first.version, second.previous_version, second.changes[0].name) == (1, 1, "email")
    again = schema_versions.register(registry, "shop", "orders", second.schema_definition)
    assert again.version == 2, "it counts as known"
    other, error = error_log.list_errors(registry)
    assert (error.sync_run_id, error.record_data, error.retry_count) == (running.id, {"id": 1, "ratio": 0.1}, 3)
    assert (other.error_type, other.status) == (ErrorType.UNKNOWN, ErrorStatus.RESOLVED)
    apart, letter = dead_letters.list_dead_letters(registry)
    assert (letter.error_log_id, letter.source_record_id, letter.error_count) == (error.id, "1", 4)
    assert (apart.status, apart.source_record_id, apart.envelope) == (
        DeadLetterStatus.PENDING,
        None,
        {"source_record_id": "1"},
    )


def test_what_has_come_over_is_left_alone_and_a_newer_position_stays(registry: Registry, source: str) -> None:
    positions.update(registry, MarkerType.BATCH, "shop", {"timestamp": "mine"}, "orders")
    first = _counts(import_operations(registry, source))
    assert first["sync_markers"] == (2, 1, 1, 0)
    running = runs.list_runs(registry, status=SyncStatus.RUNNING)[0]
    runs.complete(registry, running.id)
    before = {name: rows_of(registry, name) for name in first}
    again = _counts(import_operations(registry, source))
    assert all(imported == 0 for _, imported, _, _ in again.values())
    assert {name: rows_of(registry, name) for name in first} == before
    assert positions.get(registry, MarkerType.BATCH, "shop", "orders") == {"timestamp": "mine"}
    with pytest.raises(InvalidInput, match="'mine', which is no time; set it anew"):
        positions.get_timestamp(registry, "shop", "orders")


def test_what_has_ended_there_since_ends_here_and_what_was_done_here_stays(registry: Registry, source: str) -> None:
    import_operations(registry, source)
    with psycopg.connect(source.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            """SET search_path = cartridge_warp;
            UPDATE sync_runs SET status = 'completed', completed_at = '2026-01-02T01:00:00Z', records_processed = 77
            WHERE status = 'RUNNING';
            UPDATE error_log SET status = 'resolved';
            UPDATE dead_letter_queue SET status = 'resolved'"""
        )
    apart, letter = dead_letters.list_dead_letters(registry)
    (claimed,) = dead_letters.claim(registry, "worker", 1)
    assert claimed.id == letter.id
    found = {each.table: (each.ended, each.present) for each in import_operations(registry, source)}
    assert found["sync_runs"] == (1, 1)
    assert found["error_log"] == (1, 1)
    assert found["dead_letter_queue"] == (1, 1)
    run = runs.list_runs(registry)[0]
    assert (run.status, run.records_processed, run.duration_ms) == (SyncStatus.COMPLETED, 77, 3_600_000)
    assert dead_letters.get(registry, apart.id).status == DeadLetterStatus.RESOLVED
    assert dead_letters.get(registry, letter.id) == claimed, "its worker's"
    assert {each.table: each.ended for each in import_operations(registry, source)}["sync_runs"] == 0


ODD = """
CREATE SCHEMA "Odd ""Name"" 1";
SET search_path = "Odd ""Name"" 1";
CREATE TABLE sync_runs (id INT, schema_name TEXT, sync_mode TEXT, status TEXT, started_at TIMESTAMP, duration_ms NUMERIC,
  records_processed NUMERIC, source_info TEXT);
INSERT INTO sync_runs VALUES
  (1, 'kept', 'batch', 'completed', '2026-01-01', 5, 5, '{"a": 1}'), (1, 'twice', 'batch', 'completed', '2026-01-02', 5, 5, NULL),
  (NULL, 'a', 'batch', 'completed', '2026-01-01', 5, 5, NULL), (NULL, 'b', 'batch', 'completed', '2026-01-01', 5, 5, NULL),
  (4, 'a', 'batch', 'completed', 'infinity', 5, 5, NULL), (5, 'a', 'batch', 'completed', '0044-03-15 BC', 5, 5, NULL),
  (6, 'a', 'batch', 'completed', '2026-01-01', 1e30, 5, NULL), (7, 'a', 'batch', 'completed', '2026-01-01', 5, 'NaN', NULL),
  (8, 'a', 'batch', 'completed', '2026-01-01', 5, 'Infinity', NULL), (9, NULL, 'batch', 'completed', '2026-01-01', 5, 5, NULL),
  (10, 'a', 'batch', 'completed', '2026-01-01', 5, 5, '{"a": '), (11, 'a', NULL, 'completed', '2026-01-01', 5, 5, NULL),
  (12, 'a', 'batch', 'running', NULL, NULL, NULL, NULL), (13, 'a', 'batch', 'running', '2026-01-01', NULL, NULL, repeat('[', 5000)),
  (14, 'kept too', 'batch', 'running', '2026-01-01', NULL, NULL, NULL);
CREATE TABLE sync_markers (id INT, table_name TEXT, marker_type TEXT, position_data JSONB, last_updated TIMESTAMPTZ);
INSERT INTO sync_markers VALUES (1, 'no schema_name', 'stream', '{}', '2026-01-01');
CREATE TABLE schema_registry (id INT, schema_name TEXT, table_name TEXT, version INT, schema_definition JSONB, evolution_type TEXT);
INSERT INTO schema_registry VALUES
  (1, 's', 't', 1, '{"columns": [{"name": "id", "type": "int"}]}', 'create'),
  (2, 's', 't', 1, '{"columns": [{"name": "id", "type": "text"}]}', 'create'), (3, 's', 't', 3, NULL, 'create'),
  (4, 's', 't', 4, '"abc"', 'create'), (5, 's', 't', 5, '{"columns": {"id": 1}}', 'create'),
  (6, 's', 't', -1, '{"columns": [{"name": "id", "type": "int"}]}', 'create'),
  (7, 's', 't', 7, '{"columns": [{"name": "id", "type": "bigint"}]}', 'modify_type');
CREATE TABLE dead_letter_queue (id INT, schema_name TEXT, table_name TEXT, record_data JSONB, source_record_id TEXT,
  error_count BIGINT, status TEXT, created_at TIMESTAMPTZ);
INSERT INTO dead_letter_queue VALUES
  (1, 's', 't', '{"$decimal": "x", "n": 1e400}', repeat('x', 6000), NULL, NULL, '2026-01-01'),
  (2, 's', 't', NULL, '2', 1, 'pending', '2026-01-01'), (3, 's', 't', '{}', '3', 99999999999, 'pending', '2026-01-01'),
  (4, 's', NULL, '{}', '4', 1, 'pending', '2026-01-01'), (5, 's', 't', '"text"', '', 1, 'odd', '2026-01-01'),
  (6, 's', 't', '"text"', '', 1, 'pending', '2026-01-01');
"""


def test_rows_that_cannot_be_kept_are_named_and_the_others_come_over(
    registry: Registry, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create_database()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(ODD)
    try:
        found = {each.table: each for each in import_operations(registry, url, 'Odd "Name" 1')}
        again = {each.table: each for each in import_operations(registry, url, 'Odd "Name" 1')}
    finally:
        postgres_server.drop_database(url)
    refused = {name: sorted(line.split(":")[0] for line in each.refused) for name, each in found.items()}
    assert refused == {
        "sync_runs": ["1", "10", "11", "12", "13", "4", "5", "6", "7", "8", "9", "None", "None"],
        "sync_markers": ["1"],
        "schema_registry": ["2", "3", "4", "5", "6"],
        "dead_letter_queue": ["2", "3", "4", "5"],
    }
    assert "1: there is no 'schema_name'" in found["sync_markers"].refused
    assert "2: version 1 of s.t is here with another definition" in found["schema_registry"].refused
    assert [run.schema_name for run in runs.list_runs(registry)] == ["kept too", "kept"]
    assert [each.version for each in schema_versions.list_versions(registry, "s", "t")] == [1, 7]
    text, long = dead_letters.list_dead_letters(registry)
    assert (text.record_data, text.source_record_id) == ("text", None)
    assert long.record_data == {"$decimal": "x", "n": Decimal("1e400")}
    assert (long.source_record_id, long.envelope) == (None, {"source_record_id": "x" * 6000})
    assert {name: (each.imported, each.present) for name, each in again.items()} == {
        name: (0, each.imported) for name, each in found.items()
    }


def test_what_cannot_be_the_source_is_refused(registry: Registry, source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'nowhere' of .* has none of the tables"):
        import_operations(registry, source, "nowhere")
    with pytest.raises(InvalidInput, match="no PostgreSQL database"):
        import_operations(registry, f"sqlite:///{tmp_path / 'x.db'}")
    assert rows_of(registry, "sync_runs") == []


def test_the_command_reports_what_came_over(source: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.run("db", "upgrade")
    tables = shell.json("migrate-metadata", "--from", source, exit_code=1)["tables"]
    assert (tables[0]["table"], tables[0]["imported"]) == ("sync_runs", 2)
    shown = shell.run("migrate-metadata", "--from", source, "--schema", "cartridge_warp", exit_code=1)
    assert "sideways" in shown
    assert [run["status"] for run in shell.json("runs", "list")["runs"]] == ["running", "completed"]
